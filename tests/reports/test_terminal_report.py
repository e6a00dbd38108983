"""The terminal report, letter by letter at 80 columns, and its promises at other widths."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from memaudit.findings.judge import judge
from memaudit.reports.terminal import Terminal
from memaudit.results import Decay, Status
from tests.reports.handmade import assumption, curve, identity, of_kind, power_law, report

EXPECTED = Path(__file__).parent / "terminal_report.txt"


def judged(*curves, **changes):
    made = report(*curves, **changes)
    return replace(made, findings=judge(made))


def sample():
    return judged(
        curve(exact=True),
        power_law("impulse"),
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
    layers = {"encoder": {"heaviside": power_law()}}
    text = shown(judged(power_law(), layers=layers), width=width)
    rows = text.splitlines()
    for i, row in enumerate(rows):
        if "polynomial" in row:
            assert "8-512" in row + rows[i + 1]


def test_a_horizon_beyond_the_window_is_never_a_number():
    assert "> 512" in Terminal().render(judged(power_law()))


@pytest.mark.parametrize("status", [Status.BELOW_FLOOR, Status.TOO_FEW_LAGS])
def test_a_curve_in_the_floor_claims_no_horizon(status):
    text = Terminal().render(judged(of_kind("undetermined", status=status)))
    assert "> 512" not in text
    assert f"heaviside: {status.value}" in " ".join(text.split())


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
