"""What a reparameterization can be made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError, clean

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam


def check_form(reparam: AbstractReparam, **ranges: tuple[float, float]) -> None:
    """Refuse a time in which there is no form, and options outside of their open ranges."""
    if reparam.time not in reparam.times:
        raise ArgumentError(
            f"the reparameterization {reparam.name} has no {clean(reparam.time)} form",
            hint=f"it has: {', '.join(reparam.times)}",
        )
    for option, (low, high) in ranges.items():
        value = getattr(reparam, option)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low < value < high:
            raise ArgumentError(
                f"{option} of the reparameterization {reparam.name} is {clean(value)}",
                hint=f"give a number between {low:g} and {high:g}",
            )
