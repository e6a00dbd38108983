"""Students of IATN's App. D: the same seed, the same numbers; errors against a plain loop."""

import numpy as np
import pytest
import torch

from examples.reproduce.iatn.f02_epochs import exponential
from examples.reproduce.iatn.trained import TARGET, curves_of, train
from memaudit.interfaces import Setting
from memaudit.subjects.callables import wrap
from memaudit.subjects.moves import perturbing_inputs


@pytest.fixture(scope="module")
def students():
    return [train(size, updates=3, samples=128, seed=1)[0] for size in (2, 3, 4)]


def test_training_repeats() -> None:
    one, other = (train(3, updates=4, samples=256, seed=2)[1].losses for _ in range(2))
    assert np.array_equal(one, other)


def test_the_error_at_rest_is_that_of_a_plain_loop(students) -> None:
    report = curves_of(students, seed=0, steps=20, betas=(1e-6, 1e-3), norm="sup")
    student = students[0]
    u = perturbing_inputs(wrap(student, input_size=1), Setting(seed=0), steps=20).numpy()
    w, b, c, bias = (p.detach().numpy() for p in (student.W, student.U, student.c, student.bias))
    kernel = 0.1 * (0.1 * np.arange(20) + 1.0) ** -1.5
    largest = 0.0
    for row in u[..., 0]:
        h = np.zeros(len(w))
        for t in range(20):
            h = h + 0.1 * np.tanh(w @ h + b[:, 0] * row[t] + bias)
            wanted = sum(kernel[s] * row[t - s] for s in range(t + 1))
            largest = max(largest, abs(float(c[0] @ h) - wanted))
    assert report.members[0].start == pytest.approx(largest, rel=1e-9)


def test_both_targets_are_one_unit_at_the_start() -> None:
    from memaudit.targets import target

    impulse = torch.zeros(1, 11, 1, dtype=torch.float64)
    impulse[0, 0] = 1.0
    for answer, late in ((exponential, np.exp(-1.0)), (target(TARGET).answer, 2.0**-1.5)):
        rho = answer(impulse)[0, :, 0] / 0.1
        assert float(rho[0]) == pytest.approx(1.0)
        assert float(rho[10]) == pytest.approx(late)
