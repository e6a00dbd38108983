"""The inputs on which a model with moved weights is compared with the model as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from memaudit.contracts import AbstractSubject, Setting

#: Real input vectors of which the natural sequences are made.
NATURAL = 64


def perturbing_inputs(
    subject: AbstractSubject, setting: Setting, *, steps: int = 100, rows: int = 8
) -> torch.Tensor:
    """Sequences (rows, steps, D) with |u(t)|_inf <= 1, in the dtype of the subject.

    The constants 1 and -1, an impulse, random signs and uniform noise; then sequences of natural
    inputs where there are some, else more signs and noise. The same seed gives the same numbers.
    A model that takes fewer steps is fed fewer.
    """
    import torch

    from memaudit.numerics.signals import pulse, seeded

    generator = seeded(setting.seed)
    width = subject.input_size or 1
    steps = steps if subject.longest is None else min(steps, subject.longest)
    ones = torch.ones(1, width, dtype=torch.float64)
    fixed = [pulse(x, on=on, length=steps) for x, on in ((ones, steps), (-ones, steps), (ones, 1))]
    noise = _noise(max(rows - len(fixed), 2), steps, width, generator)
    natural = subject.natural_inputs(NATURAL, generator)
    if natural is not None and len(natural):
        at = torch.randint(len(natural), (len(noise) - 2, steps), generator=generator)
        real = natural.detach().to("cpu", torch.float64)
        noise[2:] = (real / real.abs().max().clamp(min=1.0))[at]
    return torch.cat([*fixed, noise])[:rows].to(subject.device, subject.dtype)


def _noise(rows: int, steps: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """Random signs and uniform noise, in turns."""
    import torch

    noise = 2 * torch.rand(rows, steps, width, generator=generator, dtype=torch.float64) - 1
    noise[::2] = noise[::2].sign()
    return noise
