"""`memaudit diff --fail-on` where the two sides were looked at differently far, or differently."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memaudit.cli import main
from memaudit.memory.result import Curve
from memaudit.report import Report
from memaudit.stability.result import Radius
from memaudit.testing.samples import stability
from tests.cli.played import one_line
from tests.handmade import LAGS, curve, power_law, report

ENDLESS = Radius("no mode reaches the boundary", np.inf, (np.inf, np.inf))


@pytest.fixture
def gate(tmp_path, capsys):
    def gate(before: Report, after: Report, word: str) -> tuple[int, str]:
        paths = [before.save(tmp_path / "a.json"), after.save(tmp_path / "b.json")]
        code = main(["diff", *map(str, paths), "--fail-on", word])
        err = capsys.readouterr().err
        told = one_line(err) if err else ""
        return code, told.removeprefix(f"memaudit: gate --fail-on {word} was ")

    return gate


def seen(lags: int, query: str = "heaviside") -> Curve:
    """A memory that is still there at the last of so many lags."""
    return power_law(query, values=LAGS[:lags] ** -0.5)


def unbroken(moves: int) -> Report:
    made = stability()
    fields = ("betas", "errors", "random", "ascent")
    curves = tuple(
        replace(
            c,
            radius=ENDLESS,
            tolerance_radius=ENDLESS,
            **{name: getattr(c, name)[:moves] for name in fields},
        )
        for c in made.curves
    )
    return report(curve(), stability=replace(made, curves=curves))


@pytest.mark.parametrize("sign", ["<-20%", "<=-1%"])
@pytest.mark.parametrize("name", ["horizon", "heaviside.horizon", "heaviside.horizon.a.0"])
def test_a_horizon_that_was_looked_at_less_far_may_have_fallen(gate, name, sign):
    long, short = (report(seen(n), layers={"a.0": {"heaviside": seen(n)}}) for n in (512, 31))
    told = f"hit by {name} (beyond 512 -> beyond 31), not measured far enough to tell"
    assert gate(long, short, name + sign) == (1, told)
    assert gate(long, long, name + sign) == (0, "")
    told = f"not hit: {name} (beyond 31 -> beyond 512) is no fall"
    assert gate(short, long, name + sign) == (0, told)


@pytest.mark.parametrize("name", ["radius", "tolerance_radius", "radius.recurrent"])
def test_a_radius_that_was_looked_at_less_far_may_have_fallen(gate, name):
    told = f"hit by {name} (beyond 1 -> beyond 0.01), not measured far enough to tell"
    assert gate(unbroken(4), unbroken(2), f"{name}<-20%") == (1, told)
    assert gate(unbroken(2), unbroken(4), f"{name}<-20%")[0] == 0
    assert gate(unbroken(2), unbroken(2), f"{name}!=0%") == (0, "")


@pytest.mark.parametrize(
    ("changes", "word", "told"),
    [
        ({"epsilon": 1e-9}, "horizon<-20%", "epsilon 0.001 -> 1e-09"),
        ({"epsilon": 1e-9}, "heaviside.horizon<-20%", "epsilon 0.001 -> 1e-09"),
        ({"epsilon": 1e-9}, "half_life<-20%", None),
        ({"normalization": "max-norm"}, "half_life<-20%", "normalization iatn -> max-norm"),
        ({"normalization": "max-norm"}, "rate>+20%", "normalization iatn -> max-norm"),
        ({"normalization": "max-norm"}, "coverage<-20%", None),
        ({"seed": 7}, "horizon<-20%", None),
    ],
)
def test_curves_that_were_measured_otherwise_are_not_compared(gate, changes, word, told):
    own = {name: value for name, value in changes.items() if name != "seed"}
    settings = {**report().settings, **changes}
    code, err = gate(report(curve()), report(curve(**own), settings=settings), word)
    assert code == (0 if told is None else 1)
    assert err.endswith("" if told is None else f"), measured with other settings: {told}")
