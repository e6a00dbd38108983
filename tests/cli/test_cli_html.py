"""`--html FILE`: a page beside the other reports, and of a difference."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.cli import main
from memaudit.writers.html import Html as HtmlPage
from tests.cli.played import one_line
from tests.handmade import LAGS, curve, report


@pytest.fixture
def saved(tmp_path):
    faster = curve(values=np.exp(-0.1 * LAGS), horizon=69)
    return report(curve()).save(tmp_path / "a.json"), report(faster).save(tmp_path / "b.json")


def test_the_page_is_written_beside_the_other_reports(run, stage, tmp_path):
    page, data, card = (tmp_path / name for name in ("x.html", "x.json", "x.md"))
    code, out, err = run("--html", str(page), "--json", str(data), "--markdown", str(card))
    assert (code, err) == (0, "")
    assert out.startswith("memaudit demo:lstm")
    assert page.read_text(encoding="utf-8") == HtmlPage().render(stage.answer)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.html", "x.json", "x.md"]


def test_a_gate_that_was_hit_stands_on_the_page(run, stage, tmp_path):
    page = tmp_path / "x.html"
    assert run("--html", str(page), "--fail-on", "horizon<200")[0] == 1
    told = page.read_text(encoding="utf-8")
    assert "horizon&lt;200" in told
    assert "horizon = 139 at heaviside" in told


def test_the_page_of_a_difference_comes_with_the_text(saved, tmp_path, capsys):
    page = tmp_path / "diff.html"
    assert main(["diff", *map(str, saved), "--html", str(page)]) == 0
    assert capsys.readouterr().out.startswith("memaudit demo:lstm: before and after")
    told = page.read_text(encoding="utf-8")
    assert told.startswith("<!DOCTYPE html>")
    assert "horizon 139 -&gt; 69 (-50.4 %)" in told


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("a.json", "the page would replace a report that is compared"),
        ("nowhere/x.html", "does not exist"),
        ("-", "needs the name of a file"),
    ],
)
def test_a_bad_place_for_the_page_is_refused(saved, tmp_path, monkeypatch, capsys, file, told):
    monkeypatch.chdir(tmp_path)
    before = saved[0].read_bytes()
    assert main(["diff", "a.json", "b.json", "--html", file]) == 2
    assert told in one_line(capsys.readouterr().err)
    assert saved[0].read_bytes() == before


def broken(*_args, **_more):
    raise OverflowError("cannot convert float infinity to integer")


def test_a_format_that_crashes_is_named_and_the_others_are_written(
    run, stage, tmp_path, monkeypatch
):
    monkeypatch.setattr(HtmlPage, "render", broken)
    page, data, card = (tmp_path / name for name in ("x.html", "x.json", "x.md"))
    code, out, err = run("--html", str(page), "--json", str(data), "--markdown", str(card))
    assert code == 70
    assert one_line(err) == (
        f"memaudit: error[E_INTERNAL] {page}: the html report cannot be made: OverflowError: "
        "cannot convert float infinity to integer; run again with --debug and report it"
    )
    assert out.startswith("memaudit demo:lstm"), "the summary is shown, too"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.json", "x.md"]


def test_a_difference_whose_page_crashes_is_printed_as_text_and_calls_no_report_damaged(
    saved, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("memaudit.writers.html.render_document", broken)
    page = tmp_path / "diff.html"
    assert main(["diff", *map(str, saved), "--html", str(page)]) == 70
    out, err = capsys.readouterr()
    assert out.startswith("memaudit demo:lstm: before and after")
    assert one_line(err).startswith(f"memaudit: error[E_INTERNAL] {page}: the page cannot be made")
    assert "damaged" not in err
    assert not page.exists()
