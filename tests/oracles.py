"""Models whose memory is known in closed form, and the table of cases built from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import lgamma, log

import numpy as np
import torch

Model = Callable[[torch.Tensor], torch.Tensor]


def recurrence(modes: list[complex], weights: list[complex]) -> Model:
    """y_t = Re sum_k w_k h_k with h_k <- lam_k h_k + u, for one input and one output."""
    lam = torch.tensor(modes, dtype=torch.complex128)
    w = torch.tensor(weights, dtype=torch.complex128)

    def respond(u: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(len(u), len(lam), dtype=torch.complex128)
        answers = []
        for step in u.unbind(1):
            state = lam * state + step
            answers.append((state @ w).real)
        return torch.stack(answers, 1)[..., None]

    return respond


def convolution(kernel: np.ndarray) -> Model:
    """y_t = sum_s rho(s) u_{t-s}, summed directly."""
    rho = torch.tensor(kernel, dtype=torch.float64)

    def respond(u: torch.Tensor) -> torch.Tensor:
        length = u.shape[1]
        taps = rho[:length].flip(0)[None, None]
        padded = torch.nn.functional.pad(u.transpose(1, 2), (taps.shape[-1] - 1, 0))
        return torch.nn.functional.conv1d(padded, taps).transpose(1, 2)

    return respond


@dataclass(frozen=True)
class Case:
    """A model, its kernel rho(0..n), the kind it must come out as, and its rate or exponent."""

    name: str
    model: Model
    kernel: np.ndarray
    kind: str
    value: float | None = None


LENGTH = 1100
STEPS = np.arange(LENGTH, dtype=np.float64)


def modal(name: str, modes: list, weights: list, kind: str, value: float | None = None) -> Case:
    powers = np.asarray(modes, dtype=complex)[None] ** STEPS[:, None]
    kernel = (powers * np.asarray(weights)).sum(1).real
    return Case(name, recurrence(modes, weights), kernel, kind, value)


def filtered(name: str, kernel: np.ndarray, kind: str, value: float | None = None) -> Case:
    full = np.zeros(LENGTH)
    full[: len(kernel)] = kernel
    return Case(name, convolution(full), full, kind, value)


def _exponential() -> list[Case]:
    real = [0.25, 0.4, 0.6, 0.75, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999]
    cases = [modal(f"real {x}", [x], [1.0], "exponential", -log(x)) for x in real]
    cases += [modal(f"real -{x}", [-x], [1.0], "exponential", -log(x)) for x in (0.5, 0.9, 0.99)]
    for size in (0.8, 0.9, 0.95, 0.99, 0.998):
        for angle in (0.1, 0.7, 1.3, 2.4):
            mode = size * np.exp(1j * angle)
            cases.append(modal(f"{size} at {angle}", [mode], [1.0], "exponential", -log(size)))
    for fast, slow in ((0.5, 0.95), (0.8, 0.99), (0.9, 0.97)):
        name = f"{fast} and {slow}"
        cases.append(modal(name, [fast, slow], [1.0, 1.0], "exponential", -log(slow)))
    return cases


def _polynomial() -> list[Case]:
    cases = [
        filtered(f"(t+1)^-{a}", (STEPS + 1) ** -a, "polynomial", a)
        for a in (0.25, 0.5, 0.8, 1.0, 1.1, 1.5, 2.0, 2.5, 3.0)
    ]
    for d in (0.2, 0.4):  # the fractional integrator, a power law only in the limit
        kernel = np.exp([lgamma(t + d) - lgamma(t + 1) - lgamma(d) for t in STEPS])
        cases.append(filtered(f"fractional {d}", kernel, "polynomial", 1 - d))
    return cases


def _others() -> list[Case]:
    rng = np.random.default_rng(3)
    cases = [
        filtered(f"fir {n}", rng.uniform(0.2, 1, n), "finite") for n in (2, 3, 8, 33, 150, 400)
    ]
    delay = np.zeros(61)
    delay[60] = 1.0
    cases += [filtered("delay 60", delay, "finite"), filtered("hann", np.hanning(66)[1:], "finite")]
    cases.append(filtered("truncated", 0.7 ** np.arange(30), "finite"))
    cases += [
        modal("integrator", [1.0], [1.0], "persistent"),
        modal("leaky plateau", [0.9, 1.0], [1.0, 0.2], "persistent"),
        modal("alternating", [-1.0], [1.0], "persistent"),
    ]
    for angle in (0.11, 0.5, 1.0, 2.2):
        cases.append(modal(f"rotation {angle}", [np.exp(1j * angle)], [1.0], "persistent"))
    for x in (1.001, 1.005, 1.02, 1.1):
        cases.append(modal(f"unstable {x}", [x], [1.0], "growing", -log(x)))
    cases.append(filtered("double integrator", STEPS + 1, "growing"))
    cases.append(Case("identity", lambda u: u, (STEPS == 0) * 1.0, "memoryless"))
    cases.append(Case("constant", lambda u: 0 * u + 3.0, 0 * STEPS, "memoryless"))
    cases.append(Case("cube", lambda u: u**3, (STEPS == 0) * 1.0, "memoryless"))
    return cases


CASES = _exponential() + _polynomial() + _others()
