"""Files that somebody writes to while they are audited."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hostile.case import Case, Outcome, Scene
from tests.hostile.cases.files import no_report
from tests.hostile.small_models import QUICK, write, write_shards

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[[Path], None]

LONG_AGO = 10**18


def model(scene: Scene) -> list[str]:
    """The file lies where files may change; nobody touched it for a long time."""
    path = write(scene.output / "model.safetensors")
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return ["scan", str(path), *QUICK]


def shards(scene: Scene) -> list[str]:
    write_shards(scene.output / "model")
    return ["scan", str(scene.output / "model"), *QUICK]


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def rewrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as stream:
        stream.write(data)


def rewrite_in_secret(path: Path) -> None:
    rewrite(path)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


def remove(path: Path) -> None:
    path.unlink()


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def rewrite_second_shard(folder: Path) -> None:
    rewrite(folder / "model-00002-of-00002.safetensors")


def at(step: str, change: Change) -> Callable[[list[str]], int]:
    """Run memaudit, and change its source when it first reaches a step."""

    def command(arguments: list[str]) -> int:
        from memaudit.cli.app import main
        from memaudit.loading import checkpoint
        from memaudit.subjects import batches

        waiting = [change]

        def reached(name: str) -> None:
            if name == step and waiting:
                waiting.pop()(Path(arguments[1]))

        batches.step = checkpoint.step = reached
        return main(arguments)

    return command


def kept(outcome: Outcome) -> None:
    """The report is there, says that it is incomplete, and why."""
    report = outcome.report()
    assert report["complete"] is False
    assert outcome.curves()
    errors = [error for error in report["errors"] if error["code"] == "E_CHANGED"]
    assert [error["stage"] for error in errors] == ["after"]
    assert "the report is about the bytes with sha256" in errors[0]["message"]


def measured(
    name: str,
    change: Change,
    *,
    arrange: Callable[[Scene], list[str]] = model,
    says: str = "model.safetensors was",
) -> Case:
    return Case(
        "files",
        f"during the audit: {name}",
        arrange,
        exit=4,
        code="E_CHANGED",
        says=says,
        command=at("measure.pass", change),
        check=kept,
        writes=("model.safetensors", "model"),
    )


def read(name: str, change: Change) -> Case:
    return Case(
        "files",
        f"while it is read: {name}",
        model,
        exit=3,
        code="E_CHANGED",
        says="changed while it was read",
        command=at("open.read", change),
        check=no_report,
        writes=("model.safetensors",),
    )


CASES = [
    measured("cut short", truncate),
    measured("rewritten", rewrite),
    measured("rewritten with its old date", rewrite_in_secret),
    measured("removed", remove, says="model.safetensors was removed during the audit"),
    measured("replaced by a FIFO", replace_by_fifo),
    measured(
        "one shard rewritten",
        rewrite_second_shard,
        arrange=shards,
        says="model-00002-of-00002.safetensors was changed during the audit",
    ),
    read("cut short", truncate),
    read("rewritten", rewrite),
    read("rewritten with its old date", rewrite_in_secret),
]
