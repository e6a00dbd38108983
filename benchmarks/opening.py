"""Memory of opening checkpoints: 500 MB whole, and one layer out of 6 GB.

Every file is opened by a process of its own; safetensors files have holes and take no room on disk.
RssAnon is what no file backs: mapped pages the system takes back when memory runs short. Torch and
memaudit take some of it before any file, which is subtracted.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import torch

from benchmarks.row import Row

#: As many as a language model of that size has.
LAYERS = 32
#: Megabytes that one layer out of 6 GB may take.
MOST_FOR_A_LAYER = 1024


def rows(*, full: bool) -> Iterator[Row]:
    """Megabytes above those of the process before; of a hundredth of the size unless `full`."""
    unit = (1 << 20) // (1 if full else 100)
    with tempfile.TemporaryDirectory(prefix="opening-") as name:
        folder = Path(name)
        cases = (
            ("one layer of 6 GB, .safetensors", with_holes(folder / "a", 6144 * unit), 1),
            ("all of 500 MB, .safetensors", with_holes(folder / "b", 500 * unit), LAYERS),
            ("nothing of 500 MB, .safetensors", with_holes(folder / "c", 500 * unit), 0),
            ("all of 500 MB, .pt", torch_file(folder / "d", 500 * unit), LAYERS),
            ("nothing of 500 MB, .pt", torch_file(folder / "e", 500 * unit), 0),
        )
        for what, path, layers in cases:
            command = [sys.executable, "-m", "benchmarks.opening", str(path), str(layers)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            limit = MOST_FOR_A_LAYER if layers == 1 else None
            note = "" if full else "a hundredth of it"
            yield Row("opening", what, float(done.stdout), "MB", limit, note)


def with_holes(path: Path, size: int) -> Path:
    """A safetensors file of so many bytes, all of them zeros that the disk does not store."""
    rows = size // LAYERS // 4096
    step = rows * 4096
    entries = {
        f"layers.{i}.weight": {
            "dtype": "F32",
            "shape": [rows, 1024],
            "data_offsets": [i * step, (i + 1) * step],
        }
        for i in range(LAYERS)
    }
    header = json.dumps(entries).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + LAYERS * step)
    return path


def torch_file(path: Path, size: int) -> Path:
    """What torch.save writes for a model of so many bytes."""
    rows = size // LAYERS // 4096
    torch.save({f"layers.{i}.weight": torch.zeros(rows, 1024) for i in range(LAYERS)}, path)
    return path


def anonymous() -> float:
    """The megabytes of this process that no file backs; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return 0.0
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def opened(path: Path, *, layers: int) -> float:
    """Open a file, copy some layers: the most megabytes meanwhile, above those before."""
    from memaudit.loading import open_checkpoint

    before, stop = anonymous(), Event()
    peaks = [before]

    def watch() -> None:  # the system keeps the peak of RSS, but not that of its parts
        while not stop.wait(0.002):
            peaks[0] = max(peaks[0], anonymous())

    watcher = Thread(target=watch)
    watcher.start()
    tensors = open_checkpoint(path).tensors
    copies = [tensors[f"layers.{i}.weight"].clone() for i in range(layers)]
    stop.set()
    watcher.join()
    assert not any(bool(copy.any()) for copy in copies)
    return max(peaks[0], anonymous()) - before


if __name__ == "__main__":
    print(opened(Path(sys.argv[1]), layers=int(sys.argv[2])))
