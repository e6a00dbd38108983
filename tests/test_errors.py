"""Foreign text that is made safe to print, and names in a sentence."""

from __future__ import annotations

import pytest

from memaudit.errors import MemauditError, clean, listed


@pytest.mark.parametrize(
    "name",
    [
        "::stop-commands::token",
        "layer ::set-output name=x::y",
        "##vso[task.setvariable variable=PATH]/tmp",
        "##[group]",
        ":::::",
        "####[x]",
    ],
)
def test_foreign_text_gives_no_order_to_a_build_server(name):
    for told in (clean(name), str(MemauditError("E_CONFIG", f"the key {name} is unknown"))):
        assert "::" not in told
        assert "##" not in told


def test_a_sentence_names_the_first_few_and_counts_the_rest():
    assert listed(["a", "b"]) == "a, b"
    assert listed(map(str, range(8))) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert listed(map(str, range(10)), most=2, joint="; ") == "0; 1 and 8 more"


def test_names_in_a_sentence_are_cleaned_and_cut_at_their_limit():
    assert listed(["a\x1b[31mb", "x" * 9], limit=5) == "a[31…, xxxx…"
