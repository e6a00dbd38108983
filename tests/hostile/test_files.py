"""Files and folders: honest ones open, the others are refused by their name.

No file outside the named folder is read, no code format is opened, nothing falls back to a pickle,
and a file that is damaged, larger than allowed or full of lies about its size ends in a sentence.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.hostile.rows import QUICK, Outcome, Row, Scene, parametrized, run
from tests.hostile.small_models import (
    INDEX,
    SHARDS,
    Call,
    changed,
    holding,
    members,
    opened,
    packed,
    refused,
    saved,
    scan,
    torch_bytes,
    weights,
    whole,
    write,
    write_index,
    write_shards,
)


def renamed(old: str, new: str) -> Any:
    return lambda scene: write(scene.inputs / old).rename(scene.inputs / new)


def folder_of(name: str) -> Any:
    return lambda scene: write(scene.inputs / name).parent


def cached(scene: Scene) -> Path:
    """A snapshot as the hub's client leaves it: links to blobs outside the folder."""
    repository = scene.inputs / "models--org--name"
    place = repository / "snapshots" / ("1f" * 20)
    place.mkdir(parents=True)
    blob = write(repository / "blobs" / "made.safetensors").rename(repository / "blobs" / "beef")
    (place / "model.safetensors").symlink_to(os.path.relpath(blob, place))
    return place


def linked(scene: Scene) -> Path:
    link = scene.inputs / "mine.safetensors"
    link.symlink_to(write(scene.inputs / "elsewhere.safetensors"))
    return link


GOOD = [
    opened("safetensors", saved("model.safetensors")),
    opened("torch", saved("model.pt")),
    opened("torch before zip", saved("model.pth")),
    opened("numpy", saved("model.npz")),
    opened("a folder with only a .bin", folder_of("pytorch_model.bin")),
    opened("shards", lambda s: write_shards(s.inputs)),
    opened("the hub's cache", cached),
    opened("a link that the user names", linked),
    opened("a torch file called safetensors", renamed("m.pt", "model.safetensors")),
]


def flipped(data: bytes) -> bytes:
    at = data.index(bytes(weights()["rnn.weight_hh_l0"].numpy().data)) + 5
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def evil(scene: Scene, name: str, form: str = "zip") -> Path:
    """A file that creates the canary when it is unpickled."""
    content = {**weights(), "x": Call(os.system, f"touch {scene.canary}")}
    return holding(name, torch_bytes(content, form))(scene)


def torchscript(scene: Scene) -> Path:
    data = members("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl", content=b"\x80\x02}.")
    return holding("model.pt", data)(scene)


def giant(scene: Scene) -> Path:
    """Eight terabytes of weights that take no room on the disk."""
    size = (8 << 40) - 256
    header = {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    path = holding("m.safetensors", packed(json.dumps(header).ljust(248)))(scene)
    os.truncate(path, 8 << 40)
    return path


def entry(shape: list[int], *offsets: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [*offsets]}


def crowd() -> bytes:
    """A million tensors that hold nothing."""
    text = json.dumps(entry([0], 0, 0))
    return packed("{" + ",".join(f'"{number}":{text}' for number in range(1_000_000)) + "}")


TWICE = f'{{"w":{json.dumps(entry([1], 0, 4))},"w":{json.dumps(entry([1], 4, 8))}}}'


def objects(scene: Scene) -> Path:
    array = np.array([Call(os.system, f"touch {scene.canary}")], dtype=object)
    np.savez(scene.inputs / "m.npz", w=array)
    return scene.inputs / "m.npz"


def absurd(scene: Scene) -> Path:
    """An array that claims more numbers than the archive has."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + "\n"
    header = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()
    return holding("m.npz", members("w.npy", content=header + bytes(16)))(scene)


def npz_bomb(scene: Scene) -> Path:
    """A thousand times more zeros than bytes."""
    np.savez_compressed(scene.inputs / "m.npz", w=np.zeros(1 << 24))
    return scene.inputs / "m.npz"


def two_views(scene: Scene) -> Path:
    """A zip that shows one array to who reads its directory, another one to who reads on."""
    path = scene.inputs / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", b"first")
    first = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", b"other")
    return holding("m.npz", first + path.read_bytes())(scene)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
REFUSED = [
    refused("empty", holding("m.pt", b""), "E_CORRUPT"),
    refused("a git-lfs pointer", holding("m.pt", POINTER), "E_CORRUPT", "git lfs pull"),
    refused("a flipped bit in a torch file", changed("m.pt", flipped), "E_CORRUPT"),
    refused(
        "a raw pickle called safetensors",
        lambda s: evil(s, "m.safetensors", "raw protocol 4"),
        "E_UNSAFE_FORMAT",
    ),
    refused("TorchScript", torchscript, "E_UNSAFE_FORMAT"),
    refused("ONNX", holding("m.onnx", b"\x08\x07\x12\x07pytorch\x1a\x03"), "E_UNSAFE_FORMAT"),
    refused(
        "a SavedModel",
        lambda s: holding("saved_model.pb", b"\x08\x01")(s).parent,
        "E_UNSAFE_FORMAT",
    ),
    refused("eight terabytes", giant, "E_LIMIT", room=500),
    refused(
        "a tensor stated twice", holding("m.safetensors", packed(TWICE, bytes(8))), "E_CORRUPT"
    ),
    refused("a million empty tensors", holding("m.safetensors", crowd), "E_LIMIT", room=900),
    refused("an npz with pickled objects", objects, "E_UNSAFE_FORMAT"),
    refused("an npz that claims a terabyte", absurd, "E_CORRUPT", room=500),
    refused("an npz that unpacks to more", npz_bomb, "E_LIMIT", "", "--set", "max_bytes=50M"),
    refused("two archives in one file", two_views, "E_CORRUPT"),
]


def beside_evil(change: Callable[[bytes], bytes] = lambda data: data) -> Any:
    """Safetensors beside a .bin that would run code."""

    def make(scene: Scene) -> Path:
        evil(scene, "pytorch_model.bin")
        return changed("model.safetensors", change)(scene).parent

    return make


def leading_outside(scene: Scene) -> Path:
    """A folder whose index names a file; what it leads to is there."""
    write(scene.inputs / "secret.safetensors")
    write(scene.inputs / "model" / "below" / "secret.safetensors")
    write_index(scene.inputs / "model", dict.fromkeys(weights(), "below/../../secret.safetensors"))
    return scene.inputs / "model"


def shards_but(change: Callable[[Path], object]) -> Any:
    """Two shards with their index, and something done to them."""

    def make(scene: Scene) -> Path:
        change(write_shards(scene.inputs / "model"))
        return scene.inputs / "model"

    return make


def remap(**changes: str) -> Any:
    def change(folder: Path) -> None:
        stated = json.loads((folder / INDEX).read_text())["weight_map"]
        write_index(folder, stated | changes)

    return shards_but(change)


def unnamed(folder: Path) -> None:
    stated = json.loads((folder / INDEX).read_text())["weight_map"]
    stated.popitem()
    write_index(folder, stated)


def outside(folder: Path) -> None:
    (folder / SHARDS[1]).rename(folder.parent / SHARDS[1])
    (folder / SHARDS[1]).symlink_to(folder.parent / SHARDS[1])


def in_place(change: Callable[[Path, Path], object]) -> Any:
    """A folder with something in the place of the weights; a secret lies outside."""

    def make(scene: Scene) -> Path:
        secret = write(scene.inputs / "secret.safetensors")
        (scene.inputs / "model").mkdir()
        change(scene.inputs / "model" / "model.safetensors", secret)
        return scene.inputs / "model"

    return make


FOLDERS = [
    refused("damaged safetensors beside an evil .bin", beside_evil(half), "E_CORRUPT"),
    refused("index: climbing", leading_outside, "E_PATH"),
    refused(
        "index: a missing shard", shards_but(lambda f: (f / SHARDS[1]).unlink()), "E_NOT_FOUND"
    ),
    refused("index: a tensor that no shard has", remap(ghost=SHARDS[0]), "E_WEIGHTS", "ghost"),
    refused("index: a shard outside", shards_but(outside), "E_PATH"),
    refused("a link outside", in_place(lambda path, secret: path.symlink_to(secret)), "E_PATH"),
    refused("a hard link outside", in_place(lambda path, secret: os.link(secret, path)), "E_PATH"),
    refused("a FIFO", in_place(lambda path, _: os.mkfifo(path)), "E_PATH", room=900),
    refused("an empty folder", in_place(lambda path, _: None), "E_NOT_FOUND"),
]


def layer(**others: torch.Tensor | None) -> Any:
    """The weights of a layer with some put in their place, beside them, or left out."""
    found = weights() | {f"rnn.{name}": tensor for name, tensor in others.items()}
    return saved("m.safetensors", lambda: {k: v for k, v in found.items() if v is not None})


def misfit(name: str, says: str, **others: torch.Tensor | None) -> Row:
    return refused(f"weights: {name}", layer(**others), "E_WEIGHTS", says)


def noted(outcome: Outcome) -> None:
    whole(outcome)
    assert "unknown" in json.dumps(outcome.report()["subject"]["notes"])


WEIGHTS = [
    misfit("one missing", "weight_hh_l0", weight_hh_l0=None),
    misfit("another shape", "bias_hh_l0", bias_hh_l0=torch.zeros(17)),
    misfit("whole numbers", "weight_hh_l0", weight_hh_l0=torch.ones(16, 4, dtype=torch.int8)),
    Row("weights: a surplus one", scan(layer(unknown=torch.ones(3, 3, 3))), 0, check=noted),
    refused("weights: none", saved("m.safetensors", dict), "E_WEIGHTS"),
    refused(
        "weights: none that anybody knows",
        saved("m.safetensors", lambda: {"fc.weight": torch.ones(3, 3)}),
        "E_UNSUPPORTED",
        "fc.weight",
    ),
]


def gadgets(scene: Scene) -> np.ndarray:
    return np.array([Call(os.system, f"touch {scene.canary}")], dtype=object)


def numbers(option: str, held: Callable[[Scene], Any]) -> Any:
    """A scan fed with these numbers, or a family for a target that is made of them."""

    def arrange(scene: Scene) -> list[str]:
        path, given = scene.inputs / "numbers.npy", held(scene)
        path.write_bytes(given) if isinstance(given, bytes) else np.save(path, given)
        command = ["scan", "demo:lstm", *QUICK] if option == "--data" else FAMILY
        return [*command, option, str(path)]

    return arrange


FAMILY = ["family", "demo:rnn", "demo:gru"]
NUMBERS = [
    Row("data of pickled objects", numbers("--data", gadgets), 3, "E_UNSAFE_FORMAT"),
    Row(
        "data that are not finite",
        numbers("--data", lambda _: np.array([1.0, np.nan])),
        3,
        "E_NONFINITE",
    ),
]

ROWS = [*GOOD, *REFUSED, *FOLDERS, *WEIGHTS, *NUMBERS]


@parametrized(ROWS)
def test_a_file_is_opened_or_refused_by_its_name(
    row: Row, capfd: pytest.CaptureFixture[str]
) -> None:
    run(row, __name__, capfd)
