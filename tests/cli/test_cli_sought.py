"""Names of layers on a command line: the exact one wins, and all that sound alike are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cli.played import one_line
from tests.handmade import curve, report
from tests.spectrum.evidence import modes


def layer(name: str, slowest: float):
    return replace(modes(slowest), layer=name)


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ("margin.Block-A<0.3", None),
        ("memaudit/margin/Block-A<0.3", None),
        ("margin.block_a<0.3", "margin.block_a = 0.2"),
        ("margin.BLOCK_A<0.3", "margin.block_a = 0.2"),
        ("margin.BLOCK_A<0.6", "margin.Block-A = 0.5 and 1 more"),
        ("margin.BLOCK_A<0.1", None),
    ],
)
def test_the_exact_name_wins_and_else_every_like_one_is_judged(run, stage, gate, told):
    spectrum = (layer("Block-A", 0.5), layer("block_a", 0.8))
    stage.answer = report(curve(), spectrum=spectrum)
    code, _, err = run("--fail-on", gate)
    if told is None:
        assert (code, err) == (0, "")
    else:
        assert code == 1
        assert one_line(err) == f"memaudit: gate --fail-on {gate} was hit by {told}"


def test_layers_of_one_name_are_all_judged(run, stage):
    stage.answer = report(curve(), spectrum=(layer("cell", 0.5), layer("cell", 0.8)))
    err = run("--fail-on", "margin.cell<0.3")[2]
    assert one_line(err).endswith("was hit by margin.cell (2) = 0.2")
    assert run("--fail-on", "margin.cell (2)<0.1")[::2] == (0, "")


def test_slashes_and_dots_in_names_are_told_apart(run, stage):
    stage.answer = report(curve(), spectrum=(layer("a/b", 0.5), layer("a.b", 0.8)))
    assert run("--fail-on", "margin.a/b<0.3")[::2] == (0, "")
    assert run("--fail-on", "margin.a.b<0.3")[0] == 1
    assert run("--fail-on", "margin.a.b<0.3")[0] == 1


def test_a_layer_that_is_called_like_a_metric_has_its_own_number(run, stage):
    stage.answer = report(curve(), spectrum=(layer("horizon", 0.8),))
    assert run("--fail-on", "margin.horizon<0.1")[::2] == (0, "")
    assert run("--fail-on", "margin.horizon<5000")[0] == 1  # no lags, so no window to look beyond
