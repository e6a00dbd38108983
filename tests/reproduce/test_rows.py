"""Every row is there, and the short ones are run as a user would run them."""

from __future__ import annotations

import json
import re

import pytest

from examples.reproduce import catalog
from examples.reproduce.__main__ import main
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
