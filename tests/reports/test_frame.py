"""`report.frame()` and `report.rows()`: which rows there are, their columns and types."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pandas as pd
import pytest
from memaudit.metrics.rows import COLUMNS, QUERY_COLUMNS

from memaudit.errors import MemauditError
from memaudit.modes import spectrum
from memaudit.report import Recurrence
from memaudit.testing import sample_reports
from tests.handmade import curve, identity, power_law, report
from tests.recall.handmade import sample as recall


def modes(layer: str, *, where: str = "", slowest: float = 0.9):
    found = spectrum(
        layer=layer,
        cell="mamba1",
        parameterization="exp",
        at="rest",
        eigenvalues=[slowest, 0.5],
    )
    return replace(found, where=where)


def recurrence(layer: str) -> Recurrence:
    return Recurrence(layer=layer, cell="mamba1", size=2, parameters=10)


def deep():
    """Two layers with a recurrence in each, and an attention layer without one."""
    names = ("layers.0", "layers.1", "layers.10")
    return report(
        curve(),
        power_law("impulse"),
        subject=identity(recurrences=(recurrence("layers.0.mixer"), recurrence("layers.10.mixer"))),
        layers={name: {"heaviside": curve(), "impulse": power_law("impulse")} for name in names},
        spectrum=(modes("layers.0.mixer"), modes("layers.10.mixer", slowest=0.99)),
    )


def test_a_row_for_the_model_and_one_for_every_layer():
    table = deep().frame()
    assert list(table["row"]) == ["model", "layer", "layer", "layer"]
    assert list(table["layer"][1:]) == ["layers.0", "layers.1", "layers.10"]
    assert list(table["recurrence"].fillna("-")) == [
        "layers.10.mixer",  # of the model: the one nearest to the boundary
        *("layers.0.mixer", "-", "layers.10.mixer"),
    ]
    assert list(table["size"].fillna(0)) == [0, 2, 0, 2]
    assert list(table["modes"].fillna(0)) == [4, 2, 0, 2]


def test_the_numbers_are_those_of_the_report():
    model, first, *_ = deep().rows()
    assert (model["parameters"], first["parameters"]) == (4384, 10)
    assert model["margin"] == pytest.approx(0.01)
    assert model["slowest"] == pytest.approx(0.99)
    assert first["time_scale"] == pytest.approx(-1 / math.log(0.9))
    assert (first["parameterization"], first["cell"]) == ("exp", "mamba1")
    words = ("kind", "rate", "horizon", "horizon_beyond", "half_life")
    assert [first[f"heaviside_{w}"] for w in words] == ["exponential", 0.05, 139, None, 13.86]
    assert [first[f"impulse_{w}"] for w in words] == ["polynomial", None, None, 512, 4.0]
    assert first["impulse_exponent"] == 0.5


def test_a_recurrence_of_a_model_without_layer_curves_has_its_row():
    made = report(curve(), spectrum=(modes("rnn.l0"),))
    model, row = made.rows()
    assert (row["layer"], row["recurrence"]) == ("rnn.l0", "rnn.l0")
    assert row["heaviside_kind"] is None
    assert model["heaviside_kind"] == "exponential"


def test_a_recurrence_without_a_spectrum_has_its_row():
    made = report(curve(), subject=identity(recurrences=(recurrence("rnn.l0"),)))
    _, row = made.rows()
    assert (row["recurrence"], row["size"], row["margin"]) == ("rnn.l0", 2, None)


def test_the_parts_of_a_host_keep_their_own_recurrences():
    made = report(
        curve(),
        layers={"encoder": {"heaviside": curve()}, "decoder": {"heaviside": power_law()}},
        spectrum=(modes("l0", where="decoder"), modes("l0", where="encoder", slowest=0.3)),
    )
    _, encoder, decoder = made.rows()
    assert (encoder["layer"], encoder["slowest"]) == ("encoder", 0.5)
    assert (decoder["layer"], decoder["slowest"]) == ("decoder", pytest.approx(0.9))


def test_two_recurrences_of_a_layer_are_two_rows():
    made = report(
        curve(),
        subject=identity(),
        layers={"l": {"heaviside": curve()}},
        spectrum=(modes("l.a"), modes("l.b")),
    )
    assert [row["recurrence"] for row in made.rows()[1:]] == ["l.a", "l.b"]
    assert [row["heaviside_horizon"] for row in made.rows()[1:]] == [139, 139]


def test_both_directions_of_a_recurrence_know_its_size():
    made = report(
        curve(),
        subject=identity(recurrences=(recurrence("l0"),)),
        spectrum=(modes("l0.forward"), modes("l0.backward")),
    )
    rows = made.rows()[1:]
    assert [row["recurrence"] for row in rows] == ["l0.forward", "l0.backward"]
    assert [row["size"] for row in rows] == [2, 2]


@pytest.mark.parametrize("name", ["full", "layered", "deep", "moved", "partial", "empty"])
def test_columns_and_types_are_the_same_whatever_was_measured(name):
    made = sample_reports()[name]
    table = made.frame()
    queries = list(dict.fromkeys(made.memory))
    expected = [*COLUMNS, *(f"{q}_{column}" for q in queries for column in QUERY_COLUMNS)]
    assert list(table.columns) == expected == list(made.rows()[0])
    types = {str: "string", int: "Int64", float: "float64"}
    assert [str(table.dtypes[column]) for column in COLUMNS] == [
        types[kind] for kind in COLUMNS.values()
    ]
    assert len(table) == len(made.rows())


def test_what_was_not_measured_is_missing():
    table = report(curve()).frame()
    assert pd.isna(table.loc[0, "margin"])
    assert table.loc[0, "layer"] is pd.NA
    assert pd.isna(table.loc[0, "heaviside_exponent"])


def test_a_time_scale_without_end_is_infinite():
    (_, row) = report(curve(), spectrum=(modes("rnn", slowest=1.0),)).frame().to_dict("records")
    assert row["time_scale"] == math.inf


def test_without_pandas_the_error_says_what_to_install_and_rows_still_work(monkeypatch):
    monkeypatch.delitem(sys.modules, "memaudit.reports.frame", raising=False)
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
    table = replace(deep(), recall=replace(held, decodings=named)).frame()
    assert list(table["capacity"].fillna(-1)) == [13.53, 13.53, -1, -1]
    inside = replace(held, where="layers.1")
    rows = replace(deep(), recall=inside).rows()
    assert [row["capacity"] for row in rows] == [13.53, None, 13.53, None]
    assert deep().frame()["capacity"].isna().all()
