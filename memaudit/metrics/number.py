"""One number of a report: where it stands, and what about it nobody knows."""

from __future__ import annotations

from dataclasses import dataclass

from memaudit.errors import clean


@dataclass(frozen=True, slots=True)
class Number:
    """A number by its parts: `QUERY/metric/inner/LAYER`; value None where it was not measured.

    The number of a whole is the least or the largest of its parts: `holder` is the one that it
    comes from, `lower` and `higher` those that were asked and not measured, and could make it
    smaller or larger. `beyond` is how far was looked where the value is infinite. `short` has the
    parts that lie beyond what was looked at, by that lag or move, where it is less than the value.
    """

    metric: str
    value: float | None
    query: str | None = None
    inner: str | None = None
    layer: str | None = None
    holder: str = ""
    lower: tuple[str, ...] = ()
    higher: tuple[str, ...] = ()
    beyond: float | None = None
    short: tuple[tuple[str, float], ...] = ()

    @property
    def key(self) -> str:
        """The name in `report.metrics()`, made safe; two layers may have the same."""
        parts = (self.query, self.metric, self.inner, self.layer)
        return clean("/".join(part for part in parts if part is not None))

    def unknown(self, sign: str, limit: float) -> tuple[str, ...]:
        """The parts that could make a comparison hold which does not hold for the value."""
        lower = (*self.lower, *(part for part, last in self.short if last < limit))
        if self.value is None or sign == "!=":
            return (*lower, *self.higher)
        if sign == "==":
            return lower if limit < self.value else self.higher
        return lower if sign in ("<", "<=") else self.higher
