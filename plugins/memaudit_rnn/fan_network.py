"""A whole network whose copies lie along a few directions, at the same sizes on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit_rnn.cells import cell_weights
from memaudit_rnn.copies import run_quick
from memaudit_rnn.fan import Leaning, run_fan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_rnn.network import RecurrentNetwork

#: Bytes of factors and gates that are worked on at a time: they stay in the last cache.
CACHE = 2**23
#: The most directions at a time on other devices: all that memory is likely to hold.
MOST = 256


@dataclass(frozen=True, slots=True)
class Fan:
    """A network as it is, and the sizes (S,1,1) of the moves along every direction.

    Sequences are (K,T,S,B,·), of K directions at S sizes; both are 1 where nothing before has
    moved, and what no direction moves is worked out once.
    """

    network: RecurrentNetwork
    weights: Mapping[str, Tensor]
    sizes: Tensor

    def room(self, x: Tensor, count: int) -> Tensor:
        """An array for the answers of `count` directions: (K,T,S,B,M), or (K,S,B,M)."""
        stack, head = self.network.stack, self.network.head
        width = stack.hidden_size * (1 + stack.bidirectional)
        width = width if head is None else head.out_features
        steps = x.shape[1:2] if self.network.pool == "none" else ()
        return x.new_empty(count, *steps, len(self.sizes), x.shape[3], width)

    def block(self, x: Tensor) -> int:
        """How many directions are worked on at a time."""
        if x.device.type != "cpu":
            return MOST
        gates, width = self.weights["stack.weight_hh_l0"].shape
        rows = len(self.sizes) * x.shape[3]
        numbers = 2 * gates * width + rows * (3 * gates + 3 * width)
        return max(1, CACHE // (numbers * x.element_size()))

    def answer(self, x: Tensor, ways: Mapping[str, Tensor], room: Tensor) -> None:
        """Write the answers of some directions (K,…) of some weights to x (1,T,1,B,D)."""
        bare = self.network.head is None and self.network.pool == "none"
        if self.network.encoder is not None:
            x = self._leaning("encoder", ways).spread(x, self.sizes)
        answer = pooled(self.network, self._stack(x, ways, room if bare else None))
        if self.network.head is not None:
            answer = self._leaning("head", ways).spread(answer, self.sizes)
        if answer is not room:
            room.copy_(answer)

    def _leaning(self, owner: str, ways: Mapping[str, Tensor]) -> Leaning:
        names = (f"{owner}.weight", f"{owner}.bias")
        own = [self.weights.get(name) for name in names]
        assert own[0] is not None
        return Leaning(own[0], own[1], *map(ways.get, names))

    def _stack(self, x: Tensor, ways: Mapping[str, Tensor], room: Tensor | None) -> Tensor:
        last = self.network.stack.num_layers - 1
        for layer in range(last + 1):
            x = self._layer(x, layer, ways, room if layer == last else None)
        return x

    def _layer(
        self, x: Tensor, layer: int, ways: Mapping[str, Tensor], room: Tensor | None
    ) -> Tensor:
        """The answers of both directions of time; those that no copy has of its own only once."""
        stack = self.network.stack
        ends = [f"_l{layer}", f"_l{layer}_reverse"][: 1 + stack.bidirectional]
        named = [(_ending(self.weights, end), _ending(ways, end)) for end in ends]
        alike = x.shape[0] == x.shape[2] == 1
        still = {
            k: self._once(x, layer, k) for k, (_, own) in enumerate(named) if alike and not own
        }
        if len(still) == len(ends):
            return torch.cat([still[k] for k in range(len(ends))], dim=-1)
        if room is None:
            copies = len(next(iter(ways.values())))
            shape = (copies, x.shape[1], len(self.sizes), x.shape[3])
            room = x.new_empty(*shape, stack.hidden_size * len(ends))
        for k, out in enumerate(room.chunk(len(ends), dim=-1)):
            if k in still:
                out.copy_(still[k])
            else:
                run_fan(stack.mode, x, named[k], self.sizes, out, reverse=k == 1)
        return room

    def _once(self, x: Tensor, layer: int, way: int) -> Tensor:
        """The answers (1,T,1,B,h) of the weights as they are."""
        own = {n.removeprefix("stack."): w[None] for n, w in self.weights.items() if "stack." in n}
        weights = cell_weights(own, layer, reverse=way == 1)
        answers = run_quick(self.network.stack.mode, x[:, :, 0], weights, reverse=way == 1)
        return answers.unsqueeze(2)


def pooled(network: RecurrentNetwork, states: Tensor) -> Tensor:
    """States (K,T,…,·) as the network pools them: `final` is the end of either direction."""
    pool = network.pool
    if pool == "final" and network.stack.bidirectional:
        forward, backward = states.chunk(2, dim=-1)
        return torch.cat([forward[:, -1], backward[:, 0]], dim=-1)
    if pool in ("last", "final"):
        return states[:, -1]
    if pool == "mean":
        return states.mean(dim=1)
    return states.amax(dim=1) if pool == "max" else states


def _ending(named: Mapping[str, Tensor], end: str) -> dict[str, Tensor]:
    """The weights of one layer and direction of time, without their ending."""
    return {
        name.removeprefix("stack.").removesuffix(end): value
        for name, value in named.items()
        if name.startswith("stack.") and name.endswith(end)
    }
