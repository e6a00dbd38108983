"""The names of the numbers, once: what each is, where it comes from, which way is better."""

from __future__ import annotations

from dataclasses import dataclass

from memaudit.report import SEVERITIES

#: The callbacks of `memaudit.training` log under the same prefix.
PREFIX = "memaudit/"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number. `better` says whether more of it is better, None where that depends.

    `probe` is the probe that measures it, "" for the queries, or nothing at all. `layered` numbers
    stand once more for every layer, `name/LAYER`; those of a `query` for every query, too,
    `QUERY/name` and `QUERY/name/LAYER`. `inner` is what stands between the slashes of a name that
    is not one word.
    """

    name: str
    summary: str
    better: bool | None = None
    probe: str = ""
    layered: bool = False
    query: bool = False
    inner: str = ""
    #: Whether it may be below zero.
    signed: bool = False

    @property
    def pattern(self) -> str:
        """The name as a reader of the documentation meets it."""
        return f"{self.name}/{self.inner}" if self.inner else self.name

    def of(self, layer: list[str]) -> bool:
        """Whether a number of a query is told of layers, if one is named."""
        return not layer or self.name not in ("support", "confidence")

    @property
    def spelled(self) -> tuple[str, ...]:
        """The pattern with every word that its capitals stand for."""
        capitals = next((part for part in self.inner.split("/") if part.isupper()), "")
        if not capitals:
            return (self.pattern,)
        return tuple(self.pattern.replace(capitals, word) for word in INNER[capitals])


METRICS: tuple[Metric, ...] = (
    Metric(
        "horizon",
        "lags until memory is gone, the fewest of the queries that can tell",
        True,
        query=True,
    ),
    Metric("horizon_beyond", "the last lag, where the horizon lies behind it", query=True),
    Metric("half_life", "lags until memory has halved, the fewest", True, query=True),
    Metric("rate", "beta of exp(-beta t), the largest", False, query=True, signed=True),
    Metric("exponent", "alpha of t^-alpha, the largest", False, query=True, signed=True),
    Metric("support", "lags after which a finite memory is over, the fewest", True, query=True),
    Metric("confidence", "of the verdicts about decay, 0 to 1, the least", True, query=True),
    Metric("margin", "smallest 1 - |eigenvalue|", True, "spectrum", layered=True, signed=True),
    Metric("time_scale", "steps in which the slowest mode falls to 1/e", None, "spectrum", True),
    Metric(
        "lyapunov",
        "largest Lyapunov exponent per step",
        False,
        "spectrum",
        layered=True,
        signed=True,
    ),
    Metric("deviation", "largest, of answers from the closed form", False, "closed-form", True),
    Metric("radius", "how far the weights may move", True, "stability", layered=True),
    Metric("radius_beyond", "the largest move, where none breaks the model", None, "stability"),
    Metric("tolerance_radius", "how far, until E(beta) is over its tolerance", True, "stability"),
    Metric(
        "precision", "error in a number format", False, "precision", inner="FORMAT/relative_error"
    ),
    Metric(
        "precision", "modes that it moves to the edge", False, "precision", inner="FORMAT/reached"
    ),
    Metric("gradient_over_weight", "largest |gradient| / |w|", False, "gradient", layered=True),
    Metric("capacity", "past inputs that a state tells, in all", True, "recall"),
    Metric("assumptions", "1 where one holds, 0 where not", None, "assumptions", inner="NAME"),
    Metric("findings", "how many of a level there are", False, inner="LEVEL"),
    Metric("coverage", "share of the parameters that were run", True),
    Metric("complete", "1, or 0 when the audit was cut short", True),
    Metric("parameters", "how many the model has"),
)


#: The words that stand for those in capitals; probes from outside may bring more of the last two.
INNER: dict[str, tuple[str, ...]] = {
    "LEVEL": SEVERITIES,
    "NAME": (
        *("responsive", "deterministic", "rows-independent", "linear", "continuous", "bounded"),
        *("time-homogeneous", "causal", "regular"),
    ),
    "FORMAT": (
        *("fp32", "tf32", "fp16", "bf16", "fp8-e4m3", "fp8-e4m3-scaled", "fp8-e5m2"),
        *("int8", "int8-row", "int4", "int4-group"),
    ),
}


def spoken(name: str) -> str:
    """A name as it is compared: `impulse/half_life`, `impulse.half-life` and longer ones alike."""
    plain = name.strip().removeprefix(PREFIX).removeprefix("memaudit.")
    return plain.replace("/", ".").replace("-", "_").lower()


def described(key: str, queries: tuple[str, ...]) -> Metric | None:
    """The metric behind a key of `report.metrics()`, or behind such a name by hand."""
    head, *rest = spoken(key).split(".")
    if head == "findings" and (len(rest) != 1 or rest[0] not in SEVERITIES):
        return None
    if rest and head in map(spoken, queries):
        head, *rest = rest
        return next((m for m in METRICS if m.query and m.name == head and m.of(rest)), None)
    for metric in METRICS:
        if metric.name != head:
            continue
        last = metric.inner.rpartition("/")[2]
        if metric.inner and rest and (last.isupper() or rest[-1] == last):
            return metric
        if not metric.inner and (not rest or metric.layered):
            return metric
    return None
