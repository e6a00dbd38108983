"""Packages that only some people need: what to install where one is missing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from memaudit.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def needs(package: str, *, extra: str) -> Iterator[None]:
    """Turn the failing import of a package into an error that says how to install it."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        fact = f"{package} is not installed"
        raise MachineError(
            "E_DEPENDENCY", fact, hint=f'pip install "memaudit[{extra}]"', stage="import"
        ) from error
