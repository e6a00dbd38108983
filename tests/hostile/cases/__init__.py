"""The cases by group: every module here has a list CASES."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.hostile.case import Case


def every_case() -> list[Case]:
    """All cases, group by group; two of one name would hide each other."""
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__))
    found = [case for m in modules for case in import_module(f"{__name__}.{m}").CASES]
    names = [case.title for case in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"cases with one name: {twice}"
    return found
