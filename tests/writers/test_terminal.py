"""The summary and the whole report on a terminal, word for word."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from memaudit.report import Finding
from memaudit.sections import Axis, Column, Document, Figure, Line, Section, Table
from memaudit.writers.terminal import (
    Terminal,
    brief,
    one_line,
    plain_text,
    show,
    verdict_line,
    whole,
)
from memaudit.writers.text_plot import plot
from tests.handmade import identity, report
from tests.writers.documents import curves, document, plane

HERE = Path(__file__).parent


def summary(shown: Document, *, width: int = 80, **options) -> str:
    return plain_text(brief(shown, width=width, **options), width=width)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_summary_word_for_word(width):
    lines = 26 if width == 60 else 40
    expected = (HERE / f"summary_{width}.txt").read_text()
    assert summary(document(), width=width, lines=lines) == expected


def test_the_summary_in_ascii_word_for_word():
    text = summary(document(), ascii_only=True, wrap=True)
    assert text.isascii()
    assert text == (HERE / "summary_80_ascii.txt").read_text()


def test_the_whole_report_word_for_word():
    assert plain_text(whole(document())) == (HERE / "whole_80.txt").read_text()


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal(width, verbose):
    page = whole(document(), width=width) if verbose else brief(document(), width=width, lines=22)
    assert max(map(len, plain_text(page, width=width).splitlines())) <= width


def test_the_verdict_is_on_a_screen_of_24_lines():
    many = tuple(
        Finding(f"MA{k}", "a-finding", "note", "word " * 40, "advice") for k in range(300, 320)
    )
    console = Console(width=80, file=StringIO())
    text = show(replace(document(), findings=many), console, screen=24)
    lines = text.splitlines()
    assert len(lines) <= 22
    assert lines[-3:] == [
        "--verbose shows the rest; memaudit explain CODE",
        "-> MA300: advice",
        "Remembers 139 steps (query heaviside, the shortest; under impulse more).",
    ]
    assert any(line.startswith("... and ") for line in lines)
    assert not any("┤" in line for line in lines), "a picture has no room"


def host_document() -> Document:
    """A host of thirty parts with a long verdict and a warning."""
    parts = Table(
        (Column("part", key=True), Column("driven horizon")),
        tuple((f"layers.{k}", 10 * k) for k in range(30)),
    )
    verdict = (
        "In use `layers.29` remembers longest: more than 290 steps (unit noise, not what "
        "`layers.29` gets: --data FILE of shape (T, 128); 256 sequences); --horizon 1024 looks "
        "further."
    )
    memory = Section("Memory", headline=verdict, tables=(parts,), figures=(curves(),))
    advice = "compare with yours: --query driven --data FILE, or look further: --horizon 1024"
    warning = Finding("MA107", "queries-disagree", "warning", "the queries disagree", advice)
    note = Finding("MA003", "assumed-settings", "note", "1 setting was assumed", "--set KEY=VALUE")
    left = Section("Not reached", line="encoder.0 (--set layers=all runs them)")
    return Document(
        "host.pt",
        facts=(("model", "host of 30 GRUs"), ("parameters", "1,000, 100 % of them run")),
        sections=(memory, left),
        findings=(warning, note),
        footer=("horizon 512",),
    )


LOW = """\
memaudit host.pt
host of 30 GRUs
part      driven horizon
────────────────────────
layers.0               0
layers.1              10
layers.2              20
layers.3              30
layers.4              40
layers.5              50
... and 24 more: --verbose
not reached  encoder.0 (--set layers=all runs them)
MA107 warning queries-disagree: the queries disagree
MA003 note assumed-settings: 1 setting was assumed
horizon 512
--verbose shows the rest; memaudit explain CODE
-> MA107: compare with yours: --query driven --data FILE, or look further:
--horizon 1024
In use `layers.29` remembers longest: more than 290 steps (unit noise, not what
`layers.29` gets: --data FILE of shape (T, 128); 256 sequences); --horizon 1024
looks further.
"""


def test_a_host_on_24_lines_word_for_word():
    console = Console(width=80, file=StringIO())
    assert show(host_document(), console, screen=24) == LOW


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_command_is_neither_cut_nor_parted(width):
    text = summary(host_document(), width=width, lines=22)
    assert text.count("--horizon 1024") >= 2  # in the advice and in the verdict
    assert "--horizon\n" not in text
    assert text.rstrip().endswith("looks further.")


def test_the_picture_shrinks_before_findings_do():
    notes = tuple(
        Finding(f"MA{k}", "a-finding", "note", "words", "advice") for k in range(306, 314)
    )
    shown = replace(document(), findings=notes)
    high, low = (summary(shown, lines=lines) for lines in (45, 40))
    assert high.count("┤") > low.count("┤") >= 4
    assert all(note.code in text for note in notes for text in (high, low))


def test_the_whole_report_ends_with_the_verdict():
    last = " ".join(plain_text(whole(document())).split("\n\n")[-1].split())
    assert last == verdict_line(document())
    assert last.startswith("Remembers 139 steps")
    assert last.endswith("1 error, 1 warning, 1 note")


def test_without_a_screen_nothing_is_cut():
    long = replace(
        document(), findings=(Finding("MA1", "long", "note", "word " * 60 + "end", "advice"),)
    )
    assert "end" in summary(long, wrap=True)
    assert "end" not in summary(long, lines=20)


def test_columns_that_are_not_brief_go_first():
    def columns(width: int) -> list[str]:
        lines = summary(document(), width=width).splitlines()
        return next(line for line in lines if line.startswith("query")).split()

    assert columns(80) == ["query", "decay", "rate", "half-life", "horizon", "floor"]
    assert columns(50) == ["query", "decay", "rate", "half-life", "horizon"]
    assert columns(42) == ["query", "decay", "half-life", "horizon"]


def test_a_console_without_braille_gets_letters():
    class Old(StringIO):
        encoding = "ascii"

    text = show(document(), Console(width=80, file=Old()))
    assert text.isascii()


def test_colours_follow_the_console():
    coloured = Console(width=80, file=StringIO(), force_terminal=True, color_system="standard")
    assert "\x1b[" in show(document(), coloured)
    plain = Console(
        width=80,
        file=StringIO(),
        force_terminal=True,
        color_system="standard",
        no_color=True,
        _environ={},
    )
    assert "\x1b[3" not in show(document(), plain)


def test_one_line_names_source_verdict_and_findings():
    note = Finding("MA105", "supremum-at-edge", "note", "still rising", "try others")
    made = replace(report(), results={}, findings=(note,))
    assert one_line(made) == "demo:lstm: 1 note"
    assert one_line(replace(made, complete=False)) == "demo:lstm: partial report; 1 note"


def test_a_partial_report_says_so_first():
    error = {"code": "E_MEMORY", "stage": "impulse", "message": "no room", "hint": "--quick"}
    made = replace(report(), results={}, complete=False, errors=(error,))
    lines = Terminal().render(made).splitlines()
    assert lines[0] == "PARTIAL REPORT: the audit was cut short; this is what was measured before."
    assert lines[1] == "E_MEMORY (impulse): no room; --quick"


def test_settings_and_the_command_are_in_the_whole_report():
    text = Terminal().render(replace(report(subject=identity(sha256="ab12")), results={}))
    assert "sha256 of the weights  ab12" in text
    assert "memaudit scan demo:lstm --horizon 512 --seed 0" in text


def test_a_table_of_many_rows_is_cut_in_the_summary_only():
    rows = tuple((f"l{k}", k) for k in range(30))
    table = Table((Column("layer", key=True), Column("size")), rows)
    shown = Document("x", sections=(Section("Layers", headline="Thirty.", tables=(table,)),))
    assert "... and 20 more: --verbose" in summary(shown)
    assert "l29" in plain_text(whole(shown))


def test_an_empty_document_is_shown():
    assert summary(Document("x")) == "memaudit x\n\nno findings\n\n--verbose shows the rest\n"


# Pictures


def picture(figure: Figure, **options) -> list[str]:
    return plot(figure, **options).plain.splitlines()


def test_an_exponential_decay_is_a_straight_line():
    lags = np.arange(17)
    figure = Figure("", Axis("lag"), Axis("memory", log=True), (Line("a", lags, 10.0**-lags),))
    lines = picture(figure, width=24, height=17, ascii_only=True)
    assert [line[:7] for line in lines[:17:4]] == [
        " 1e+00|",
        " 1e-04|",
        " 1e-08|",
        " 1e-12|",
        " 1e-16|",
    ]
    assert [line[7:] for line in lines[:17]] == [" " * k + "a" + " " * (16 - k) for k in range(17)]
    assert lines[17:] == [
        "      ++----+-----------",
        "       0    5     16 lag",
        "memory: a a",
    ]


def test_a_value_of_zero_is_a_gap_and_not_the_bottom():
    x = np.arange(1, 12)
    y = np.where(x == 6, 0.0, 1.0)
    figure = Figure("", Axis("x"), Axis("y"), (Line("a", x, y),))
    logarithmic = replace(figure, y=Axis("y", log=True))
    assert picture(logarithmic, width=18, height=4, ascii_only=True)[3] == "      |aaaaa aaaaa"
    assert picture(figure, width=18, height=4, ascii_only=True)[3][7:].strip() == "a"


def test_marks_of_series_stand_on_the_axis_and_others_are_dotted():
    lines = picture(curves(), width=80, height=10, ascii_only=True)
    axis = lines[10]
    assert axis.index("h", 7) == 7 + round((139 - 1) / 511 * 72)
    assert axis.index("i", 7) == 7 + round((346 - 1) / 511 * 72)
    assert lines[-1].endswith("on the axis: horizon; dotted: floor")
    assert "s spread" not in lines[-1], "what is not shown is not named"


def test_a_circle_is_as_wide_as_it_is_high():
    lines = picture(plane(), width=80, height=16)
    inside = [line.split("┤")[1] for line in lines[:16]]
    columns = [k for line in inside for k, c in enumerate(line) if c != " "]
    rows = [k for k, line in enumerate(inside) if line.strip()]
    assert (max(columns) - min(columns) + 1) == pytest.approx(2 * (rows[-1] - rows[0] + 1), abs=2)


def test_numbers_at_the_ends_of_what_there_is_are_drawn():
    x = np.arange(1, 11)
    for most in (1.7e308, 1e-320, 5e-324):
        figure = Figure("", Axis("x"), Axis("y", log=True), (Line("a", x, most / x),))
        assert len(picture(figure, width=40, height=4)) == 7


def test_nothing_to_draw_is_said():
    zeros = Figure("", Axis("x"), Axis("y", log=True), (Line("a", np.arange(3), np.zeros(3)),))
    assert picture(zeros) == ["(nothing to draw)"]
