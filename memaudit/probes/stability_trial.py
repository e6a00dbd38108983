"""A model whose weights are moved: what it is asked, and what its answers are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.errors import SourceError
from memaudit.numerics.perturbation.errors import error_norm
from memaudit.numerics.perturbation.fan_norms import fan_norms
from memaudit.probes.perturbing_inputs import perturbing_inputs
from memaudit.probes.real_copies import real_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memaudit.contracts import AbstractPerturbable, AbstractSubject, Setting

    Target = Callable[[torch.Tensor], torch.Tensor]

#: Numbers (weights and answers) of all copies in one batch.
BATCH_NUMBERS = 2**24


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """E of moved weights: the norm of the difference between their answers and the reference.

    `scale` is the norm of the reference itself, without its answer to silence; `start` is E(0).
    """

    copies: AbstractPerturbable
    inputs: torch.Tensor
    reference: torch.Tensor
    norm: str
    pooled: bool
    scale: float
    start: float

    def error(self, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """E (K,) of every copy."""
        answers = self.copies.respond(self.inputs, moved)
        return error_norm(answers.double() - self.reference, self.norm, pooled=self.pooled)

    def fan_errors(
        self, directions: Mapping[str, torch.Tensor], sizes: torch.Tensor
    ) -> torch.Tensor:
        """E (S,K) of every direction at every size."""
        answers = self.copies.respond_fan(self.inputs, directions, sizes)
        return fan_norms(answers, self.reference, self.norm, pooled=self.pooled)

    def largest_mode(self, moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The largest |lambda| (K,) of every copy; weights that are not finite are beyond it."""
        wide = {name: value.double() for name, value in moved.items()}
        sizes = [modes.abs().amax(1) for modes in self.copies.modes(wide).values()]
        return torch.stack(sizes).amax(0).nan_to_num(nan=torch.inf)

    def way_gone(self) -> Callable[[Mapping[str, torch.Tensor]], torch.Tensor]:
        """How much of its way to the boundary a mode has gone, 1 on it: the most (K,) of all modes.

        (|lambda'| - |lambda|) / (1 - |lambda|): a mode that is near the boundary in its own scale
        is not hidden by one that is nearer in size. All modes must be inside as they are.
        """
        with torch.no_grad():
            rest = {layer: modes.abs() for layer, modes in self.copies.modes({}).items()}

        def most(moved: Mapping[str, torch.Tensor]) -> torch.Tensor:
            wide = {name: value.double() for name, value in moved.items()}
            gone = [
                ((modes.abs() - rest[layer]) / (1.0 - rest[layer])).amax(1)
                for layer, modes in self.copies.modes(wide).items()
            ]
            return torch.stack(gone).amax(0).nan_to_num(nan=torch.inf)

        return most

    def named(self, group: str) -> tuple[str, ...]:
        """The weights of a group; "all" is every one."""
        roles = self.copies.roles
        return tuple(n for n in self.copies.weights if group in ("all", roles[n].group))

    def batch(self, names: tuple[str, ...]) -> int:
        """Copies that are evaluated together."""
        own = sum(self.copies.weights[name].numel() for name in names)
        return max(1, BATCH_NUMBERS // max(1, own + 2 * self.reference.numel()))


def make_trial(
    subject: AbstractSubject, setting: Setting, *, norm: str, steps: int, target: Target | None
) -> Trial:
    """The trial of a subject, against itself or against a target functional."""
    copies = subject.perturbable()
    if copies is None:
        raise SourceError(
            "E_UNSUPPORTED",
            "the weights of this model cannot be moved one by one",
            hint="leave the probe stability out",
            stage="stability",
        )
    copies = real_copies(copies)
    inputs = perturbing_inputs(subject, setting, steps=steps)
    silence = torch.zeros_like(inputs[:1])
    with torch.no_grad():
        own = subject.respond(inputs).double()
        rest = subject.respond(silence).double()
        wanted = own if target is None else _answers(target, inputs, own)
        still = rest if target is None else _answers(target, silence, rest)
        size = error_norm((wanted - still)[None], norm, pooled=subject.pooled)
        start = error_norm((own - wanted)[None], norm, pooled=subject.pooled)
    return Trial(copies, inputs, wanted, norm, subject.pooled, float(size[0]), float(start[0]))


def _answers(target: Target, inputs: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    found = target(inputs)
    if not isinstance(found, torch.Tensor) or found.shape != like.shape:
        got = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise SourceError(
            "E_UNSUPPORTED",
            f"the target answers {tuple(inputs.shape)} by {got}, the model by {tuple(like.shape)}",
            hint="give a target of the same shape",
            stage="stability",
        )
    if not bool(torch.isfinite(found).all()):
        raise SourceError(
            "E_UNSUPPORTED",
            "the target answers by numbers that are not finite",
            hint="give another target, or fewer steps",
            stage="stability",
        )
    return found.double()
