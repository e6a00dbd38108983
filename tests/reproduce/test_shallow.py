"""The shallow state-space model of the StableSSM rows."""

import torch

from examples.reproduce.stablessm.shallow import ShallowSSM
from memaudit.numerics.signals import seeded


def test_a_held_system_is_exact_at_the_steps_of_a_constant_input():
    draw = {"generator": seeded(0), "dtype": torch.float64}
    rates = -torch.rand(5, **draw) - 0.1
    b, c = torch.randn(5, **draw), torch.randn(1, 5, **draw)
    inputs = torch.randn(5, 2, **draw)
    x = torch.tensor([0.3, -0.7], dtype=torch.float64)
    model = ShallowSSM.held(rates, inputs, b, c, step=0.05)
    times = 0.05 * torch.arange(1, 41, dtype=torch.float64)
    states = torch.expm1(rates * times[:, None]) / rates * (inputs @ x + b)
    answers = model(x.expand(1, 40, 2))[0, :, 0]
    torch.testing.assert_close(answers, torch.tanh(states) @ c[0], rtol=0, atol=1e-13)


def test_without_recurrence_every_step_stands_alone():
    draw = {"generator": seeded(1), "dtype": torch.float64}
    weights = torch.randn(4, 3, **draw), torch.randn(4, **draw), torch.randn(2, 4, **draw)
    model = ShallowSSM(torch.zeros(4, dtype=torch.float64), *weights)
    u = torch.randn(2, 10, 3, **draw)
    torch.testing.assert_close(model(u)[:, 7:8], model(u[:, 7:8]), rtol=0, atol=1e-14)
