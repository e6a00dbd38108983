"""The hard limit of a learned position table, seen in the table and proved by running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit_transformers.anatomy import position_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def possible_limits(core: nn.Module) -> tuple[int, ...]:
    """The lengths that the position tables of a model may allow, longest first.

    Some tables have rows in front that no position uses: OPT keeps an `offset`, and RoBERTa counts
    from the padding index on.
    """
    limits: set[int] = set()
    for _, table, owner in position_tables(core):
        rows = table.num_embeddings
        padding = getattr(owner, "padding_idx", None)
        own = table.padding_idx if padding is None else padding
        ahead = {0, getattr(table, "offset", 0), 0 if own is None else own + 1}
        limits |= {rows - skip for skip in ahead if isinstance(skip, int) and 0 <= skip < rows}
    return tuple(sorted(limits, reverse=True))


def proved_limit(limits: tuple[int, ...], runs: Callable[[int], bool]) -> int | None:
    """The longest of the lengths that the model runs at, None when none of them limits it."""
    if not limits or runs(limits[0] + 1):
        return None
    return next((limit for limit in limits if runs(limit)), limits[-1])
