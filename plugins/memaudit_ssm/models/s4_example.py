"""The stack of S4's example with blocks of S4 in the place of S4D."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit_ssm.layers.s4 import S4Layer
from memaudit_ssm.models.example import ExampleStack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from memaudit_ssm.layers.core import Core


class S4ExampleStack(ExampleStack):
    """The example's stack; the recurrence of a block of version 4 is one level deeper."""

    def cores(self) -> Mapping[str, Core]:
        return cores_of(self.blocks(), self.s4_layers)

    def describe(self) -> str:
        return super().describe() + restored(self.cores().values())


def cores_of(names: Iterable[str], blocks: Iterable[nn.Module]) -> dict[str, Core]:
    """The recurrences of blocks of any version, by the names of their blocks."""
    found: dict[str, Core] = {}
    for name, block in zip(names, blocks, strict=True):
        parts = [part for part in block.modules() if isinstance(part, S4Layer)]
        found[name] = parts[0]
    return found


def restored(cores: Iterable[Core]) -> str:
    """How well the readouts were restored that the files hold in another form; or nothing."""
    worst = max((core.condition for core in cores if isinstance(core, S4Layer)), default=1.0)
    return "" if worst <= 1.0 else f"; readouts restored, condition number {worst:.1e}"
