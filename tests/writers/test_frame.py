"""`report.frame()` and `report.rows()`: which rows there are, their columns and types."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pandas as pd
import pytest

from memaudit.errors import MemauditError
from memaudit.modes import spectrum
from memaudit.testing import sample_reports
from memaudit.testing.samples import having
from tests.handmade import curve, power_law, report
from tests.recall.handmade import sample as recall


def modes(layer: str, *, where: str = "", slowest: float = 0.9):
    found = spectrum(
        layer=layer, cell="mamba1", parameterization="exp", at="rest", eigenvalues=[slowest, 0.5]
    )
    return replace(found, where=where)


def deep():
    """Two layers with a recurrence in each, and an attention layer without one."""
    names = ("layers.0", "layers.1", "layers.10")
    return report(
        curve(),
        power_law("impulse"),
        whole=True,
        layers={name: {"heaviside": curve(), "impulse": power_law("impulse")} for name in names},
        spectrum=(modes("layers.0"), modes("layers.10", slowest=0.99)),
    )


def test_a_row_for_the_model_and_one_for_every_layer():
    table = deep().frame()
    assert list(table["row"]) == ["model", "layer", "layer", "layer"]
    assert list(table["layer"][1:]) == ["layers.0", "layers.1", "layers.10"]
    assert list(table["modes"].fillna(0)) == [0, 2, 0, 2]
    assert list(table["cell"].fillna("-")) == ["-", "mamba1", "-", "mamba1"]


def test_the_numbers_are_those_of_the_report():
    model, first, *_ = deep().rows()
    assert model["parameters"] == 4384
    assert model["margin"] == pytest.approx(0.01)
    assert first["time_scale"] == pytest.approx(-1 / math.log(0.9))
    assert (first["form"], first["cell"]) == ("exp", "mamba1")
    words = ("kind", "rate", "horizon", "horizon_beyond", "half_life")
    for row in (model, first):
        assert [row[f"heaviside_{w}"] for w in words] == ["exponential", 0.05, 139, None, 13.86]
        assert [row[f"impulse_{w}"] for w in words] == ["polynomial", None, None, 512, 4.0]
        assert row["impulse_exponent"] == 0.5


def test_a_recurrence_of_a_model_without_layer_curves_has_its_row():
    made = report(curve(), spectrum=(modes("rnn.l0"),))
    model, row = made.rows()
    assert (row["layer"], row["cell"], row["modes"]) == ("rnn.l0", "mamba1", 2)
    assert row["heaviside_kind"] is None
    assert model["heaviside_kind"] == "exponential"


def test_recurrences_of_one_name_in_two_parts_of_a_host_have_two_rows():
    made = report(
        curve(),
        layers={"encoder": {"heaviside": curve()}, "decoder": {"heaviside": power_law()}},
        spectrum=(modes("l0", where="decoder"), modes("l0", where="encoder", slowest=0.3)),
    )
    rows = {row["layer"]: row for row in made.rows()}
    assert list(rows) == [None, "encoder", "decoder", "decoder.l0", "encoder.l0"]
    assert rows["encoder.l0"]["margin"] == 0.5
    assert rows["decoder.l0"]["margin"] == pytest.approx(0.1)
    assert rows["decoder"]["heaviside_kind"] == "polynomial"


@pytest.mark.parametrize("name", ["full", "layered", "deep", "moved", "partial", "empty"])
def test_numbers_are_floats_whatever_was_measured(name):
    made = sample_reports()[name]
    table = made.frame()
    assert list(table.columns) == list(made.rows()[0])
    assert len(table) == len(made.rows())
    numbers = {m.name.replace("/", "_").replace("-", "_") for m in made.numbers()}
    assert {str(table.dtypes[column]) for column in numbers} == {"float64"}
    texts = {"row", "layer", *(f"{query}_kind" for query in made.memory)}
    assert {str(table.dtypes[column]) for column in texts} == {"string"}


def test_what_was_not_measured_is_missing():
    table = report(curve()).frame()
    assert table.loc[0, "layer"] is pd.NA
    assert pd.isna(table.loc[0, "heaviside_exponent"])


def test_a_time_scale_without_end_is_infinite():
    (_, row) = report(curve(), spectrum=(modes("rnn", slowest=1.0),)).frame().to_dict("records")
    assert row["time_scale"] == math.inf


def test_without_pandas_the_error_says_what_to_install_and_rows_still_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    made = report(curve())
    with pytest.raises(MemauditError, match="pandas is not installed; pip install") as caught:
        made.frame()
    assert caught.value.hint == 'pip install "memaudit[frame]"'
    assert len(made.rows()) == 1


def test_the_capacity_of_a_state_stands_in_the_row_of_its_layer():
    held = recall()
    first, second, _ = held.decodings
    named = (replace(first, state="layers.0"), replace(second, state="elsewhere"))
    rows = having(deep(), recall=replace(held, decodings=named, linear=())).rows()
    found = {row["layer"]: row["capacity"] for row in rows}
    assert (found[None], found["layers.0"], found["elsewhere"]) == (13.53, 13.53, 8.0)
    assert found["layers.1"] is None
