"""The check for linear layers passes honest ones and finds what is wrong with others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from memaudit import testing
from memaudit_rnn import RnnAdapter
from tests.linear_parts import BankPart, GivenPart, MatrixPart, jordan, rotation, scalar

KERNEL = 0.9 ** torch.arange(64, dtype=torch.float64)[:, None, None] * torch.ones(2, 3).double()


@pytest.mark.parametrize(
    "part", [scalar(0.9), rotation(1.0, 0.3), jordan(0.8), BankPart([0.1, 0.99]), GivenPart(KERNEL)]
)
def test_an_honest_layer_passes(part):
    testing.check_linear_part(part)


def test_an_honest_layer_in_float32_passes():
    part = BankPart([0.1, 0.99], dtype=torch.float32)
    testing.check_linear_part(part, dtype=torch.float32)


def changed(base, **members):
    """An instance of a subclass with other members."""
    return lambda: type("Changed", (base,), members)(KERNEL)


def restarted(self, start, stop):
    return self.given[: stop - start]


def drifting(self, u):
    gain = 1 + 0.01 * torch.arange(u.shape[1], dtype=u.dtype)[:, None]
    return GivenPart.respond(self, gain * u)


def doubled(self, u):
    return 2 * GivenPart.respond(self, u)


def scribbling(self, u):
    answer = GivenPart.respond(self, u)
    u += 1
    return answer


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (changed(GivenPart, kernel=restarted), "the lags 5 to 10 asked alone are off by"),
        (changed(GivenPart, respond=doubled), "off by .* from the answer to an impulse"),
        (changed(GivenPart, respond=drifting), "off by .* from what the kernel sums up to"),
        (changed(GivenPart, respond=scribbling), "respond changes its input"),
        (changed(GivenPart, respond=lambda self, u: u), r"answers by \(3, 24, 3\), not"),
        (changed(GivenPart, kernel=lambda self, a, b: self.given), "has the shape"),
        (changed(GivenPart, banked=None), "banked is None"),
        (lambda: GivenPart(KERNEL * torch.nan), "not finite within 24 lags"),
        (lambda: GivenPart(KERNEL.to(torch.complex128)), "the kernel is of torch.complex128"),
        (lambda: BankPart([0.5, 0.9], mixed=0.1), "from the answer to an impulse"),
        (lambda: MatrixPart, "is no AbstractLinearPart"),
    ],
)
def test_a_wrong_layer_is_found(make, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_linear_part(make())


def with_layer(part):
    """An adapter whose subject says that it has such a layer."""

    def load(self, source, request):
        subject = RnnAdapter.load(self, source, request)
        subject.identity = replace(subject.identity)
        subject.linear_parts = lambda: {"layer": part(subject.dtype)}
        return subject

    return type("WithLayer", (RnnAdapter,), {"load": load})()


def test_the_check_of_an_adapter_looks_at_its_linear_layers():
    wrong = GivenPart(KERNEL, run=2 * KERNEL)
    testing.check_adapter(with_layer(lambda dtype: scalar(0.9, dtype=dtype)), "demo:gru")
    with pytest.raises(AssertionError, match="answer to an impulse"):
        testing.check_adapter(with_layer(lambda dtype: wrong), "demo:gru")


class Shown(MatrixPart):
    """A layer that shows its state, multiplied by `gain` from the tenth lag on."""

    gain, dtype = 1.0, torch.float64

    def reach(self, start, stop):
        lags = range(start, stop)
        found = [torch.linalg.matrix_power(self.a, s) @ self.b for s in lags]
        scale = torch.tensor([self.gain if s >= 10 else 1.0 for s in lags]).double()
        return (scale[:, None, None] * torch.stack(found)).to(self.dtype)


def shown(**members):
    """A rotation with that state, and with other members."""
    made = rotation(0.9, 0.3)
    return type("Other", (Shown,), members)(made.a, made.b, made.c)


def unlike(self, start, stop):
    lags = torch.arange(start, stop, dtype=torch.float64)
    return 0.5 ** lags[:, None, None].expand(-1, 1, 2)


def from_zero(self, start, stop):
    return Shown.reach(self, 0, stop - start)


def test_an_honest_layer_that_shows_its_state_passes():
    testing.check_linear_part(shown())


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"gain": 1.1}, "from a matrix that moves them"),
        ({"dtype": torch.float32}, "the states are of torch.float32"),
        ({"reach": from_zero}, "the states 5 to 10 asked alone are off by"),
        ({"reach": unlike}, "from any readout of the states"),
        ({"transition": lambda self: torch.eye(2).double()}, "from those that transition moves"),
        ({"reach": lambda self, a, b: torch.zeros(b - a, 2, 3).double()}, "has the shape"),
        ({"reach": lambda self, a, b: torch.full((b - a, 2, 2), torch.nan).double()}, "not finite"),
    ],
)
def test_a_wrong_state_is_found(members, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_linear_part(shown(**members))
