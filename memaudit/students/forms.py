"""The reparameterization of a student, by its name or as it is."""

from __future__ import annotations

from memaudit import registry
from memaudit.errors import ArgumentError
from memaudit.reparam import AbstractReparam


def form_of(reparam: str | AbstractReparam, *, time: str) -> AbstractReparam:
    """The form in one of the two times; one that is given as it is must be of that time."""
    if isinstance(reparam, str):
        return registry.build("reparams", reparam, time=time)
    if reparam.time != time:
        fact = f"{reparam.name} is made for {reparam.time} time, this student lives in {time} time"
        raise ArgumentError(fact, hint=f'make it with time="{time}"')
    return reparam
