"""One step of torch's recurrent cells as pure functions of state and weights.

Every weight may have copies in front: weights (K,…) with states (K,B,h), or plain ones with (B,h).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What torch calls a cell → what reports call it.
MODES = {"RNN_TANH": "RNN", "RNN_RELU": "RNN", "GRU": "GRU", "LSTM": "LSTM"}


@dataclass(frozen=True, slots=True)
class CellWeights:
    """The weights of one layer in one direction, by torch's names for them."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    weight_hr: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of the parts of a state: what is answered, and the cell state of an LSTM."""
        answered = self.weight_hh.shape[-1]
        if self.weight_hh.shape[-2] == 4 * self.hidden:
            return (answered, self.hidden)
        return (answered,)

    @property
    def hidden(self) -> int:
        """Units of the layer; a projected layer answers fewer."""
        holder = self.weight_hh if self.weight_hr is None else self.weight_hr
        return holder.shape[-1]

    def to(self, dtype: torch.dtype) -> CellWeights:
        """The same weights in another dtype."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return CellWeights(**{name: value.to(dtype) for name, value in given if value is not None})


def cell_weights(named: Mapping[str, Tensor], layer: int, *, reverse: bool) -> CellWeights:
    """The weights of one layer and direction out of those that torch's module has."""
    end = f"_l{layer}_reverse" if reverse else f"_l{layer}"
    found = {name.removesuffix(end): value for name, value in named.items() if name.endswith(end)}
    return CellWeights(**found)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b for rows x (…,B,D), with copies of W and b in front or without."""
    product = x @ weight.mT
    return product if bias is None else product + bias.unsqueeze(-2)


def drive(mode: str, x: Tensor, weights: CellWeights) -> Tensor:
    """What the input gives to the gates: all of it that does not depend on the state.

    A GRU multiplies its recurrent bias by a gate, so that bias waits for the step.
    """
    bias, late = weights.bias_ih, weights.bias_hh
    if mode != "GRU" and bias is not None and late is not None:
        bias = bias + late
    return affine(x, weights.weight_ih, bias)


def advance(
    mode: str, given: Tensor, state: tuple[Tensor, ...], weights: CellWeights
) -> tuple[Tensor, ...]:
    """The state after one step, from what the input gives and the state before."""
    if mode == "LSTM":
        return _lstm(given, state[0], state[1], weights)
    if mode == "GRU":
        return (_gru(given, state[0], weights),)
    gate = given + affine(state[0], weights.weight_hh, None)
    return (gate.relu() if mode == "RNN_RELU" else gate.tanh(),)


def _gru(given: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    """The order of the gates is r, z, n; z keeps the old state."""
    from_state = affine(h, weights.weight_hh, weights.bias_hh)
    given_r, given_z, given_n = given.chunk(3, dim=-1)
    state_r, state_z, state_n = from_state.chunk(3, dim=-1)
    r = (given_r + state_r).sigmoid()
    z = (given_z + state_z).sigmoid()
    n = (given_n + r * state_n).tanh()
    return n + z * (h - n)


def _lstm(given: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    """The order of the gates is i, f, g, o; a projection shortens h, never c."""
    gates = given + affine(h, weights.weight_hh, None)
    i, f, g, o = gates.chunk(4, dim=-1)
    kept = f.sigmoid() * c + i.sigmoid() * g.tanh()
    shown = o.sigmoid() * kept.tanh()
    if weights.weight_hr is not None:
        shown = affine(shown, weights.weight_hr, None)
    return shown, kept
