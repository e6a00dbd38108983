"""A layer of many slightly different copies, run over time at once.

Sequences are (K,T,B,·) and weights (K,…). K is 1 where all copies have the same, so that what no
copy moves is worked out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from memaudit.numerics.chunking import chunk_length, spans
from memaudit_rnn.cells import CellWeights, advance, drive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    Steps = Iterable[tuple[Tensor, Tensor]]

Item = TypeVar("Item")


def run_tracked(mode: str, x: Tensor, weights: CellWeights, *, reverse: bool) -> Tensor:
    """The answers (K,T,B,·) of a layer to x; gradients flow to the weights."""
    given = _driven(mode, x, weights)
    copies = max(len(given), len(weights.weight_hh))
    state = tuple(given.new_zeros(copies, given.shape[2], size) for size in weights.sizes)
    shown: list[Tensor] = []
    for now in _ordered(given.unbind(1), reverse=reverse):
        state = advance(mode, now, state, weights)
        shown.append(state[0])
    return torch.stack(_ordered(shown, reverse=reverse), dim=1)


def run_quick(mode: str, x: Tensor, weights: CellWeights, *, reverse: bool) -> Tensor:
    """The answers (K,T,B,·) of a layer to x, written in place: no gradients.

    Where the copies share the recurrent weights they are rows of one product, else each of them
    is a product of its own.
    """
    every = (x, weights.weight_ih, weights.bias_ih, weights.bias_hh, *_recurrent(weights))
    copies = max(len(part) for part in every if part is not None)
    shared = all(len(weight) == 1 for weight in _recurrent(weights))
    groups, rows = (1, copies * x.shape[2]) if shared else (copies, x.shape[2])
    runner = _Runner(mode, weights, groups, rows)
    answers = x.new_empty(groups, x.shape[1], rows, weights.sizes[0])
    wide = weights.weight_hh.shape[-2] * groups * rows
    cuts = list(spans(x.shape[1], chunk_length(x.shape[1], wide)))
    for span in _ordered(cuts, reverse=reverse):
        given = _driven(mode, x[:, span], weights).expand(copies, -1, -1, -1)
        if shared:
            given = given.transpose(0, 1).flatten(1, 2).unsqueeze(0)
        pairs = zip(given.unbind(1), answers[:, span].unbind(1), strict=True)
        runner.run(_ordered(list(pairs), reverse=reverse))
    if shared:
        return answers[0].unflatten(1, (copies, -1)).transpose(0, 1)
    return answers


class _Runner:
    """The steps of a layer in place, with its state and working arrays."""

    def __init__(self, mode: str, weights: CellWeights, groups: int, rows: int) -> None:
        hh, hr = weights.weight_hh, weights.weight_hr
        self._run = {"LSTM": self._lstm, "GRU": self._gru}.get(mode, self._rnn)
        self._relu = mode == "RNN_RELU"
        # Products of few rows are fastest with the rows of the second factor one behind the other.
        self._hh = hh.mT.contiguous().expand(groups, -1, -1)
        self._hr = None if hr is None else hr.mT.contiguous().expand(groups, -1, -1)
        self._bias = _in_rows(weights, groups, rows)
        self._state = [hh.new_zeros(groups, rows, size) for size in weights.sizes]
        self._gates = hh.new_empty(groups, rows, hh.shape[-2])
        self._room = hh.new_empty(groups, rows, weights.hidden)

    def run(self, steps: Steps) -> None:
        """What the input gives to each step, and where its answer goes."""
        self._run(steps)

    def _rnn(self, steps: Steps) -> None:
        h, hh = self._state[0], self._hh
        for given, out in steps:
            torch.baddbmm(given, h, hh, out=self._gates)
            h = torch.relu_(self._gates) if self._relu else torch.tanh_(self._gates)
            h = out.copy_(h)
        self._state[0] = h

    def _gru(self, steps: Steps) -> None:
        h, hh, gates, n = self._state[0], self._hh, self._gates, self._room
        width = n.shape[-1]
        both, reset, keep = gates[..., : 2 * width], gates[..., :width], gates[..., width:-width]
        inner = gates[..., -width:]
        for given, out in steps:
            torch.baddbmm(self._bias, h, hh, out=gates)
            both.add_(given[..., : 2 * width]).sigmoid_()
            torch.addcmul(given[..., -width:], reset, inner, out=n).tanh_()
            h = torch.lerp(n, h, keep, out=out)
        self._state[0] = h

    def _lstm(self, steps: Steps) -> None:
        (h, c), hh, gates, room = self._state, self._hh, self._gates, self._room
        take, forget, fresh, show = gates.chunk(4, dim=-1)
        both = gates[..., : 2 * room.shape[-1]]
        for given, out in steps:
            torch.baddbmm(given, h, hh, out=gates)
            both.sigmoid_()
            show.sigmoid_()
            c.mul_(forget).addcmul_(take, fresh.tanh_())
            torch.tanh(c, out=room)
            if self._hr is None:
                h = torch.mul(show, room, out=out)
            else:
                h = out.copy_(torch.bmm(room.mul_(show), self._hr))
        self._state[0] = h


def _recurrent(weights: CellWeights) -> list[Tensor]:
    """The weights that multiply the state."""
    both = (weights.weight_hh, weights.weight_hr)
    return [weight for weight in both if weight is not None]


def _in_rows(weights: CellWeights, groups: int, rows: int) -> Tensor:
    """The recurrent bias for every row, where copies may be rows; only a GRU adds it late."""
    bias = weights.bias_hh
    if bias is None:
        return weights.weight_hh.new_zeros(1, 1, 1).expand(groups, rows, -1)
    if groups == 1:
        return bias.repeat_interleave(rows // len(bias), dim=0).unsqueeze(0)
    return bias.unsqueeze(1).expand(groups, rows, -1)


def _driven(mode: str, x: Tensor, weights: CellWeights) -> Tensor:
    """What all steps (K,T,B,·) give to the gates, in one product."""
    return drive(mode, x.flatten(1, 2), weights).unflatten(1, x.shape[1:3])


def _ordered(items: Sequence[Item], *, reverse: bool) -> list[Item]:
    return list(reversed(items)) if reverse else list(items)
