"""A model that is one linear layer and nothing else: what its state tells is a closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.closed_form.kernels import tolerance_of
from memaudit.memory.result import Status
from memaudit.numerics.signals import seeded
from memaudit.probes.decoding_trial import leading
from memaudit.recall.result import Decoding

if TYPE_CHECKING:
    from memaudit.contracts import AbstractSubject, Setting
    from memaudit.recall.result import LinearRecall

#: Steps of the trial in which a layer has to answer as the model does.
STEPS = 32


def bare_layer(
    subject: AbstractSubject, linear: tuple[LinearRecall, ...], setting: Setting
) -> Decoding | None:
    """R² from the rounded state of the only layer, if the model answers as it does; else None.

    Of a stationary state; where there is none, of one that began at rest.
    """
    if len(linear) != 1 or linear[0].status is not Status.OK or not _alike(subject, setting):
        return None
    found, settled = linear[0], linear[0].stationary
    values = found.rounded_values if settled is None else settled.rounded_values
    # Of a bank every input has a state of its own.
    numbers = found.numbers * (found.inputs if found.channels else 1)
    return Decoding(
        state=found.layer,
        kind="state",
        numbers=numbers,
        used=numbers,
        inputs=found.inputs,
        values=values,
        floor=0.0,
        capacity=found.rounded_capacity if settled is None else settled.rounded_capacity,
        half=leading(values),
        samples=0,
        exact=True,
        status=Status.OK,
        stationary=settled is not None,
        whole=None if settled is None else settled.rounded_whole,
    )


def _alike(subject: AbstractSubject, setting: Setting) -> bool:
    """Whether the linear layer answers noise as the model does, within rounding."""
    (part,) = subject.linear_parts().values()
    if subject.pooled or part.width != subject.input_size:
        return False
    shape = (2, STEPS, part.width)
    u = torch.randn(shape, generator=seeded(setting.seed), dtype=torch.float64)
    u = u.to(subject.device, subject.dtype)
    own, other = subject.respond(u).double(), part.respond(u).flatten(2).double()
    if own.shape != other.shape:
        return False
    limit = tolerance_of(subject.dtype, STEPS) * float(own.abs().amax())
    return bool((own - other).abs().amax() <= limit)
