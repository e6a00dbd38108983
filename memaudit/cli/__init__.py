"""The command line: `memaudit.cli:main` is the console entry point."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and give back its exit code.

    The commands are imported here, so that Ctrl-C is handled while they load.
    """
    # Long sequences take fresh memory all the time, and large pages make that three times cheaper.
    # torch reads this when it first takes memory, so before it is imported.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Threads that spin while they wait for each other take the processor from whoever works:
    # beside another program an LSTM ran five times slower on two threads than on one.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from memaudit.cli.app import main as run

        return run(arguments)
    except KeyboardInterrupt:
        from memaudit.cli.output import INTERRUPTED, UNMEASURED, say

        say(UNMEASURED)
        return INTERRUPTED
