"""Models of transformers from a hub: the real client, a hub on this machine, the front door."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch

import memaudit
from memaudit.cli import main
from memaudit.report import Report
from tests.loading.hub_server import Hub, Repository
from tests.loading.hub_visits import bodies, hub_home, refusal
from tests.plugins.transformers_zoo import code_cache, ids, make, saved, write_tokenizer

__all__ = ["hub_home"]

pytestmark = pytest.mark.usefixtures("hub_home")

NAME = "org/tiny-mamba"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a tiny model with a tokenizer is on the hub."""
    folder = write_tokenizer(saved(make("mamba"), tmp_path_factory.mktemp("model")))
    extra = {"README.md": b"words", "modeling_own.py": b"raise SystemExit"}
    return {path.name: path.read_bytes() for path in folder.iterdir()} | extra


@pytest.fixture
def repository(files: dict[str, bytes]) -> Repository:
    return Repository(NAME, dict(files), large=("model.safetensors",), tags=("v1",))


def test_a_hub_id_is_the_model_that_was_saved_with_its_tokenizer(repository: Repository) -> None:
    model, tokens = make("mamba"), ids(2, 9)
    with Hub(repository) as hub:
        subject = memaudit.load(NAME, dtype="float32")
    with torch.no_grad():
        expected = model.backbone(tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=2e-6)
    assert subject.identity.adapter == "transformers"
    assert subject.identity.notes[0] == f"{NAME} at commit {repository.commit} from the hub"
    words = subject.tokens_of("w7 w9")
    assert words is not None
    assert words.tolist() == [7, 9]
    assert "modeling_own.py" not in bodies(hub)
    again = memaudit.load(NAME, dtype="float32", offline=True)
    assert torch.equal(again.respond(tokens), subject.respond(tokens))
    assert again.tokens_of("w7") is not None


def test_a_tag_and_a_commit_are_revisions(repository: Repository) -> None:
    with Hub(repository):
        for revision in ("v1", repository.commit):
            subject = memaudit.load(f"{NAME}@{revision}")
            assert f"at commit {repository.commit}" in subject.identity.notes[0]
        assert refusal(NAME, revision="v2").code == "E_NOT_FOUND"


def test_a_repository_of_pickled_tensors_opens_too(repository: Repository) -> None:
    del repository.files["model.safetensors"]
    buffer = io.BytesIO()
    torch.save(make("mamba").state_dict(), buffer)
    repository.files["pytorch_model.bin"] = buffer.getvalue()
    with Hub(repository):
        assert memaudit.load(NAME).respond(ids(1, 3)).shape == (1, 3, 32)


def test_code_is_run_for_those_who_trust_it_and_for_nobody_else(
    repository: Repository, tmp_path: Path
) -> None:
    config = json.loads(repository.files["config.json"])
    own = {"model_type": "own_model", "auto_map": {"AutoModel": "modeling_own.Own"}}
    repository.files["config.json"] = json.dumps({**config, **own}).encode()
    repository.files["modeling_own.py"] = b"raise ValueError('it was run')"
    with Hub(repository) as hub:
        assert "trust_remote_code is off" in refusal(NAME).fact
        assert "modeling_own.py" not in bodies(hub)
        with code_cache(tmp_path / "modules"):
            error = refusal(NAME, trust_remote_code=True)
        assert "it was run" in error.fact


def test_the_command_line_audits_a_hub_id(repository: Repository, tmp_path: Path) -> None:
    saved_report = tmp_path / "report.json"
    with Hub(repository):
        words = ["scan", NAME, "--quick", "--horizon", "16", "--json", str(saved_report)]
        assert main(words) == 0
    report = Report.load(saved_report)
    assert report.subject.adapter == "transformers"
    assert [r.cell for r in report.subject.recurrences] == ["mamba1", "mamba1"]
    assert {"heaviside", "impulse", "reversed"} <= set(report.memory)
