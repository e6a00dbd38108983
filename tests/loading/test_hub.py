"""Repositories of a hub: what is fetched, from where, and what the cache can stand in for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from memaudit.errors import ArgumentError, MachineError, SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.hub import fetch_repository
from tests.loading.hub_server import Hub, Repository, first_time, silence, status
from tests.loading.hub_visits import NAME, WEIGHTS, fetch, hub_home, refusal, repository

__all__ = ["hub_home"]

pytestmark = pytest.mark.usefixtures("hub_home")


def bodies(hub: Hub) -> set[str]:
    """The files of which the contents were asked for."""
    return {
        a.path.rpartition("/")[2] for a in hub.asked if a.method == "GET" and "/api/" not in a.path
    }


def test_a_repository_is_fetched_and_opens():
    with Hub(repository()) as hub:
        found = fetch(hub)
    commit = repository().commit
    assert found.commit == commit
    assert found.notes == (f"{NAME} at commit {commit} from the hub",)
    opened = open_checkpoint(found.folder)
    assert torch.equal(opened.tensors["lstm.weight_ih_l0"], torch.arange(6.0).reshape(2, 3))


def test_only_weights_configs_and_tokenizers_are_fetched():
    files = {
        "modeling_lstm.py": b"raise SystemExit",
        "pytorch_model.bin": b"pickle",
        "optimizer.pt": b"pickle",
        "README.md": b"words",
        "tokenizer.json": b"{ }",
        "vocab.txt": b"a",
        "vocab.py": b"raise SystemExit",
        "sub/model.safetensors": WEIGHTS,
    }
    repo = Repository(NAME, {**repository().files, **files}, large=("model.safetensors",))
    with Hub(repo) as hub:
        found = fetch(hub)
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"}
    assert bodies(hub) == wanted
    assert {p.name for p in found.folder.iterdir()} == wanted
    assert "model.safetensors was fetched; not pytorch_model.bin" in found.notes


@pytest.mark.parametrize("revision", ["v1", "feature/x", repository().commit])
def test_a_branch_a_tag_or_a_commit_is_found_again_offline(revision: str):
    with Hub(repository()) as hub:
        found = fetch(hub, revision)
    again = fetch(None, revision, offline=True)
    assert again.folder == found.folder
    assert again.notes == (f"{NAME} at commit {found.commit} from the cache, offline",)


def test_the_shards_that_the_index_names_are_fetched():
    shards = {f"model-0000{i}-of-00002.safetensors": WEIGHTS + bytes(i) for i in (1, 2)}
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    evil = {"c": "../../x.safetensors", "d": "modeling.py", "e": "nowhere.safetensors"}
    index = json.dumps({"weight_map": {**weight_map, **evil}}).encode()
    files = {
        "model.safetensors.index.json": index,
        "modeling.py": b"",
        "model-x.safetensors": WEIGHTS,
    }
    with Hub(Repository(NAME, {**files, **shards})) as hub:
        fetch(hub)
    assert bodies(hub) == {"model.safetensors.index.json", *shards}


def test_a_second_fetch_asks_for_the_listing_only():
    with Hub(repository()) as hub:
        fetch(hub)
        before = len(hub.asked)
        fetch(hub)
        assert [a.path.partition("?")[0] for a in hub.asked[before:]] == [
            f"/api/models/{NAME}/revision/main"
        ]


def test_the_progress_of_a_download_is_told():
    told: list[tuple[str, int, int]] = []
    large = bytes(200_000)
    repo = Repository(NAME, {"model.safetensors": large})
    slow = first_time(lambda answer: _in_two_halves(answer, large))
    with Hub(repo, body=slow) as hub:
        fetch(hub, progress=lambda *event: told.append(event))
    assert ("downloading model.safetensors", len(large) // 2, len(large)) in told


def _in_two_halves(answer, content: bytes) -> None:
    answer.begin(200, {"Content-Length": str(len(content))})
    answer.wfile.write(content[: len(content) // 2])
    answer.hub.over.wait(1.0)
    answer.wfile.write(content[len(content) // 2 :])


def test_offline_and_not_in_the_cache():
    error = refusal(MachineError, offline=True)
    assert error.code == "E_OFFLINE"
    assert "not in the cache" in error.fact
    assert "without --offline" in error.hint


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_the_environment_can_forbid_the_network(variable: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv(variable, "1")
    with Hub(repository()) as hub:
        assert refusal(MachineError, hub).code == "E_OFFLINE"
        assert hub.asked == []


def test_half_a_copy_is_no_copy_offline():
    with Hub(repository()) as hub:
        found = fetch(hub)
    (found.folder / "model.safetensors").unlink()
    error = refusal(MachineError, offline=True)
    assert error.code == "E_OFFLINE"
    assert "lacks the weights" in error.fact


def test_a_missing_shard_is_named_offline():
    shard = "model-00001-of-00001.safetensors"
    index = json.dumps({"weight_map": {"a": shard}}).encode()
    with Hub(Repository(NAME, {"model.safetensors.index.json": index, shard: WEIGHTS})) as hub:
        found = fetch(hub)
    (found.folder / shard).unlink()
    assert f"lacks {shard}" in refusal(MachineError, offline=True).fact


def test_weights_that_rotted_in_the_cache_are_refused_offline():
    with Hub(repository()) as hub:
        found = fetch(hub)
    blob = (found.folder / "model.safetensors").resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x7f")
    error = refusal(SourceError, offline=True)
    assert error.code == "E_CORRUPT"
    assert str(found.folder) in error.hint
    assert blob.exists()


TROUBLES = {
    "answered 503": status(503),
    "answered 429": status(429, Retry_After="7"),
    "gave no answer for 1 s": silence,
}


@pytest.mark.parametrize("why", TROUBLES)
def test_a_hub_that_does_not_answer_is_excused_by_the_cache_with_a_note(why: str):
    with Hub(repository()) as hub:
        found = fetch(hub)
        hub.troubles["listing"] = TROUBLES[why]
        again = fetch(hub, timeout=1.0)
    assert again.folder == found.folder
    assert len(again.notes) == 1
    assert f"the hub {why}" in again.notes[0]
    assert f"the copy of commit {found.commit} in the cache was used" in again.notes[0]


def test_a_hub_that_is_not_there_is_excused_by_the_cache_with_a_note():
    with Hub(repository()) as hub:
        fetch(hub)
    assert fetch(None).notes[0].startswith("the hub refused the connection: the copy of commit")


@pytest.mark.parametrize(
    "trouble",
    [status(403, X_Error_Code="GatedRepo"), status(404, X_Error_Code="RepoNotFound"), status(401)],
    ids=["gated", "gone", "login"],
)
def test_a_hub_that_says_no_is_believed_whatever_is_in_the_cache(trouble):
    with Hub(repository()) as hub:
        fetch(hub)
        hub.troubles["listing"] = trouble
        assert refusal(SourceError, hub).code in ("E_GATED", "E_NOT_FOUND")


def test_weights_beyond_the_limit_are_refused_before_they_are_fetched():
    with Hub(repository()) as hub:
        error = refusal(SourceError, hub, limits=Limits(max_bytes=10))
        assert bodies(hub) == set()
    assert error.code == "E_LIMIT"


def test_a_full_disk_is_noticed_before_the_download(hub_home: Path):
    repo = repository()
    huge = {"rfilename": "model.safetensors", "size": 1 << 55}
    repo.listing = {"siblings": [huge]}
    with Hub(repo) as hub:
        error = refusal(MachineError, hub, limits=Limits(max_bytes=1 << 60))
        assert bodies(hub) == set()
    assert error.code == "E_DISK"
    assert str(hub_home) in error.fact


@pytest.mark.parametrize("name", ["a--b/c", "a/b..c", "a/b.git", f"a/{'b' * 96}"])
def test_a_name_that_no_hub_has_is_refused_without_asking(name: str):
    with pytest.raises(SourceError, match="E_NOT_FOUND"):
        fetch_repository(name, revision=None, access=Access())


@pytest.mark.parametrize("revision", ["a/../../b", "a//b", ".x", "x/."])
def test_a_revision_that_would_lead_out_of_the_cache_is_refused(revision: str):
    with pytest.raises(ArgumentError, match="no revision"):
        fetch_repository(NAME, revision=revision, access=Access())


def test_the_child_starts_without_torch_and_without_the_working_directory(tmp_path: Path):
    (tmp_path / "json.py").write_text("raise SystemExit('the working directory was searched')")
    code = "import memaudit.loading.hub_child, sys; print('torch' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n"
