"""Hubs that fail, lie, or never end: one clear sentence, no torn file, no secret told."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from memaudit.cli.app import main
from memaudit.errors import MachineError, SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.hub import fetch_repository
from tests.loading.hub_server import (
    Answer,
    Hub,
    Repository,
    body,
    broken_off,
    first_time,
    reset,
    silence,
    status,
)
from tests.loading.hub_visits import NAME, WEIGHTS, fetch, garbage, hub_home, refusal, repository

__all__ = ["hub_home"]
pytestmark = pytest.mark.usefixtures("hub_home")
TOKEN = "hf_aRecognisableSecret0123"


def test_nobody_listens():
    error = refusal(MachineError)
    assert error.code == "E_NETWORK"
    assert error.fact == "the hub at 127.0.0.1:9 refused the connection"


def test_a_name_without_an_address_and_a_password_that_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("HF_ENDPOINT", "http://me:secret@hub.invalid")
    with pytest.raises(MachineError, match=r"the hub at hub\.invalid cannot be found") as caught:
        fetch_repository(NAME, revision=None, access=Access())
    assert caught.value.code == "E_NETWORK"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense", "http://:80", "http://x:abc", "file:///tmp"])
def test_an_address_that_is_none(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", url)
    with pytest.raises(MachineError, match="HF_ENDPOINT is no web address"):
        fetch_repository(NAME, revision=None, access=Access())


def test_a_hub_without_the_encryption_that_its_address_promises():
    with Hub(repository()) as hub:
        hub.url = hub.url.replace("http:", "https:")
        error = refusal(MachineError, hub)
    assert error.code == "E_NETWORK"
    assert "TLS" in error.fact


@pytest.mark.parametrize("stage", ["listing", "head"])
@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        (401, SourceError, "E_GATED"),
        (403, SourceError, "E_GATED"),
        (404, SourceError, "E_NOT_FOUND"),
        (429, MachineError, "E_NETWORK"),
        (503, MachineError, "E_NETWORK"),
    ],
)
def test_a_status_is_not_argued_with(stage, code, kind, expected):
    with Hub(repository(), **{stage: status(code, Retry_After="50")}) as hub:
        error = refusal(kind, hub, timeout=10.0)
    assert error.code == expected
    assert len([a for a in hub.asked if a.method == "HEAD"]) < 2


def test_a_refused_token_is_not_repeated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    message = "Invalid credentials in Authorization header"
    with Hub(repository(), listing=status(401, X_Error_Message=message)) as hub:
        error = refusal(SourceError, hub)
    assert hub.asked[0].token == TOKEN
    assert error.code == "E_GATED"
    assert "refused the token" in error.fact
    assert TOKEN not in str(error)


def test_a_hub_that_repeats_the_token_everywhere_does_not_make_us_tell_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with Hub(Repository(NAME, {f"{TOKEN}.txt": b"", f"{TOKEN}.h5": b""})) as hub:
        error = refusal(SourceError, hub)
    assert error.code == "E_NOT_FOUND"
    assert ".txt" in error.fact
    assert TOKEN not in str(error)


@pytest.mark.parametrize("listing", [None, status(401), status(500), silence])
def test_the_token_is_not_printed_even_while_debugging(listing, monkeypatch, capfd):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_DEBUG", "1")
    repo = Repository(NAME, {f"{TOKEN}.txt": b""})
    with Hub(repo, **{"listing": listing} if listing else {}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert main(["scan", NAME, "--debug", "--timeout", "1"]) in (3, 5)
    assert hub.asked[0].token == TOKEN
    told = capfd.readouterr()
    assert "error[E_" in told.err
    assert TOKEN not in told.out + told.err


def test_the_token_does_not_follow_a_redirection_to_another_host(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with Hub(repository()) as hub:
        elsewhere = status(307, Location=f"{hub.store_url}/api")
        fetch(hub)
        hub.troubles["listing"] = elsewhere
        hub.troubles["store"] = body(b"{}")
        refusal(MachineError, hub)
    assert {a.token for a in hub.asked if not a.at_store} == {TOKEN}
    assert [a.token for a in hub.asked if a.at_store] == ["", ""]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
@pytest.mark.parametrize("stage", ["listing", "head", "body"])
def test_a_redirection_out_of_the_web_is_refused(stage: str, location: str):
    headers = {"Location": location, "ETag": '"abc"', "X_Repo_Commit": repository().commit}
    with Hub(repository(), **{stage: status(302, **headers)}) as hub:
        error = refusal(MachineError, hub)
    assert error.code == "E_NETWORK"
    assert "no web address" in error.fact


def test_a_redirection_without_end_is_given_up():
    with Hub(repository(), listing=status(302, Location="/api/models/again")) as hub:
        assert refusal(MachineError, hub, timeout=10.0).code == "E_NETWORK"


def test_a_body_that_breaks_off_leaves_nothing_and_works_the_next_time(hub_home: Path):
    with Hub(repository(), store=broken_off(len(WEIGHTS), WEIGHTS[:50])) as hub:
        error = refusal(MachineError, hub)
        assert error.code == "E_NETWORK"
        assert "fewer bytes of model.safetensors than announced" in error.fact
        assert not [
            p for p in hub_home.rglob("*") if p.is_file() and p.read_bytes() == WEIGHTS[:50]
        ]
        assert refusal(MachineError, None, offline=True).code == "E_OFFLINE"
        del hub.troubles["store"]
        found = fetch(hub)
    assert (found.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_the_store_of_large_files_has_no_say_in_who_may_read():
    with Hub(repository(), store=status(403)) as hub:
        error = refusal(MachineError, hub)
    assert error.code == "E_NETWORK"
    assert "answered 403" in error.fact


def test_a_connection_that_breaks_once_is_mended():
    once = first_time(broken_off(len(WEIGHTS), WEIGHTS[:50]))
    with Hub(repository(), store=once) as hub:
        found = fetch(hub)
    assert (found.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_connection_that_is_reset_once_is_mended():
    with Hub(repository(), store=first_time(reset(WEIGHTS[:50]))) as hub:
        found = fetch(hub)
    assert (found.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_redirection_within_the_hub_is_followed():
    def moved(answer: Answer) -> None:
        if answer.path.startswith("/moved/"):
            answer.path = answer.path.removeprefix("/moved")
            answer.hub.honest(answer)
        else:
            answer.send(307, b"", {"Location": f"/moved{answer.path}", "ETag": 'W/"2-a/b+c="'})

    with Hub(repository(), head=moved, body=moved) as hub:
        found = fetch(hub)
    assert (found.folder / "config.json").read_bytes() == b"{}"


def test_a_body_longer_than_announced_is_cut_off(hub_home: Path):
    with Hub(repository(), store=body(WEIGHTS + b"x" * (1 << 22))) as hub:
        error = refusal(MachineError, hub)
    assert error.code == "E_NETWORK"
    assert "more bytes" in error.fact
    assert garbage(hub_home) == []


def test_a_packed_body_does_not_fill_the_disk(hub_home: Path):
    bomb = gzip.compress(bytes(1 << 26))
    assert len(bomb) < 9 << 13
    repo = Repository(NAME, {"model.safetensors": bytes(9 << 13)})
    with Hub(repo, body=body(bomb, Content_Encoding="gzip")) as hub:
        error = refusal(MachineError, hub)
    assert error.code == "E_NETWORK"
    assert all(p.stat().st_size <= 1 << 20 for p in hub_home.rglob("*") if p.is_file())


def test_content_other_than_announced_is_refused_and_the_file_named():
    with Hub(repository(), store=body(WEIGHTS[:-1] + b"\x7f")) as hub:
        error = refusal(SourceError, hub)
    assert error.code == "E_CORRUPT"
    assert "SHA-256" in error.fact
    assert "model.safetensors" in error.hint


def test_a_small_file_other_than_announced_is_refused():
    repo = repository()
    commit = repo.commit
    repo.listing = {"siblings": repo.listed()["siblings"], "sha": commit}
    with Hub(repo, body=body(b"[]")) as hub:
        error = refusal(SourceError, hub)
    assert error.code == "E_CORRUPT"
    assert "config.json" in error.fact


@pytest.mark.parametrize("tag", ['"../../../../stolen"', '"/tmp/stolen"', '".."', "a/b", '"a\\b"'])
def test_a_label_that_is_a_path_writes_nothing(tag: str, hub_home: Path):
    repo = Repository(NAME, {"model.safetensors": WEIGHTS})
    headers = {"ETag": tag, "X_Repo_Commit": repo.commit}
    with Hub(repo, head=body(WEIGHTS, **headers)) as hub:
        error = refusal(MachineError, hub)
    assert error.code == "E_NETWORK"
    assert "no label" in error.fact
    assert not list(hub_home.parent.rglob("*stolen*"))
    assert not Path("/tmp/stolen").exists()


def test_an_answer_for_another_commit_is_refused():
    with Hub(repository(), head=body(b"{}", ETag='"abc"', X_Repo_Commit="../../x")) as hub:
        assert "another commit" in refusal(MachineError, hub).fact


def test_a_pinned_commit_is_that_commit():
    repo = repository()
    repo.listing = {"sha": "0" * 40}
    with Hub(repo) as hub:
        assert "another commit" in refusal(MachineError, hub, revision=repo.commit).fact


def test_a_size_that_is_not_said_is_bounded_all_the_same():
    repo = repository()
    repo.listing = {"siblings": [{"rfilename": "model.safetensors"}]}
    with Hub(repo) as hub:
        assert "more bytes" in refusal(MachineError, hub, limits=Limits(max_bytes=20)).fact
        assert fetch(hub).commit == repo.commit


@pytest.mark.parametrize("packed", [False, True])
def test_a_listing_without_end_is_cut_off(packed: bool):
    listing = b'{"siblings": [' + b" " * (33 << 20) + b"]}"
    headers = {"Content_Encoding": "gzip"} if packed else {}
    with Hub(listing=body(gzip.compress(listing) if packed else listing, **headers)) as hub:
        error = refusal(MachineError, hub)
    assert error.code == "E_NETWORK"
    assert "more bytes of the listing" in error.fact


@pytest.mark.parametrize("files", [{}, {"README.md": b""}, {"model.h5": b"", "data.csv": b""}])
def test_a_repository_without_weights(files: dict[str, bytes]):
    with Hub(Repository(NAME, files)) as hub:
        error = refusal(SourceError, hub)
    assert error.code == "E_NOT_FOUND"
    assert all(name in error.fact for name in files)


def test_two_checkpoints_are_a_question():
    with Hub(Repository(NAME, {"a.safetensors": b"", "b.safetensors": b""})) as hub:
        error = refusal(SourceError, hub)
    assert error.code == "E_PATH"
    assert "a.safetensors, b.safetensors" in error.fact


def test_a_cache_that_cannot_be_made(hub_home: Path):
    hub_home.write_text("a file where the folder should be")
    with Hub(repository()) as hub:
        error = refusal(MachineError, hub)
    assert error.code == "E_DISK"
    assert str(hub_home) in error.fact
