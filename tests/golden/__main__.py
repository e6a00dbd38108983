"""python -m tests.golden [--record]: how the demos differ from their records, or new records.

A difference is a defect, or an improvement that the change log explains.
"""

from __future__ import annotations

import sys

import torch

from tests.golden.answers import answer, differences, record, stored

torch.set_num_threads(1)
if sys.argv[1:] == ["--record"]:
    record()
else:
    for demo, was in stored().items():
        lines = list(differences(was, answer(demo)))
        print(demo, "same" if not lines else "differs:", *lines, sep="\n  ")
