"""What is fuzzed: a name, the inputs, and the call that may raise MemauditError only."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from hypothesis import strategies as st

from memaudit.errors import MemauditError
from memaudit.loading import open_checkpoint
from memaudit.loading.access import Access
from tests.fuzz import corpus
from tests.fuzz.damage import damaged, exact_headers, headers, json_texts

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Target:
    """One reader of foreign bytes."""

    name: str
    inputs: st.SearchStrategy
    call: Callable[[bytes], object]


def opened(suffix: str, *, allow_pickle: bool = False) -> Callable[[bytes], object]:
    """Open the bytes as a file of that name, and look at every number that comes out."""

    def call(data: bytes) -> object:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            path = Path(folder) / f"model{suffix}"
            path.write_bytes(data)
            return _touched(path, allow_pickle=allow_pickle)

    return call


def in_folder(name: str) -> Callable[[bytes], object]:
    """Open a folder with honest weights in which one file holds the bytes."""

    def call(data: bytes) -> object:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            shard = "model-00001-of-00001.safetensors" if "index" in name else "model.safetensors"
            (Path(folder) / shard).write_bytes(corpus.files()["a.safetensors"])
            (Path(folder) / name).write_bytes(data)
            return _touched(Path(folder))

    return call


def _touched(path: Path, *, allow_pickle: bool = False) -> int:
    """The sum over all bytes that were loaded: a lie about sizes would crash here."""
    found = open_checkpoint(path, Access(allow_pickle=allow_pickle))
    return sum(
        len(bytes(t.contiguous().reshape(-1).view(torch.uint8).numpy()))
        for t in found.tensors.values()
    )


def reported(data: bytes) -> object:
    """Read a JSON report."""
    from memaudit.report import Report

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "report.json"
        path.write_bytes(data)
        return Report.load(path)


def report_bytes() -> bytes:
    """An honest report."""
    from memaudit.report_files import dumps
    from memaudit.testing.samples import sample_reports

    return dumps(next(iter(sample_reports().values())).to_dict()).encode()


def targets() -> list[Target]:
    """Every reader, with inputs that are near enough to get somewhere."""
    seeds = list(corpus.files().values())
    torch_files = [corpus.files()[name] for name in ("b.pt", "c.pt", "f.ckpt", "g.ckpt")]
    found = [
        Target("a damaged file", damaged(seeds), opened(".pt")),
        Target("a safetensors header", headers() | exact_headers(), opened(".safetensors")),
        Target("any bytes", st.binary(max_size=400), opened("")),
        Target("a damaged numpy archive", damaged(seeds[3:5]), opened(".npz")),
        Target("a damaged torch file", damaged(torch_files), opened(".pt")),
        Target("a pickle made inert", damaged(torch_files), opened(".ckpt", allow_pickle=True)),
        Target("a damaged msgpack file", damaged([corpus.flax()]), opened(".msgpack")),
        Target("settings in YAML", damaged([corpus.yaml_config()]), in_folder("config.yaml")),
        Target("a config", json_texts(corpus.config()), in_folder("config.json")),
        Target(
            "an index of shards",
            json_texts(corpus.index()),
            in_folder("model.safetensors.index.json"),
        ),
        Target("a report", json_texts(report_bytes()), reported),
    ]
    return found


def tried(target: Target, data: bytes) -> bool:
    """Whether the bytes were taken; anything but a refusal that memaudit knows goes up."""
    with contextlib.suppress(MemauditError):
        target.call(data)
        return True
    return False
