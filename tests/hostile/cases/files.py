"""Files of every kind: honest ones are opened, the others are refused by their name."""

from __future__ import annotations

import os
import shutil
import struct
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from tests.hostile.case import Case, Outcome, Scene
from tests.hostile.small_models import QUICK, lstm, write, write_evil, write_shards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[[Scene], Path]


def scan(make: Make, *more: str) -> Callable[[Scene], list[str]]:
    return lambda scene: ["scan", str(make(scene)), *QUICK, *more]


def refused(name: str, make: Make, code: str, says: str = "", *more: str) -> Case:
    return Case("files", name, scan(make, *more), exit=3, code=code, says=says, check=no_report)


def opened(name: str, make: Make, *more: str) -> Case:
    return Case("files", name, scan(make, *more), exit=0, check=whole_report)


def no_report(outcome: Outcome) -> None:
    assert not (outcome.scene.output / "report.json").exists(), "there is a report"


def whole_report(outcome: Outcome) -> None:
    report = outcome.report()
    assert report["complete"]
    assert outcome.curves()
    assert len(report["subject"]["sha256"]) == 64


def holding(data: bytes, name: str = "model.pt") -> Make:
    def make(scene: Scene) -> Path:
        (scene.inputs / name).write_bytes(data)
        return scene.inputs / name

    return make


def members(*names: str, file: str = "model.pt") -> Make:
    def make(scene: Scene) -> Path:
        with zipfile.ZipFile(scene.inputs / file, "w") as archive:
            for name in names:
                archive.writestr(name, b"x")
        return scene.inputs / file

    return make


def changed(change: Callable[[bytes], bytes], name: str = "model.pt") -> Make:
    def make(scene: Scene) -> Path:
        path = write(scene.inputs / name)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


def flipped(data: bytes) -> bytes:
    at = data.index(bytes(lstm()["rnn.weight_hh_l0"].numpy().data)) + 5
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def torchscript(scene: Scene) -> Path:
    class Echo(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    torch.jit.trace(Echo(), torch.ones(1)).save(scene.inputs / "model.pt")
    return scene.inputs / "model.pt"


def sparse(start: bytes, name: str) -> Make:
    """Eight terabytes that take no room on the disk."""

    def make(scene: Scene) -> Path:
        with (scene.inputs / name).open("wb") as stream:
            stream.write(start)
            stream.truncate(8 << 40)
        return scene.inputs / name

    return make


def giant_header() -> bytes:
    size = (8 << 40) - 8 - 128
    text = f'{{"w":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}'.ljust(128)
    return struct.pack("<Q", len(text)) + text.encode()


def without_checksums(scene: Scene) -> Path:
    usual = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(compute_crc32=False)
    try:
        return write(scene.inputs / "model.pt")
    finally:
        torch.serialization.set_crc32_options(usual)


def named_like_code(scene: Scene) -> Path:
    """Arrays in groups, one of which is called `code`."""
    path = scene.inputs / "model.npz"
    arrays = {name: tensor.numpy() for name, tensor in lstm().items()}
    np.savez(path, **arrays, **{"vq/code/kernel": np.ones(3)})
    return path


def slow_headers(scene: Scene) -> Path:
    """Literals that numpy would cut into tokens for half an hour."""
    text = "{'descr': " + "'' " * 3150 + "'<f4', 'fortran_order': False, 'shape': (0L,), }"
    start = b"\x93NUMPY\1\0" + struct.pack("<H", len(text))
    with zipfile.ZipFile(scene.inputs / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(2000):
            archive.writestr(f"{number}.npy", start + text.encode())
    return scene.inputs / "m.npz"


def cached(scene: Scene) -> Path:
    """A snapshot as the hub's client leaves it."""
    repository = scene.inputs / "models--org--name"
    blob = write(repository / "blobs" / "made.safetensors").rename(repository / "blobs" / "beef")
    place = repository / "snapshots" / ("1f" * 20)
    place.mkdir(parents=True)
    (place / "model.safetensors").symlink_to(os.path.relpath(blob, place))
    return place


def linked(link: Callable[[Path, Path], None]) -> Make:
    def make(scene: Scene) -> Path:
        link(write(scene.inputs / "elsewhere.safetensors"), scene.inputs / "mine.safetensors")
        return scene.inputs / "mine.safetensors"

    return make


GOOD = [
    opened("good: safetensors", lambda s: write(s.inputs / "model.safetensors")),
    opened("good: torch", lambda s: write(s.inputs / "model.pt")),
    opened("good: torch of old", lambda s: write(s.inputs / "model.pth", legacy=True)),
    opened("good: numpy", lambda s: write(s.inputs / "model.npz")),
    opened("good: numpy with an array called code", named_like_code),
    opened("good: numbers of two bytes", lambda s: write(s.inputs / "m.pt", dtype=torch.bfloat16)),
    opened("good: a folder", lambda s: write(s.inputs / "model.safetensors").parent),
    opened(
        "good: a folder with only a .bin", lambda s: write(s.inputs / "pytorch_model.bin").parent
    ),
    opened("good: shards", lambda s: write_shards(s.inputs)),
    opened("good: shards of torch", lambda s: write_shards(s.inputs, ".bin")),
    opened("good: the hub's cache", cached),
    opened("good: a symbolic link that is named", linked(lambda a, b: b.symlink_to(a))),
    opened("good: a hard link that is named", linked(lambda a, b: os.link(a, b))),
    opened(
        "good: a torch file that is called safetensors",
        lambda s: write(s.inputs / "model.pt").rename(s.inputs / "model.safetensors"),
    ),
    opened(
        "good: a safetensors file that is called .pt",
        lambda s: write(s.inputs / "model.safetensors").rename(s.inputs / "model.pt"),
    ),
]

FOREIGN = [
    refused("empty", holding(b""), "E_CORRUPT", "is empty"),
    refused("one byte", holding(b"\x80"), "E_CORRUPT"),
    refused("zeros", holding(bytes(4096)), "E_CORRUPT"),
    refused("text", holding(b"hello, I am a model"), "E_CORRUPT"),
    refused(
        "a git-lfs pointer",
        holding(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        "E_CORRUPT",
        "run git lfs pull",
    ),
    refused("a web page", holding(b"<!DOCTYPE html><html>Sign in"), "E_CORRUPT", "web page"),
    refused("an error in JSON", holding(b'{"error": "gone"}'), "E_CORRUPT", "JSON"),
    refused("half a zip", changed(lambda data: data[: len(data) // 2]), "E_CORRUPT"),
    refused("a flipped bit in a torch file", changed(flipped), "E_CORRUPT", "checksum"),
    refused("a flipped bit in an npz", changed(flipped, "model.npz"), "E_CORRUPT", "checksum"),
    refused(
        "half a safetensors file", changed(lambda d: d[:-9], "m.safetensors"), "E_CORRUPT", "short"
    ),
    refused(
        "a raw pickle that is called safetensors",
        lambda s: write_evil(s.inputs / "model.safetensors", s.canary, raw=True),
        "E_UNSAFE_FORMAT",
    ),
    refused(
        "an evil torch file that is called safetensors",
        lambda s: write_evil(s.inputs / "model.safetensors", s.canary),
        "E_UNSAFE_FORMAT",
    ),
    refused("a torch file without checksums", without_checksums, "E_CORRUPT", "saved without"),
    refused("npz headers that are slow to read", slow_headers, "E_CORRUPT"),
    refused("TorchScript", torchscript, "E_UNSAFE_FORMAT", "TorchScript"),
    refused(
        "ONNX", holding(b"\x08\x07\x12\x07pytorch\x1a\x03", "m.onnx"), "E_UNSAFE_FORMAT", "ONNX"
    ),
    refused("h5", holding(b"\x89HDF\r\n\x1a\n" + bytes(99), "m.h5"), "E_UNSAFE_FORMAT", "HDF5"),
    refused("a keras archive", members("model.weights.h5", file="m.keras"), "E_UNSAFE_FORMAT"),
    refused("a torch.export archive", members("m/archive_format", "m/x"), "E_UNSAFE_FORMAT"),
    refused(
        "a SavedModel",
        lambda s: holding(b"\x08\x01", "saved_model.pb")(s).parent,
        "E_UNSAFE_FORMAT",
        "SavedModel",
    ),
    refused("GGUF", holding(b"GGUF\3\0\0\0", "model.gguf"), "E_UNSUPPORTED", "GGUF"),
    refused("a zip of something else", members("readme.txt"), "E_UNSUPPORTED", "unpack it"),
    refused("eight terabytes of zeros", sparse(b"", "model.safetensors"), "E_CORRUPT"),
    refused("eight terabytes that begin as a zip", sparse(b"PK\3\4", "m.pt"), "E_LIMIT", "8.0 TB"),
    refused(
        "eight terabytes of weights", sparse(giant_header(), "m.safetensors"), "E_LIMIT", "8.0 TB"
    ),
    refused(
        "more than the user allows",
        lambda s: write(s.inputs / "model.safetensors"),
        "E_LIMIT",
        "max_bytes=",
        *("--set", "max_bytes=100"),
    ),
]


def without_fallback(scene: Scene) -> Path:
    """Damaged safetensors beside an evil .bin."""
    write_evil(scene.inputs / "pytorch_model.bin", scene.canary)
    changed(lambda data: data[:-1], "model.safetensors")(scene)
    return scene.inputs


def whole_beside_evil(scene: Scene) -> Path:
    write_evil(scene.inputs / "pytorch_model.bin", scene.canary)
    return write(scene.inputs / "model.safetensors").parent


def damaged_shard_beside_evil(scene: Scene) -> Path:
    write_evil(scene.inputs / "pytorch_model.bin", scene.canary)
    folder = write_shards(scene.inputs)
    shutil.copy(scene.inputs / "pytorch_model.bin", folder / "model-00002-of-00002.safetensors")
    return folder


CASES = [
    *GOOD,
    *FOREIGN,
    refused("damaged safetensors beside an evil .bin", without_fallback, "E_CORRUPT"),
    opened("whole safetensors beside an evil .bin", whole_beside_evil),
    refused("an evil shard under a safe name", damaged_shard_beside_evil, "E_UNSAFE_FORMAT"),
    refused(
        "only an evil .bin",
        lambda s: write_evil(s.inputs / "pytorch_model.bin", s.canary).parent,
        "E_UNSAFE_FORMAT",
    ),
]
