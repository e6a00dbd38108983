"""Runs one target on many inputs and counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.targets import tried

if TYPE_CHECKING:
    from tests.fuzz.targets import Target


def fuzz(target: Target, *, examples: int) -> tuple[int, int]:
    """How many inputs were tried and how many of them were taken; a crash is raised."""
    count = [0, 0]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def one(data: bytes) -> None:
        count[0] += 1
        count[1] += tried(target, data)

    one()
    return count[0], count[1]
