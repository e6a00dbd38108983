"""Start-up of the command line against `import torch`, turn by turn."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.row import Row, best

RUN = "from memaudit.cli import main; main()"
COUNT = "; import sys; print(len(sys.modules), file=sys.stderr)"
#: The commands, and which share of `import torch` they may take.
COMMANDS = {"--help": 0.12, "list": 0.15, "explain MA101": 0.15, "explain horizon": 0.15}


def rows(*, full: bool) -> Iterator[Row]:
    """Shares of `import torch`, and how many modules each command imports.

    Bytecode is kept in a folder of its own and made before the clock starts, as pip does it: an
    environment with PYTHONDONTWRITEBYTECODE would compile memaudit at every start, and torch never.
    """
    with tempfile.TemporaryDirectory() as kept:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": kept}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(program: str, *words: str) -> str:
            command = [sys.executable, "-c", program, *words]
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment
            )
            return done.stderr

        works = {"import torch": lambda: run("import torch"), "python": lambda: run("pass")}
        works |= {words: lambda words=words: run(RUN, *words.split()) for words in COMMANDS}
        for work in works.values():
            work()
        found = best(works, 15 if full else 5)
        counts = {words: int(run(RUN + COUNT, *words.split()).split()[-1]) for words in COMMANDS}
    torch = found["import torch"]
    yield Row("start", "python itself / import torch", found["python"] / torch)
    for words, limit in COMMANDS.items():
        note = f"{counts[words]} modules"
        yield Row(
            "start", f"memaudit {words} / import torch", found[words] / torch, "x", limit, note
        )
