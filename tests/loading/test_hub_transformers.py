"""Models of transformers from a hub: the real client, a hub on this machine, the front door."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import memaudit
from memaudit.cli import main
from memaudit.errors import MachineError, MemauditError, SourceError
from memaudit.interfaces import AbstractSubject
from memaudit.report import Report
from tests.loading.hub_server import Hub, Repository, broken_off, first_time, status
from tests.loading.hub_visits import hub_home
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


def load(
    hub: Hub | None, monkeypatch: pytest.MonkeyPatch, source: str = NAME, **more: Any
) -> AbstractSubject:
    monkeypatch.setenv("HF_ENDPOINT", hub.url if hub else "http://127.0.0.1:9")
    return memaudit.load(source, **more)


def refusal(hub: Hub | None, monkeypatch: pytest.MonkeyPatch, **more: Any) -> MemauditError:
    with pytest.raises(MemauditError) as caught:
        load(hub, monkeypatch, **more)
    return caught.value


def fetched(hub: Hub) -> set[str]:
    """The files of which the contents were asked for."""
    return {
        a.path.rpartition("/")[2] for a in hub.asked if a.method == "GET" and "/api/" not in a.path
    }


def test_a_hub_id_is_the_model_that_was_saved(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = make("mamba"), ids(2, 9)
    with Hub(repository) as hub:
        subject = load(hub, monkeypatch, dtype="float32")
    with torch.no_grad():
        expected = model.backbone(tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=2e-6)
    assert subject.identity.adapter == "transformers"
    assert subject.identity.notes[0] == f"{NAME} at commit {repository.commit} from the hub"
    words = subject.tokens_of("w7 w9")
    assert words is not None
    assert words.tolist() == [7, 9]
    assert "modeling_own.py" not in fetched(hub)


def test_a_tag_and_a_commit_are_revisions(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(repository) as hub:
        for revision in ("v1", repository.commit):
            subject = load(hub, monkeypatch, f"{NAME}@{revision}")
            assert f"at commit {repository.commit}" in subject.identity.notes[0]
        assert refusal(hub, monkeypatch, revision="v2").code == "E_NOT_FOUND"


def test_offline_the_cache_is_enough(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(None, monkeypatch, offline=True).code == "E_OFFLINE"
    with Hub(repository) as hub:
        first = load(hub, monkeypatch)
    again = load(None, monkeypatch, offline=True)
    assert torch.equal(again.respond(ids(2, 9)), first.respond(ids(2, 9)))
    assert again.tokens_of("w7") is not None
    assert "from the cache, offline" in again.identity.notes[0]


def test_a_download_that_breaks_off_leaves_nothing_behind_and_can_be_tried_again(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = repository.files["model.safetensors"]
    half = broken_off(len(weights), weights[: len(weights) // 2])
    with Hub(repository, store=half) as hub:
        error = refusal(hub, monkeypatch, timeout=3.0)
    assert isinstance(error, MachineError)
    assert error.code == "E_NETWORK"
    with Hub(repository) as hub:
        assert load(hub, monkeypatch).identity.family == "mamba"


def test_a_download_that_is_damaged_on_the_way_is_refused(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = bytearray(repository.files["model.safetensors"])
    weights[-1] ^= 1
    with Hub(repository, store=first_time(lambda a: a.send(200, bytes(weights)))) as hub:
        error = refusal(hub, monkeypatch)
    assert error.code == "E_CORRUPT"
    assert "SHA-256" in error.fact


def test_gated_and_missing_repositories_are_told_apart(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated = status(403, X_Error_Code="GatedRepo")
    with Hub(repository, listing=gated, head=gated) as hub:
        error = refusal(hub, monkeypatch)
        assert isinstance(error, SourceError)
        assert error.code == "E_GATED"
    with Hub(repository) as hub:
        assert refusal(hub, monkeypatch, source="org/nobody").code == "E_NOT_FOUND"


def test_safetensors_go_before_pickles(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.files["pytorch_model.bin"] = b"not even a pickle"
    with Hub(repository) as hub:
        assert load(hub, monkeypatch).identity.family == "mamba"
    assert "pytorch_model.bin" not in fetched(hub)


def test_a_repository_of_pickled_tensors_opens_too(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    del repository.files["model.safetensors"]
    buffer = io.BytesIO()
    torch.save(make("mamba").state_dict(), buffer)
    repository.files["pytorch_model.bin"] = buffer.getvalue()
    with Hub(repository) as hub:
        assert load(hub, monkeypatch).respond(ids(1, 3)).shape == (1, 3, 32)


def test_code_is_fetched_for_those_who_trust_it_and_for_nobody_else(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = json.loads(repository.files["config.json"])
    own = {"model_type": "own_model", "auto_map": {"AutoModel": "modeling_own.Own"}}
    repository.files["config.json"] = json.dumps({**config, **own}).encode()
    repository.files["modeling_own.py"] = b"raise ValueError('it was run')"
    with Hub(repository) as hub:
        assert "trust_remote_code is off" in refusal(hub, monkeypatch).fact
        assert "modeling_own.py" not in fetched(hub)
        with code_cache(tmp_path / "modules"):
            error = refusal(hub, monkeypatch, trust_remote_code=True)
        assert "it was run" in error.fact
        assert "modeling_own.py" in fetched(hub)


def test_the_command_line_audits_a_hub_id(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved_report = tmp_path / "report.json"
    with Hub(repository) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        words = ["scan", NAME, "--quick", "--horizon", "16", "--json", str(saved_report)]
        assert main(words) == 0
    report = Report.load(saved_report)
    assert report.subject.adapter == "transformers"
    assert [r.cell for r in report.subject.recurrences] == ["mamba1", "mamba1"]
    assert {"heaviside", "impulse", "reversed"} <= set(report.memory)
