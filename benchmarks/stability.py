"""E(beta) of many moved copies at once: against a loop of deep copies, and a matrix product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import memaudit
from benchmarks.row import Row, best
from memaudit.interfaces import AbstractPerturbable, AbstractSubject
from memaudit.numerics.signals import seeded
from memaudit.stability.search import Problem, random_errors
from memaudit.subjects.moves import error_norm, error_norms
from memaudit_ssm import S4D

NORM, BALL = "sobolev", "spectral"
#: Of StableSSM, Fig. 1: from 1e-3, two to a doubling; 30 draws each.
BETAS = tuple(1e-3 * 2.0 ** (k / 2) for k in range(21))
DRAWS, STEPS, HIDDEN = 30, 100, 64
DEMOS = ("lstm", "gru", "rnn", "s4d", "lru", "mamba", "bert")
#: The whole probe of --quick may cost as many times its own draws as in the paper.
MOST_DRAWS = 40.0


@dataclass(frozen=True)
class Case:
    """A model in its two forms: many copies at once, and a model to be copied in a loop."""

    name: str
    copies: AbstractPerturbable
    model: nn.Module
    run: Callable[[Any, Tensor], Tensor]
    inputs: Tensor
    pooled: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The recurrent weights, or all of a model that has none."""
        roles = self.copies.roles
        return tuple(n for n, role in roles.items() if role.group == "recurrent") or tuple(roles)


def lstm_case(dtype: torch.dtype) -> Case:
    """An LSTM; files are audited in float64, modules in their own dtype."""
    module = nn.LSTM(1, HIDDEN, batch_first=True, dtype=dtype)
    generator = seeded(1)
    with torch.no_grad():
        for weight in module.parameters():
            weight.uniform_(-0.125, 0.125, generator=generator)
    word = str(dtype).removeprefix("torch.")
    return _case(f"LSTM of {HIDDEN}, {word}", module, lambda m, u: m(u)[0])


def ssm_case() -> Case:
    """A diagonal SSM."""
    module = S4D(1, 2 * HIDDEN, generator=seeded(2)).double()
    return _case(f"S4D of {HIDDEN} modes, float64", module, lambda m, u: m(u))


def _case(name: str, module: nn.Module, run: Callable[..., Tensor]) -> Case:
    subject = whole(memaudit.load(module))
    copies = subject.perturbable()
    assert copies is not None
    inputs = 2 * torch.rand(1, STEPS, 1, generator=seeded(3)) - 1
    model = _renamed(module, copies).eval().requires_grad_(False)
    return Case(name, copies, model, run, inputs.to(subject.dtype))


def whole(subject: AbstractSubject) -> AbstractSubject:
    """The subject itself, or the only part of a host."""
    return next(iter(subject.parts().values()), subject)


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


def one_by_one(case: Case, betas: Sequence[float], draws: int) -> np.ndarray:
    """E of every draw, one deep copy at a time."""
    problem = _problem(case)
    drawn = problem.drawn(draws, seeded(0))
    directions = [{name: moves[k] for name, moves in drawn.items()} for k in range(draws)]
    reference = case.run(case.model, case.inputs).double()

    def error(beta: float, move: dict[str, Tensor]) -> float:
        copy = deepcopy(case.model)
        own = dict(copy.named_parameters())
        for name, direction in move.items():
            own[name].add_(beta * direction)
        answer = case.run(copy, case.inputs).double()
        return float(error_norm((answer - reference)[None], NORM, pooled=False)[0])

    with torch.no_grad():
        return np.asarray([[error(beta, move) for move in directions] for beta in betas])


def batched(case: Case, betas: Sequence[float], draws: int) -> np.ndarray:
    """The same by copies that run together."""
    return random_errors(_problem(case), np.asarray(betas), draws, seeded(0))


def _problem(case: Case) -> Problem:
    with torch.no_grad():
        reference = case.copies.respond(case.inputs, {})[0].double()

    def error(moved: Any) -> Tensor:
        answers = case.copies.respond(case.inputs, moved)
        return error_norm(answers.double() - reference, NORM, pooled=case.pooled)

    def along(directions: Any, sizes: Tensor) -> Tensor:
        answers = case.copies.respond_scaled(case.inputs, directions, sizes)
        return error_norms(answers, reference, NORM, pooled=case.pooled)

    weights = {name: case.copies.weights[name] for name in case.names}
    roles = {name: case.copies.roles[name] for name in case.names}
    return Problem(weights, roles, BALL, error, case.copies.differentiable, 2**10, along)


def rows(*, full: bool) -> Iterator[Row]:
    """The loop against the copies, the copies against a matrix product, the probe against both."""
    betas, draws = BETAS, DRAWS
    for case in (ssm_case(), lstm_case(torch.float64), lstm_case(torch.float32)):
        count, dtype = len(betas) * draws, case.inputs.dtype
        state = torch.rand(count, 1, HIDDEN, dtype=dtype)
        weight = torch.rand(count, HIDDEN, 4 * HIDDEN, dtype=dtype)
        works = {
            "loop": lambda case=case: one_by_one(case, betas, draws),
            "batched": lambda case=case: batched(case, betas, draws),
            "product": lambda h=state, w=weight: [h @ w for _ in range(STEPS)],
        }
        found = best(works, 5 if full else 3)
        note = f"{len(betas)} x {draws} draws, T = {STEPS}"
        value = found["loop"] / found["batched"]
        yield Row("stability", f"{case.name}, loop / batched", value, note=note)
        if case.name.startswith("LSTM"):
            value = found["batched"] / found["product"]
            yield Row("stability", f"{case.name}, batched / its matrix products", value, limit=2.0)
    for demo in DEMOS if full else ("rnn", "s4d"):
        yield from of_draws(demo)


def of_draws(demo: str) -> Iterator[Row]:
    """The probe as --quick runs it, against 21 x 30 draws of one sequence and nothing else."""
    subject = memaudit.load(f"demo:{demo}")
    case = _drawn_case(demo, whole(subject))

    def probe() -> None:
        memaudit.scan(subject, queries=[], probes=["stability"], level="quick")

    found = best({"probe": probe, "draws": lambda: batched(case, BETAS, DRAWS)}, 5)
    value = found["probe"] / found["draws"]
    yield Row("stability", f"demo:{demo}, --quick / its draws", value, limit=MOST_DRAWS)


def _drawn_case(demo: str, subject: AbstractSubject) -> Case:
    copies = subject.perturbable()
    assert copies is not None
    assert subject.input_size is not None
    inputs = 2 * torch.rand(1, STEPS, subject.input_size, generator=seeded(3)) - 1
    return Case(demo, copies, nn.Module(), lambda m, u: u, inputs.to(subject.dtype), subject.pooled)
