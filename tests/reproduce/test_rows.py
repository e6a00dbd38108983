"""Rows, the catalog and the command line of the reproduction."""

from __future__ import annotations

import json
import math
import re

import pytest

from examples.reproduce import catalog
from examples.reproduce.__main__ import main
from examples.reproduce.drawing import lines, panels, save
from examples.reproduce.row import Row


@pytest.mark.shared
def test_every_claim_of_the_papers_has_a_row(shared):
    text = (shared / "paper-claims.md").read_text(encoding="utf-8")
    ids = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    claims = [name for name in ids if re.match(r"[ISUOV]-", name)]
    assert len(claims) > 40
    assert sorted(claims) == sorted(catalog.names())


@pytest.mark.parametrize("name", catalog.names())
def test_a_row_knows_its_own_name_and_its_claim(name):
    row = catalog.load(name)
    assert isinstance(row, Row)
    assert row.id == name
    assert row.title
    assert row.claim


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.BRIEF)
def test_a_short_row_holds_at_the_settings_of_the_paper(name, tmp_path, capsys):
    assert main([name, "--quick", "--out", str(tmp_path)]) == 0
    assert "HOLDS" in capsys.readouterr().out
    stem = tmp_path / "results" / f"{catalog.slug(name)}-quick"
    record = json.loads(stem.with_name(f"{stem.name}.json").read_text(encoding="utf-8"))
    assert record["holds"] is True
    assert record["scaled"] == ""
    assert record["numbers"]
    assert stem.with_name(record["picture"]).read_bytes()[:4] == b"\x89PNG"
    assert f"**HOLDS**: {record['reason']}" in (tmp_path / "RESULTS.md").read_text(encoding="utf-8")


def test_the_list_shows_every_row(capsys):
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in catalog.names())


@pytest.mark.parametrize(("words", "fact"), [(["I-F99"], "no row 'I-F99'"), ([], "name rows")])
def test_bad_use_gets_a_sentence(words, fact, capsys):
    assert main(words) == 2
    assert fact in capsys.readouterr().err


# Rows are found by every name that a reader of the papers would use.


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("I-001", "I-001"),
        ("V-1", "V-1"),
        ("I-F10", "I-F10a-h"),
        ("I-eq120", "I-eq4/120/127"),
        ("U-P3.12", "U-P3.11/12, Thm3.13"),
        ("U-P3.9", "U-P3.6/3.9"),
        ("O-F2", "O-F1-F4"),
        ("o-f8", "O-F7/F8"),
    ],
)
def test_a_part_of_a_name_finds_its_row(word: str, name: str) -> None:
    assert catalog.chosen([word]) == (name,)


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(ValueError, match=r"no row 'S-T22'; did you mean .*S-T2.*\?"):
        catalog.chosen(["S-T22"])
    with pytest.raises(ValueError, match="did you mean I-F9, I-T1; "):
        catalog.chosen(["I-F99"])


# Whatever a row has measured, its figure can be saved.


ODD = [0.0, 5e-324, 1e-30, 1.0, 1e300, 1.7e308, math.inf, math.nan, -1.0]


@pytest.mark.parametrize("logs", ["", "x", "y", "xy"])
def test_figures_with_infinite_zero_and_huge_values_are_saved(logs, tmp_path):
    figure, (one, other) = panels("odd", "nothing to see")
    lines(one, {"up": (range(1, 10), ODD), "across": (ODD, range(1, 10))}, x="x", y="y", logs=logs)
    lines(other, {"none": ([1.0, 2.0], [math.inf, math.nan])}, x="x", y="y", logs=logs)
    save(figure, tmp_path / "odd.png")
    assert (tmp_path / "odd.png").read_bytes()[:4] == b"\x89PNG"
