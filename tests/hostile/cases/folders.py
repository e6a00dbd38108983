"""Folders that lead elsewhere: by the names in an index, by links, by what is no file."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from tests.hostile.cases.files import no_report, refused
from tests.hostile.small_models import (
    SHARDS,
    lstm,
    write,
    write_evil,
    write_index,
    write_shards,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.hostile.case import Case, Scene

FIRST, SECOND = (f"{name}.safetensors" for name in SHARDS)
INDEX = "model.safetensors.index.json"
__all__ = ["CASES", "no_report"]


def leading_to(name: str) -> Callable[[Scene], Path]:
    """A folder whose index names a file; what it may lead to is there."""

    def make(scene: Scene) -> Path:
        write(scene.inputs / "secret.safetensors")
        write(scene.inputs / "model" / "below" / "secret.safetensors")
        place = name.replace("ROOT", str(scene.inputs))
        write_index(scene.inputs / "model", dict.fromkeys(lstm(), place))
        return scene.inputs / "model"

    return make


def shards_but(change: Callable[[Path], None]) -> Callable[[Scene], Path]:
    """Two shards with their index, and something done to them."""

    def make(scene: Scene) -> Path:
        folder = write_shards(scene.inputs / "model")
        change(folder)
        return folder

    return make


def folder_of(change: Callable[[Scene, Path], None]) -> Callable[[Scene], Path]:
    def make(scene: Scene) -> Path:
        write(scene.inputs / "secret.safetensors")
        (scene.inputs / "model").mkdir()
        change(scene, scene.inputs / "model" / "model.safetensors")
        return scene.inputs / "model"

    return make


def remap(folder: Path, **changes: str | None) -> None:
    """The index with other places; None leaves a tensor out."""
    path = folder / INDEX
    weight_map = json.loads(path.read_text())["weight_map"] | changes
    write_index(folder, {name: place for name, place in weight_map.items() if place})


def said(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / INDEX).write_text(text)

    return change


def without_first_bias(folder: Path) -> None:
    remap(folder, **{"rnn.bias_ih_l0": None})


def giant(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / name).open("r+b") as stream:
            stream.truncate(8 << 40)

    return change


def linked_shard(folder: Path) -> None:
    (folder / SECOND).rename(folder.parent / SECOND)
    (folder / SECOND).symlink_to(folder.parent / SECOND)


def evil_shard(scene: Scene) -> Path:
    folder = write_shards(scene.inputs / "model", ".bin")
    write_evil(folder / "pytorch_model-00002-of-00002.bin", scene.canary)
    return folder


def many_names() -> str:
    return '{"weight_map":{' + ",".join(f'"{i}":"a"' for i in range(1_000_000)) + "}}"


def index_case(name: str, text: str, code: str = "E_CORRUPT") -> Case:
    return refused(f"index: {name}", shards_but(said(text)), code)


NAMES = {
    "climbing": "../secret.safetensors",
    "climbing twice": "../../in/secret.safetensors",
    "climbing and back": "below/../../secret.safetensors",
    "absolute": "ROOT/secret.safetensors",
    "below": "below/secret.safetensors",
    "a backslash": "..\\secret.safetensors",
    "a drive": "C:secret.safetensors",
    "NUL": "secret.safetensors\0.safetensors",
    "an escape": "\x1b[31m.safetensors",
    "reversed text": "\u202esrosnetefas.safetensors",
    "nothing": "",
    "the folder itself": ".",
    "a name of 5000 letters": "x" * 5000 + ".safetensors",
}

CASES = [
    *(refused(f"index: {what}", leading_to(name), "E_PATH") for what, name in NAMES.items()),
    index_case("no JSON", "weight_map"),
    index_case("null", "null"),
    index_case("a list", "[]"),
    index_case("no weight_map", "{}"),
    index_case("an empty weight_map", '{"weight_map":{}}'),
    index_case("numbers for files", '{"weight_map":{"a":1}}'),
    index_case("one tensor twice", '{"weight_map":{"a":"x","a":"y"}}'),
    index_case("two weight_maps", '{"weight_map":{},"weight_map":{}}'),
    index_case("a depth bomb", "[" * 1_000_000, "E_LIMIT"),
    index_case("a smaller depth bomb", '{"a":' * 50_000),
    index_case("a million names", many_names(), "E_LIMIT"),
    index_case("17 megabytes", " " * (17 << 20), "E_LIMIT"),
    refused(
        "index: a missing shard",
        shards_but(lambda folder: (folder / SECOND).unlink()),
        "E_NOT_FOUND",
        f"{SECOND} is missing",
    ),
    refused(
        "index: itself missing",
        shards_but(lambda folder: (folder / INDEX).unlink()),
        "E_NOT_FOUND",
        INDEX,
    ),
    refused(
        "index: a tensor that is in no shard",
        shards_but(lambda folder: remap(folder, ghost=FIRST)),
        "E_WEIGHTS",
        "ghost is missing",
    ),
    refused(
        "index: a tensor that it does not name",
        shards_but(without_first_bias),
        "E_WEIGHTS",
        "rnn.bias_ih_l0 is not named",
    ),
    refused(
        "index: a tensor in the wrong shard",
        shards_but(lambda folder: remap(folder, **{"rnn.weight_ih_l0": SECOND})),
        "E_WEIGHTS",
    ),
    refused(
        "index: one tensor in two shards",
        shards_but(lambda folder: save_file(lstm(), folder / SECOND)),
        "E_WEIGHTS",
    ),
    refused(
        "index: a shard of another format",
        shards_but(lambda folder: torch.save(dict(list(lstm().items())[2:]), folder / SECOND)),
        "E_WEIGHTS",
    ),
    refused("index: a shard outside", shards_but(linked_shard), "E_PATH", "outside"),
    refused("index: a giant shard", shards_but(giant(SECOND)), "E_LIMIT", "8.0 TB"),
    refused("index: a giant index", shards_but(giant(INDEX)), "E_LIMIT"),
    refused("index: an evil shard", evil_shard, "E_UNSAFE_FORMAT"),
    refused(
        "folder: a symbolic link outside",
        folder_of(lambda scene, path: path.symlink_to(scene.inputs / "secret.safetensors")),
        "E_PATH",
        "leads outside the folder",
    ),
    refused(
        "folder: a hard link outside",
        folder_of(lambda scene, path: os.link(scene.inputs / "secret.safetensors", path)),
        "E_PATH",
        "hard link",
    ),
    refused(
        "folder: a link to a system file",
        folder_of(lambda scene, path: path.symlink_to("/etc/passwd")),
        "E_PATH",
    ),
    refused(
        "folder: a link to itself", folder_of(lambda scene, path: path.symlink_to(path)), "E_PATH"
    ),
    refused(
        "folder: a link to nothing",
        folder_of(lambda scene, path: path.symlink_to("gone")),
        "E_NOT_FOUND",
    ),
    refused("folder: a FIFO", folder_of(lambda scene, path: os.mkfifo(path)), "E_PATH", "FIFO"),
    refused(
        "folder: a device", folder_of(lambda scene, path: path.symlink_to("/dev/zero")), "E_PATH"
    ),
    refused("folder: a folder", folder_of(lambda scene, path: path.mkdir()), "E_PATH", "folder"),
    refused("folder: nothing", folder_of(lambda scene, path: None), "E_NOT_FOUND"),
]
