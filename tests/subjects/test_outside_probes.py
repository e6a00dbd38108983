"""A probe from outside that moves the weights is found out, and nothing is measured after it."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import torch

import memaudit
from memaudit import registry
from tests.hostile.outside_plugins import Probe


class Later(Probe):
    """A probe of another package that runs after the first one."""

    name = "outside-after"


@pytest.fixture
def scanned(monkeypatch):
    """Audits a model with two probes of other packages, the first of them by this name."""

    def scan(name: str) -> memaudit.Report:
        places = {
            "outside": f"tests.hostile.outside_plugins:{name}",
            "outside-after": f"{__name__}:Later",
        }
        points = tuple(EntryPoint(k, v, "memaudit.probes") for k, v in places.items())
        known = registry._points
        monkeypatch.setattr(
            registry, "_points", lambda kind: known(kind) + (points if kind == "probes" else ())
        )
        module = torch.nn.RNN(2, 3, batch_first=True).double()
        return memaudit.scan(module, horizon=16, level="quick", probes=["assumptions", *places])

    return scan


@pytest.mark.parametrize("name", ["ProbeMovesTheWeights", "ProbeMovesTheWeightsAndRaises"])
def test_no_number_is_of_moved_weights(scanned, name: str) -> None:
    report = scanned(name)
    assert not report.complete
    assert {error["code"] for error in report.errors} == {"E_PLUGIN"}
    assert "moved the weights" in report.errors[-1]["message"]
    assert set(report.results) == {"memory", "assumptions"}


@pytest.mark.parametrize("name", ["Probe", "ProbeRaises"])
def test_a_probe_that_leaves_the_weights_alone_does_not_end_the_audit(scanned, name: str) -> None:
    report = scanned(name)
    assert report.complete == (name == "Probe")
    assert "outside-after" in report.results
    assert ("outside" in report.results) == (name == "Probe")
