"""The terminal report, letter by letter at 80 columns, and its promises at other widths."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from memaudit.memory.curve import HorizonStatus
from memaudit.memory.result import Decay, Status
from memaudit.reports.terminal import Terminal
from memaudit.rules import judge
from tests.handmade import assumption, curve, identity, of_kind, power_law, report

QUERIES = ("heaviside", "impulse", "reversed")
EXPECTED = Path(__file__).parent / "terminal_report.txt"


def judged(*curves, **changes):
    made = report(*curves, **changes)
    return replace(made, findings=judge(made))


def sample():
    return judged(
        curve(exact=True),
        power_law("impulse", holder=64.0),
        curve("reversed", status=Status.UNSETTLED, prefix=1024),
        subject=identity(coverage=0.37, assumed={"nonlinearity": "tanh; the file does not say"}),
        assumptions=(
            assumption("causal", True),
            assumption("time-homogeneous", False, note="3 offsets"),
            assumption("rows-independent", None, residual=None, tolerance=None, note="one row"),
        ),
    )


def shown(made, *, width: int, encoding: str = "utf-8") -> str:
    raw = BytesIO()
    sheet = TextIOWrapper(raw, encoding=encoding)
    Terminal().print_to(Console(file=sheet, width=width, color_system=None, _environ={}), made)
    sheet.flush()
    return raw.getvalue().decode(encoding)


def test_the_report_is_this_text():
    assert Terminal().render(sample()) == EXPECTED.read_text(encoding="utf-8")


def test_render_is_pure_and_ignores_the_environment(monkeypatch):
    before = Terminal().render(sample())
    monkeypatch.setenv("COLUMNS", "33")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Terminal().render(sample()) == before


@pytest.mark.parametrize("width", [40, 80, 81, 130, 200])
def test_no_line_is_wider_than_the_console(width):
    assert max(len(line) for line in shown(sample(), width=width).splitlines()) <= width


def test_plots_stand_side_by_side_from_120_columns_on():
    def together(text: str) -> bool:
        return any("heaviside: mem" in ln and "impulse: mem" in ln for ln in text.splitlines())

    assert not together(shown(sample(), width=119))
    assert together(shown(sample(), width=120))


def test_an_ascii_console_gets_ascii_only():
    assert shown(sample(), width=80, encoding="ascii").isascii()
    assert not shown(sample(), width=80).isascii()


def test_the_verdict_fits_on_one_screen():
    lines = Terminal().render(sample()).splitlines()
    assert next(i for i, line in enumerate(lines) if line.startswith("reversed  exp")) < 24


@pytest.mark.parametrize("width", [80, 130])
def test_polynomial_never_appears_without_its_window(width):
    layers = {name: {"heaviside": power_law()} for name in ("encoder", "decoder")}
    text = shown(judged(power_law(), layers=layers), width=width)
    tables, _ = text.split("Findings")
    rows = [(row, below) for row, below in pairwise(tables.splitlines()) if "polynomial" in row]
    assert len(rows) == 3
    assert all("8-512" in row + below for row, below in rows)


def test_a_horizon_beyond_the_window_is_never_a_number():
    assert "> 512" in Terminal().render(judged(power_law()))


@pytest.mark.parametrize("status", [Status.BELOW_FLOOR, Status.TOO_FEW_LAGS])
def test_a_curve_in_the_floor_claims_no_horizon(status):
    text = Terminal().render(judged(of_kind("undetermined", status=status)))
    assert "> 512" not in text
    assert f"heaviside: {status.value}" in " ".join(text.split())


def in_the_floor(query: str = "heaviside", **changes):
    """Memory exp(-t/20) over a floor of 1e-3: ten times that is above a thousandth of it."""
    return curve(query, **{"floor": 1e-3, "horizon": None, **changes})


@pytest.mark.parametrize("width", [80, 130])
def test_a_horizon_that_the_floor_hides_is_unknown(width):
    text = shown(judged(in_the_floor()), width=width)
    tables, _ = text.split("Findings")
    assert " ? " in tables
    assert "> 512" not in tables
    assert "\nheaviside: the floor hides the horizon\n" in text
    assert "heaviside exponential, horizon ?;" in " ".join(text.split())


@pytest.mark.parametrize(
    "seen",
    [
        power_law(floor=1e-3),  # at the last lag still above ten times the floor
        in_the_floor(horizon=139),
        of_kind("persistent", floor=1e-3),
        of_kind("undetermined", floor=1e-3, status=Status.TOO_FEW_LAGS),
    ],
)
def test_nothing_else_is_called_hidden(seen):
    assert "the floor hides" not in Terminal().render(judged(seen))


def test_a_loud_present_does_not_unhide_an_impulse():
    values = np.concatenate([[1e6], np.exp(-0.05 * np.arange(1, 512))])
    changes = {"lags": np.arange(512), "values": values, "median": values}
    assert in_the_floor("impulse", **changes).horizon_status is HorizonStatus.HIDDEN


def test_a_question_mark_among_the_layers_is_explained():
    layers = {"encoder": {"heaviside": in_the_floor()}, "decoder": {"heaviside": curve()}}
    text = Terminal().render(report(curve(), layers=layers))
    assert "\n?: the floor hides the horizon\n" in text


def test_the_confidence_is_shown_where_there_is_room():
    sure = report(curve(decay=Decay("exponential", rate=0.05, window=(1, 512), confidence=0.876)))
    assert "conf." in shown(sure, width=110)
    assert " 0.88 " in shown(sure, width=110)
    assert "conf." not in shown(sure, width=109)


def test_a_table_of_80_columns_breaks_no_word():
    interval = (0.04987, 0.05012)
    decay = Decay("undetermined", rate=0.05, interval=interval, window=(24, 511))
    made = report(*(curve(query, decay=decay, horizon=None, holder=0.0625) for query in QUERIES))
    rows = Terminal().render(made).splitlines()
    first = next(row for row in rows if row.startswith("heaviside un"))
    second = rows[rows.index(first) + 1]
    words = "heaviside undetermined rate 0.05 13.86 > 512 1e-15 64, sup at"
    assert " ".join(first.split()) == words
    assert " ".join(second.split()) == "lags 24-511 [0.04987, 0.05012] |x| 0.0625"


def test_a_partial_report_says_so_in_its_first_line():
    error = {"code": "E_MEMORY", "stage": "impulse", "message": "no room", "hint": "try --quick"}
    text = Terminal().render(judged(curve(), complete=False, errors=(error,)))
    assert text.startswith("PARTIAL REPORT")
    assert text.splitlines()[1] == "E_MEMORY (impulse): no room; try --quick"


def test_a_report_without_curves_still_renders():
    assert "No curve was measured." in Terminal().render(judged(complete=False))


def test_foreign_text_cannot_colour_or_break_the_report():
    evil = "[red]x[/red]\x1b[31m\n\u202eevil[/"
    made = judged(
        subject=identity(source=evil, description=evil, assumed={evil: evil}, notes=(evil,)),
        layers={evil: {"heaviside": curve(normalization=evil)}},
        memory={evil: curve(normalization=evil)},
        assumptions=(assumption("causal", False, note=evil, where=evil),),
        environment={evil: evil},
    )
    text = Terminal().render(made)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]x[/red]" in text


def test_many_layers_are_listed_and_their_findings_grouped():
    layers = {f"layer{i:02d}": {"heaviside": of_kind("persistent")} for i in range(12)}
    text = Terminal().render(judged(of_kind("persistent"), layers=layers))
    table = text[text.index("Layers") : text.index("Findings")]
    assert all(layer in table for layer in layers)
    assert text.count("MA103 warning persistent-memory") == 1
    assert "... and 8 more places" in text


def test_coverage_never_rounds_up_to_everything():
    assert "99.9 % of them run" in Terminal().render(report(subject=identity(coverage=0.99999)))


def test_finite_memory_shows_its_support():
    values = np.where(np.arange(512) < 10, 1.0, 0.0)
    finite = Decay("finite", support=10, window=(1, 512))
    assert "support 10" in Terminal().render(report(curve(values=values, decay=finite)))
