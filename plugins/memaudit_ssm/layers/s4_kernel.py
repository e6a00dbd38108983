"""The weights of S4 and S4D as version 4 of state-spaces/s4 stores them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import nn

from memaudit.numerics.linear import DISCRETIZATIONS
from memaudit_ssm.layers.laws import S4_LAWS, SIGNED, TIED
from memaudit_ssm.layers.s4_continuous import Continuous, LowRank, band_limited, tiled
from memaudit_ssm.layers.stored import Stored, complex_of
from memaudit_ssm.layers.transforms import POSITIVE


@dataclass(frozen=True, slots=True)
class S4Recipe:
    """What the weights of S4 mean: the functions between them and the system, by name."""

    real_transform: str = "exp"
    imag_transform: str = "none"
    dt_transform: str = "exp"
    disc: str = "zoh"
    #: Whether the step size passes through sinh before its transform.
    dt_fast: bool = False
    #: Modes above half of it, in cycles a step, are not read.
    bandlimit: float | None = None

    def __post_init__(self) -> None:
        for name in (self.real_transform, self.imag_transform, self.dt_transform):
            if name not in POSITIVE:
                raise ValueError(f"{name!r} is none of {', '.join(POSITIVE)}")
        if self.disc not in DISCRETIZATIONS:
            raise ValueError(f"{self.disc!r} is none of {', '.join(DISCRETIZATIONS)}")


@dataclass(frozen=True, slots=True)
class S4Sizes:
    """How many of everything: features H, stored modes N, copies S, kernels C and the rank R.

    With `real` weights there is no imaginary part; `per_mode` has a step size for every mode.
    """

    width: int
    modes: int
    copies: int = 1
    kernels: int = 1
    rank: int = 0
    real: bool = False
    per_mode: bool = False

    def __post_init__(self) -> None:
        if self.width % self.copies:
            raise ValueError(f"{self.copies} copies do not divide {self.width} features")
        if self.real and self.rank:
            raise ValueError("a low-rank part needs complex weights")


class AbstractS4Kernel(nn.Module, ABC):
    """Stored weights that are a linear system in continuous time.

    Law: `continuous` has the features `width`, and does not change while the weights do not.
    """

    width: int
    #: How the input is held between two steps, of a diagonal system.
    disc: str
    #: Between the raw weight and the real part of a rate, by its name among the transforms.
    real_transform: str

    @abstractmethod
    def continuous(self) -> Continuous:
        """The weights as a system in continuous time."""

    @abstractmethod
    def decay(self) -> Stored | str:
        """The weight that makes the diagonal, or a sentence why there is no such weight."""


class S4Kernel(AbstractS4Kernel):
    """A = -f(A_real) - i·g(A_imag), minus P P* where there is a P; dt = h(inv_dt)."""

    def __init__(self, sizes: S4Sizes, recipe: S4Recipe) -> None:
        super().__init__()
        self.width = sizes.width
        self.disc = recipe.disc
        self.real_transform = recipe.real_transform
        self.recipe = recipe
        pair = () if sizes.real else (2,)
        small = (sizes.copies, sizes.modes)
        self.C = nn.Parameter(torch.zeros(sizes.kernels, sizes.width, sizes.modes, *pair))
        self.B = nn.Parameter(torch.zeros(1, *small, *pair))
        self.inv_dt = nn.Parameter(torch.zeros(sizes.width, sizes.modes if sizes.per_mode else 1))
        self.A_real = nn.Parameter(torch.zeros(*small))
        self.A_imag = None if sizes.real else nn.Parameter(torch.zeros(*small))
        self.P = nn.Parameter(torch.zeros(sizes.rank, *small, 2)) if sizes.rank else None
        if self.P is not None:
            self.register_buffer("l_kernel", torch.zeros((), dtype=torch.int64))

    def continuous(self) -> Continuous:
        recipe, width = self.recipe, self.width
        rates = -POSITIVE[recipe.real_transform](self.A_real)
        inputs, readout = self.B[0], self.C
        if self.A_imag is not None:
            imaginary = POSITIVE[recipe.imag_transform](self.A_imag)
            rates = complex_of(rates, -imaginary)
            inputs, readout = torch.view_as_complex(inputs), torch.view_as_complex(readout)
        raw = self.inv_dt.sinh() if recipe.dt_fast else self.inv_dt
        weights = Continuous(
            tiled(rates, width),
            POSITIVE[recipe.dt_transform](raw),
            tiled(inputs, width),
            readout,
            self._low_rank(),
        )
        return band_limited(weights, recipe.bandlimit)

    def decay(self) -> Stored:
        notes = [TIED] if self.P is not None else []
        notes += [SIGNED] if self.recipe.dt_transform == "none" else []
        law = S4_LAWS[self.recipe.real_transform]
        return Stored(self, "A_real", law, note="; ".join(notes))

    def _low_rank(self) -> LowRank | None:
        if self.P is None:
            return None
        left = tiled(torch.view_as_complex(self.P), self.width)
        length = self.get_buffer("l_kernel")
        return LowRank(left, left.conj(), int(length))
