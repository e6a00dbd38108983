"""Repositories of a hub: what is fetched, from where, and what is said when that fails."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest
import torch

import memaudit
from memaudit.cli.app import main
from memaudit.loading.access import Access
from memaudit.loading.source import parse_source
from tests.loading.hub_server import (
    FOREVER,
    IMPATIENT,
    NOBODY,
    PATIENT,
    Answer,
    Hub,
    Repository,
    Trouble,
    body,
    broken_off,
    dripping,
    first_time,
    git_object,
    no_answer,
    point_at,
    stalling,
    status,
)
from tests.loading.hub_visits import (
    LSTM,
    NAME,
    WEIGHTS,
    bodies,
    hub_home,
    notes,
    refusal,
    repository,
)

__all__ = ["hub_home"]

pytestmark = pytest.mark.usefixtures("hub_home")

COMMIT = repository().commit
TOKEN = "hf_aRecognisableSecret0123"
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]


def snapshot(home: Path, commit: str = COMMIT) -> Path:
    return home / "hub" / "models--org--lstm" / "snapshots" / commit


def partial_files(home: Path) -> list[str]:
    return [path.name for path in home.rglob("*.incomplete")]


def sharded(**more: str) -> Repository:
    """The weights in two files, and an index that names them and `more`."""
    tensors = LSTM.state_dict()
    halves = [dict(list(tensors.items())[i::2]) for i in (0, 1)]
    named = {key: shard for shard, half in zip(SHARDS, halves, strict=True) for key in half}
    index = json.dumps({"weight_map": {**named, **more}}).encode()
    from safetensors.torch import save

    files = {shard: save(half) for shard, half in zip(SHARDS, halves, strict=True)}
    return Repository(NAME, {"model.safetensors.index.json": index, **files}, large=tuple(SHARDS))


# What is fetched.


def test_a_repository_is_the_model_that_was_saved():
    with Hub(repository()):
        subject = memaudit.load(NAME)
    inputs = torch.randn(2, 5, 3)
    expected = LSTM(inputs.transpose(0, 1))[0].transpose(0, 1)
    torch.testing.assert_close(subject.respond(inputs).float(), expected, rtol=0, atol=1e-6)
    assert subject.identity.notes[0] == f"{NAME} at commit {COMMIT} from the hub"


@pytest.mark.parametrize("trusted", [False, True])
def test_only_weights_configs_tokenizers_and_trusted_code_are_fetched(trusted: bool):
    files = {
        "modeling_lstm.py": b"raise SystemExit",
        "pytorch_model.bin": b"pickle",
        "optimizer.pt": b"pickle",
        "README.md": b"words",
        "vocab.txt": b"a",
        "sub/model.safetensors": WEIGHTS,
    }
    with Hub(repository(**files)) as hub:
        said = notes(trust_remote_code=trusted)
    code = {"modeling_lstm.py"} if trusted else set()
    assert set(bodies(hub)) == {"config.json", "model.safetensors", "vocab.txt", *code}
    assert "model.safetensors was fetched; not pytorch_model.bin" in said


def test_the_shards_that_the_index_names_are_fetched():
    elsewhere = {"c": "../../x.safetensors", "d": "modeling.py"}
    repo = sharded(**elsewhere)
    repo.files |= {"modeling.py": b"", "model-x.safetensors": WEIGHTS}
    with Hub(repo) as hub:
        assert refusal().code == "E_PATH"
        assert set(bodies(hub)) == {"model.safetensors.index.json", *SHARDS}
    repo = sharded()
    with Hub(repo):
        assert notes()[0] == f"{NAME} at commit {repo.commit} from the hub"


def test_a_second_visit_asks_for_the_listing_and_for_no_file():
    with Hub(repository()) as hub:
        notes()
        before = len(hub.asked)
        notes()
    assert [a.path.partition("?")[0] for a in hub.asked[before:]] == [f"/api/models/{NAME}"]


@pytest.mark.parametrize(
    "revision", [None, "v1", "feature/x", COMMIT], ids=["none", "tag", "branch", "commit"]
)
def test_a_branch_a_tag_or_a_commit_is_found_again_offline(revision: str | None):
    with Hub(repository()):
        notes(revision=revision)
    assert notes(revision=revision, offline=True)[0] == (
        f"{NAME} at commit {COMMIT} from the cache, offline"
    )


def test_the_progress_of_a_download_is_reported():
    told: list[tuple[str, int, int]] = []
    with Hub(repository()):
        memaudit.scan(
            NAME, level="quick", horizon=16, progress=lambda *event: told.append(event[:3])
        )
    assert ("downloading model.safetensors", len(WEIGHTS), len(WEIGHTS)) in told


@pytest.mark.parametrize(
    ("files", "code", "says"),
    [
        ({}, "E_NOT_FOUND", "nor any other file"),
        ({"model.h5": b"", "data.csv": b""}, "E_NOT_FOUND", "only data.csv, model.h5"),
        ({"a.safetensors": b"", "b.safetensors": b""}, "E_PATH", "a.safetensors, b.safetensors"),
    ],
)
def test_what_a_folder_would_refuse_is_refused_before_it_is_fetched(files, code, says):
    with Hub(Repository(NAME, files)) as hub:
        error = refusal()
        assert bodies(hub) == []
    assert error.code == code
    assert says in error.fact


@pytest.mark.parametrize(
    ("size", "limit", "code"), [(1 << 50, None, "E_LIMIT"), (1 << 50, 1 << 60, "E_DISK")]
)
def test_what_is_too_large_is_refused_before_it_is_fetched(size, limit, code):
    repo = repository()
    repo.listing = {"siblings": [{"rfilename": "model.safetensors", "size": size}]}
    with Hub(repo) as hub:
        assert refusal(max_bytes=limit).code == code
        assert bodies(hub) == []


@pytest.mark.parametrize("name", ["a/b..c", f"a/{'b' * 97}"])
def test_a_name_that_no_hub_has_is_refused_without_asking(name: str):
    with Hub(repository()) as hub:
        assert refusal(name).code == "E_NOT_FOUND"
        assert hub.asked == []


def test_a_revision_that_would_lead_out_of_the_cache_is_refused():
    assert "is no revision" in refusal(f"{NAME}@a/../../b", offline=True).fact


# What the cache can stand in for.


def test_offline_and_not_in_the_cache():
    error = refusal(offline=True)
    assert error.code == "E_OFFLINE"
    assert "not in the cache" in error.fact
    assert "without --offline" in error.hint


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_the_environment_can_forbid_the_network(variable: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv(variable, "1")
    with Hub(repository()) as hub:
        assert refusal().code == "E_OFFLINE"
        assert hub.asked == []


@pytest.mark.parametrize("repo", [repository(), sharded()], ids=["whole", "sharded"])
def test_half_a_copy_is_no_copy(repo: Repository, hub_home: Path):
    with Hub(repo):
        notes()
    gone = repo.large[-1]
    (snapshot(hub_home, repo.commit) / gone).unlink()
    error = refusal(offline=True)
    assert error.code == "E_OFFLINE"
    assert "lacks" in error.fact
    assert gone in error.fact
    assert refusal().code == "E_NETWORK"


@pytest.mark.parametrize(
    ("why", "trouble"),
    [
        ("answered 503", status(503)),
        ("answered 429 and asks to wait 7 s", status(429, Retry_After="7")),
        ("gave no answer for 1 s", no_answer),
        ("does not answer as a hub", body(b"<html>Sign in to the guest network</html>")),
        ("refused the connection", None),
    ],
)
def test_a_hub_that_cannot_be_asked_is_excused_by_the_cache(why: str, trouble: Trouble | None):
    with Hub(repository()) as hub:
        notes()
        hub.troubles |= {"listing": trouble} if trouble else {}
        if trouble is None:
            point_at(NOBODY)
        said = notes(timeout=IMPATIENT if trouble is no_answer else PATIENT)[0]
    assert why in said
    assert said.endswith(f"the copy of commit {COMMIT} in the cache was used")


# Hubs that say no.

NO = [
    (401, {"X_Error_Code": "RepoNotFound"}, "E_NOT_FOUND", "no such repository"),
    (404, {"X_Error_Code": "RevisionNotFound"}, "E_NOT_FOUND", "no such revision"),
    (404, {}, "E_NOT_FOUND", "no such repository"),
    (401, {}, "E_GATED", "asks for a login"),
    (403, {}, "E_GATED", "does not let you read"),
    (403, {"X_Error_Code": "GatedRepo"}, "E_GATED", "is gated"),
]


@pytest.mark.parametrize(("number", "headers", "code", "says"), NO)
def test_a_hub_that_says_no_is_believed_whatever_is_in_the_cache(number, headers, code, says):
    with Hub(repository()) as hub:
        notes()
        hub.troubles["listing"] = status(number, X_Error_Message="EVIL", **headers)
        error = refusal()
    assert error.code == code
    assert says in error.fact
    assert error.hint
    assert "EVIL" not in str(error)


@pytest.mark.parametrize("number", [418, 503])
def test_a_hub_that_does_not_answer_the_question(number: int):
    with Hub(listing=status(number)) as hub:
        error = refusal()
    assert error.code == "E_NETWORK"
    assert error.fact == f"the hub at {hub.host} answered {number}"


def test_a_file_that_only_members_may_read():
    with Hub(repository(), head=status(403, X_Error_Code="GatedRepo")):
        assert refusal().code == "E_GATED"


def test_the_store_of_large_files_knows_no_users():
    with Hub(repository(), store=status(403)) as hub:
        error = refusal()
    assert error.code == "E_NETWORK"
    assert hub.store_url.removeprefix("http://") in error.fact


@pytest.mark.parametrize(
    ("listing", "ends"), [(status(401), 3), (status(500), 5), (no_answer, 5), (None, 3)]
)
def test_the_token_is_sent_to_the_hub_alone_and_never_printed(
    listing: Trouble | None, ends: int, monkeypatch, capfd
):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_DEBUG", "1")
    broken = repository(**{"model.safetensors": b"no weights"})
    with Hub(broken, **{"listing": listing} if listing else {}) as hub:
        patience = IMPATIENT if listing is no_answer else PATIENT
        assert main(["scan", NAME, "--debug", "--timeout", str(patience)]) == ends
    told = "".join(capfd.readouterr())
    assert TOKEN not in told
    assert ("refused the token" in told) == (ends == 3 and listing is not None)
    assert all(a.token == ("" if a.at_store else TOKEN) for a in hub.asked)


# Hubs and connections that fail.


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (NOBODY, "the hub at 127.0.0.1:9 refused the connection"),
        ("http://me:secret@hub.invalid", "the hub at hub.invalid cannot be found"),
        ("nonsense", "does not answer as a hub"),
    ],
)
def test_an_address_without_a_hub(url: str, says: str):
    point_at(url)
    error = refusal()
    assert error.code == "E_NETWORK"
    assert says in error.fact
    assert "secret" not in str(error)
    assert "HF_ENDPOINT" in error.hint


def test_a_hub_without_the_encryption_that_its_address_promises():
    with Hub(repository()) as hub:
        point_at(hub.url.replace("http:", "https:"))
        assert "TLS" in refusal().fact


@pytest.mark.parametrize("answer", [b"", b"null", b"{}", b"[" * 200_000])
def test_an_answer_that_is_no_listing(answer: bytes):
    with Hub(listing=body(answer)):
        assert refusal().code in ("E_NETWORK", "E_NOT_FOUND")


@pytest.mark.parametrize("index", [b"{", b'{"weight_map": {"a": 5}}', b"[" * 10**6])
def test_an_index_that_names_no_weights_is_refused_by_who_opens_it(index: bytes):
    with Hub(Repository(NAME, {"model.safetensors.index.json": index})) as hub:
        assert refusal().code in ("E_CORRUPT", "E_LIMIT", "E_WEIGHTS")
        assert bodies(hub) == ["model.safetensors.index.json"]


@pytest.mark.parametrize(
    "store",
    [broken_off(len(WEIGHTS), WEIGHTS[:50]), body(WEIGHTS + b"x"), body(WEIGHTS[:-1])],
    ids=["breaks off", "too long", "too short"],
)
def test_a_body_of_another_length_leaves_nothing_and_works_the_next_time(
    store: Trouble, hub_home: Path, monkeypatch: pytest.MonkeyPatch
):
    # The library waits for a second before it tries again.
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    with Hub(repository(), store=store) as hub:
        assert refusal().code == "E_NETWORK"
        assert partial_files(hub_home) == []
        del hub.troubles["store"]
        assert "from the hub" in notes()[0]


@pytest.mark.parametrize("when", ["on the way", "in the cache"])
def test_weights_that_were_damaged_are_refused_and_named(when: str, hub_home: Path):
    damaged = WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1])
    with Hub(repository(), **{"store": body(damaged)} if when == "on the way" else {}):
        if when == "in the cache":
            notes()
            (snapshot(hub_home) / "model.safetensors").write_bytes(damaged)
        for offline in (False, True):
            error = refusal(offline=offline)
            assert error.code == "E_CORRUPT"
            assert "SHA-256" in error.fact
            assert "model.safetensors" in error.hint


def test_a_connection_that_breaks_once_is_mended():
    once = first_time(broken_off(len(WEIGHTS), WEIGHTS[:50]))
    with Hub(repository(), store=once):
        assert "from the hub" in notes()[0]


def test_a_cache_that_cannot_be_made(hub_home: Path):
    hub_home.write_text("a file where the folder should be")
    with Hub(repository()):
        error = refusal()
    assert error.code == "E_DISK"
    assert str(hub_home) in error.fact


def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch):
    def full(*words: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("huggingface_hub.HfApi.hf_hub_download", full)
    with Hub(repository()):
        error = refusal()
    assert error.code == "E_DISK"
    assert "is full" in error.fact


# How long a hub is waited for.

STALLS = {
    "an unanswered listing": ("listing", no_answer),
    "half a listing": ("listing", stalling(1000, b"{")),
    "a listing in drops": ("listing", dripping(1000, pause=0.2)),
    "an unanswered head": ("head", no_answer),
    "an unanswered store": ("store", no_answer),
    "half a file": ("store", stalling(len(WEIGHTS), WEIGHTS[:50])),
    "a file in drops": ("store", dripping(len(WEIGHTS), pause=0.2)),
}


SLOW = ("half a listing", "an unanswered head", "an unanswered store")


@pytest.mark.parametrize(
    "stall", [pytest.param(s, marks=[pytest.mark.slow] if s in SLOW else []) for s in STALLS]
)
def test_a_hub_that_stalls_is_given_up(stall: str, hub_home: Path):
    stage, trouble = STALLS[stall]
    with Hub(repository(), **{stage: trouble}) as hub:
        error = refusal(timeout=IMPATIENT)
        left = [path for path in hub_home.rglob("*.incomplete") if path.stat().st_size]
    assert error.code == "E_NETWORK"
    assert error.fact == f"the hub at {hub.host} gave no answer for 1 s"
    assert "--timeout" in error.hint
    assert left == []


def test_the_process_ends_though_the_hub_has_not_answered():
    with Hub(repository(), head=no_answer):
        done = subprocess.run(
            [sys.executable, "-m", "memaudit", "scan", NAME, "--timeout", "1"],
            capture_output=True,
            text=True,
            timeout=FOREVER / 2,  # the hub's silence does not end before
            check=False,
        )
    assert done.returncode == 5
    assert done.stderr.startswith(f"memaudit: error[E_NETWORK] {NAME}: the hub at ")
    assert done.stderr.count("\n") == 1


def test_a_slow_hub_that_gets_on_is_waited_for(monkeypatch):
    """The patience is for the next piece, not for all of them: each is sent when one was heard."""
    padded, heard, waits = WEIGHTS + bytes(6 << 18), threading.Semaphore(1), []
    repo = repository(**{"model.safetensors": padded})

    class Listening(SimpleQueue):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            waits.append(timeout)
            return super().get(block, timeout)

    def slow(answer: Answer) -> None:
        answer.begin(200, {"Content-Length": str(len(padded))})
        for start in range(0, len(padded), 1 << 18):
            heard.acquire(timeout=FOREVER)
            answer.wfile.write(padded[start : start + (1 << 18)])

    def downloading(stage: str, *_: object) -> None:
        if stage.startswith("downloading model"):
            heard.release()

    monkeypatch.setattr("memaudit.loading.hub.SimpleQueue", Listening)
    access = Access(timeout=PATIENT, progress=downloading)
    with Hub(repo, store=slow):
        assert parse_source(NAME, access=access).fetched
    assert len(waits) > 6
    assert set(waits) == {PATIENT}


def test_another_process_that_fetches_the_file_is_waited_for(hub_home: Path, monkeypatch):
    content, begun, complete = repository().files["config.json"], threading.Event(), 6
    ready, grown = threading.Event(), []
    locks = hub_home / "hub" / ".locks" / "models--org--lstm"
    part = hub_home / "hub" / "models--org--lstm" / "blobs" / "other.incomplete"

    def other_process() -> None:
        for folder in (locks, part.parent):
            folder.mkdir(parents=True)
        with (locks / f"{git_object(content)}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            begun.set()
            ready.wait(FOREVER)

    class Impatient(SimpleQueue):
        """Gives up soon while the other process is at work, which has more of the file then."""

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            try:
                return super().get(block, timeout if ready.is_set() else 0.1)
            except Empty:
                grown.append(part.write_bytes(bytes(len(grown) + 1)))
                if len(grown) == complete:
                    part.unlink()
                    ready.set()
                raise

    monkeypatch.setattr("memaudit.loading.hub.SimpleQueue", Impatient)
    thread = threading.Thread(target=other_process)
    thread.start()
    begun.wait(FOREVER)
    with Hub(repository()):
        assert "from the hub" in notes(timeout=PATIENT)[0]
    assert len(grown) == complete
    thread.join()


def test_an_interrupt_leaves_no_part_of_a_file(hub_home: Path):
    large = repository(**{"model.safetensors": bytes(1 << 20)})

    def interrupted(stage: str, *_: object) -> None:
        if stage.startswith("downloading model"):
            raise KeyboardInterrupt

    with Hub(large, store=stalling(1 << 20, bytes(1 << 19))):
        with pytest.raises(KeyboardInterrupt):
            _ = parse_source(NAME, access=Access(progress=interrupted)).fetched
        assert partial_files(hub_home) == []
