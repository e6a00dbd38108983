"""A recurrent stack as a map of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractDynamics, StateBlock
from memaudit_rnn.cells import MODES, CellWeights, advance, affine, cell_weights, drive
from memaudit_rnn.retrofitted import plain_weights, told_form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn


class RnnDynamics(AbstractDynamics):
    """Encoder and stack of torch: layer by layer, h then c, forward then backward.

    The two directions of a layer advance together: what that map settles in is the state in the
    middle of a long constant input. The step is done in the dtype of the state that it is given.
    `forms` are those in which the source keeps recurrent weights that are plain here.
    """

    def __init__(
        self,
        stack: nn.RNNBase,
        layers: Sequence[str],
        *,
        encoder: nn.Linear | None = None,
        forms: Mapping[str, str] | None = None,
    ) -> None:
        named = plain_weights(stack)
        directions = (False, True) if stack.bidirectional else (False,)
        cells = [
            [cell_weights(named, layer, reverse=reverse) for reverse in directions]
            for layer in range(stack.num_layers)
        ]
        self.width = stack.input_size if encoder is None else encoder.in_features
        self.causal = not stack.bidirectional
        self.blocks = _blocks(stack, layers, cells, forms or {})
        self._mode = stack.mode
        self._encoder = encoder
        self._stored = cells
        self._cells = {cells[0][0].weight_hh.dtype: cells}

    def initial(self) -> Tensor:
        """Zeros: torch's layers begin there."""
        end = max(block.stop for block in self.blocks.values())
        return self._stored[0][0].weight_hh.new_zeros(end)

    def step(self, state: Tensor, u: Tensor) -> Tensor:
        """The states (B,n) after the inputs u (B,D)."""
        cells, seen = self._in(state.dtype), u.to(state.dtype)
        if self._encoder is not None:
            bias = self._encoder.bias
            kept = None if bias is None else bias.detach().to(seen.dtype)
            seen = affine(seen, self._encoder.weight.detach().to(seen.dtype), kept)
        parts = state.split([size for row in cells for cell in row for size in cell.sizes], dim=-1)
        after: list[Tensor] = []
        for row in cells:
            shown: list[Tensor] = []
            for cell in row:
                old = parts[len(after) : len(after) + len(cell.sizes)]
                new = advance(self._mode, drive(self._mode, seen, cell), old, cell)
                shown.append(new[0])
                after.extend(new)
            seen = torch.cat(shown, dim=-1)
        return torch.cat(after, dim=-1)

    def _in(self, dtype: torch.dtype) -> list[list[CellWeights]]:
        """The weights in a dtype; spectra are taken in double precision, whatever is stored."""
        if dtype not in self._cells:
            self._cells[dtype] = [[cell.to(dtype) for cell in row] for row in self._stored]
        return self._cells[dtype]


def _blocks(
    stack: nn.RNNBase,
    layers: Sequence[str],
    cells: Sequence[Sequence[CellWeights]],
    forms: Mapping[str, str],
) -> dict[str, StateBlock]:
    """The part of the state of every layer and direction."""
    cell = MODES[stack.mode]
    kept = "direct" if cell == "RNN" else "gated"
    ends = (("", ""),)
    if stack.bidirectional:
        ends = ((".forward", ""), (".backward", "_reverse"))
    blocks: dict[str, StateBlock] = {}
    start = 0
    for number, (name, row) in enumerate(zip(layers, cells, strict=True)):
        for (way, end), weights in zip(ends, row, strict=True):
            stop = start + sum(weights.sizes)
            weight = f"weight_hh_l{number}{end}"
            form = told_form(stack, weight) or forms.get(weight, kept)
            blocks[f"{name}{way}"] = StateBlock(start, stop, cell, form)
            start = stop
    return blocks
