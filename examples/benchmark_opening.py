"""Measure the peak memory of opening checkpoints: 500 MB whole, and one layer out of 6 GB.

python examples/benchmark_opening.py [--quick]

Every file is opened by a process of its own; safetensors files have holes and take no room on disk.
RSS counts mapped pages once they are read, which the system takes back when memory runs short;
RssAnon counts the rest, which it cannot. Torch and memaudit take some of both before any file.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import torch

from examples.benchmark_scan import own_peak
from memaudit.loading import open_checkpoint

#: As many as a language model of that size has.
LAYERS = 32


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


def anonymous() -> int:
    """The kilobytes of this process that no file backs; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return 0
    return int(status.partition("RssAnon:")[2].split()[0])


def opened(path: Path, *, layers: int) -> str:
    """Open a file, copy some layers, and say how much memory and time that took."""
    before, stop = anonymous(), Event()
    peaks = [before]

    def watch() -> None:  # the system keeps the peak of RSS, but not that of its parts
        while not stop.wait(0.002):
            peaks[0] = max(peaks[0], anonymous())

    watcher = Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    tensors = open_checkpoint(path).tensors
    copies = [tensors[f"layers.{i}.weight"].clone() for i in range(layers)]
    assert not any(bool(copy.any()) for copy in copies)
    seconds = time.perf_counter() - start
    stop.set()
    watcher.join()
    most = max(peaks[0], anonymous())
    return (
        f"RssAnon {most / 1024:5.0f} MB ({before / 1024:.0f} before), "
        f"RSS {own_peak():5.0f} MB {seconds:6.1f} s"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="files of a hundredth of the size")
    parser.add_argument("--open", nargs=2, metavar=("FILE", "LAYERS"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.open:
        print(opened(Path(asked.open[0]), layers=int(asked.open[1])))
        return
    unit = (1 << 20) // (100 if asked.quick else 1)
    with tempfile.TemporaryDirectory(prefix="opening-") as name:
        folder = Path(name)
        for what, path, layers in (
            ("one layer of 6 GB in .safetensors", with_holes(folder / "a", 6144 * unit), 1),
            ("all of 500 MB in .safetensors", with_holes(folder / "b", 500 * unit), LAYERS),
            ("nothing of 500 MB in .safetensors", with_holes(folder / "c", 500 * unit), 0),
            ("all of 500 MB in .pt", torch_file(folder / "d", 500 * unit), LAYERS),
            ("nothing of 500 MB in .pt", torch_file(folder / "e", 500 * unit), 0),
        ):
            command = [sys.executable, "-m", "examples.benchmark_opening"]
            command += ["--open", str(path), str(layers)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(f"{what:36}{done.stdout.strip()}")


if __name__ == "__main__":
    main()
