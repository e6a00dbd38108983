"""An open verdict names the horizon that the spectrum asks for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memaudit.findings.judge import judge
from memaudit.memory.result import Decay
from memaudit.spectrum.result import spectrum
from tests.handmade import curve, report


def advice(scale: float) -> str:
    slow = spectrum(
        layer="a",
        cell="s4d",
        parameterization="exp",
        at="every step",
        eigenvalues=np.array([math.exp(-1.0 / scale)]),
    )
    open_ = curve(decay=Decay("undetermined"), horizon=None, half_life=None)
    found = judge(report(open_, spectrum=(slow,), settings={"horizon": 512}))
    return next(item.advice for item in found if item.code == "MA104")


def test_the_horizon_holds_seven_time_scales_of_the_slowest_mode() -> None:
    assert "--horizon 8192 (the slowest mode lasts 1e+03 steps)" in advice(1000.0)


@pytest.mark.parametrize("scale", [10.0, 1e9], ids=["inside the window", "out of reach"])
def test_a_mode_that_no_horizon_helps_names_none(scale: float) -> None:
    assert "a larger --horizon" in advice(scale)
