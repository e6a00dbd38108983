"""Other values in the place of a model's weights, for as long as something is measured."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from memaudit.errors import MachineError, clean
from memaudit.watch import WeightsKept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memaudit.contracts import AbstractSubject


@contextmanager
def standing_in(
    live: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    """Write `values` into the tensors of the same names; afterwards the old bits stand there.

    Whatever happens inside, they are put back, and looked at: weights that cannot be put back
    raise E_WEIGHTS.
    """
    kept = WeightsKept(lambda: live)
    try:
        with torch.no_grad():
            for name, value in values.items():
                live[name].copy_(value)
        yield
    finally:
        _put_back(kept)


def _put_back(kept: WeightsKept) -> None:
    """Restore the weights; an interruption on the way waits until that is done."""
    try:
        kept.restore()
    except KeyboardInterrupt:
        kept.restore()
        raise
    if not kept.is_restored():
        names = clean(", ".join(list(kept.copies)[:5]))
        raise MachineError(
            "E_WEIGHTS",
            f"the weights {names} could not be put back",
            hint="load the model anew",
            stage="precision",
        )


def live_tensors(
    subject: AbstractSubject, wanted: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor] | None:
    """The subject's own tensors behind the wanted ones, by name or else by place in memory.

    None when one of them is not among the weights of the subject.
    """
    own = {n: t for n, t in subject.weights().items() if isinstance(t, torch.Tensor)}
    places = {place(tensor): tensor for tensor in own.values()}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in wanted.items():
        same = own.get(name)
        if same is None or same.dtype != tensor.dtype or not torch.equal(same, tensor):
            same = places.get(place(tensor))
        if same is None:
            return None
        found[name] = same
    return found


def place(tensor: torch.Tensor) -> tuple[object, ...]:
    """Where a tensor lies in memory, and in which shape: tied weights lie in the same place."""
    shape = (tuple(tensor.shape), tuple(tensor.stride()))
    return (str(tensor.device), tensor.data_ptr(), tensor.dtype, *shape)
