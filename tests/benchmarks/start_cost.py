"""Start-up of the command line against `import torch`, turn by turn in one run.

python -m tests.benchmarks.start_cost [--repeat 7]

Bytecode is kept in a folder of its own and made before the clock starts, as pip does it: an
environment with PYTHONDONTWRITEBYTECODE would compile memaudit at every start, and torch never.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

RUN = "from memaudit.cli import main; main()"
COUNT = "; import sys; print(len(sys.modules), file=sys.stderr)"
COMMANDS = ("--help", "list", "explain MA101", "explain horizon")


def seconds(program: str, *words: str, environment: dict[str, str]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    command = [sys.executable, "-c", program, *words]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - start


def modules(*words: str) -> int:
    """How many modules a command imports."""
    command = [sys.executable, "-c", RUN + COUNT, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stderr.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    programs = {"import torch": ("import torch",)}
    programs |= {f"memaudit {words}": (RUN, *words.split()) for words in COMMANDS}
    with tempfile.TemporaryDirectory() as kept:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": kept}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        turns = [
            [seconds(*words, environment=environment) for words in programs.values()]
            for _ in range(repeat + 1)
        ]
    best = dict(zip(programs, map(min, zip(*turns[1:], strict=True)), strict=True))
    print(f"{'':24} {'s':>6} {'share':>6} {'modules':>8}   (best of {repeat})")
    for name, value in best.items():
        words = name.partition(" ")[2].split()
        count = modules(*words) if name.startswith("memaudit") else ""
        print(f"{name:24} {value:6.2f} {value / best['import torch']:6.2f} {count:>8}")


if __name__ == "__main__":
    main()
