"""The summary on one screen, letter by letter, and its promises at other sizes."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from memaudit.contracts import AbstractReportFormat
from memaudit.memory.result import Status
from memaudit.report import Finding
from memaudit.reports import wording
from memaudit.reports.overview import SCREEN, one_line, overview, overview_for
from memaudit.reports.plain_text import plain_text
from memaudit.rules import judge
from memaudit.testing import check_report_format, sample_reports
from tests.handmade import assumption, curve, identity, of_kind, power_law, report

HERE = Path(__file__).parent
SIZES = {
    "summary_80.txt": {"width": 80},
    "summary_80_ascii.txt": {"width": 80, "ascii_only": True},
    "summary_60.txt": {"width": 60, "lines": 24},
    "summary_140.txt": {"width": 140},
}


def sample():
    made = report(
        curve(exact=True),
        curve("impulse", values=np.exp(-0.02 * np.arange(1, 513)), horizon=346),
        curve("reversed", values=np.exp(-0.1 * np.arange(1, 513)), status=Status.UNSETTLED),
        subject=identity(coverage=0.37, assumed={"nonlinearity": "tanh; the file does not say"}),
        assumptions=(assumption("causal", True), assumption("linear", False)),
    )
    return replace(made, findings=judge(made))


def shown(made, **size) -> str:
    return plain_text(overview(made, **size), width=size["width"])


@pytest.mark.parametrize("name", SIZES)
def test_the_summary_is_this_text(name):
    assert shown(sample(), **SIZES[name]) == (HERE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_report_fits_the_width_and_the_screen(width, ascii_only):
    for name, made in sample_reports().items():
        lines = shown(made, width=width, ascii_only=ascii_only).splitlines()
        assert max(map(len, lines)) <= width, name
        assert len(lines) <= SCREEN, name
        assert not ascii_only or "".join(lines).isascii(), name


@pytest.mark.parametrize("ascii_only", [False, True])
def test_hostile_names_are_escaped_as_in_any_format(ascii_only):
    class Summary(AbstractReportFormat):
        name, summary, suffix = "summary", "the summary on one screen", ".txt"

        def render(self, report):
            return shown(report, width=80, ascii_only=ascii_only)

    check_report_format(Summary())


@pytest.mark.parametrize("width", [40, 46, 49, 50, 53, 54, 60, 77, 78])
def test_no_word_of_the_table_is_folded(width):
    kinds = [of_kind("undetermined", "heaviside"), power_law("reversed")]
    lines = shown(report(*kinds), width=width).splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.split()}
    assert rows["heaviside"][1] == "undetermined"
    assert rows["reversed"][1] == "polynomial"
    assert rows["reversed"][2] == wording.window(power_law())
    assert rows["query"][:3] == ["query", "decay", "lags"]
    assert ("half-life" in rows["query"]) == (width >= 50)
    assert "> 512" in " ".join(rows["reversed"])


@pytest.mark.parametrize("lines", [24, 30, 40])
def test_many_findings_are_cut_to_the_screen_and_counted(lines):
    many = tuple(Finding(f"MA9{k:02}", "sample", "note", "told", "do") for k in range(60))
    text = shown(replace(sample(), findings=many), width=80, lines=lines)
    kept = text.count("sample: told")
    assert f"\n... and {60 - kept} more findings\n" in text
    assert kept >= 3
    assert len(text.splitlines()) <= lines


def test_no_finding_is_said_in_words():
    assert "\nno findings\n" in shown(report(curve()), width=80)


def test_a_finding_of_many_places_is_one_line():
    many = tuple(Finding("MA201", "near", "warning", "told", "do", where=f"l{k}") for k in range(9))
    text = shown(report(curve(), findings=many), width=80)
    assert "\nMA201 warning near (9 places): told\n" in text


def test_lines_in_one_place_take_turns():
    text = shown(report(curve(), curve("impulse")), width=80, ascii_only=True)
    assert "hihihi" in text


def test_a_power_law_has_logarithmic_lags_and_its_window():
    text = shown(report(power_law()), width=80)
    assert "polynomial  8-512  exponent 0.5" in text
    assert text.splitlines()[18].split() == ["1", "10", "100", "512", "lag"]


def test_curves_end_where_they_sink_into_their_floor():
    noisy = np.exp(-0.2 * np.arange(1, 513)) + 1e-9
    text = shown(report(curve(values=noisy, floor=1e-9)), width=80, ascii_only=True)
    assert "floor dotted" in text
    assert max(len(line.rstrip("h")) for line in text.splitlines()[5:15]) < 40


def test_a_query_that_shows_nothing_is_in_the_table_but_not_in_the_picture():
    silent = of_kind("memoryless", "impulse", values=np.zeros(512))
    text = shown(report(curve(), silent), width=80)
    assert "memory (max-norm): h heaviside;" in text
    assert "\nimpulse    memoryless" in text


def test_without_any_curve_there_is_no_picture():
    text = shown(report(of_kind("memoryless", values=np.zeros(512))), width=80)
    assert "┤" not in text
    assert "No curve was measured." in shown(report(), width=80)


def test_a_partial_report_says_so_in_its_first_lines():
    error = {"code": "E_MEMORY", "stage": "impulse", "message": "no room", "hint": "try --quick"}
    made = report(curve(), complete=False, errors=(error,))
    text = shown(made, width=80)
    assert text.startswith("PARTIAL REPORT")
    assert text.splitlines()[1] == "E_MEMORY (impulse): no room"
    assert one_line(made).startswith(
        "demo:lstm: partial report; remembers 139 steps (heaviside); heav"
    )


def test_the_verdict_of_scripts_is_one_line():
    first = "demo:lstm: remembers 139 steps (heaviside); "
    assert one_line(sample()).startswith(f"{first}heaviside exponential, horizon 139; impulse ")
    evil = replace(sample(), subject=identity(source="a\nb\x1b[31m"))
    assert one_line(evil).startswith("a b[31m: remembers 139")


def test_colours_are_for_terminals_only():
    def drawn(**kind) -> str:
        sheet = StringIO()
        console = Console(file=sheet, width=80, height=50, _environ={}, **kind)
        console.print(overview_for(console, sample()))
        return sheet.getvalue()

    assert "\x1b[" not in drawn()
    assert "\x1b[1;36mh" in drawn(force_terminal=True, color_system="standard")
    assert "\x1b[36" not in drawn(force_terminal=True, color_system="standard", no_color=True)


def test_what_is_piped_is_wrapped_and_what_a_low_screen_cannot_hold_is_cut():
    words = " ".join(f"word{k}" for k in range(40))
    made = report(curve(), findings=(Finding("MA201", "near", "warning", words, "do"),))

    def drawn(screen: int | None) -> str:
        sheet = StringIO()
        console = Console(file=sheet, width=80, _environ={})
        console.print(overview_for(console, made, screen=screen))
        return sheet.getvalue()

    assert words in " ".join(drawn(None).split())
    assert max(map(len, drawn(None).splitlines())) <= 80
    assert "word39" in drawn(60)
    assert "word39" not in drawn(22)


def test_a_query_that_is_not_drawn_is_named():
    still = curve("reversed", values=np.zeros_like(curve().values))
    low = curve("impulse", values=np.full_like(curve().values, 1e-9), floor=1e-6)
    text = " ".join(shown(report(curve(), still, low), width=140).split())
    assert "; reversed: zero everywhere; impulse: never above the floor" in text


def test_a_low_terminal_gets_a_low_picture():
    def height(rows: int) -> int:
        sheet = StringIO()
        console = Console(file=sheet, width=80, _environ={})
        console.print(overview_for(console, sample(), screen=rows))
        return len(sheet.getvalue().splitlines())

    assert height(26) <= 24 < height(32) <= 30 < height(60) <= SCREEN


def test_a_long_finding_goes_on_while_there_are_lines_to_spare():
    long = Finding("MA999", "talk", "note", "word " * 30 + "end", "rest")
    made = replace(report(curve()), findings=(long,))
    assert "word end" in " ".join(shown(made, width=80).split())
    low = shown(made, width=80, lines=20)
    assert "…" in low
    assert "word end" not in low


def test_a_long_message_is_wrapped_to_its_last_word_where_there_is_no_screen():
    message = "; ".join(f"format-{place}: the answers change by {place} %" for place in range(20))
    made = replace(sample(), findings=(Finding("MA205", "unsafe", "warning", message, "advice"),))
    sheet = Console(file=StringIO(), width=80, color_system=None, _environ={})
    with sheet.capture() as captured:
        sheet.print(overview_for(sheet, made, screen=None))
    assert message in " ".join(captured.get().split())
