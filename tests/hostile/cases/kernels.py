"""Kernels of targets that are no kernels: `memaudit family --target FILE`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.hostile.case import Case, Scene

MEMBERS = ["demo:rnn", "demo:gru", "--draws", "1", "--ascent", "0", "--steps", "16"]


class Canary:
    """Creates a file when somebody unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def target(name: str, write: Callable[[Path, Scene], object]) -> Callable[[Scene], list[str]]:
    """A family against a file of that name."""

    def arrange(scene: Scene) -> list[str]:
        write(scene.inputs / name, scene)
        return ["family", *MEMBERS, "--target", str(scene.inputs / name)]

    return arrange


def pickled(path: Path, scene: Scene) -> None:
    np.save(path, np.array([Canary(scene.canary)], dtype=object), allow_pickle=True)


def cut(path: Path, scene: Scene) -> None:
    del scene
    np.save(path, np.arange(9.0))
    os.truncate(path, path.stat().st_size - 1)


def sparse(path: Path, scene: Scene) -> None:
    del scene
    path.touch()
    os.truncate(path, 1 << 40)


def wide(path: Path, scene: Scene) -> None:
    del scene
    np.save(path, np.zeros((16, 3)))


def text(words: str) -> Callable[[Path, Scene], object]:
    return lambda path, scene: path.write_text(words)


CASES = [
    Case("kernel", "objects in an array", target("k.npy", pickled), 3, "E_UNSAFE_FORMAT"),
    Case("kernel", "an array cut short", target("k.npy", cut), 3, "E_CORRUPT"),
    Case("kernel", "a terabyte of nothing", target("k.txt", sparse), 3, "E_LIMIT"),
    Case("kernel", "words", target("k.csv", text("a,b\n")), 3, "E_CORRUPT", says="line 1"),
    Case("kernel", "no number", target("k.csv", text("1\nnan\n")), 3, "E_CORRUPT"),
    Case("kernel", "three channels for one", target("k.npy", wide), 2, "E_ARGUMENT"),
    Case(
        "kernel",
        "a pipe nobody writes to",
        target("k.npy", lambda p, _: os.mkfifo(p)),
        2,
        "E_ARGUMENT",
    ),
]
