"""Finding the recurrent layers of a model, and what looks recurrent and is none of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.nn.utils import parametrize

from memaudit.errors import clean
from memaudit.perturbable import plain_name
from memaudit.report import Recurrence
from memaudit_transformers.recurrent.kind import Stored
from memaudit_transformers.recurrent.kinds import KINDS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memaudit_transformers.recurrent.kind import AbstractKind

#: Parameters and buffers that only recurrent layers have, of the kinds here and of others.
LOOKALIKE = re.compile(
    r"(?:^|[._])(?:A_logs?|A_real|log_A\w*|nu_log|theta_log|Lambda\w*|inv_dt|log_dt|log_step"
    r"|dt_bias|dt_projs?_bias|time_decay\w*|recurrent_(?:param|kernel)|slope_rate|\w*fgate\w*"
    r"|forget_gate|weight_hh\w*)(?:\.|$)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Recurrent:
    """One recurrent layer: where it stands in the model, what it is, and the module itself."""

    layer: str
    module: nn.Module
    kind: AbstractKind

    @property
    def cell(self) -> str:
        """What kind of recurrence it is, such as mamba1."""
        return self.kind.cell

    @property
    def parameterization(self) -> str:
        """How the decay is made from the raw weight: exp, softplus, sigmoid, fixed.

        A weight behind a parametrization that tells its form has that form.
        """
        stored = self.stored
        told = "" if isinstance(stored, str) else _told(stored)
        return told or self.kind.parameterization(self.module)

    @property
    def stored(self) -> Stored | str:
        """What makes the modes decay, or a sentence why no tensor alone does."""
        return self.kind.stored(self.module)

    @property
    def size(self) -> int:
        """The number of modes, that is of different decays at one step."""
        return self.at_rest().numel()

    @property
    def parameters(self) -> int:
        """The number of parameters of the layer, projections included."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    def at_rest(self) -> Tensor:
        """Eigenvalues of one step, in float64, with what depends on the data at its bias."""
        return self.modes_of(self.module).detach()

    def modes_of(self, module: nn.Module) -> Tensor:
        """The same of the module with other weights in it, with gradients if they ask for some."""
        return self.kind.rest(module).decays().flatten()

    def record(self) -> Recurrence:
        """The entry of the identity."""
        return Recurrence(clean(self.layer), self.cell, self.size, self.parameters)


def find_recurrences(model: nn.Module) -> tuple[Recurrent, ...]:
    """Every recurrent layer by its structure, in the order of the model.

    A layer that stands in the model under several names is listed once, under the first.
    """
    found = []
    for layer, module in model.named_modules():
        kind = next((kind for kind in KINDS if kind.matches(module)), None)
        if kind is not None:
            found.append(Recurrent(layer, module, kind))
    return tuple(found)


def unmatched(model: nn.Module, recurrents: Sequence[Recurrent]) -> tuple[str, ...]:
    """Names of recurrent-looking tensors in modules that no kind matched."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    known = {id(t) for r in recurrents for t in (*r.module.parameters(), *r.module.buffers())}
    names = [plain_name(name) for name, t in tensors if id(t) not in known]
    odd = [name for name in names if LOOKALIKE.search(name) and not _inner(name)]
    return tuple(dict.fromkeys(odd))


def _told(stored: Stored) -> str:
    """What the last parametrization of a weight that tells its form says; empty without one."""
    if not parametrize.is_parametrized(stored.owner, stored.name):
        return ""
    chain: Any = stored.owner.parametrizations
    said = [getattr(form, "told", "") for form in chain[stored.name]]
    return clean(next((word for word in reversed(said) if word), ""))


def _inner(name: str) -> bool:
    """Whether a tensor belongs to a parametrization and not to the module behind it."""
    return "parametrizations" in name.split(".")
