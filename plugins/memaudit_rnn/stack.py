"""A recurrent stack: the shapes it must have, and its rebuilding in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.loading.filling import fill
from memaudit.report import Recurrence
from memaudit_rnn.keys import Place, StackKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Rows of weight_hh over the hidden size → the cell.
CELLS = {1: "RNN", 3: "GRU", 4: "LSTM"}
BLOCKS = {cell: blocks for blocks, cell in CELLS.items()}


@dataclass(frozen=True, slots=True)
class Stack:
    """The shape of one recurrent stack; `output` is per direction, smaller when projected."""

    name: str
    cell: str
    input_size: int
    hidden: int
    output: int
    layers: int
    directions: int
    bias: bool
    keys: StackKeys

    @property
    def output_size(self) -> int:
        """Width of what the stack answers at every step."""
        return self.output * self.directions

    @property
    def title(self) -> str:
        """The words for this stack in a description: kind and sizes."""
        two_way = "bidirectional " if self.directions == 2 else ""
        kind = (
            f"{self.cell}Cell" if self.keys.is_cell else f"{self.layers}-layer {two_way}{self.cell}"
        )
        projected = f" projected to {self.output}" if self.output != self.hidden else ""
        return f"{kind}, {self.input_size} → {self.hidden}{projected}"

    def width(self, layer: int) -> int:
        """Input width of one layer."""
        return self.input_size if layer == 0 else self.output_size

    def shapes(self) -> dict[Place, tuple[int, ...]]:
        """The shape that every tensor of the stack must have."""
        rows = BLOCKS[self.cell] * self.hidden
        shapes: dict[Place, tuple[int, ...]] = {}
        for layer in range(self.layers):
            for reverse in (False, True)[: self.directions]:
                shapes[Place("weight", "ih", layer, reverse)] = (rows, self.width(layer))
                shapes[Place("weight", "hh", layer, reverse)] = (rows, self.output)
                if self.bias:
                    shapes[Place("bias", "ih", layer, reverse)] = (rows,)
                    shapes[Place("bias", "hh", layer, reverse)] = (rows,)
                if self.output != self.hidden:
                    shapes[Place("weight", "hr", layer, reverse)] = (self.output, self.hidden)
        return shapes

    def recurrences(self) -> tuple[Recurrence, ...]:
        """One record per layer."""
        sizes = dict.fromkeys(range(self.layers), 0)
        for place, shape in self.shapes().items():
            sizes[place.layer] += int(torch.Size(shape).numel())
        return tuple(
            Recurrence(
                self.name if self.keys.is_cell else f"{self.name}.l{layer}",
                self.cell,
                self.hidden,
                parameters,
                self.directions,
            )
            for layer, parameters in sizes.items()
        )


def build(
    stack: Stack,
    tensors: Mapping[str, Tensor],
    *,
    nonlinearity: str,
    device: torch.device,
    dtype: torch.dtype,
) -> nn.RNNBase:
    """Torch's own module with these weights: batch first, eval mode, no gradients.

    It begins without memory: drawing initial weights would move the global random numbers.
    """
    options = {
        "num_layers": stack.layers,
        "bias": stack.bias,
        "batch_first": True,
        "bidirectional": stack.directions == 2,
        "device": "meta",
        "dtype": dtype,
    }
    sizes = (stack.input_size, stack.hidden)
    module: nn.RNNBase
    if stack.cell == "LSTM":
        projection = stack.output if stack.output != stack.hidden else 0
        module = nn.LSTM(*sizes, proj_size=projection, **options)
    elif stack.cell == "GRU":
        module = nn.GRU(*sizes, **options)
    else:
        module = nn.RNN(*sizes, nonlinearity=nonlinearity, **options)
    module.to_empty(device=device)
    fill(module, {str(place): tensors[key] for place, key in stack.keys.keys.items()})
    return module.eval().requires_grad_(False)
