"""Hubs that are away, say no, stall, lie or are too generous, and good ones."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from tests.hostile.case import Case, Outcome, Scene
from tests.loading.hub_server import (
    NOBODY,
    Hub,
    Repository,
    Trouble,
    body,
    broken_off,
    dripping,
    point_at,
    silence,
    stalling,
    status,
)

NAME = "org/lstm"
TOKEN = "hf_aRecognisableSecret0123"
SCAN = ("--quick", "--horizon", "32", "--json", "report.json")


def lstm() -> bytes:
    """The file of a small model."""
    torch.manual_seed(0)
    return save(nn.LSTM(3, 4).state_dict())


def repository(**listing: Any) -> Repository:
    """A good repository, with a part of its listing replaced."""
    files = {"config.json": b"{}", "model.safetensors": lstm(), "modeling.py": b"raise SystemExit"}
    return Repository(NAME, files, large=("model.safetensors",), tags=("v1",), listing=listing)


def in_shards() -> Repository:
    """The same weights, each in a file of its own."""
    tensors = nn.LSTM(3, 4).state_dict()
    names = {key: f"model-{i:05}-of-00004.safetensors" for i, key in enumerate(tensors, start=1)}
    files = {names[key]: save({key: tensor}) for key, tensor in tensors.items()}
    index = json.dumps({"weight_map": names}).encode()
    return Repository(NAME, {"model.safetensors.index.json": index, **files}, large=tuple(files))


def as_pickle() -> Repository:
    """The same weights as torch saves them."""
    stream = io.BytesIO()
    torch.save(nn.LSTM(3, 4).state_dict(), stream)
    return Repository(NAME, {"pytorch_model.bin": stream.getvalue()})


def listed(*names: str, size: Any = 3) -> dict[str, Any]:
    """A listing of these files."""
    return {"siblings": [{"rfilename": name, "size": size} for name in names]}


def words(*more: str, name: str = NAME) -> Callable[[Scene], list[str]]:
    """Scan a repository."""
    return lambda scene: ["scan", name, *SCAN, *more]


def visit(
    made: Repository | None = None, *again: tuple[str, ...], **troubles: Trouble
) -> Callable[[list[str]], int]:
    """Scan at a hub that lives as long as the case; then `again`, after the hub has gone."""

    def command(arguments: list[str]) -> int:
        from memaudit.cli.app import main

        os.environ |= {"HF_HUB_OFFLINE": "0", "NO_PROXY": "*"}
        with Hub(made or repository(), **troubles):
            ended = main(arguments)
        for more in again:
            assert ended == 0, "the hub was there"
            ended = main([*arguments, *more])
        return ended

    return command


def nobody(arguments: list[str]) -> int:
    """Scan where nobody listens."""
    from memaudit.cli.app import main

    os.environ |= {"HF_HUB_OFFLINE": "0", "NO_PROXY": "*"}
    point_at(NOBODY)
    return main(arguments)


def fails(
    name: str,
    command: Callable[[list[str]], int],
    code: str,
    says: str,
    *options: str,
    exit: int = 5,  # noqa: A002
    env: dict[str, str] | None = None,
) -> Case:
    """A scan that ends in one error and leaves no report."""
    arrange = words(*options)
    return Case(
        "hub", name, arrange, exit, code, says, env or {}, check=without_report, command=command
    )


def without_report(outcome: Outcome) -> None:
    assert not (outcome.scene.output / "report.json").exists()
    assert not list(outcome.scene.output.rglob("*.incomplete"))
    without_token(outcome)


def without_token(outcome: Outcome) -> None:
    told = outcome.stdout + outcome.stderr
    report = outcome.scene.output / "report.json"
    assert TOKEN not in told + (report.read_text() if report.exists() else "")


def from_the_hub(outcome: Outcome) -> None:
    without_token(outcome)
    commit = repository().commit
    assert f"at commit {commit} from the hub" in json.dumps(outcome.report())
    assert not list(outcome.scene.output.rglob("*.py"))


def from_the_cache(outcome: Outcome) -> None:
    assert f"at commit {repository().commit} from the cache" in json.dumps(outcome.report())


def with_a_note(outcome: Outcome) -> None:
    text = json.dumps(outcome.report())
    assert f"refused the connection: the copy of commit {repository().commit}" in text


def good(name: str, command: Callable[[list[str]], int], check: Any, *options: str) -> Case:
    return Case(
        "hub", name, words(*options), 0, env={"HF_TOKEN": TOKEN}, check=check, command=command
    )


TIMEOUT = ("--timeout", "2")
SILENT = "gave no answer for 2 s"
SECRET = {"HF_TOKEN": TOKEN}
LENGTH = len(lstm())

CASES = [
    good("a repository", visit(), from_the_hub),
    good("a repository of shards", visit(in_shards()), without_token),
    good("a repository of plain tensors in a pickle", visit(as_pickle()), without_token),
    good("a tag", visit(), from_the_hub, "--revision", "v1"),
    good("the same again, offline", visit(None, ("--offline",)), from_the_cache),
    good("the same again, the hub has gone", visit(None, ()), with_a_note),
    fails("no network", nobody, "E_NETWORK", "127.0.0.1:9 refused the connection"),
    fails("offline and uncached", nobody, "E_OFFLINE", "not in the cache", "--offline"),
    fails("silent", visit(listing=silence), "E_NETWORK", SILENT, *TIMEOUT),
    fails("silent about a file", visit(head=silence), "E_NETWORK", SILENT, *TIMEOUT),
    fails("drips", visit(listing=dripping(900, pause=0.3)), "E_NETWORK", SILENT, *TIMEOUT),
    fails(
        "stalls in a file",
        visit(store=stalling(LENGTH, lstm()[:99])),
        "E_NETWORK",
        SILENT,
        *TIMEOUT,
    ),
    fails(
        "drips in a file", visit(store=dripping(LENGTH, pause=0.3)), "E_NETWORK", SILENT, *TIMEOUT
    ),
    fails("401", visit(listing=status(401)), "E_GATED", "asks for a login", exit=3),
    fails(
        "401 with a token",
        visit(listing=status(401)),
        "E_GATED",
        "refused the token",
        exit=3,
        env=SECRET,
    ),
    fails("403", visit(head=status(403)), "E_GATED", "does not let you read", exit=3),
    fails(
        "gated",
        visit(head=status(403, X_Error_Code="GatedRepo")),
        "E_GATED",
        "accept the terms",
        exit=3,
    ),
    fails("404", visit(listing=status(404)), "E_NOT_FOUND", "needs HF_TOKEN", exit=3),
    fails(
        "no such revision", visit(), "E_NOT_FOUND", "no such revision", "--revision", "v9", exit=3
    ),
    fails("429", visit(listing=status(429, Retry_After="7")), "E_NETWORK", "for 7 s"),
    fails("500", visit(listing=status(500)), "E_NETWORK", "answered 500"),
    fails("503 on a file", visit(store=status(503)), "E_NETWORK", "answered 503"),
    fails(
        "a short body",
        visit(store=broken_off(LENGTH, b"x")),
        "E_NETWORK",
        "ended the connection early",
    ),
    fails("a long body", visit(store=body(bytes(1 << 20))), "E_NETWORK", "more bytes"),
    fails("other content", visit(store=body(lstm()[:-1] + b"x")), "E_CORRUPT", "SHA-256", exit=3),
    fails("a login page", visit(listing=body(b"<html>")), "E_NETWORK", "does not answer as a hub"),
    fails("deep JSON", visit(listing=body(b"[" * 10**6)), "E_NETWORK", "does not answer as a hub"),
    fails(
        "names that lead elsewhere",
        visit(repository(**listed("../model.safetensors", "/model.pt"))),
        "E_NOT_FOUND",
        "holds no weights",
        exit=3,
    ),
    fails(
        "a redirection in a ring",
        visit(listing=status(302, Location="/api/models/x")),
        "E_NETWORK",
        "",
    ),
    fails(
        "too large",
        visit(repository(**listed("model.safetensors", size=1 << 50))),
        "E_LIMIT",
        "1024.0 TB",
        exit=3,
    ),
    fails(
        "too large for the disk",
        visit(repository(**listed("model.safetensors", size=1 << 50))),
        "E_DISK",
        "has room for",
        "--set",
        "max_bytes=2000T",
    ),
    fails(
        "a disk that is full",
        visit(),
        "E_DISK",
        "is full",
        env={"MEMAUDIT_FAULT": "hub.fetch:2=ENOSPC"},
    ),
    fails(
        "no weights",
        visit(Repository(NAME, {"README.md": b"", "data.csv": b""})),
        "E_NOT_FOUND",
        "only README.md, data.csv",
        exit=3,
    ),
]
