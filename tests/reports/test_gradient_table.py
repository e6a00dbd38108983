"""The tables of gradients beside weights."""

from __future__ import annotations

import math

from rich.console import Console

from memaudit.reports.gradient_table import ROWS, forms_table, gradient_lines, gradient_table
from tests.gradient.gradients import form, gradient


def shown(*parts) -> list[str]:
    """The lines on a terminal of 80 columns, spaces folded."""
    console = Console(width=80, color_system=None, force_terminal=False, _environ={})
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_a_recurrence_has_a_row_with_both_forms():
    lines = shown(gradient_table((gradient(),), ascii_only=False))
    assert lines[0] == "recurrence form ratio recommended its ratio safe rate all weights"
    assert lines[2] == "layers.0 exp 4 softplus 2 0.125 8"


def test_a_recurrence_without_forms_has_its_own_ratio_alone():
    item = gradient(current="direct", reparams=(), recommended="", reasoning="", note="dense")
    assert shown(gradient_table((item,), ascii_only=False))[2] == "layers.0 direct - - - - 8"
    assert forms_table((item,), ascii_only=False) is None
    assert shown(*gradient_lines((item,)))[-1] == "layers.0: dense"


def test_the_forms_of_the_worst_layer_are_shown_with_what_it_has_and_should_have():
    worse = gradient(
        "layers.1",
        reparams=(
            form("exp", 40.0),
            form("softplus", 3.0),
            form("best", math.inf, unreachable=7, barred="reach"),
        ),
    )
    lines = shown(forms_table((gradient(), worse), ascii_only=True))
    assert lines[0].replace("|", "").split() == [
        *("form", "candidate", "ratio", "median", "scale", "out", "of", "reach", "safe", "rate")
    ]
    rows = [line.replace("|", " ").split() for line in lines[2:]]
    assert rows[0] == ["exp", "(has)", "yes", "40", "20", "4", "0", "0.125"]
    assert rows[1] == ["softplus", "*", "yes", "3", "1.5", "4", "0", "0.125"]
    assert rows[2] == ["best", "reach", "infinite", "infinite", "4", "7", "0.125"]


def test_forms_that_win_by_ratio_and_are_never_recommended_are_marked():
    forms = (form("exp", 4.0), form("softplus", 2.0), form("clip", 0.1, barred="flat"))
    item = gradient(reparams=(*forms, form("direct", 0.2, stable=False)))
    rows = [line.split() for line in shown(forms_table((item,), ascii_only=False))[2:]]
    assert [row[-6] for row in rows] == ["yes", "yes", "flat", "unstable"]


def test_the_legend_names_the_layer_of_the_forms_and_what_the_columns_are():
    items = (gradient(), gradient("layers.1", reparams=(form("exp", 40.0),)))
    lines = " ".join(shown(*gradient_lines(items)))
    assert "Forms: at the eigenvalues of layers.1." in lines
    assert "Scale: the largest |f'| / f^2" in lines
    assert "All weights: that ratio over every raw recurrent weight" in lines
    assert "flat: no gradient beyond a limit" in lines


def test_the_reasons_and_equal_notes_are_told_once():
    items = tuple(gradient(f"layers.{i}", note="a weight is zero") for i in range(3))
    lines = " ".join(shown(*gradient_lines(items)))
    assert "Loss: mean square." in lines
    assert lines.count("softplus has less.") == 1
    assert "layers.0 and 2 more: a weight is zero" in lines


def test_more_recurrences_than_fit_are_counted():
    items = tuple(gradient(f"layers.{i}") for i in range(ROWS + 3))
    assert len(shown(gradient_table(items, ascii_only=False))) == ROWS + 2
    assert "... and 3 more recurrences" in shown(*gradient_lines(items))


def test_foreign_names_cannot_write_on_the_terminal():
    item = gradient("\x1b[31mred[/]", current="\x1b[2J", note="\x1b]0;title\x07")
    text = "\n".join(shown(gradient_table((item,), ascii_only=False), *gradient_lines((item,))))
    assert "\x1b" not in text
    assert "[31mred[/]" in text
