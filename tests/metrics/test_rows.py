"""Rows pair layers with the recurrences inside of them, however many there are."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from memaudit.report import Recurrence
from tests.handmade import curve, identity, report
from tests.spectrum.evidence import cell


def test_a_layer_has_the_recurrences_inside_of_it_in_their_order():
    names = ("a.z", "ab", "a-1", "a", "a.b.c")
    made = report(
        spectrum=tuple(cell(0.9, layer=name) for name in names),
        layers={"a": {}, "a.b": {}, "c": {}},
        subject=identity(
            whole=True,
            recurrences=(Recurrence("a", "outer", 1, 1), Recurrence("a.b", "inner", 2, 2)),
        ),
    )
    found = [(row["layer"], row["recurrence"], row["size"]) for row in made.rows()[1:]]
    assert found == [
        ("a", "a.z", 1),
        ("a", "a", 1),
        ("a", "a.b.c", 2),
        ("a.b", "a.b.c", 2),
        ("c", None, None),
        ("ab", "ab", None),
        ("a-1", "a-1", None),
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_many_layers_are_listed_in_one_go(whole):
    """Work that grows with the square of the layers takes minutes here."""
    names = [f"layers.{place}" for place in range(10_000)]
    one, heard = cell(0.9), {"impulse": curve("impulse")}
    made = report(
        spectrum=tuple(replace(one, layer=f"{n}.rnn", where="" if whole else n) for n in names),
        layers=dict.fromkeys(names, heard),
        subject=identity(
            whole=whole, recurrences=tuple(Recurrence(f"{n}.rnn", "rnn", 1, 1) for n in names)
        ),
    )
    start = time.perf_counter()
    found = made.rows()
    assert time.perf_counter() - start < 10
    assert [row["recurrence"] for row in found[1:]] == [f"{n}.rnn" for n in names]
