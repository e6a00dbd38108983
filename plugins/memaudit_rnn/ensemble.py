"""Many copies of a recurrent network, whose weights differ a little, answering at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractPerturbable, Role
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.numerics.chunking import shares, side_by_side, spans
from memaudit_rnn.cells import affine, cell_weights
from memaudit_rnn.copies import run_quick, run_tracked
from memaudit_rnn.fan_network import Fan, pooled
from memaudit_rnn.retrofitted import plain_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from memaudit_rnn.network import RecurrentNetwork

#: Bytes of recurrent weights that are worked on at a time: they stay in the processor's cache.
CACHE = 2**21
#: The least and the most copies at a time: fewer cost calls into torch, more cost cache.
FEWEST, MOST = 4, 64
GROUPS = {"encoder": "input", "head": "readout"}


class RnnEnsemble(AbstractPerturbable):
    """A network of torch's layers as a function of its weights; the table of tokens is no part."""

    def __init__(self, network: RecurrentNetwork, layers: Sequence[str]) -> None:
        named = plain_weights(network)
        self.weights = {n: value for n, value in named.items() if not n.startswith("table.")}
        self.roles = {name: _role(name, value, layers) for name, value in self.weights.items()}
        self._network = network

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        """The answers (K,B,T,M), or (K,B,M) of a pooled model, of K copies to (B,T,D) floats."""
        copies = checked_copies(self.weights, moved)
        some = next(iter(self.weights.values()))
        x = inputs.to(some.device, some.dtype).transpose(0, 1).unsqueeze(0)
        if torch.is_grad_enabled() and any(value.requires_grad for value in moved.values()):
            return self._answer(x, moved, tracked=True).expand(copies, *[-1] * self._dims)
        blocks: dict[int, Tensor] = {}

        def work(part: slice) -> None:
            for span in spans(part.stop - part.start, self._block(some)):
                start, stop = part.start + span.start, part.start + span.stop
                own = {name: value[start:stop] for name, value in moved.items()}
                answer = self._answer(x, own, tracked=False)
                blocks[start] = answer.expand(stop - start, *[-1] * self._dims)

        with torch.no_grad():
            side_by_side(work, shares(copies, on_processor=some.device.type == "cpu"))
            return torch.cat([blocks[start] for start in sorted(blocks)])

    def respond_fan(
        self, inputs: Tensor, directions: Mapping[str, Tensor], sizes: Tensor
    ) -> Tensor:
        """The answers (S,K,B,T,M), or (S,K,B,M), of K directions at S sizes; no gradients."""
        count = checked_copies(self.weights, directions)
        some = next(iter(self.weights.values()))
        exact = some.dtype in (torch.float32, torch.float64)
        # One size is no fan, and half precision rounds every moved weight: that is to be seen.
        if len(sizes) < 2 or not directions or not exact or self._network.stack.proj_size:
            return super().respond_fan(inputs, directions, sizes)
        x = inputs.to(some.device, some.dtype).transpose(0, 1)[None, :, None]
        fan = Fan(self._network, self.weights, sizes.to(some).reshape(-1, 1, 1))
        found = fan.room(x, count)

        def work(part: slice) -> None:
            for span in spans(part.stop - part.start, fan.block(x)):
                own = slice(part.start + span.start, part.start + span.stop)
                ways = {name: way[own].to(some) for name, way in directions.items()}
                fan.answer(x, ways, found[own])

        with torch.no_grad():
            side_by_side(work, shares(count, on_processor=some.device.type == "cpu"))
        return found.movedim(1, 3).movedim(1, 0) if found.ndim == 5 else found.transpose(0, 1)

    @property
    def _dims(self) -> int:
        return 3 if self._network.pool == "none" else 2

    def _block(self, some: Tensor) -> int:
        """How many copies are worked on at a time."""
        if some.device.type != "cpu":
            return MOST * MOST
        recurrent = self.weights["stack.weight_hh_l0"]
        room = CACHE // (recurrent.numel() * recurrent.element_size())
        return max(FEWEST, min(MOST, room))

    def _answer(self, x: Tensor, moved: Mapping[str, Tensor], *, tracked: bool) -> Tensor:
        """The answers of some copies; one for all of them where nothing that matters is moved."""
        every = {n: moved.get(n, value.unsqueeze(0)) for n, value in self.weights.items()}
        if "encoder.weight" in every:
            x = _linear(x, every["encoder.weight"], every.get("encoder.bias"))
        states = self._stack(x, every, tracked=tracked)
        answer = pooled(self._network, states)
        if "head.weight" in every:
            answer = _linear(answer, every["head.weight"], every.get("head.bias"))
        return answer.transpose(1, 2) if self._network.pool == "none" else answer

    def _stack(self, x: Tensor, every: Mapping[str, Tensor], *, tracked: bool) -> Tensor:
        stack = self._network.stack
        run = run_tracked if tracked else run_quick
        named = {n.removeprefix("stack."): v for n, v in every.items() if n.startswith("stack.")}
        for layer in range(stack.num_layers):
            ways = [
                run(stack.mode, x, cell_weights(named, layer, reverse=reverse), reverse=reverse)
                for reverse in (False, True)[: 1 + stack.bidirectional]
            ]
            copies = max(map(len, ways))
            x = torch.cat([way.expand(copies, -1, -1, -1) for way in ways], dim=-1)
        return x


def checked_copies(weights: Mapping[str, Tensor], moved: Mapping[str, Tensor]) -> int:
    """How many copies are moved; refuses what is no (K,…) of one of the weights."""
    for name, value in moved.items():
        if name not in weights:
            hint = nearest(name, weights)
            raise ArgumentError(f"there is no weight {clean(name)!r} to move", hint=hint)
        if value.shape[1:] != weights[name].shape:
            wanted = ", ".join(map(str, weights[name].shape))
            raise ArgumentError(f"{name} must be moved by (K, {wanted}), not {tuple(value.shape)}")
    counts = {len(value) for value in moved.values()} or {1}
    if len(counts) > 1:
        raise ArgumentError(f"the moved weights are of {sorted(counts)} copies, not of as many")
    return counts.pop()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer of copies on rows (K,…,D), whatever stands between."""
    rows = affine(x.flatten(1, -2), weight, bias)
    return rows.unflatten(1, x.shape[1:-1])


def _role(name: str, value: Tensor, layers: Sequence[str]) -> Role:
    """What a weight of the network does, by torch's name for it."""
    owner, _, own = name.partition(".")
    form = "matrix" if value.ndim == 2 else "vector"
    if owner in GROUPS:
        return Role(GROUPS[owner], form)
    place = own.removesuffix("_reverse").rpartition("_l")
    group = "recurrent" if place[0] in ("weight_hh", "weight_hr") else "input"
    return Role(group, form, layers[int(place[2])])
