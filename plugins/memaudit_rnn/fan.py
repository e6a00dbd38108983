"""A layer of copies that lie along a few directions, at the same sizes on each, run over time.

A copy has the weights W + size · D. Its product with a state h is h W + size · (h D): all sizes of
a direction are rows of one product with W and D side by side, and no copy's weights are made.
Sequences are (K,T,S,B,·), of K directions at S sizes; both are 1 where nothing before has moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

#: The gates of an LSTM that are squashed alike stand together here: i, f, o, then g.
TOGETHER = (0, 1, 3, 2)
FRESH = 2


@dataclass(frozen=True, slots=True)
class Leaning:
    """W x + b whose weights (M,D) and (M,) move along directions (K,M,D) and (K,M), or stay."""

    weight: Tensor
    bias: Tensor | None = None
    weight_way: Tensor | None = None
    bias_way: Tensor | None = None

    def rest(self, x: Tensor) -> Tensor:
        """What the weights give as they are, to x of any shape (…,D)."""
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def slope(self, x: Tensor) -> Tensor | None:
        """What a move of size one adds, for x (1 or K,…,D); None where nothing moves."""
        if self.weight_way is not None:
            product = x.flatten(1, -2) @ self.weight_way.mT
            if self.bias_way is not None:
                product += self.bias_way.unsqueeze(1)
            return product.unflatten(1, x.shape[1:-1])
        if self.bias_way is None:
            return None
        flat = self.bias_way.reshape(len(self.bias_way), *[1] * (x.ndim - 2), -1)
        return flat.expand(-1, *x.shape[1:-1], -1)

    def spread(self, x: Tensor, sizes: Tensor) -> Tensor:
        """W x + b of every direction at every size (S,1,1)."""
        rest, slope = self.rest(x), self.slope(x)
        return rest if slope is None else torch.addcmul(rest, slope, sizes)


def run_fan(
    mode: str,
    x: Tensor,
    named: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    sizes: Tensor,
    out: Tensor,
    *,
    reverse: bool,
) -> None:
    """Write the answers of a layer to x into `out` (K,T,S,B,h).

    `named` holds the weights of the layer and the directions (K,…) of some, by torch's names.
    """
    weights, ways = ({n: _together(mode, v, n) for n, v in some.items()} for some in named)
    shape = (*out.shape[:1], *out.shape[2:4], len(weights["weight_hh"]))
    biases = [(some.get("bias_ih"), some.get("bias_hh")) for some in (weights, ways)]
    # The recurrent bias of a GRU is multiplied by a gate: it stays with the state.
    early, late = ([_sum(b) for b in biases], [None, None])
    if mode == "GRU":
        early, late = [b[0] for b in biases], [b[1] for b in biases]
    given = Leaning(weights["weight_ih"], early[0], ways.get("weight_ih"), early[1])
    drive = _Drive(x, given, sizes, shape)
    own = Leaning(weights["weight_hh"], late[0], ways.get("weight_hh"), late[1])
    steps = range(x.shape[1])
    run = {"LSTM": _lstm, "GRU": _gru, "RNN_RELU": _relu}.get(mode, _tanh)
    run(drive, _Product(own, sizes, shape), out, reversed(steps) if reverse else steps)


class _Product:
    """W h + b of the states of one step, with its working array."""

    def __init__(self, own: Leaning, sizes: Tensor, shape: tuple[int, ...]) -> None:
        copies, places, rows, _ = shape
        self._sizes, self._way = sizes, None
        self._factor = own.weight.mT.contiguous()
        if own.weight_way is not None:
            self._way = own.weight_way.mT.contiguous()
            self._scaled = sizes.new_empty(copies, places, rows, own.weight.shape[1])
        bias = None if own.bias is None else own.bias.expand(1, 1, 1, -1)
        if bias is not None and own.bias_way is not None:
            bias = torch.addcmul(bias, own.bias_way[:, None, None], sizes)
        self._bias = bias

    def into(self, gates: Tensor, h: Tensor) -> Tensor:
        """The products (K,S,B,·) of h (K,S,B,D), written to `gates`.

        What all directions share is one large product; sizes are put to the states, which are
        fewer numbers than the products.
        """
        torch.mm(h.reshape(-1, h.shape[-1]), self._factor, out=gates.view(-1, gates.shape[-1]))
        if self._way is not None:
            torch.mul(h, self._sizes, out=self._scaled)
            gates.flatten(1, 2).baddbmm_(self._scaled.flatten(1, 2), self._way)
        return gates if self._bias is None else gates.add_(self._bias)


class _Drive:
    """What the input gives to the gates at each step.

    An input that no copy has of its own is multiplied once, for all steps.
    """

    def __init__(self, x: Tensor, own: Leaning, sizes: Tensor, shape: tuple[int, ...]) -> None:
        self._x, self._sizes = x, sizes
        alike = x.shape[0] == x.shape[2] == 1
        self._product = None if alike else _Product(own, sizes, shape)
        self._slope = own.slope(x) if alike else None
        self._rest = own.rest(x) if alike else x
        self._room = x.new_empty(shape if self._product or self._slope is not None else 0)

    def at(self, step: int) -> Tensor:
        """It is (K,S,B,·), or (1,1,B,·) where it is the same for all."""
        now = self._rest[:, step]
        if self._product is not None:
            return self._product.into(self._room, now)
        if self._slope is None:
            return now
        return torch.addcmul(now, self._slope[:, step], self._sizes, out=self._room)


def _tanh(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    state, gates = torch.zeros_like(out[:, 0]), _rooms(out, 1)
    for step in steps:
        product.into(gates, state).add_(drive.at(step))
        state = torch.tanh(gates, out=out[:, step])


def _relu(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    state, gates = torch.zeros_like(out[:, 0]), _rooms(out, 1)
    for step in steps:
        product.into(gates, state).add_(drive.at(step))
        state = out[:, step].copy_(gates.relu_())


def _gru(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    state, gates, fresh = torch.zeros_like(out[:, 0]), _rooms(out, 3), _rooms(out, 1)
    width = out.shape[-1]
    both, inner = gates[..., : 2 * width], gates[..., 2 * width :]
    reset, keep = both.chunk(2, dim=-1)
    for step in steps:
        given = drive.at(step)
        product.into(gates, state)
        both.add_(given[..., : 2 * width]).sigmoid_()
        torch.addcmul(given[..., 2 * width :], reset, inner, out=fresh).tanh_()
        state = torch.lerp(fresh, state, keep, out=out[:, step])


def _lstm(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    """tanh(x) is 2 sigmoid(2x) - 1 here, to rounding of one: it takes half of the time.

    The weights of the fresh values are doubled already, so one call squashes all four gates.
    """
    state, gates, room = torch.zeros_like(out[:, 0]), _rooms(out, 4), _rooms(out, 1)
    kept = torch.zeros_like(room)
    take, forget, show, fresh = gates.chunk(4, dim=-1)
    for step in steps:
        product.into(gates, state).add_(drive.at(step)).sigmoid_()
        kept.mul_(forget).addcmul_(take, fresh, value=2.0).sub_(take)
        torch.add(kept, kept, out=room).sigmoid_()
        state = torch.mul(show, room, out=out[:, step]).mul_(2.0).sub_(show)


def _rooms(out: Tensor, blocks: int) -> Tensor:
    """A working array (K,S,B,·) of some blocks of units."""
    copies, _, places, rows, width = out.shape
    return out.new_empty(copies, places, rows, blocks * width)


def _together(mode: str, value: Tensor, name: str) -> Tensor:
    """The gates of an LSTM in another order, the fresh values doubled; other cells as they are."""
    if mode != "LSTM":
        return value
    dim = -2 if name.startswith("weight") else -1
    blocks = value.chunk(4, dim=dim)
    return torch.cat([blocks[k] if k != FRESH else 2.0 * blocks[k] for k in TOGETHER], dim=dim)


def _sum(biases: tuple[Tensor | None, ...]) -> Tensor | None:
    given = [bias for bias in biases if bias is not None]
    return sum(given[1:], given[0]) if given else None
