"""Start-up of the command line against `import torch`, in one run.

python -m tests.benchmarks.start_cost [--repeat 7]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

RUN = "from memaudit.cli import main; main()"


def best(command: list[str], repeat: int) -> float:
    """Best wall time of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    torch_seconds = best([sys.executable, "-c", "import torch"], repeat)
    print(f"import torch     {torch_seconds:.2f} s")
    for words in (["--help"], ["list"], ["explain", "MA101"]):
        seconds = best([sys.executable, "-c", RUN, *words], repeat)
        print(f"memaudit {' '.join(words):14} {seconds:.2f} s, {seconds / torch_seconds:.2f} of it")


if __name__ == "__main__":
    main()
