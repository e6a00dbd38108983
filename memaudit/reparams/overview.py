"""What a reparameterization can do, in numbers that it gives itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

from memaudit.errors import clean
from memaudit.numerics.reparameterization import interval_of

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam

#: Moves of a raw weight at which moduli are told.
BETAS = (0.01, 0.1, 1.0)


@dataclass(frozen=True, slots=True)
class Overview:
    """One form in one time; `reach` are the eigenvalues that it contains, as an interval.

    `moduli` are those of Definition 3.2 at `BETAS`. `scale` is a formula, or the gradient scale at
    the raw weights -1, 0 and 1 where there is none. `options` are its constants.
    """

    name: str
    time: str
    stable: bool
    reach: str
    moduli: tuple[float, ...]
    scale: str
    options: str


def overview(form: AbstractReparam) -> Overview:
    """The numbers of one form."""

    def holds(lam: float) -> bool:
        return bool(form.contains(torch.tensor([lam], dtype=torch.float64)).all())

    reach = interval_of(holds)
    constants = [f for f in fields(form) if f.name != "time"]
    return Overview(
        form.name,
        form.time,
        bool(form.stable),
        "nothing" if reach is None else str(reach),
        tuple(float(form.modulus(beta)) for beta in BETAS),
        clean(form.scale_formula) or _sampled(form),
        ", ".join(f"{clean(f.name)} = {clean(getattr(form, f.name))}" for f in constants),
    )


def _sampled(form: AbstractReparam) -> str:
    weights = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    told = ", ".join(f"{value:.3g}" for value in form.gradient_scale(weights).tolist())
    return f"{told} at w = -1, 0, 1"
