"""MA205: a number format moves the recurrent weights too far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.errors import clean
from memaudit.numerics.format_harm import harms
from memaudit.precision.result import Precision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.numerics.format_harm import Harm
    from memaudit.report import Finding, Report

#: So many weights are named.
NAMED = 3


class FormatUnsafe(AbstractRule):
    """Rounding the recurrent weights to a format changes what the model remembers."""

    code: ClassVar[str] = "MA205"
    name: ClassVar[str] = "format-unsafe"
    severity: ClassVar[str] = "error"
    milder: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("precision",)
    explanation: ClassVar[str] = (
        "A number format is a move of the weights. A recurrence applies its weights at every step, "
        "so a rounding that no other layer notices adds up: 0.999 stored in bf16 is exactly 1, and "
        "a mode that forgot within a thousand steps never forgets again. It is an error when a "
        "mode that was stable is on the boundary or beyond it after the rounding, when the memory "
        "grows, or when a weight overflows; it is a warning when a horizon or a rate changes by "
        "more than a factor of two, or the answers by more than a tenth of their size. Keep these "
        "weights in float32 when the model is cast or quantized, or store them in a form such as "
        "the logarithm of the decay rate, in which a rounding changes the distance to the boundary "
        "by a small share of itself."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per layer, with all the formats that it does not bear."""
        first = report.precision
        if not isinstance(first, Precision):
            return
        for part in (first, *first.others):
            for layer, told in _by_layer(part).items():
                place = ": ".join(filter(None, (part.where, layer)))
                finding = self.finding(
                    f"formats that the recurrent weights do not bear: {_told(told)}",
                    f"keep {_weights(part)} in float32 when the model is cast or quantized",
                    where=place,
                )
                worst = "error" if any(h.severity == "error" for _, h in told) else "warning"
                yield replace(finding, severity=worst)


def _told(found: list[tuple[str, Harm]]) -> str:
    """The formats, those that break the same thing together."""
    alike: dict[str, list[str]] = {}
    for name, harm in found:
        alike.setdefault(harm.words, []).append(name)
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in alike.items())


def _by_layer(part: Precision) -> dict[str, list[tuple[str, Harm]]]:
    """Layer → formats and what they break there; what the whole model shows stands once.

    A model of one layer shows what this layer does. In a model of several, a format that one of
    them does not bear is not told again for the whole.
    """
    found: dict[str, list[tuple[str, Harm]]] = {}
    for rounding in part.roundings:
        broken = harms(rounding)
        layers = {harm.layer: harm for harm in reversed(broken)}
        whole = layers.pop("", None)
        if whole is not None and not layers:
            only = rounding.layers[0].layer if len(rounding.layers) == 1 else _only(part)
            layers = {only: whole}
        for layer, harm in layers.items():
            found.setdefault(layer, []).append((clean(rounding.format), harm))
    return found


def _only(part: Precision) -> str:
    """The name of the only layer, as other formats tell it; a format that overflows has none."""
    names = {layer.layer for rounding in part.roundings for layer in rounding.layers}
    return names.pop() if len(names) == 1 else ""


def _weights(part: Precision) -> str:
    names = ", ".join(clean(name, limit=60) for name in part.weights[:NAMED])
    more = len(part.weights) - NAMED
    return f"{names} and {more} more weights" if more > 0 else names or "these weights"
