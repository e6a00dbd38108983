"""How curves that share a plot are drawn, so that each is seen where they lie on each other."""

from __future__ import annotations

from dataclasses import dataclass

#: The curve on top, and how much broader the one below it is, up to the broadest.
NARROWEST, STEP, BROADEST = 1.75, 2.5, 8.0
#: A broad line is paler: it is no more important than the others.
PALE = 0.5
#: More curves are told by their colour alone: bands so close to each other would be noise.
MANY = 6
ALONE = 2.0


@dataclass(frozen=True, slots=True)
class Stroke:
    """Width and opacity of one curve among several, and its sign in a legend."""

    width: float
    opacity: float
    sign: str

    def style(self) -> dict[str, float | str]:
        """As ECharts takes it."""
        if self.opacity == 1.0:
            return {"width": self.width, "join": "round"}
        return {"width": self.width, "opacity": self.opacity, "join": "round"}


def stroke(place: int, count: int) -> Stroke:
    """The stroke of the curve in that place: every one narrower than those that it lies on."""
    if count == 1 or count > MANY:
        return Stroke(ALONE, 1.0, "line")
    step = min(STEP, (BROADEST - NARROWEST) / (count - 1))
    above = count - 1 - place
    sign = "broad" if place == 0 else "wide" if above else "line"
    width = round(NARROWEST + above * step, 2)
    return Stroke(width, 1.0 if place else PALE, sign)
