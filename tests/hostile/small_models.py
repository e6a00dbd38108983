"""A small LSTM in every form in which people keep weights, and ways to spoil its files."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.hostile.rows import QUICK, Arrange, Outcome, Row, Scene

SHARDS = tuple(f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
INDEX = "model.safetensors.index.json"


def weights(kind: type[nn.RNNBase] = nn.LSTM, prefix: str = "rnn.") -> dict[str, Tensor]:
    """The weights of a recurrent layer, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {prefix + k: v.detach().clone() for k, v in kind(2, 4).state_dict().items()}


def write(path: Path, tensors: Mapping[str, Tensor] | None = None) -> Path:
    """Tensors, those of the LSTM unless others are given, in the format that the suffix names."""
    found = dict(weights() if tensors is None else tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(found, path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in found.items()})
    else:  # .pth stands for the format before zip
        torch.save(found, path, _use_new_zipfile_serialization=path.suffix != ".pth")
    return path


def write_shards(folder: Path) -> Path:
    """The LSTM in two shards with their index."""
    found = list(weights().items())
    parts = dict(zip(SHARDS, (dict(found[:2]), dict(found[2:])), strict=True))
    for shard, part in parts.items():
        write(folder / shard, part)
    write_index(folder, {name: shard for shard, part in parts.items() for name in part})
    return folder


def write_index(folder: Path, weight_map: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))


def scan(make: Callable[[Scene], Path], *options: str) -> Arrange:
    """A quick scan of what `make` makes."""
    return lambda scene: ["scan", str(make(scene)), *QUICK, *options]


def refused(name: str, make: Any, code: str, says: str = "", *options: str, **more: Any) -> Row:
    return Row(name, scan(make, *options), 3, code, says, **more)


def opened(name: str, make: Any, *options: str, **more: Any) -> Row:
    return Row(name, scan(make, *options), 0, **{"check": whole, **more})


def whole(outcome: Outcome) -> None:
    """A complete report, about bytes that it names by their hash."""
    report = outcome.report()
    assert report["complete"]
    assert outcome.curves()
    assert len(report["subject"]["sha256"]) == 64


def saved(name: str, tensors: Callable[[], Mapping[str, Tensor]] = weights) -> Any:
    """A file with these tensors."""
    return lambda scene: write(scene.inputs / name, tensors())


def holding(name: str, data: bytes | Callable[[], bytes]) -> Any:
    """A file with these bytes."""

    def make(scene: Scene) -> Path:
        (scene.inputs / name).write_bytes(data if isinstance(data, bytes) else data())
        return scene.inputs / name

    return make


def changed(name: str, change: Callable[[bytes], bytes]) -> Any:
    """The LSTM's file after a change."""

    def make(scene: Scene) -> Path:
        path = write(scene.inputs / name)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


def packed(header: str | dict[str, Any], body: bytes = b"") -> bytes:
    """A safetensors file with this header."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + body


def members(*names: str, content: bytes = b"x") -> bytes:
    """A zip archive with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return buffer.getvalue()


def repacked(
    data: bytes,
    change: Callable[[str, bytes], bytes] = lambda name, content: content,
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    """A zip archive whose members were changed, with right checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for member in old.infolist():
            content = change(member.filename, old.read(member))
            new.writestr(member.filename, content, compress_type=compression)
    return buffer.getvalue()


class Call:
    """Pickled as a call: reading it back the careless way makes that call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments

    def __call__(self) -> None:
        """What is called must be callable for the pickler; nobody calls this."""


#: Stands in a pickle where instructions shall be put that no pickler writes.
PLACE = "<HERE>"


def torch_bytes(content: Any, form: str = "zip", instructions: bytes = b"") -> bytes:
    """What torch or pickle makes of a value: zip, legacy or raw, with the protocol's number.

    Instructions take the place of PLACE, in a zip.
    """
    protocol = int(form[-1]) if form[-1].isdigit() else 2
    if form.startswith("raw"):
        return pickle.dumps(content, protocol=protocol)
    buffer = io.BytesIO()
    zipped = form.startswith("zip")
    torch.save(content, buffer, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)

    def plant(_: str, content: bytes) -> bytes:
        """Names from the stack may be dotted since protocol 4; old names of modules end with 2."""
        if b"\x93" in instructions:
            content = content.replace(b"\x80\x02", b"\x80\x04")
        return content.replace(text(PLACE), instructions)

    return repacked(buffer.getvalue(), plant) if instructions else buffer.getvalue()


def text(words: str) -> bytes:
    """A text, as instructions of a pickle."""
    return b"X" + len(words).to_bytes(4, "little") + words.encode()
