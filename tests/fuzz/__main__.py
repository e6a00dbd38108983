"""`python -m tests.fuzz`: made-up inputs for every reader; only refusals may come out."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.running import fuzz
from tests.fuzz.targets import targets


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    arguments.add_argument("--examples", type=int, default=20_000, help="inputs in all")
    asked = arguments.parse_args()
    every = targets()
    total, began = 0, time.monotonic()
    for target in every:
        tried, taken = fuzz(target, examples=-(-asked.examples // len(every)))
        total += tried
        print(f"{target.name:28} {tried:7} inputs, {taken:6} taken", flush=True)
    print(f"{total} inputs, only MemauditError came out, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
