"""MA106: how far a fit is trusted beyond the window, and the horizon that is advised."""

from __future__ import annotations

import numpy as np

from memaudit.findings.judge import judge
from memaudit.memory.result import Decay
from tests.handmade import LAGS, curve, power_law, report


def test_a_power_law_is_not_extrapolated_beyond_sixteen_windows():
    # t^-0.5 reaches a thousandth at lag a million, two thousand windows away
    (finding,) = [f for f in judge(report(power_law())) if f.code == "MA106"]
    assert "by the fit" not in finding.message
    assert finding.advice == "try a larger --horizon"


def test_the_advised_horizon_is_the_next_power_of_two():
    slow = Decay("exponential", rate=0.01, window=(1, 512))
    evidence = report(curve(values=np.exp(-0.01 * LAGS), decay=slow, horizon=None))
    assert [f.advice for f in judge(evidence)] == ["try --horizon 1024"]
