"""A budget: what is worth most is measured first, and the report says what was left out."""

from __future__ import annotations

import pytest
import torch

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import Budget
from memaudit.options import parse_budget
from memaudit.subjects import batches


class Counted(torch.nn.Module):
    """An exponential memory that counts the steps that it is fed."""

    input_size = 2

    def __init__(self, clock: list[float] | None = None) -> None:
        super().__init__()
        self.steps, self.clock = 0, clock
        self.decay = torch.nn.Parameter(torch.tensor(0.9, dtype=torch.float64))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        self.steps += u.shape[0] * u.shape[1]
        if self.clock is not None:
            self.clock[0] += u.shape[0] * u.shape[1] * 1e-3
        lags = torch.arange(u.shape[1])
        kernel = torch.where(lags[:, None] >= lags, self.decay ** (lags[:, None] - lags), 0.0)
        return torch.einsum("ts,bsd->btd", kernel.to(u.dtype), torch.tanh(u))


def scanned(model, **options):
    return memaudit.scan(model, horizon=64, **{"probes": [], **options})


def test_without_a_budget_nothing_is_left_out():
    report = scanned(Counted())
    assert "budget" not in report.settings
    assert "left_out" not in report.settings
    assert not [f for f in report.findings if f.code == "MA007"]


def test_the_same_budget_in_tokens_gives_the_same_numbers():
    reports = [scanned(Counted(), budget="20000tokens") for _ in range(2)]
    one, other = (report.to_dict()["results"] for report in reports)
    assert one == other


@pytest.mark.parametrize("tokens", [6_000, 12_000, 40_000])
def test_a_budget_in_tokens_is_kept_to_the_token(tokens):
    model = Counted()
    before = model.steps
    report = scanned(model, budget=f"{tokens}tokens")
    asked = sum(report.results["memory"].fed.values())
    assert asked <= tokens
    # Opening a module may try its width, which is no part of the audit.
    assert model.steps - before - asked < 6_000
    assert report.complete


def test_memory_in_use_is_measured_first_and_the_rest_is_named():
    report = scanned(Counted(), budget="3500tokens")
    assert list(report.memory) == ["driven"]
    values = report.memory["driven"].values
    assert values[2] == pytest.approx(0.9 * values[1], rel=1e-9)
    (found,) = [f for f in report.findings if f.code == "MA007"]
    assert "3500tokens" in found.message
    assert "memory" in found.message
    assert "measured: driven" in found.message


def test_a_larger_budget_brings_the_supremum_with_as_many_probes_as_fit():
    probes = [
        report.memory["heaviside"].probes
        for report in (scanned(Counted(), budget=f"{n}tokens") for n in (12_000, 20_000))
    ]
    assert 0 < probes[0] < probes[1] <= scanned(Counted()).memory["heaviside"].probes


def test_a_budget_in_seconds_follows_the_pace_of_the_model(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(batches.time, "perf_counter", lambda: clock[0])
    model = Counted(clock)
    report = scanned(model, budget=30.0)
    assert report.settings["budget"] == "30s"
    assert "driven" in report.memory
    assert 15.0 < clock[0] < 33.0


def test_every_part_of_a_host_has_its_share():
    class Host(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (torch.nn.GRU(3, 4, batch_first=True) for _ in range(2))

        def forward(self, tokens: dict[str, torch.Tensor]) -> None:
            raise NotImplementedError

    report = scanned(Host().double(), budget="30000tokens")
    assert [next(iter(curves)) for curves in report.layers.values()] == ["driven", "driven"]
    assert sum(report.results["memory"].fed.values()) <= 30_000


def test_a_budget_that_measures_nothing_is_an_error():
    with pytest.raises(ArgumentError, match="used up before anything was measured"):
        scanned(Counted(), budget="10tokens")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (60, Budget(seconds=60.0)),
        ("90", Budget(seconds=90.0)),
        ("1.5min", Budget(seconds=90.0)),
        ("2h", Budget(seconds=7200.0)),
        ("20000tokens", Budget(tokens=20000.0)),
    ],
)
def test_amounts_are_read_as_people_write_them(given, meant):
    assert parse_budget(given) == meant


@pytest.mark.parametrize(
    "given", ["", "soon", "-5s", "0", "nan", "1e9999", "5 weeks", True, "3..2s"]
)
def test_other_amounts_are_refused_before_a_model_is_opened(given):
    with pytest.raises(ArgumentError, match="budget is"):
        memaudit.scan("no/such/file", budget=given)


def test_the_command_of_a_report_repeats_its_budget():
    report = memaudit.scan("demo:rnn", horizon=32, probes=[], budget="9000tokens")
    assert "--budget 9000tokens" in report.document().command
