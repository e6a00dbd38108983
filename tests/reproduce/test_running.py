"""The runner and the page, on rows made by hand."""

from __future__ import annotations

import json

import pytest

from examples.reproduce import catalog, records, running
from examples.reproduce.data import DataUnavailable
from examples.reproduce.drawing import lines, panels
from examples.reproduce.page import write_page
from examples.reproduce.row import Number, Outcome, Row

NAMES = catalog.names()[:4]


def outcome(**changes):
    figure, (axes,) = panels("a panel")
    lines(axes, {"one": ([1, 2], [3, 4])}, x="x", y="y", logs="xy")
    given = {
        "holds": True,
        "reason": "it | does",
        "numbers": (Number("rate", 0.123456, 0.12), Number("far", float("inf"))),
        "settings": {"m": (2, 4), "ranges": ((0, 1), (0.4, 0.8)), "norm": "sup"},
        "figure": figure,
    }
    return Outcome(**{**given, **changes})


def row(name, found):
    def run(effort):
        del effort
        if isinstance(found, Exception):
            raise found
        return outcome(**found)

    return Row(id=name, title="A title", claim="a claim", run=run)


@pytest.fixture
def rows(monkeypatch):
    made = {
        NAMES[0]: row(NAMES[0], {}),
        NAMES[1]: row(NAMES[1], {"holds": False, "errata": "wrong", "explained": True}),
        NAMES[2]: row(NAMES[2], {"scaled": "fewer steps"}),
        NAMES[3]: row(NAMES[3], DataUnavailable("data", "there is no network", hint="try later")),
    }
    monkeypatch.setattr(catalog, "load", made.__getitem__)
    return made


def run_all(tmp_path, *, quick=False):
    return dict(running.run_rows(NAMES, tmp_path, quick=quick, seed=0, jobs=1))


def test_the_verdict_follows_from_what_was_found(rows, tmp_path):
    found = [record["verdict"] for record in run_all(tmp_path).values()]
    assert found == ["HOLDS", "DOES NOT HOLD", "SCALED DOWN", "NOT RUN"]


def test_the_page_counts_and_shows_every_row(rows, tmp_path):
    run_all(tmp_path)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "* Not scaled down: 2. The claim holds in 1, and errata of the paper explain 1" in text
    assert "* Scaled down: 1; in 1 of them the claim was seen in that size." in text
    assert f"* Not run: {NAMES[3]}." in text
    assert "there is no network" in text
    assert "**SCALED DOWN, seen**: it | does" in text
    assert "**DOES NOT HOLD (explained by an erratum)**" in text
    assert "| rate | 0.1235 | 0.12 |" in text
    assert "| far | infinite |  |" in text
    assert "Settings: m 2, 4, ranges (0, 1), (0.4, 0.8), norm sup." in text
    for record in json.loads(json.dumps([records.read(tmp_path, n) for n in NAMES[:3]])):
        assert f"](results/{record['picture']})" in text


def test_an_erratum_that_explains_nothing_is_no_success(rows, tmp_path):
    rows[NAMES[1]] = row(NAMES[1], {"holds": False, "errata": "wrong"})
    rows[NAMES[2]] = row(NAMES[2], {"holds": False, "scaled": "fewer steps"})
    found = run_all(tmp_path)
    assert found[NAMES[1]]["explained"] is False
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "The claim holds in 1, and errata of the paper explain 0 more: 50 %." in text
    assert "**DOES NOT HOLD**:" in text
    assert "**SCALED DOWN, not seen**:" in text


def test_results_are_strict_json_and_the_same_the_second_time(rows, tmp_path):
    first, second = (run_all(tmp_path / part) for part in ("a", "b"))
    for record in (*first.values(), *second.values()):
        record.pop("seconds", None)
    assert first == second
    name = first[NAMES[0]]["picture"]
    pictures = [(tmp_path / part / "results" / name).read_bytes() for part in ("a", "b")]
    assert pictures[0] == pictures[1]


def test_a_row_that_fails_does_not_take_the_others_along(rows, tmp_path):
    rows[NAMES[1]] = row(NAMES[1], ZeroDivisionError("by zero"))
    found = run_all(tmp_path)
    assert str(found[NAMES[1]]) == "ZeroDivisionError: by zero"
    assert found[NAMES[2]]["verdict"] == "SCALED DOWN"
