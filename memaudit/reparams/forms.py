"""Every reparameterization in one of the two times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.catalog import BUILT_IN

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam


def forms(time: str) -> tuple[AbstractReparam, ...]:
    """One of each that has a form in that time, with its default options; ours come first."""
    names = dict.fromkeys((*BUILT_IN["reparams"], *registry.available("reparams")))
    kinds = {name: registry.load(registry.find("reparams", name)) for name in names}
    fitting = [name for name, kind in kinds.items() if time in getattr(kind, "times", ())]
    return tuple(registry.build("reparams", name, time=time) for name in fitting)
