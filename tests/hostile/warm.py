"""Imported once by the process whose forks run the rows: a row then costs only its own work.

A row without rights may not be able to read the modules any more, so the command is run here.
"""

import contextlib
import io
import os

import torch

from memaudit import registry
from memaudit.cli.app import main

torch.set_num_threads(1)
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(["scan", "demo:lstm", "--quick", "--horizon", "16", "--json", "-"])
    main(["scan", "demo:lstm", "--quick", "--horizon", "16"])
    main(["scan", os.devnull])
registry._installed.cache_clear()
