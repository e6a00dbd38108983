"""What every command that audits does first: check, import, and hush other libraries."""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, MachineError, clean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
DTYPES = ("auto", "float64", "float32", "bfloat16", "float16", "fp64", "fp32", "bf16", "fp16")


def imported(module: str) -> Any:
    """A module of memaudit that loads torch; what is missing on the machine is its own error."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").startswith("memaudit"):
            raise
        fact = f"a required package does not import: {clean(error)}"
        short = any(words in str(error) for words in ("failed to map", "Cannot allocate memory"))
        code, hint = ("E_MEMORY", "allow it more memory") if short else ("E_PLUGIN", "")
        hint = hint or "see memaudit doctor"
        raise MachineError(code, fact, hint=hint, stage="import") from error


@contextmanager
def calm(*, debug: bool) -> Iterator[None]:
    """Keep the warnings and bars of other libraries off the terminal, unless debugging."""
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
            os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield


def check_device(device: str) -> None:
    """Refuse the name of a device that torch does not have."""
    kind, _, number = device.partition(":")
    if kind not in DEVICES or (number and not number.isdecimal()) or device.endswith(":"):
        raise ArgumentError(f"unknown device {clean(device)!r}", hint=nearest(kind, DEVICES))


def check_dtype(dtype: str) -> None:
    """Refuse the name of a dtype that models are not run in."""
    if dtype not in DTYPES:
        raise ArgumentError(f"unknown dtype {clean(dtype)!r}", hint=nearest(dtype, DTYPES))
