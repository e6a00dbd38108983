"""Copies of a retrofitted network: its raw weights are moved, and its recurrent weights follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractPerturbable, Role
from memaudit.perturbable import plain_name
from memaudit.subjects.copies import Copies
from memaudit_rnn.ensemble import RnnEnsemble, checked_copies
from memaudit_rnn.retrofitted import made_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from memaudit_rnn.network import RecurrentNetwork

#: Sizes and angles of modes stand for one each.
PER_MODE = ("original0", "original1")
STACK = "stack."


class RawEnsemble(AbstractPerturbable):
    """A network with raw weights as a function of them.

    The recurrent weights of the copies are made first, and then run as those of any other
    network are. The modes of a cell that is not linear are told by no copy, as without retrofit.
    """

    def __init__(self, network: RecurrentNetwork, layers: Sequence[str]) -> None:
        self._plain = RnnEnsemble(network, layers)
        named = network.named_parameters()
        own = {name: value.detach() for name, value in named if not name.startswith("table.")}
        # A matrix without complex modes has no angles: an empty weight cannot be moved.
        own = {name: value for name, value in own.items() if value.numel()}
        self.weights = own
        self.roles = {name: self._role(name, value) for name, value in own.items()}
        self._makers = {name: _Maker(network.stack, name) for name in made_weights(network.stack)}

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        """The answers (K,B,T,M), or (K,B,M) of a pooled model, of K copies to (B,T,D) floats."""
        count = checked_copies(self.weights, moved)
        cast = {name: value.to(self.weights[name].dtype) for name, value in moved.items()}
        plain = {name: value for name, value in cast.items() if name in self._plain.weights}
        for name, maker in self._makers.items():
            own = maker.among(cast)
            if own:
                plain[f"{STACK}{name}"] = maker.make(own, count)
        return self._plain.respond(inputs, plain)

    def _role(self, name: str, value: Tensor) -> Role:
        """What it does is what the weight does that is made from it."""
        role = self._plain.roles[plain_name(name)]
        if name in self._plain.roles:
            return role
        thin = "diagonal" if name.rpartition(".")[2] in PER_MODE else "vector"
        return Role(role.group, "matrix" if value.ndim > 1 else thin, role.layer)


class _Maker:
    """One recurrent weight of a stack from its raw weights and the biases beside it."""

    def __init__(self, stack: nn.Module, name: str) -> None:
        end = name.removeprefix("weight_hh")
        self._beside = (name, f"bias_ih{end}", f"bias_hh{end}")
        self._copies = Copies(stack, call=_reading(name))

    def among(self, moved: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The moved weights of a network that it is made from, by their names in the stack."""
        inside = {n.removeprefix(STACK): v for n, v in moved.items() if n.startswith(STACK)}
        return {n: v for n, v in inside.items() if plain_name(n) in self._beside}

    def make(self, moved: Mapping[str, Tensor], count: int) -> Tensor:
        """The weights (K,…) of the copies; gradients flow through where some are wanted."""
        return self._copies.run(torch.empty(1), moved, count)


def _reading(name: str) -> Callable[[nn.Module, Tensor], Tensor]:
    def call(stack: nn.Module, inputs: Tensor) -> Tensor:
        del inputs
        return getattr(stack, name)

    return call
