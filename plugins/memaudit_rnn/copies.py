"""Copies of a recurrent network whose weights differ a little, run at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from memaudit.interfaces import Role, plain_name
from memaudit.numerics.chunking import shares, side_by_side, spans
from memaudit.subjects.copies import Copies
from memaudit_rnn.network import RecurrentNetwork, retrofitted_forms, time_directions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

#: What the weights around the stack do.
GROUPS = {"encoder": "input", "head": "readout"}
#: Sizes and angles of modes stand for one each.
PER_MODE = ("original0", "original1")


def copies_of(network: RecurrentNetwork, layers: Sequence[str]) -> Copies:
    """Copies of a network, of whose table of tokens none is made; of a retrofit raw weights move.

    Moves of several sizes have a shorter way where it is as exact: half precision rounds every
    moved weight, which is to be seen, and a projected state needs another product.
    """
    # A matrix without complex modes has no angles: an empty weight cannot be moved.
    roles = {
        name: _role(name, weight, layers)
        for name, weight in network.named_parameters()
        if not name.startswith("table.") and weight.numel()
    }
    stack = network.stack
    wide = stack.weight_ih_l0.dtype in (torch.float32, torch.float64)
    plain = wide and not stack.proj_size and not retrofitted_forms(stack)
    scaled = partial(answers_along, network) if plain else None
    return Copies(network, roles, call=RecurrentNetwork.unrolled, scaled=scaled)


def _role(name: str, weight: Tensor, layers: Sequence[str]) -> Role:
    """What a weight of the network does, by torch's name for it; a raw one as what it makes."""
    owner, _, own = plain_name(name).partition(".")
    thin = "diagonal" if name.rpartition(".")[2] in PER_MODE else "vector"
    form = "matrix" if weight.ndim > 1 else thin
    if owner in GROUPS:
        return Role(GROUPS[owner], form)
    kind, _, layer = own.removesuffix("_reverse").rpartition("_l")
    group = "recurrent" if kind in ("weight_hh", "weight_hr") else "input"
    return Role(group, form, layers[int(layer)])


#: Bytes of factors and gates that are worked on at a time: they stay in the last cache.
CACHE = 2**23
#: The most directions at a time on other devices: all that memory is likely to hold.
MOST_DIRECTIONS = 256


def answers_along(
    network: RecurrentNetwork, inputs: Tensor, directions: Mapping[str, Tensor], sizes: Tensor
) -> Tensor:
    """The answers (S,K,B,T,M), or (S,K,B,M), of K directions (K,…) of some weights at S sizes."""
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    like = weights["stack.weight_hh_l0"]
    x = inputs.to(like).transpose(0, 1)[:, None, None]
    sizes = sizes.to(like).reshape(-1, 1, 1)
    count = len(next(iter(directions.values())))
    width = network.stack.hidden_size * (1 + network.stack.bidirectional)
    width = width if network.head is None else network.head.out_features
    steps = len(x) if network.pool == "none" else 1
    found = x.new_empty(steps, count, len(sizes), len(inputs), width)
    on_processor = like.device.type == "cpu"
    gates, units = like.shape
    numbers = 2 * gates * units + 3 * (gates + units) * len(sizes) * len(inputs)
    room = CACHE // (numbers * like.element_size()) if on_processor else MOST_DIRECTIONS

    def work(part: slice) -> None:
        for span in spans(part.stop - part.start, max(1, room)):
            own = slice(part.start + span.start, part.start + span.stop)
            ways = {name: way[own].to(like) for name, way in directions.items()}
            _MovedNetwork(network, weights, ways, sizes).answer(x, found[:, own])

    with torch.no_grad():
        side_by_side(work, shares(count, on_processor=on_processor))
    found = found.permute(2, 1, 3, 0, 4)
    return found if network.pool == "none" else found[:, :, :, 0]


@dataclass(frozen=True, slots=True)
class _MovedNetwork:
    """A network whose weights move by sizes s (S,1,1) along directions D (K,…) of some of them.

    (W + s D) x is W x + D (s x): the first product is one for all copies, the second one for all
    sizes of a direction, and no moved weight is made. Sequences are (T,K,S,B,·); K and S are 1
    where nothing before has moved, so that what no direction moves is worked out once.
    """

    network: RecurrentNetwork
    weights: Mapping[str, Tensor]
    ways: Mapping[str, Tensor]
    sizes: Tensor

    def answer(self, x: Tensor, out: Tensor) -> None:
        """Write the answers to `out` (T,K,S,B,M); a pooled one is one step."""
        stack, head, pool = self.network.stack, self.network.head, self.network.pool
        ends = [end for _, end in time_directions(stack)]
        bare = head is None and pool == "none" and len(ends) == 1
        if self.network.encoder is not None:
            x = torch.stack([*map(self._linear("encoder.weight", "encoder.bias"), x)])
        for layer in range(stack.num_layers):
            place = out if bare and layer == stack.num_layers - 1 else None
            both = [self._layer(x, f"_l{layer}{end}", place) for end in ends]
            x = both[0] if len(both) == 1 else torch.cat(torch.broadcast_tensors(*both), dim=-1)
        if pool != "none":
            x = self.network.pooled(x.transpose(0, 1))[None]
        linear = self._linear("head.weight", "head.bias") if head is not None else lambda now: now
        for step, now in enumerate(() if bare else x):
            out[step] = linear(now)

    def _layer(self, x: Tensor, end: str, out: Tensor | None) -> Tensor:
        """The states of one layer in one direction of time, the end of its weights' names.

        tanh(x) is 2 sigmoid(2x) - 1 in an LSTM, to rounding of one: it takes half of the time,
        and where the weights of the fresh values are doubled one call squashes all four gates.
        """
        mode = self.network.stack.mode
        weight_ih, weight_hh, bias_ih, bias_hh = (
            f"stack.{name}{end}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        # The recurrent bias of a GRU is multiplied by a gate: it stays with the state.
        late = (bias_hh,) if mode == "GRU" else ()
        given = self._linear(weight_ih, bias_ih, *(() if late else (bias_hh,)))
        recurrent = self._linear(weight_hh, *late)
        width = self.weights[weight_hh].shape[1]
        if out is None:
            moved = x.shape[2] > 1 or any(way.endswith(end) for way in self.ways)
            copies = (len(next(iter(self.ways.values()))), len(self.sizes)) if moved else (1, 1)
            out = x.new_empty(len(x), *copies, x.shape[3], width)
        h, c = torch.zeros_like(out[0]), torch.zeros_like(out[0])
        for step in reversed(range(len(x))) if end.endswith("reverse") else range(len(x)):
            now, gates, after = given(x[step]), recurrent(h), out[step]
            if mode == "LSTM":
                take, forget, show, fresh = gates.add_(now).sigmoid_().chunk(4, dim=-1)
                c.mul_(forget).addcmul_(take, fresh, value=2.0).sub_(take)
                torch.mul(show, (c + c).sigmoid_(), out=after).mul_(2.0).sub_(show)
            elif mode == "GRU":
                both, inner = gates[..., : 2 * width], gates[..., 2 * width :]
                reset, keep = both.add_(now[..., : 2 * width]).sigmoid_().chunk(2, dim=-1)
                fresh = torch.addcmul(now[..., 2 * width :], reset, inner).tanh_()
                torch.lerp(fresh, h, keep, out=after)
            elif mode == "RNN_RELU":
                torch.clamp_min(gates.add_(now), 0.0, out=after)
            else:
                torch.tanh(gates.add_(now), out=after)
            h = after
        return out

    def _linear(self, weight: str, *biases: str) -> Callable[[Tensor], Tensor]:
        """W x + b for x (K,S,B,D), with whatever moves in it."""
        # Products of few rows are fastest with the rows of the second factor one behind the other.
        factor = self._gates(self.weights, weight).mT.contiguous()
        way = self._gates(self.ways, weight).mT.contiguous() if weight in self.ways else None
        terms = [self._gates(self.weights, name) for name in biases if name in self.weights]
        terms += [
            self.sizes * self._gates(self.ways, name)[:, None, None]
            for name in biases
            if name in self.ways
        ]
        bias = sum(terms[1:], terms[0]) if terms else None

        def product(x: Tensor) -> Tensor:
            found = x @ factor
            if way is not None and x.shape[1] == 1:
                found = torch.addcmul(found, x @ way[:, None], self.sizes)
            elif way is not None:
                # Sizes are put to the states, which are fewer numbers than the products.
                found.flatten(1, 2).baddbmm_((x * self.sizes).flatten(1, 2), way)
            return found if bias is None else found + bias

        return product

    def _gates(self, named: Mapping[str, Tensor], name: str) -> Tensor:
        """One of the tensors; of an LSTM with the gates in the order i, f, o, g, and g doubled."""
        value = named[name]
        if self.network.stack.mode != "LSTM" or not name.startswith("stack."):
            return value
        dim = -2 if ".weight" in name else -1
        i, f, g, o = value.chunk(4, dim=dim)
        return torch.cat([i, f, o, 2.0 * g], dim=dim)
