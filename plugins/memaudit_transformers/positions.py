"""The hard limit of a learned position table, seen in the table and proved by running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit_transformers.anatomy import position_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


#: A stated length is tried out up to here: one run of a sequence that long.
LONGEST_TRIAL = 4096


def possible_limits(core: nn.Module, advertised: int | None = None) -> tuple[int, ...]:
    """The lengths that a model may allow at the most, longest first.

    Some tables have rows in front that no position uses: OPT keeps an `offset`, and RoBERTa counts
    from the padding index on. Where positions are no table of weights (GPT-J, MPT), the length that
    the config advertises may be a limit, or none (RoPE): a run tells.
    """
    limits: set[int] = set()
    if advertised is not None and advertised <= LONGEST_TRIAL:
        limits.add(advertised)
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
