"""Which weights of recurrent layers a retrofit may put into another form."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from torch.nn.utils import parametrize

from memaudit.contracts import DiagonalDecay, NoDecay
from memaudit.errors import clean
from memaudit_transformers.recurrent.finding import find_recurrences
from memaudit_transformers.recurrent.kind import tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from memaudit.contracts import StoredDecay
    from memaudit_transformers.recurrent.kind import Stored


def stored_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """One record for every recurrent layer in the module, in its order."""
    found = [(r, r.stored) for r in find_recurrences(module)]
    users = Counter(id(_own(s)) for _, s in found if not isinstance(s, str))
    for recurrent, stored in found:
        layer, cell = clean(recurrent.layer), recurrent.cell
        if isinstance(stored, str):
            yield NoDecay(layer, cell, stored)
            continue
        reason = _reason(stored, users=users[id(_own(stored))])
        if reason:
            yield NoDecay(layer, cell, reason)
        else:
            owner, name, law = stored.owner, stored.name, stored.law
            yield DiagonalDecay(layer, cell, owner, name, law, note=stored.note)


def _own(stored: Stored) -> nn.Parameter | Stored:
    """The parameter itself; what is made by a parametrization belongs to nobody else."""
    found = stored.owner._parameters.get(stored.name)
    return stored if found is None else found


def _reason(stored: Stored, *, users: int) -> str:
    """Why the tensor cannot be put into another form; empty when it can."""
    tensor = tensor_of(stored.owner, stored.name)
    if tensor is None:
        return f"it has no tensor {stored.name}"
    behind = parametrize.is_parametrized(stored.owner, stored.name)
    if not behind and stored.name not in stored.owner._parameters:
        return f"its {stored.name} is a buffer, which no training moves"
    # One byte holds no number that a law could be applied to: those are quantised weights.
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        return f"its {stored.name} is stored as {str(tensor.dtype).removeprefix('torch.')}"
    if users > 1:
        return f"its {stored.name} is one tensor for {users} layers; only all at once could change"
    return ""
