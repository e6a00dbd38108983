"""Time E(beta) by batched copies against the plain loop, and hold ascent against random draws.

python examples/benchmark_stability.py [--repeat 3] [--draws 30] [--fixture FOLDER] [--quick]

The plain loop copies the model, moves its recurrent weights and runs it, once per draw. All times
come from one run, taking turns, the best of several; only their ratios mean something.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import memaudit
from examples.exact_error import direct_error, driven
from memaudit.interfaces import AbstractPerturbable, AbstractSubject
from memaudit.numerics.signals import seeded
from memaudit.stability.search import Problem, ascent_errors, random_errors
from memaudit.subjects.moves import draw, error_norm, error_norms
from memaudit_ssm import S4D

NORM, BALL = "sobolev", "spectral"
#: Of StableSSM, Fig. 1: from 1e-3, two to a doubling.
BETAS = tuple(1e-3 * 2.0 ** (k / 2) for k in range(21))
STEPS, ROWS = 100, 1


@dataclass(frozen=True)
class Case:
    """A model in its two forms: many copies at once, and a model to be copied in a loop."""

    name: str
    copies: AbstractPerturbable
    model: Any
    run: Callable[[Any, Tensor], Tensor]
    inputs: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """The recurrent weights."""
        return tuple(n for n, role in self.copies.roles.items() if role.group == "recurrent")

    def problem(self, batch: int = 2**10) -> Problem:
        """The search over the recurrent weights, against the model as it is."""
        with torch.no_grad():
            reference = self.copies.respond(self.inputs, {})[0].double()

        def error(moved: Mapping[str, Tensor]) -> Tensor:
            answers = self.copies.respond(self.inputs, moved)
            return error_norm(answers.double() - reference, NORM, pooled=False)

        def fan(directions: Mapping[str, Tensor], sizes: Tensor) -> Tensor:
            answers = self.copies.respond_scaled(self.inputs, directions, sizes)
            return error_norms(answers, reference, NORM, pooled=False)

        weights = {name: self.copies.weights[name] for name in self.names}
        roles = {name: self.copies.roles[name] for name in self.names}
        return Problem(weights, roles, BALL, error, self.copies.differentiable, batch, fan)


def plain_loop(case: Case, betas: Sequence[float], draws: int) -> np.ndarray:
    """E of every draw, one deep copy at a time."""
    generator = seeded(0)
    directions = [_directions(case, generator) for _ in range(draws)]
    with torch.no_grad():
        reference = case.run(case.model, case.inputs).double()
        found = [[_error(case, d, beta, reference) for d in directions] for beta in betas]
    return np.asarray(found)


def _directions(case: Case, generator: torch.Generator) -> dict[str, Tensor]:
    weights, roles = case.copies.weights, case.copies.roles
    return {
        n: draw(
            weights[n].shape,
            roles[n].form,
            BALL,
            1,
            generator,
            dtype=weights[n].dtype,
            device=weights[n].device,
        )[0]
        for n in case.names
    }


def _error(case: Case, move: Mapping[str, Tensor], beta: float, reference: Tensor) -> float:
    copy = deepcopy(case.model)
    own = dict(copy.named_parameters()) if isinstance(copy, nn.Module) else copy.weights()
    for name, direction in move.items():
        own[name].add_(beta * direction)
    answer = case.run(copy, case.inputs).double()
    return float(error_norm((answer - reference)[None], NORM, pooled=False)[0])


def race(case: Case, betas: Sequence[float], draws: int, repeat: int) -> tuple[float, float]:
    """Best seconds of the loop and of the batched copies, which take turns."""
    problem, best = case.problem(), [math.inf, math.inf]

    def batched() -> np.ndarray:
        return random_errors(problem, np.asarray(betas), draws, seeded(0))

    for _ in range(repeat):
        for k, work in enumerate((lambda: plain_loop(case, betas, draws), batched)):
            start = time.perf_counter()
            work()
            best[k] = min(best[k], time.perf_counter() - start)
    return best[0], best[1]


def show_race(case: Case, betas: Sequence[float], draws: int, repeat: int) -> None:
    """Both times and their ratio."""
    loop, batched = race(case, betas, draws, repeat)
    how = getattr(case.copies, "execution", "")
    shape = f"T = {case.inputs.shape[1]}, batch {len(case.inputs)}"
    print(f"{case.name}, {shape}: {len(betas)} betas x {draws} draws{how and f', {how}'}")
    print(f"  loop {loop:.2f} s, batched {batched:.3f} s, loop / batched = {loop / batched:.1f}")


def lstm_case(dtype: torch.dtype) -> Case:
    """An LSTM of 64; files are audited in float64, modules in their own dtype."""
    module = nn.LSTM(1, 64, batch_first=True, dtype=dtype)
    _fill(module, 0.125, seeded(1))
    return _case(f"LSTM, hidden 64, {dtype}", module, lambda m, u: m(u)[0], 1)


def ssm_case() -> Case:
    """A diagonal SSM of 64 modes."""
    module = S4D(1, 128, generator=seeded(2)).double()
    return _case("S4D, m = 64, torch.float64", module, lambda m, u: m(u), 1)


def _case(name: str, module: nn.Module, run: Callable[..., Tensor], width: int) -> Case:
    subject = _whole(memaudit.load(module))
    copies = subject.perturbable()
    assert copies is not None
    inputs = 2 * torch.rand(ROWS, STEPS, width, generator=seeded(3)) - 1
    model = _renamed(module, copies).eval().requires_grad_(False)
    return Case(name, copies, model, run, inputs.to(subject.dtype))


def _whole(subject: AbstractSubject) -> AbstractSubject:
    """The subject itself, or the only part of a host."""
    parts = list(subject.parts().values())
    return parts[0] if parts else subject


def _renamed(module: nn.Module, copies: AbstractPerturbable) -> nn.Module:
    """The module under a parent, where the weights have other names than in the copies."""
    own = dict(module.named_parameters())
    for name in copies.weights:
        if name not in own:
            parent = nn.Module()
            parent.add_module(name.partition(".")[0], module)
            parent.forward = module.forward  # type: ignore[method-assign]
            return parent
    return module


def _fill(module: nn.Module, spread: float, generator: torch.Generator) -> None:
    with torch.no_grad():
        for weight in module.parameters():
            weight.uniform_(-spread, spread, generator=generator)


class Diagonal(nn.Module):
    """y = sum of c_i h_i with h_i' = lambda_i h_i + u: the case that has a closed form."""

    memaudit_roles: ClassVar[dict[str, str]] = {"lam": "recurrent", "c": "readout"}

    def __init__(self, lam: Tensor, c: Tensor) -> None:
        super().__init__()
        self.lam, self.c = nn.Parameter(lam), nn.Parameter(c)

    def forward(self, u: Tensor) -> Tensor:
        """Answer (B,T,1) by (B,T,1)."""
        state, answers = torch.zeros_like(u[:, 0]), []
        for now in u.unbind(1):
            state = self.lam * state + now
            answers.append((state * self.c).sum(-1, keepdim=True))
        return torch.stack(answers, 1)


def compare_ascent(m: int, draws: int) -> None:
    """Ascent against many draws and against the closed form, on an impulse."""
    generator = seeded(m)
    lam = 0.5 + 0.45 * torch.rand(m, generator=generator, dtype=torch.float64)
    c = torch.randn(m, generator=generator, dtype=torch.float64)
    copies = memaudit.wrap(Diagonal(lam, c), input_size=1).perturbable()
    assert copies is not None
    impulse = torch.zeros(1, STEPS, 1, dtype=torch.float64)
    impulse[:, 0] = 1
    case = Case(f"diagonal, m = {m}", copies, nn.Identity(), lambda _, u: u, impulse)
    problem, betas = case.problem(), np.asarray([0.001, 0.003, 0.01, 0.03])
    drawn = random_errors(problem, betas, draws, seeded(0)).max(axis=1)
    risen = ascent_errors(problem, betas, 6, 40, seeded(1))
    exact = [_closed(lam, c, float(beta)) for beta in betas]
    print(f"diagonal, m = {m}: E by {draws} draws, by ascent, in closed form")
    for row in zip(betas, drawn, risen, exact, strict=True):
        print("  beta {:.3f}: {:.6g}  {:.6g}  {:.6g}".format(*row), end="")
        print(f"   ascent / draws {row[2] / row[1]:.3f}, ascent / exact {row[2] / row[3]:.5f}")


def _closed(lam: Tensor, c: Tensor, beta: float) -> float:
    impulse = np.zeros(STEPS)
    impulse[0] = 1
    system = driven(lam.numpy(), c.numpy(), impulse)
    return direct_error(system, beta, norm=NORM)


def small_rnn(draws: int) -> None:
    """Ascent against many draws on a recurrence that has no closed form."""
    module = nn.RNN(1, 4, batch_first=True, dtype=torch.float64)
    _fill(module, 0.5, seeded(5))
    case = _case("tanh RNN, hidden 4", module, lambda m, u: m(u)[0], 1)
    problem, betas = case.problem(), np.asarray([0.003, 0.03, 0.3])
    drawn = random_errors(problem, betas, draws, seeded(0)).max(axis=1)
    risen = ascent_errors(problem, betas, 6, 40, seeded(1))
    print(f"{case.name}: E by {draws} draws, by ascent")
    for row in zip(betas, drawn, risen, strict=True):
        print("  beta {:.3f}: {:.6g}  {:.6g}".format(*row), end="")
        print(f"   ascent / draws {row[2] / row[1]:.3f}")


def fixture_case(folder: str) -> Case:
    """A checkpoint as memaudit opens it; the loop copies the whole subject."""
    subject = _whole(memaudit.load(folder))
    copies = subject.perturbable()
    if copies is None or subject.input_size is None:
        raise SystemExit(f"the weights of {folder} cannot be moved")
    inputs = 2 * torch.rand(ROWS, STEPS, subject.input_size, generator=seeded(3)) - 1
    name = f"{subject.identity.family}, {subject.identity.parameters:,} parameters"
    return Case(name, copies, subject, lambda s, u: s.respond(u), inputs.to(subject.dtype))


def main(argv: Sequence[str] | None = None) -> None:
    """Print every comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument(
        "--many", type=int, default=10_000, help="draws that ascent is held against"
    )
    parser.add_argument("--fixture", help="a folder: the loop against memaudit on that model")
    parser.add_argument("--quick", action="store_true", help="a few draws, to see that it runs")
    options = parser.parse_args(argv)
    betas = BETAS
    if options.quick:
        options.repeat, options.draws, options.many, betas = 1, 2, 64, BETAS[::10]
    print(f"{torch.get_num_threads()} threads, best of {options.repeat}")
    for case in (ssm_case(), lstm_case(torch.float64), lstm_case(torch.float32)):
        show_race(case, betas, options.draws, options.repeat)
    if options.fixture:
        show_race(fixture_case(options.fixture), betas[::10], min(options.draws, 4), options.repeat)
    for m in (4, 16, 64):
        compare_ascent(m, options.many)
    small_rnn(options.many)


if __name__ == "__main__":
    main()
