"""A recurrent model as a subject: its answers, and its state as a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.interfaces import AbstractDynamics, StateBlock
from memaudit.subjects.modules import ModuleSubject
from memaudit_rnn.copies import copies_of
from memaudit_rnn.network import (
    MODES,
    CellWeights,
    advance,
    affine,
    cell_weights,
    drive,
    plain_weights,
    retrofitted_forms,
    time_directions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.report import Identity
    from memaudit.subjects.copies import Copies
    from memaudit_rnn.network import RecurrentNetwork


class RnnSubject(ModuleSubject):
    """A recurrent network that answers batches; `network` holds torch's own modules.

    `rows` are the embeddings that its input comes from.
    """

    def __init__(self, network: RecurrentNetwork, identity: Identity) -> None:
        weight = network.stack.weight_ih_l0
        assert isinstance(weight, Tensor)
        own = {"width": network.input_size, "device": weight.device, "dtype": weight.dtype}
        super().__init__(network, identity, **own)
        self.network = network
        self.rows = None if network.table is None else network.table.weight
        self.pooled = network.pool != "none"
        self.vocabulary = None if network.table is None else network.table.num_embeddings

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Distinct rows of the embedding table; a padding row of zeros is no input."""
        if self.rows is None:
            return None
        rows = self.rows.detach().to(self.device, self.dtype)
        filled = rows[rows.abs().amax(dim=1) > 0]
        order = torch.randperm(len(filled), generator=generator, device=generator.device)
        return filled[order[:count].to(filled.device)]

    def dynamics(self) -> Mapping[str, RnnDynamics]:
        """The stack from the input, or the encoder in front of it, to its last layer."""
        layers = self._layers()
        own, forms = self.network, self.network.forms
        stack = RnnDynamics(own.stack, layers, encoder=own.encoder, forms=forms)
        return {layers[0].removesuffix(".l0"): stack}

    def perturbable(self) -> Copies:
        """Copies of the network; of a retrofit the raw weights move."""
        return copies_of(self.network, self._layers())

    def _layers(self) -> list[str]:
        return [layer.layer for layer in self.identity.recurrences]


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
        cells = [
            [cell_weights(named, f"_l{layer}{end}") for _, end in time_directions(stack)]
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
    stated = {**forms, **retrofitted_forms(stack)}
    blocks: dict[str, StateBlock] = {}
    start = 0
    for number, (name, row) in enumerate(zip(layers, cells, strict=True)):
        for (way, end), weights in zip(time_directions(stack), row, strict=True):
            stop = start + sum(weights.sizes)
            plain = "direct" if cell == "RNN" else "gated"
            form = stated.get(f"weight_hh_l{number}{end}", plain)
            blocks[f"{name}{way}"] = StateBlock(start, stop, cell, form)
            start = stop
    return blocks
