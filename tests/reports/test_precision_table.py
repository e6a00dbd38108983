"""The table of number formats, letter by letter at 80 columns."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO

from rich.console import Console

from memaudit.precision.result import Precision, RoundedLayer, RoundedMemory, Rounding
from memaudit.reports.precision_table import precision_lines, precision_table

EXPECTED = """\
format    max-abs   spectral  error   margin      horizon  verdict
───────────────────────────────────────────────────────────────────────
fp32      0         0         0 %     1.0e-03         139  safe
bf16      1.0e-03   1.0e-03   5.1 %   0          139 -> -  boundary
fp16      infinite  infinite  -       -                 -  overflow
int8      2.0e-02   4.0e-02   58 %    2.0e-03  139 -> 300  changes
int4      1.0e-01   1.0e-01   11 %    2.0e-03         139  answers off
fp8-e5m2  3.0e-01   3.0e-01   1200 %  -                 -  answers off
fp8-e4m3  3.0e-02   3.0e-02   3 %     -                 -  not measured
"""
LINES = """\
Rounded: a, b, c, d and 1 more.
Size of the move in two balls; error (sobolev) as a share of the answers;
smallest margin after it; horizon under the query that changes most (-: none
within the window). Safe: the error is at most 10 %, no mode reaches the
boundary, and horizons and rates change by a factor of 2 at most. No worse: the
same, of modes that are on the boundary already.
fp16: 2 numbers overflow
"""


def rounding(name: str, beta: float, relative: float | None, **changes) -> Rounding:
    sizes = {"spectral": changes.pop("spectral", beta), "frobenius": beta, "max-abs": beta}
    return Rounding(name, sizes, relative, relative, **changes)


def layer(margin: float, reached: int = 0) -> tuple[RoundedLayer, ...]:
    return (RoundedLayer("cell", 1e-3, margin, reached, 0.0),)


def memory(after: int | None, kind: str = "exponential") -> tuple[RoundedMemory, ...]:
    rate = 0.05 if kind == "exponential" else None
    steady = RoundedMemory("heaviside", *("exponential",) * 2, 0.05, 0.05, 200, 200, 0.0)
    moved = RoundedMemory("impulse", "exponential", kind, 0.05, rate, 139, after, 0.1)
    return (moved, steady)


def sample() -> Precision:
    roundings = (
        rounding("fp32", 0.0, 0.0, layers=layer(1e-3), memory=memory(139)),
        rounding("bf16", 1e-3, 0.0508, layers=layer(0.0, 1), memory=memory(None, "persistent")),
        rounding("fp16", math.inf, None, note="2 numbers overflow"),
        rounding("int8", 0.02, 0.58, spectral=0.04, layers=layer(2e-3), memory=memory(300)),
        rounding("int4", 0.1, 0.11, layers=layer(2e-3), memory=memory(139)),
        rounding("fp8-e5m2", 0.3, 12.0),
        rounding("fp8-e4m3", 0.03, 0.03),
    )
    return Precision(roundings, tuple("abcde"), "sobolev")


def shown(*parts) -> str:
    sheet = StringIO()
    console = Console(file=sheet, width=80, color_system=None, highlight=False, _environ={})
    console.print(*parts)
    return "".join(line.rstrip() + "\n" for line in sheet.getvalue().splitlines())


def test_the_table_is_this_text():
    assert shown(precision_table(sample(), ascii_only=False)) == EXPECTED


def test_the_lines_under_it_are_this_text():
    assert shown(*precision_lines(sample())) == LINES


def test_a_format_that_finds_modes_on_the_boundary_already_makes_it_no_worse():
    there = (RoundedLayer("cell", 0.0, 0.0, 0, 0.0),)
    kept = rounding("bf16", 1e-3, 0.01, layers=there, memory=memory(139))
    text = shown(precision_table(replace(sample(), roundings=(kept,)), ascii_only=True))
    assert text.endswith("no worse\n")


def test_of_a_host_the_part_that_bears_a_format_worst_is_shown():
    calm = replace(sample(), roundings=sample().roundings[:1], where="first")
    worse = rounding("fp32", 1e-8, 0.001, layers=layer(-0.5, 2))
    other = replace(calm, roundings=(worse,), where="second", note="a note")
    text = shown(precision_table(replace(calm, others=(other,)), ascii_only=True))
    assert text.isascii()
    assert "boundary: second" in text
    assert "-5.0e-01" in text
    assert text.count("fp32") == 1
    assert "second: a note" in shown(*precision_lines(replace(calm, others=(other,))))


def test_few_of_many_notes_are_told():
    noted = tuple(rounding(f"f{i}", 0.0, 0.0, note=f"note {i}") for i in range(7))
    text = shown(*precision_lines(replace(sample(), roundings=noted)))
    assert "f3: note 3\n" in text
    assert "... and 3 more notes" in text


def test_a_model_without_weights_shows_its_note():
    nothing = Precision((), (), "sobolev", note="no weights")
    assert shown(*precision_lines(nothing)) == "no weights\n"
