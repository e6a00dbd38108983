"""Number formats against recurrences whose eigenvalues are their own weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import Setting, Tools
from memaudit.loading.filling import digest_tensors
from memaudit.memory.result import MemoryResult
from memaudit.precision.probe import Precision
from memaudit.precision.rounding import (
    ALL_ROUNDED,
    NO_WEIGHTS,
    NONE_RECURRENT,
    NOT_LIVE,
)
from memaudit.report import Report
from tests.handmade import curve, identity, report
from tests.precision.rounded_models import Averaging, Diagonal, Mute, Saturating

SHORT = Setting(horizon=64)
AFTER_MEMORY = Tools(lambda *_: None, {"memory": report(curve("impulse"))["memory"]})


class Unnamed(Mute):
    """Its recurrent weight has a name, `kept`, by which nobody knows it."""

    def __init__(self, lam: float) -> None:
        super().__init__(lam)
        self.kept = self._parameters.pop("lam")

    def __getattr__(self, name: str):
        return super().__getattr__("kept" if name == "lam" else name)


def looked_at(module, **options):
    """The roundings by format, without memory functions."""
    subject = memaudit.wrap(module, input_size=1)
    found = Precision(**options).measure(subject, SHORT)
    return {one.format: one for one in found.roundings}


def test_0_999_in_bf16_reaches_the_boundary_and_0_99_does_not():
    (layer,) = looked_at(Diagonal(0.999))["bf16"].layers
    assert layer.reached == 1
    assert layer.margin_after == 0.0
    assert layer.margin_before == pytest.approx(0.001)
    assert layer.shift == pytest.approx(0.001)
    (layer,) = looked_at(Diagonal(0.99))["bf16"].layers
    assert layer.reached == 0
    assert layer.margin_after == 0.01171875


def test_beta_is_the_size_of_the_move_in_every_ball():
    found = looked_at(Diagonal(0.999, 0.5, 0.3))["bf16"]
    moves = [0.001, 0.0, abs(0.30078125 - 0.3)]
    assert found.betas["max-abs"] == pytest.approx(0.001)
    assert found.betas["spectral"] == pytest.approx(0.001)
    assert found.betas["frobenius"] == pytest.approx(math.hypot(*moves))


@pytest.mark.parametrize("norm", ["sup", "l1", "sobolev"])
def test_the_error_is_that_of_the_answers_to_a_constant(norm):
    """0.52 is 5.2 of seven steps of 0.1: it becomes 0.5, and sum 0.52^s becomes sum 0.5^s."""
    found = looked_at(Diagonal(0.52, 0.7), formats="int4", norm=norm)["int4"]
    t = np.arange(1, 101)
    gap = (1 - 0.52**t) / 0.48 - (1 - 0.5**t) / 0.5
    step = np.abs(np.diff(gap, prepend=0.0))
    sizes = {"sup": gap.max(), "l1": gap.sum(), "sobolev": (gap + step).max()}
    assert found.error == pytest.approx(sizes[norm])


def test_the_error_is_given_as_a_share_of_the_answers():
    found = looked_at(Diagonal(0.999), norm="sup")["bf16"]
    t = 100
    size = (1 - 0.999**t) / 0.001
    assert found.error == pytest.approx(t - size)
    assert found.relative == pytest.approx((t - size) / size)


def test_a_format_as_wide_as_the_weights_moves_nothing_and_is_listed():
    found = looked_at(Diagonal(0.999, dtype=torch.float32))["fp32"]
    assert found.betas == {"spectral": 0.0, "frobenius": 0.0, "max-abs": 0.0}
    assert found.error == 0.0
    assert found.layers[0].shift == 0.0


def test_numbers_that_overflow_are_reported_and_not_run():
    found = looked_at(Diagonal(0.5, -1e6))
    assert found["fp16"].error == math.inf
    assert set(found["fp16"].betas.values()) == {math.inf}
    assert found["fp16"].note.startswith("1 number overflows")
    assert found["fp16"].layers == ()
    assert found["bf16"].note == ""
    made = Report(identity(), {}, {"precision": Precision().measure(wrapped(0.5, -1e6), SHORT)})
    assert Report.from_dict(made.to_dict()) == made


def wrapped(*lam: float):
    return memaudit.wrap(Diagonal(*lam), input_size=1)


def test_only_recurrent_weights_are_rounded_unless_all_are_asked_for():
    assert Precision().measure(wrapped(0.9), SHORT).weights == ("lam",)
    assert set(Precision(weights="all").measure(wrapped(0.9), SHORT).weights) == {"lam", "gain"}


def test_weights_are_the_same_bits_afterwards():
    module = Diagonal(0.999, 0.3)
    before = digest_tensors(module.state_dict())
    memaudit.scan(
        memaudit.wrap(module, input_size=1), horizon=32, queries=["impulse"], probes=[Precision()]
    )
    assert digest_tensors(module.state_dict()) == before


def test_the_memory_with_rounded_weights_is_measured():
    found = memaudit.scan(
        wrapped(0.9), horizon=128, probes=[Precision(formats=("fp8-e5m2", "bf16"))]
    )
    coarse, fine = found.precision.roundings
    (impulse,) = [m for m in coarse.memory if m.query == "impulse"]
    assert impulse.rate_before == pytest.approx(-math.log(0.9))
    assert impulse.rate_after == pytest.approx(-math.log(0.875))
    assert impulse.horizon_after == pytest.approx(math.log(1000) / -math.log(0.875), abs=1.5)
    assert impulse.change == pytest.approx(max(0.9**t - 0.875**t for t in range(128)), rel=1e-6)
    assert len(fine.memory) == 3
    assert found.complete


def test_a_mode_on_the_boundary_does_not_decay_any_more():
    found = memaudit.scan(
        wrapped(0.999), horizon=256, queries=["impulse"], probes=[Precision(formats="bf16")]
    )
    (memory,) = found.precision.roundings[0].memory
    assert (memory.kind_before, memory.kind_after) == ("exponential", "persistent")


def test_equal_roundings_are_measured_once_and_unmoved_weights_not_again(monkeypatch):
    asked: list[float] = []

    def remember(_, subject, setting):
        asked.append(float(subject.weights()["lam"][0]))
        return {"impulse": curve("impulse")}

    monkeypatch.setattr(MemoryResult, "remeasured", remember)
    formats = ("fp32", "bf16", "int8", "int8-row")
    found = Precision(formats=formats).measure(wrapped(0.5, 0.999), SHORT, AFTER_MEMORY)
    assert asked[0] == 0.5
    assert len(asked) == 4  # before, fp32, bf16, and int8 for both
    one = Precision(formats=("int8", "int8-row")).measure(wrapped(0.5), SHORT, AFTER_MEMORY)
    assert len(asked) == 5
    assert all(made.memory[0].change == 0.0 for made in one.roundings)
    assert len(found.roundings) == 4


def test_a_change_below_the_floor_is_none(monkeypatch):
    noisy = [curve("impulse", floor=1e-3), curve("impulse", horizon=150, floor=1e-3)]
    monkeypatch.setattr(MemoryResult, "remeasured", lambda *_: {"impulse": noisy.pop(0)})
    found = Precision(formats="bf16").measure(wrapped(0.3), SHORT, AFTER_MEMORY)
    (memory,) = found.roundings[0].memory
    assert memory.change == 0.0
    assert memory.horizon_after == memory.horizon_before == 139


def test_without_roles_everything_is_rounded_and_the_report_says_so():
    class Nameless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lam = nn.Parameter(torch.tensor([0.999], dtype=torch.float64))

        forward = Diagonal.forward
        gain = 1.0

    subject = memaudit.wrap(Nameless(), input_size=1)
    subject.perturbable = lambda: None
    found = Precision(formats="bf16", norm="sup").measure(subject, SHORT)
    assert found.weights == ("lam",)
    assert found.note == ALL_ROUNDED
    assert found.roundings[0].error == pytest.approx(100 - (1 - 0.999**100) / 0.001)
    assert subject.weights()["lam"].item() == 0.999


def test_a_model_without_recurrent_weights_and_one_without_any_say_so():
    unnamed = memaudit.wrap(Unnamed(0.9), input_size=1)
    assert Precision().measure(unnamed, SHORT).note == NONE_RECURRENT
    found = Precision().measure(memaudit.wrap(lambda u: u, input_size=1), SHORT)
    assert (found.note, found.roundings) == (NO_WEIGHTS, ())


def test_weights_out_of_reach_have_errors_and_no_memory():
    subject = wrapped(0.999)
    subject.weights = lambda: {}
    found = Precision(formats="bf16").measure(subject, SHORT)
    assert found.note == NOT_LIVE
    assert found.roundings[0].error > 0
    assert found.roundings[0].layers == ()


def test_a_nonlinear_cell_is_looked_at_where_it_rests():
    (layer,) = looked_at(Saturating(0.999), formats="bf16")["bf16"].layers
    assert layer.margin_before == pytest.approx(0.001)
    assert layer.margin_after == 0.0
    assert layer.reached == 1


def test_the_memory_of_a_pooled_model_without_recurrences_is_not_measured(monkeypatch):
    asked = []
    monkeypatch.setattr(MemoryResult, "remeasured", lambda *found: asked.append(found) or {})
    for pooled in (True, False):
        made = memaudit.wrap(Averaging(pooled=pooled), input_size=1, pooled=pooled)
        Precision(formats="bf16", weights="all").measure(made, SHORT, AFTER_MEMORY)
        assert bool(asked) is not pooled


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"formats": "bf17"}, "precision.formats is 'bf17'; did you mean bf16"),
        ({"formats": (3,)}, "precision.formats is '3'; known are: bf16, "),
        ({"formats": ("bf16", None)}, "precision.formats is 'None'"),
        ({"formats": 3}, "precision.formats is '3'; known are: bf16, "),
        ({"formats": False}, "precision.formats is 'False'"),
        ({"formats": {"bf16": 1}}, "precision.formats is .*; did you mean bf16"),
        ({"weights": "readout"}, "precision.weights is 'readout'; did you mean recurrent"),
        ({"weights": ["all"]}, "precision.weights is "),
        ({"norm": "h1"}, "precision.norm is 'h1'"),
        ({"norm": None}, "precision.norm is 'None'; known are: l1, mse, sobolev, sup"),
    ],
)
def test_what_does_not_exist_is_refused_at_once(options, said):
    with pytest.raises(ArgumentError, match=said):
        Precision(**options)
