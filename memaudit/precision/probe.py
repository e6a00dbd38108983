"""What the common number formats do to the recurrent weights, and so to the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.interfaces import BALLS, NO_TOOLS, NORMS, AbstractProbe, Tools
from memaudit.precision.result import PrecisionResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memaudit.interfaces import AbstractSubject, Setting

WEIGHTS = ("recurrent", "all")


@dataclass(frozen=True, slots=True)
class Precision(AbstractProbe):
    """What is left of the memory when the recurrent weights are stored in another format?

    Every format is a move of the weights, with its size on the axis of E(beta) and the error of
    the answers. Then the rounded weights stand in the model while eigenvalues and memory functions
    are measured. `weights` "all" rounds the others, too. `formats` empty or None are all of them.
    """

    name = "precision"
    summary = "bf16, fp16, fp8, int8, int4 as moves of the weights: eigenvalues and memory after"
    result = PrecisionResult

    options: ClassVar[Mapping[str, str]] = {
        "weights": "what is rounded: recurrent, all",
        "formats": "number formats, as in bf16,int8",
        "norm": "how errors are measured: sobolev, sup, l1, mse",
    }

    weights: str = "recurrent"
    formats: str | tuple[str, ...] | None = ()
    norm: str = "sobolev"

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, before a model is opened."""
        from memaudit.numerics.rounding import FORMATS

        _known("weights", [self.weights], WEIGHTS)
        _known("norm", [self.norm], NORMS)
        _known("formats", _listed(self.formats), FORMATS)

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> PrecisionResult:
        from memaudit.numerics.rounding import FORMATS
        from memaudit.precision.rounding import PrecisionTrial, choose

        chosen = choose(subject, self.weights)
        trial = PrecisionTrial(subject, chosen, setting, self.norm, tools)
        formats = tuple(dict.fromkeys(_listed(self.formats))) or tuple(FORMATS)
        stability = tools.results.get("stability")
        curves = () if stability is None else stability.curves
        return PrecisionResult(
            roundings=trial.roundings(formats) if chosen.tensors else (),
            weights=tuple(chosen.tensors),
            norm=self.norm,
            note=chosen.note,
            balls=tuple(dict.fromkeys(curve.ball for curve in curves)) or BALLS[:1],
            tolerance={c.ball: c.tolerance_radius.value for c in curves if c.group == self.weights},
        )


def _listed(formats: object) -> list[Any]:
    """Names from a list, or from a text with commas between them; anything else as it is."""
    if formats is None:
        return []
    if isinstance(formats, str):
        return [name.strip() for name in formats.split(",") if name.strip()]
    return list(formats) if isinstance(formats, list | tuple) else [formats]


def _known(option: str, values: Iterable[object], known: Iterable[str]) -> None:
    for value in values:
        if not isinstance(value, str) or value not in known:
            fact = f"precision.{option} is {clean(value)!r}"
            raise ArgumentError(fact, hint=nearest(str(value), known))
