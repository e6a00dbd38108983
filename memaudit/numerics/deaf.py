"""Which queries hear nothing because of what they feed, while others do hear something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.memory.result import Curve

#: Queries that read the answer while the input is zero.
ENDING_IN_SILENCE = ("impulse", "reversed")
#: Queries that repeat one input without end.
CONSTANT = ("heaviside", "repeat")


def remembers(curve: Curve) -> bool:
    """Whether something of the past was heard, whatever the kind of its decay."""
    return bool(len(curve.values)) and curve.decay.kind != "memoryless"


def shut_by_silence(curves: Mapping[str, Curve], *, baseline: object = "zero") -> list[str]:
    """The queries that end in silence, where all of them are deaf and another one is not."""
    fed = [query for query in curves if query in ENDING_IN_SILENCE]
    deaf = _deaf(curves, ENDING_IN_SILENCE)
    return deaf if baseline == "zero" and len(deaf) == len(fed) else []


def blind_to_constants(curves: Mapping[str, Curve]) -> list[str]:
    """The queries that feed a constant and hear nothing, where another one does."""
    return _deaf(curves, CONSTANT)


def telling(curves: Mapping[str, Curve], *, baseline: object = "zero") -> dict[str, Curve]:
    """The curves without those of queries that are deaf by what they feed."""
    deaf = {*shut_by_silence(curves, baseline=baseline), *blind_to_constants(curves)}
    return {query: curve for query, curve in curves.items() if query not in deaf}


def _deaf(curves: Mapping[str, Curve], side: tuple[str, ...]) -> list[str]:
    """Those of one side that are memoryless, unless the other side is, too."""
    if not any(remembers(curve) for query, curve in curves.items() if query not in side):
        return []
    return [q for q, curve in curves.items() if q in side and curve.decay.kind == "memoryless"]
