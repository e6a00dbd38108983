"""The recurrence whose gradient is written out, against the plain loop."""

import pytest
import torch

from memaudit.students import RecurrentStudent, fit
from memaudit.students.activations import ACTIVATIONS


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


def test_a_fixed_set_of_samples_comes_back_in_every_epoch() -> None:
    seen: list[torch.Tensor] = []

    class Still(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            seen.append(u.detach())
            return self.gain * u

    fit(Still(), lambda u: u, updates=4, batch=3, samples=6, length=5, lr=0.0)
    first, second = (torch.cat(seen[i : i + 2]).flatten(1).sum(1).sort().values for i in (0, 2))
    torch.testing.assert_close(first, second, rtol=0.0, atol=0.0)
    assert not torch.equal(seen[0], seen[2])
