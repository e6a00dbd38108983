"""Students against closed forms, and training runs that must repeat."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import memaudit
from examples.reproduce.students import ACTIVATIONS, DiagonalStudent, RecurrentStudent, fit, fitted
from memaudit.errors import ArgumentError
from memaudit.reparams import Best
from memaudit.targets import target

MODES = torch.tensor([0.9, 0.5, 0.2], dtype=torch.float64)
STABLE = ("exp", "softplus", "best", "heavytail")


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def noise(rows=3, steps=40, width=1):
    return torch.randn(rows, steps, width, generator=draw(1), dtype=torch.float64)


@pytest.mark.parametrize("activation", ["linear", "tanh", "relu", "hardtanh"])
def test_a_diagonal_student_is_its_recurrence(activation):
    student = DiagonalStudent(MODES, activation=activation, generator=draw())
    u, x, wanted = noise(), torch.zeros(3, 3, dtype=torch.float64), []
    act = {"linear": lambda v: v, "tanh": torch.tanh, "relu": torch.relu}.get(
        activation, torch.nn.functional.hardtanh
    )
    for now in u.unbind(1):
        x = MODES * x + student.b * now
        wanted.append(act(x) @ student.c)
    torch.testing.assert_close(student(u)[..., 0], torch.stack(wanted, 1), rtol=0, atol=1e-13)


def test_modes_that_a_form_cannot_reach_are_refused():
    with pytest.raises(ArgumentError, match="best cannot reach"):
        DiagonalStudent(MODES, reparam=Best(time="discrete", b=5.0))


def test_an_audit_of_a_student_finds_its_slowest_mode_and_its_kernel():
    student = DiagonalStudent(MODES, amplitudes=torch.tensor([1.0, -2.0, 3.0]))
    report = memaudit.scan(memaudit.wrap(student, input_size=1), queries=["impulse"], horizon=64)
    kernel = student.kernel(64).detach().abs().numpy()
    np.testing.assert_allclose(report.memory["impulse"].values, kernel, rtol=0, atol=1e-13)
    assert report.spectrum[0].margin == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize("form", ["direct", *STABLE])
def test_a_recurrent_student_is_its_recurrence(form):
    student = RecurrentStudent(4, reparam=form, step=0.2, inputs=2, outputs=3, generator=draw())
    u, h, wanted = noise(width=2), torch.zeros(3, 4, dtype=torch.float64), []
    for now in u.unbind(1):
        h = h + 0.2 * torch.tanh(h @ student.weight().mT + now @ student.U.mT + student.bias)
        wanted.append(h @ student.c.mT)
    torch.testing.assert_close(student(u), torch.stack(wanted, 1), rtol=0, atol=1e-14)


def test_all_forms_start_from_the_same_recurrent_student():
    direct = RecurrentStudent(6, generator=draw())
    for form in STABLE:
        other = RecurrentStudent(6, reparam=form, generator=draw())
        torch.testing.assert_close(other.weight(), direct.weight(), rtol=0, atol=1e-13)
        torch.testing.assert_close(other(noise()), direct(noise()), rtol=0, atol=1e-12)


def test_no_move_makes_a_stable_recurrent_student_unstable_and_one_does_of_direct():
    for form in STABLE:
        student = RecurrentStudent(5, reparam=form, generator=draw())
        with torch.no_grad():
            for weight in student.parameters():
                weight.add_(torch.randn(weight.shape, generator=draw(3), dtype=torch.float64))
        assert float(torch.linalg.eigvalsh(student.weight().detach()).amax()) <= 1e-12
    student = RecurrentStudent(5, generator=draw())
    with torch.no_grad():
        student.W.add_(torch.eye(5))
    assert float(torch.linalg.eigvals(student.weight().detach()).real.amax()) > 0.0


def test_least_squares_meet_a_kernel_that_they_can_reach():
    """One exponential at the middle node of three is reached exactly without a penalty."""
    student = fitted("exp:0.5", 3, largest=1.0, ridge=0.0, steps=100)
    torch.testing.assert_close(
        student.kernel(100), target("exp:0.5").kernel(100), rtol=0, atol=1e-12
    )


def test_training_repeats_falls_and_is_reported():
    seen: list[int] = []
    runs = []
    for _ in range(2):
        student = DiagonalStudent(MODES, reparam="exp", generator=draw())
        runs.append(fit(student, "exp:0.8", updates=60, length=30, batch=16, progress=_into(seen)))
    assert np.array_equal(runs[0].losses, runs[1].losses)
    assert runs[0].last < 0.2 * runs[0].losses[0]
    assert (len(runs[0].losses), seen[-1]) == (60, 60)
    assert runs[0].diverged_at is None


def test_a_run_that_diverges_says_where():
    student = DiagonalStudent(MODES, generator=draw())
    run = fit(student, lambda u: 1e3 * u, updates=400, length=400, optimizer="sgd", lr=10.0)
    assert run.diverged_at == len(run.losses)
    assert run.last == float("inf")


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: fit(DiagonalStudent(MODES), "exp:0.8", optimizer="adamm"), "unknown optimizer"),
        (lambda: DiagonalStudent(MODES, activation="gelu"), "unknown activation"),
        (lambda: DiagonalStudent(MODES, reparam=Best()), "is made for continuous time"),
        (lambda: DiagonalStudent(MODES + 0.1j), "the modes are complex"),
        (lambda: fit(DiagonalStudent(MODES), "exp:0.8", updates=0), "updates is '0'"),
        (lambda: fit(DiagonalStudent(MODES), "exp:0.8", batch=0), "batch is '0'"),
        (lambda: fit(DiagonalStudent(MODES), "exp:0.8", samples=0), "samples is '0'"),
        (lambda: fitted("volterra", 4), "has no kernel"),
        (lambda: fitted("exp:0.9", 0), "0 modes are to fit"),
    ],
)
def test_bad_use_gets_a_sentence(call, fact):
    with pytest.raises(ArgumentError, match=fact):
        call()


def _into(seen):
    return lambda done, of: seen.append(done)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("reparam", ["direct", "softplus"])
def test_answers_and_gradients_are_those_of_the_loop(activation: str, reparam: str) -> None:
    draw = torch.Generator().manual_seed(3)
    student = RecurrentStudent(
        6, reparam=reparam, activation=activation, inputs=3, outputs=2, generator=draw
    )
    # Large enough that hardtanh is flat at some steps.
    u = 3.0 * torch.randn(4, 20, 3, dtype=torch.float64, generator=draw)
    weights = torch.randn(4, 20, 2, dtype=torch.float64, generator=draw)
    found = []
    for run in (student, student.unrolled):
        answers = run(u)
        grads = torch.autograd.grad((answers * weights).sum(), list(student.parameters()))
        found.append([answers.detach(), *grads])
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-11, atol=1e-11)
