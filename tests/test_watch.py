"""A probe that moves the weights is found out, and they are put back to the last bit."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import torch
from torch import nn

import memaudit
from memaudit import registry
from memaudit.watch import WeightsKept


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.RNN(2, 3, batch_first=True)
        self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)[0]


def bits(module: nn.Module) -> dict[str, bytes]:
    return {k: v.numpy().tobytes() for k, v in module.state_dict().items()}


@pytest.fixture
def stranger(monkeypatch):
    """Registers one of the strangers' probes."""

    def register(name: str) -> None:
        point = EntryPoint(
            "stranger", f"tests.hostile.strangers_measuring:{name}", "memaudit.probes"
        )
        known = registry._points
        monkeypatch.setattr(
            registry,
            "_points",
            lambda kind: (*known(kind), *((point,) if kind == "probes" else ())),
        )

    return register


@pytest.mark.parametrize("name", ["ProbeMovesTheWeights", "ProbeMovesTheWeightsAndRaises"])
def test_the_callers_module_is_bit_identical_afterwards(stranger, name: str) -> None:
    stranger(name)
    module = Recurrent().double()
    before = bits(module)
    subject = memaudit.wrap(module, input_size=2)
    report = memaudit.scan(subject, horizon=16, level="quick", probes=["assumptions", "stranger"])
    assert bits(module) == before
    assert not report.complete
    assert [error["code"] for error in report.errors] == ["E_PLUGIN"]


def test_the_result_of_a_probe_that_moved_weights_is_dropped(stranger) -> None:
    stranger("ProbeMovesTheWeights")
    subject = memaudit.wrap(Recurrent().double(), input_size=2)
    report = memaudit.scan(subject, horizon=16, level="quick", probes=["assumptions", "stranger"])
    assert "friendly" not in {assumption.name for assumption in report.assumptions}
    assert "moved the weights" in report.errors[0]["message"]
    assert "put back" in report.errors[0]["message"]


def test_an_honest_probe_is_kept(stranger) -> None:
    stranger("Probe")
    subject = memaudit.wrap(Recurrent().double(), input_size=2)
    report = memaudit.scan(subject, horizon=16, level="quick", probes=["assumptions", "stranger"])
    assert "friendly" in {assumption.name for assumption in report.assumptions}
    assert report.complete


@pytest.mark.parametrize("value", [float("nan"), -0.0, 1e-320])
def test_the_smallest_change_is_seen_and_undone(value: float) -> None:
    module = Recurrent().double()
    with torch.no_grad():
        module.layer.bias_hh_l0.zero_()
    before = bits(module)
    kept = WeightsKept(module.state_dict)
    with torch.no_grad():
        module.layer.bias_hh_l0[1] = value
    assert kept.restore() == ["layer.bias_hh_l0"]
    assert kept.is_restored()
    assert bits(module) == before


def test_a_replaced_parameter_gets_the_old_values() -> None:
    module = Recurrent().double()
    before = bits(module)
    kept = WeightsKept(module.state_dict)
    module.layer.bias_hh_l0 = nn.Parameter(torch.ones(3, dtype=torch.float64))
    assert kept.restore() == ["layer.bias_hh_l0"]
    assert bits(module) == before


def test_a_parameter_of_another_shape_cannot_be_put_back_and_that_is_said() -> None:
    module = Recurrent().double()
    kept = WeightsKept(module.state_dict)
    module.layer.bias_hh_l0 = nn.Parameter(torch.ones(4, dtype=torch.float64))
    assert kept.restore() == ["layer.bias_hh_l0"]
    assert not kept.is_restored()


def test_a_strangers_claim_that_moves_weights_is_undone_and_passed_over(monkeypatch) -> None:
    point = EntryPoint(
        "stranger", "tests.hostile.strangers:ClaimMovesTheWeights", "memaudit.adapters"
    )
    known = registry._points
    monkeypatch.setattr(
        registry,
        "_points",
        lambda kind: (*known(kind), *((point,) if kind == "adapters" else ())),
    )
    module = Recurrent().double()
    before = bits(module)
    alone = memaudit.scan(memaudit.wrap(module, input_size=2), horizon=16, level="quick")
    report = memaudit.scan(module, horizon=16, level="quick")
    assert bits(module) == before
    assert (report.memory["impulse"].values == alone.memory["impulse"].values).all()
