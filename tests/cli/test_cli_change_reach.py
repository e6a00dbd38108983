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
from tests.handmade import LAGS, curve, of_kind, power_law, report
from tests.spectrum.evidence import modes

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


def unhalved(lags: int, query: str = "heaviside", *, top: int = 1) -> Curve:
    """A memory that is largest at a lag and stays above half of that."""
    return power_law(query, values=np.where(LAGS[:lags] < top, 0.6, 1.0), half_life=None)


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
    told = f"hit by {name} (beyond 512 -> beyond 31), where nobody looked far enough to tell"
    assert gate(long, short, name + sign) == (1, told)
    assert gate(long, long, name + sign) == (0, "")
    told = f"not hit: {name} (beyond 31 -> beyond 512) is no fall"
    assert gate(short, long, name + sign) == (0, told)


def test_a_rise_is_not_known_where_before_was_looked_at_less_far(gate):
    told = "hit by horizon (beyond 31 -> beyond 512), where nobody looked far enough to tell"
    assert gate(report(seen(31)), report(seen(512)), "horizon>+20%") == (1, told)


@pytest.mark.parametrize(
    ("lags", "code"),
    [(30, 1), (109, 1), (110, 1), (111, 0), (138, 0), (512, 0)],  # 139 less 20 % is 111.2
)
def test_a_horizon_beyond_a_short_window_is_no_rise(gate, lags, code):
    found, told = gate(report(curve()), report(seen(lags)), "horizon<-20%")
    assert found == code
    if code:
        assert told == (
            f"hit by horizon (139 at heaviside -> beyond {lags}), "
            f"where nobody looked far enough to tell"
        )


def test_a_half_life_that_was_looked_at_less_far_may_have_fallen(gate):
    long, short = report(unhalved(512)), report(unhalved(512, top=400))
    told = "half_life (beyond 511 -> beyond 112), where nobody looked far enough to tell"
    assert gate(long, short, "half_life<-20%") == (1, f"hit by {told}")
    assert gate(short, long, "half_life<-20%")[0] == 0


def test_a_top_that_moves_by_a_lag_is_no_fall(gate):
    before, after = report(unhalved(512)), report(unhalved(512, top=2))
    assert gate(before, after, "half_life<-20%") == (0, "")
    assert gate(before, after, "half_life<0%")[0] == 1


def test_a_half_life_of_the_model_was_looked_at_as_far_as_that_of_every_query(gate):
    made = report(unhalved(512), unhalved(512, "impulse", top=400))
    told = "hit by half_life, which is beyond 112, where nobody looked"
    assert gate(made, made, "half_life<200") == (1, told)
    assert gate(made, made, "half_life<110") == (0, "")


@pytest.mark.parametrize("name", ["radius", "tolerance_radius", "radius.recurrent"])
def test_a_radius_that_was_looked_at_less_far_may_have_fallen(gate, name):
    told = f"hit by {name} (beyond 1 -> beyond 0.01), where nobody looked far enough to tell"
    assert gate(unbroken(4), unbroken(2), f"{name}<-20%") == (1, told)
    assert gate(unbroken(2), unbroken(4), f"{name}<-20%")[0] == 0
    assert gate(unbroken(2), unbroken(2), f"{name}!=0%") == (0, "")


def test_a_query_that_one_report_never_asked_hides_no_fall(gate):
    both = report(curve("impulse", horizon=20), curve(horizon=100))
    one = report(curve(horizon=100))
    told = "horizon (20 at impulse -> 100 at heaviside), not measured in AFTER: impulse"
    assert gate(both, one, "horizon<-20%") == (1, f"hit by {told}")
    told = "horizon (100 at heaviside -> 20 at impulse), not measured in BEFORE: impulse"
    assert gate(one, both, "horizon>+20%") == (1, f"hit by {told}")
    assert gate(both, one, "heaviside.horizon<-20%") == (0, "")
    assert gate(both, report(*reversed(both.memory.values())), "horizon<-20%") == (0, "")


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


def test_a_layer_is_named_as_it_is_called(gate):
    pair = tuple(replace(modes(m), layer=n) for n, m in (("Block-A", 0.8), ("block_a", 0.5)))
    made, alone = report(spectrum=pair), report(spectrum=pair[:1])
    assert gate(made, made, "margin.Block-A<0.3")[1] == "hit by margin.Block-A = 0.2"
    assert gate(alone, alone, "margin.BLOCK_A<0.3")[1] == "hit by margin.Block-A = 0.2"
    told = "hit by margin.Block-A +0 % (0.2 -> 0.2)"
    assert gate(made, made, "margin.Block-A==0%")[1] == told
    told = "hit by margin.Block-B, which was not measured"
    assert gate(made, made, "margin.Block-B<0.3")[1] == told


def test_what_rests_is_looked_at_to_the_end_of_its_window(gate):
    before = report(of_kind("persistent"))
    after = report(of_kind("persistent", values=np.ones(31)))
    told = "hit by half_life (beyond 512 -> beyond 31), where nobody looked far enough to tell"
    assert gate(before, after, "half_life<-20%") == (1, told)
