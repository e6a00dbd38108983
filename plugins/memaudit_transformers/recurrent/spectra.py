"""Spectra of recurrent layers, at rest and at quantiles of their steps over data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memaudit.errors import clean
from memaudit.spectrum.result import point, spectrum
from memaudit_transformers.recurrent.exponents import largest_exponent
from memaudit_transformers.recurrent.taps import steps_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memaudit.spectrum.result import LayerSpectrum as Spectrum
    from memaudit.spectrum.result import SpectrumPoint
    from memaudit_transformers.recurrent.finding import Recurrent
    from memaudit_transformers.recurrent.steps import Steps

#: Shares of the tokens: a channel's step sizes are at most that large on as many of them.
QUANTILES = (0.05, 0.5, 0.95)


def spectra_of(
    model: nn.Module,
    recurrents: Sequence[Recurrent],
    run: Callable[[Tensor], Any] | None,
    inputs: Tensor | None,
) -> tuple[Spectrum, ...]:
    """The spectrum of every layer at rest, with points over the inputs where it follows them.

    At a point every channel has the step size, or the forgetting -log λ, that it stays at or
    below on that share of the tokens: at 5 % the memory is long, at 95 % it is short.
    """
    heard: dict[str, Steps] = {}
    following = [recurrent for recurrent in recurrents if recurrent.kind.selective]
    if following and run is not None and inputs is not None:
        heard = steps_of(model, following, run, inputs)
    return tuple(_spectrum(recurrent, heard.get(recurrent.layer)) for recurrent in recurrents)


def _spectrum(recurrent: Recurrent, steps: Steps | None) -> Spectrum:
    made = spectrum(
        layer=clean(recurrent.layer),
        cell=recurrent.cell,
        parameterization=recurrent.parameterization,
        at=recurrent.kind.at_rest,
        eigenvalues=recurrent.at_rest(),
        points=() if steps is None else _points(recurrent.kind.quantity, steps),
    )
    exponent = largest_exponent(recurrent, steps)
    if exponent is None:
        return made
    return replace(made, lyapunov=exponent.value, lyapunov_interval=exponent.interval)


def _points(quantity: str, steps: Steps) -> tuple[SpectrumPoint, ...]:
    return tuple(
        point(f"{quantity} {share:.0%}".replace("%", " %"), steps.quantile(share).decays())
        for share in QUANTILES
    )
