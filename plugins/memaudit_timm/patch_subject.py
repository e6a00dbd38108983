"""A vision transformer made audible through its patch embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.contracts import AbstractPerturbable, AbstractSubject, Role
from memaudit.subjects.copies import Copies as ModuleEnsemble
from memaudit_timm.checking import checked_floats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from memaudit.report import Identity
    from memaudit_timm.patches import PatchModel


class PatchSubject(AbstractSubject):
    """Patches in raster order are time; the answer is the state of every patch at the end."""

    def __init__(self, patches: PatchModel, used: list[str], identity: Identity) -> None:
        weight = next(patches.model.parameters())
        self.patches = patches
        self.identity = identity
        self.input_size = patches.width
        self.pooled = False
        self.longest = patches.count
        self.device = weight.device
        self.dtype = weight.dtype
        self._used = frozenset(used)

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) by the states (B,T,M) of the patches."""
        with torch.no_grad():
            return self.patches.run(self._checked(inputs))

    def layers(self) -> tuple[str, ...]:
        """The names of the blocks."""
        return tuple(self.patches.blocks)

    def listen(self, inputs: Tensor, hear: Callable[[str, Tensor], None]) -> Tensor:
        """Like respond; the patches behind every block are told as soon as they are there."""
        with torch.no_grad():
            return self.patches.run(self._checked(inputs), hear)

    def perturbable(self) -> AbstractPerturbable:
        """The blocks with their weights as an argument: none of them is recurrent."""

        def call(model: nn.Module, sequences: Tensor) -> Tensor:
            del model  # the patches hold it
            return self.patches.run(self._checked(sequences))

        named = self.patches.model.named_parameters()
        roles = {
            name: Role("other", "matrix" if weight.ndim > 1 else "vector")
            for name, weight in named
            if name in self._used
        }
        return ModuleEnsemble(self.patches.model, roles, call=call)

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters that the answer depends on."""
        state = self.patches.model.state_dict()
        return {name: tensor for name, tensor in state.items() if name in self._used}

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The model itself, with a stand-in for its patch embedding."""
        return {"": self.patches.model}

    def _checked(self, inputs: Tensor) -> Tensor:
        return checked_floats(
            inputs,
            self.patches.width,
            device=self.device,
            dtype=self.dtype,
            longest=self.patches.count,
        )
