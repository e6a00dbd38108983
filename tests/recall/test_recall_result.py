"""What is said of recall: the capacity, the tables, the figure, the notes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memaudit.interfaces import Status
from memaudit.recall.result import RecallResult
from tests.handmade import report
from tests.recall.handmade import decoding, ring, sample


def section(recall: RecallResult):
    (found,) = recall.sections()
    return found


def host() -> RecallResult:
    parts = {"first": sample(), "second": replace(sample(), decodings=())}
    return RecallResult.joined(parts)


def test_the_capacity_is_that_of_the_fullest_state():
    made = report(recall=sample())
    assert made.metrics()["memaudit/capacity"] == 13.53
    assert [key for key in made.metrics() if "capacity" in key] == ["memaudit/capacity"]
    (number,) = [m for m in made.numbers() if m.name == "capacity"]
    assert (number.holder, number.unknown, number.better) == ("gru", ("lost",), "more")


def test_the_capacity_of_a_host_names_the_part_and_those_that_were_not_read():
    (number,) = host().metrics()
    assert (number.holder, number.unknown) == ("first.gru", ("first.lost", "second"))
    most = replace(sample(), decodings=(decoding("far", 64, np.ones(2), capacity=40.0),))
    assert RecallResult.joined({"a": sample(), "b": most}).capacity == 40.0


def test_without_a_state_there_is_no_capacity_but_a_sentence():
    found = replace(sample(), linear=(), decodings=(), fed="", note="", status=Status.NO_STATE)
    assert [m.value for m in found.metrics()] == [None]
    assert section(found).line == Status.NO_STATE.value
    assert section(found).text[1:] == (Status.NO_STATE.value,)
    assert (section(found).tables, section(found).figures) == ((), ())


def test_the_states_are_a_table_of_numbers():
    found = section(sample())
    assert found.line == "capacity 13.53 of 32 numbers (gru)"
    states = found.tables[0]
    assert states.texts() == [
        ["gru", "state", "32", "1", "13.53", "2", "1.00", "0.75", "0.25", "9e-03"],
        ["layer", "exact", "8", "1", "8", "> 8", "1.00", "1.00", "1.00", "0e+00"],
        ["lost", "hidden", "4", "1", "-", "0", "-", "-", "-", "0e+00"],
    ]
    assert states.rows[0][4] == 13.53


def test_linear_layers_have_the_longest_input_that_their_state_can_hold():
    layers = section(sample()).tables[1]
    assert layers.rows == (("ring", 8, 2, 4, 123456.0, 1e-2, 8, 6, 4),)
    assert layers.notes == ("Ranks at 16 steps; states stored in float32.",)
    none = section(replace(sample(), linear=(ring(sparse=ring().sparse[1:]),))).tables[1]
    assert none.rows[0][-1] == 0


def test_the_figure_has_a_line_for_every_state_that_was_read():
    (figure,) = section(sample()).figures
    assert [line.name for line in figure.series] == ["gru", "layer"]
    assert np.array_equal(figure.series[0].y, sample().decodings[0].values)
    assert np.array_equal(figure.series[0].x, np.arange(9))
