"""The stability radius of recorded checkpoints against the formula of their parameterization."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import memaudit
from memaudit.stability.probe import Stability


@pytest.mark.shared
def test_direct_rates_of_a_checkpoint_have_the_radius_of_their_formula(shared: Path) -> None:
    probe = Stability(group="recurrent", draws=2, ascent=0, betas=(0.01, 0.1))
    folder = shared / "fixtures" / "stablessm" / "direct"
    report = memaudit.scan(folder, queries=[], probes=[probe], level="quick")
    subject = memaudit.load(folder)
    rates = [w for n, w in subject.weights().items() if n.endswith("log_A_real")]
    exact = min(float(-w.max()) for w in rates)
    assert report.stability.first.radius.closed_form == pytest.approx(exact, rel=1e-6)
    assert report.stability.radius == pytest.approx(exact, rel=0.01)


@pytest.mark.shared
def test_complex_rates_are_moved_in_both_parts(shared: Path) -> None:
    probe = Stability(group="recurrent", draws=2, ascent=0, betas=(0.01, 0.1))
    folder = shared / "fixtures" / "s5_pytorch" / "small"
    found = memaudit.scan(folder, queries=[], probes=[probe], level="quick").stability
    weights = memaudit.load(folder).weights()
    exact = min(float(-w.real.max()) for n, w in weights.items() if n.endswith("Lambda"))
    assert found.first.radius.closed_form == pytest.approx(exact, rel=1e-6)
    assert found.radius == pytest.approx(exact, rel=0.01)


@pytest.mark.shared
def test_exponential_rates_of_a_checkpoint_never_reach_the_boundary(shared: Path) -> None:
    probe = Stability(group="recurrent", draws=2, ascent=0, betas=(0.01, 0.1))
    folder = shared / "fixtures" / "stablessm" / "exp"
    found = memaudit.scan(folder, queries=[], probes=[probe], level="quick").stability
    assert found.radius == math.inf
