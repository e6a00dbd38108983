"""What a reparameterization does to gradients and to perturbations, at the same eigenvalues.

python examples/gradient_scales.py [--rates 0.001 0.01 0.1 0.5 1.5 4] [--betas 0.01 0.1 1]

The gradient scale |f'(w)| / f(w)² of StableSSM, Theorem 3.4, divided by |w|: how far one step of
gradient descent throws a weight, in units of its own size. Then the modulus of Definition 3.2: how
much a mode changes at most when its weight moves by beta.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from memaudit.interfaces import AbstractReparam
from memaudit.numerics.reparameterization import gradient_scale
from memaudit.reparams import forms


def ratios(form: AbstractReparam, lam: torch.Tensor) -> list[str]:
    """The scale over the raw weight at every rate; a dash where that is zero or out of reach."""
    reached = form.contains(lam) & (form.inverse(lam) != 0.0)
    w = form.inverse(lam[reached])
    scale = gradient_scale(form.forward, w, time=form.time) / w.abs()
    found = iter(scale.tolist())
    return [f"{next(found):10.3g}" if there else f"{'-':>10}" for there in reached.tolist()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.01, 0.1, 0.5, 1.5, 4])
    parser.add_argument("--betas", type=float, nargs="+", default=[0.01, 0.1, 1.0])
    chosen = parser.parse_args(arguments)
    lam = -torch.tensor(chosen.rates, dtype=torch.float64)
    print("gradient scale over |w|, by rate")
    print(" " * 10 + "".join(f"{rate:10.3g}" for rate in chosen.rates))
    for form in forms("continuous"):
        print(f"{form.name:10}" + "".join(ratios(form, lam)))
    print("modulus, by beta")
    print(" " * 10 + "".join(f"{beta:10.3g}" for beta in chosen.betas))
    for form in forms("continuous"):
        print(f"{form.name:10}" + "".join(f"{form.modulus(beta):10.4g}" for beta in chosen.betas))


if __name__ == "__main__":
    main()
