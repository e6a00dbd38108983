"""`memaudit explain`: by code or name, and the nearest ones for a slip."""

from __future__ import annotations

import pytest

from memaudit import registry
from memaudit.cli import main


@pytest.mark.parametrize("word", ["MA102", "ma102", "growing-memory", "Growing-Memory"])
def test_a_code_and_a_name_explain_the_same_rule(word, capsys):
    assert main(["explain", word]) == 0
    out = capsys.readouterr().out
    assert out.startswith("MA102 growing-memory (error)\n\n")
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_finding_with_milder_cases_tells_both_severities(capsys):
    assert main(["explain", "MA205"]) == 0
    assert capsys.readouterr().out.startswith("MA205 format-unsafe (error or warning)\n")


@pytest.mark.parametrize("code", registry.available("findings"))
def test_every_finding_can_be_explained_in_full(code, capsys):
    assert main(["explain", code]) == 0
    rule = registry.load(registry.find("findings", code))
    assert rule.explanation in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("word", "near"), [("MA117", "ma11"), ("growing-memry", "growing-memory"), ("[x]", "known are")]
)
def test_an_unknown_code_exits_with_two_and_names_the_nearest(word, near, capsys):
    assert main(["explain", word]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert near in err.lower()
