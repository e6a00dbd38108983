"""The weights of a model as an argument: many slightly different copies answer at once."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

#: What a weight does: it makes the eigenvalues, feeds the state, reads it out, or none of these.
GROUPS = ("recurrent", "input", "readout", "other")
#: How a weight acts: as a matrix (rows first), as a diagonal, as a diagonal of complex numbers
#: (real and imaginary part on the last axis), or as a vector that is added.
FORMS = ("matrix", "diagonal", "pairs", "vector")

#: What torch puts into the names of weights that stand behind a parametrization.
_BEHIND = re.compile(r"parametrizations\.([^.]+)\.original\d*")


def plain_name(name: str) -> str:
    """The name that a weight has, or would have without its parametrization."""
    return _BEHIND.sub(r"\1", name)


@dataclass(frozen=True, slots=True)
class Role:
    """What one weight does in the model, and how it acts; that decides its operator norm."""

    group: str
    form: str
    #: The recurrent layer that it belongs to; empty for a weight of the whole model.
    layer: str = ""


class AbstractPerturbable(ABC):
    """A model whose weights are an argument.

    Laws: with no weight moved, every copy answers as the subject does, up to rounding; copy k
    depends on entry k of the moved weights alone; nothing is written to the model; gradients flow
    from the answers to the moved weights, unless `differentiable` is False.
    """

    #: The weights that may be moved, as they are: the model's own tensors, without gradients.
    weights: Mapping[str, torch.Tensor]
    #: The role of each of them.
    roles: Mapping[str, Role]
    differentiable: bool = True

    @abstractmethod
    def respond(self, inputs: torch.Tensor, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The answers (K,B,T,M), or (K,B,M) of a pooled model, of K copies to (B,T,D) floats.

        `moved` holds (K,…) values for some of the weights; the others are as they are.
        """

    def respond_fan(
        self,
        inputs: torch.Tensor,
        directions: Mapping[str, torch.Tensor],
        sizes: torch.Tensor,
    ) -> torch.Tensor:
        """The answers (S,K,B,T,M), or (S,K,B,M), of K directions (K,…) at S sizes; no gradients.

        Law: entry [s,k] is what `respond` answers with weights + sizes[s] * directions[k].
        """
        moved = {name: self._fanned(name, way, sizes) for name, way in directions.items()}
        answers = self.respond(inputs, moved)
        if not moved:
            return answers.expand(len(sizes), *answers.shape)
        return answers.unflatten(0, (len(sizes), -1))

    def _fanned(self, name: str, way: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        """The values (S·K,…) of a weight, the sizes outermost."""
        weight = self.weights[name].detach()
        lengths = sizes.to(way).reshape(-1, *[1] * way.ndim)
        return (weight + lengths * way).to(weight.dtype).flatten(0, 1)

    def modes(self, moved: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Layer → eigenvalues (K,n) of one step, complex, where the weights alone decide them."""
        del moved
        return {}
