"""The spectrum of every recurrent layer, at rest and over real inputs."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import ArgumentError, clean
from memaudit.interfaces import NO_TOOLS, AbstractProbe, Tools
from memaudit.modes import NOT_SETTLED, LayerSpectrum
from memaudit.spectrum.result import Prediction, SpectrumResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from memaudit.interfaces import AbstractDynamics, AbstractSubject, Setting
    from memaudit.memory.result import MemoryResult
    from memaudit.report import Recurrence

#: Tokens of text over which the quantiles of data-dependent eigenvalues are taken.
STEPS = 512
#: Real vectors of which a trajectory is made.
NATURAL = 64
#: Steps below which a trajectory has no Lyapunov exponent, and above which it only costs time.
SHORTEST, LONGEST = 32, 65536


@dataclass(frozen=True, slots=True)
class Spectrum(AbstractProbe):
    """How fast does every mode of the recurrent layers decay?

    Reads the eigenvalues lambda of one step from the weights. Where the step depends on the data,
    they are given at rest and at quantiles over the tokens of a text. A nonlinear cell has those of
    the Jacobian of its step at the state it settles in without input, more under constant inputs
    and along a trajectory of `trajectory` steps, and the largest Lyapunov exponent along that.
    """

    name = "spectrum"
    summary = "eigenvalues of every recurrent layer, their margin and time scale"
    result = SpectrumResult
    cost = "cheap"

    options: ClassVar[Mapping[str, str]] = {
        "trajectory": "steps of the trajectory of a nonlinear cell",
    }

    trajectory: int = 256

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, before a model is opened."""
        steps: object = self.trajectory
        whole = isinstance(steps, int) and not isinstance(steps, bool)
        if not whole or not SHORTEST <= self.trajectory <= LONGEST:
            raise ArgumentError(
                f"spectrum.trajectory is {clean(steps)!r}",
                hint=f"give a whole number of steps from {SHORTEST} to {LONGEST}",
            )

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> SpectrumResult:
        found = subject.spectra(self._inputs(subject, setting))
        known = {item.layer for item in found}
        recurrences = [
            dynamics
            for dynamics in subject.dynamics().values()
            if not known.issuperset(dynamics.blocks)
        ]
        for number, dynamics in enumerate(recurrences):

            def advance(done: int, of: int, number: int = number) -> None:
                tools.tick(number * of + done, len(recurrences) * of)

            found += self._nonlinear(subject, dynamics, setting, advance)
        return SpectrumResult(
            found,
            predictions=tuple(
                predictions(subject.identity.recurrences, found, tools.results.get("memory"))
            ),
            unread=tuple(_unread(subject, found)),
        )

    def _nonlinear(
        self,
        subject: AbstractSubject,
        dynamics: AbstractDynamics,
        setting: Setting,
        tick: Callable[[int, int], None],
    ) -> tuple[LayerSpectrum, ...]:
        """The spectra of one recurrence, under real vectors where the model has any."""
        import torch

        from memaudit.numerics.signals import seeded
        from memaudit.spectrum.recurrences import recurrence_spectra

        generator = seeded(setting.seed)
        quick = setting.level == "quick"
        steps = max(SHORTEST, self.trajectory // 4) if quick else self.trajectory
        ones = torch.ones(dynamics.width, dtype=torch.float64)
        held = {"constant input +1": ones, "constant input -1": -ones}
        natural = subject.natural_inputs(NATURAL, generator)
        if natural is not None and len(natural) and natural.shape[-1] == dynamics.width:
            rows = natural.detach().cpu().double()
            held["a natural input held"] = rows[0]
            inputs = rows[torch.randint(len(rows), (steps,), generator=generator)]
        else:
            shape = (steps, dynamics.width)
            inputs = 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1
        return recurrence_spectra(dynamics, inputs, held=held, generator=generator, tick=tick)

    def _inputs(self, subject: AbstractSubject, setting: Setting) -> torch.Tensor | None:
        """The beginning of the text; without a tokenizer random tokens; None without tokens."""
        from memaudit.numerics.signals import seeded
        from memaudit.texts import read_text

        if subject.vocabulary is None:
            return None
        most = STEPS if subject.longest is None else min(STEPS, subject.longest)
        tokens = subject.tokens_of(read_text(setting.text))
        if tokens is None or not len(tokens):
            import torch

            generator = seeded(setting.seed)
            tokens = torch.randint(subject.vocabulary, (most,), generator=generator)
        return tokens[None, :most]


def predictions(
    recurrences: Sequence[Recurrence],
    spectra: tuple[LayerSpectrum, ...],
    memory: MemoryResult | None,
) -> Iterator[Prediction]:
    """Every curve on vectors beside the slowest mode of the layers."""
    if not spectra or memory is None:
        return
    complete = _explain_all(recurrences, spectra, memory)
    for query, curve in memory.curves.items():
        if curve.normalization == "none":  # tokens have no rate by time alone
            continue
        found = [(s.slowest(input_ended=curve.input_ended), s.layer) for s in spectra]
        (time_scale, margin, at), layer = min(found, key=lambda one: one[0][1])
        exponential = curve.decay.kind == "exponential"
        yield Prediction(
            query=query,
            layer=layer,
            at=at,
            rate=math.inf if margin >= 1.0 else -math.log1p(-margin),
            time_scale=time_scale,
            measured=curve.decay.rate if exponential else None,
            interval=curve.decay.interval if exponential else None,
            complete=complete,
        )


def _explain_all(
    recurrences: Sequence[Recurrence], spectra: tuple[LayerSpectrum, ...], memory: MemoryResult
) -> bool:
    """Whether every layer that was measured runs forwards and has a spectrum, one at rest."""
    if any(layer.directions > 1 for layer in recurrences):
        return False
    if any(NOT_SETTLED in item.at for item in spectra):
        return False
    names = sorted(f"{item.layer}." for item in spectra)
    return all(_inside(names, f"{layer}.") for layer in memory.layers)


def _inside(names: list[str], layer: str) -> bool:
    """Whether one of the sorted names stands in the layer, or is the layer: all end in a dot."""
    place = bisect_left(names, layer)
    return place < len(names) and names[place].startswith(layer)


def _unread(subject: AbstractSubject, spectra: tuple[LayerSpectrum, ...]) -> Iterator[str]:
    """The recurrences of which no eigenvalue was seen."""
    for one in subject.identity.recurrences:
        if not any(f"{item.layer}.".startswith(f"{one.layer}.") for item in spectra):
            yield one.layer
