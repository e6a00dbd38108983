"""The section between the markers is replaced, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memaudit.errors import SourceError
from memaudit.writers.card import BEGIN, END, with_section

FRONT = "---\nlicense: mit\ntags: [a]\n---\n"
BLOCK = f"{BEGIN}\nnew\n{END}"


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{BLOCK}\n"),
        ("# Model", f"# Model\n\n{BLOCK}\n"),
        (FRONT, f"{FRONT}\n{BLOCK}\n"),
        (f"{FRONT}# M\n\n{BEGIN}\nold\n{END}\n\nrest", f"{FRONT}# M\n\n{BLOCK}\n\nrest"),
        ("<!-- memaudit begin -->\nold\n<!--memaudit end-->\n", f"{BLOCK}\n"),
        (f"\ufeff{BEGIN}\nold\n{END}\n", f"\ufeff{BLOCK}\n"),
        (f"---\n\n{BEGIN}\nold\n{END}\n---\n", f"---\n\n{BLOCK}\n---\n"),
        (f"```\nopen\n{BEGIN}\nold\n{END}\n", f"```\nopen\n{BLOCK}\n"),
        ("  <!-- memaudit begin: mine --> \nold\n <!-- memaudit end --> \nx", f"{BLOCK}\nx"),
    ],
)
def test_the_section_stands_between_the_markers(before, after, end):
    if "\n" not in before:
        end = "\n"  # nothing says how lines end
    assert with_section(before.replace("\n", end), "new\n") == after.replace("\n", end)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{BEGIN}\n", "1 (begin)"),
        (f"{FRONT}{END}\n{BEGIN}\n", "5 (end), 6 (begin)"),
        (f"{BEGIN}\r\n{BEGIN}\r\n{END}\r\n", "1 (begin), 2 (begin), 3 (end)"),
    ],
)
def test_markers_that_do_not_pair_up_are_refused_with_their_lines(text, lines):
    with pytest.raises(SourceError) as caught:
        with_section(text, "new")
    assert caught.value.fact == f"the markers of memaudit do not pair up: lines {lines}"
    assert "one begin and, below it, one end" in caught.value.hint


PIECES = st.sampled_from(
    ["\n", "\r\n", "\r", "a", " ", "---", "```", "#", BEGIN, END, "é", "\ufeff"]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.text("ab\n", max_size=5))
def test_twice_is_once_and_the_rest_is_kept(text, section):
    try:
        made = with_section(text, section)
    except SourceError:
        return
    assert with_section(made, section) == made
    assert with_section(with_section(text, "other"), section) == made
    if BEGIN not in text and END not in text:
        assert made.startswith(text)


@pytest.mark.parametrize(
    "text",
    [
        f"- a list\n  ```html\n  {BEGIN}\n  {END}\n  ```\n",
        f"    {BEGIN}\n    {END}\n",
        f"````\n```\n{BEGIN}\n{END}\n````\n",
        f"---\ncode: |\n  {BEGIN}\n  {END}\n---\n# M\n\n",
        f"---\ncode: |\n  ```\n---\n# M\n\n```\n{BEGIN}\n{END}\n```\n",
    ],
)
def test_markers_in_code_and_metadata_are_an_example(text):
    made = with_section(text, "S")
    assert made.startswith(text)
    assert with_section(made, "S") == made


def test_many_fences_are_read_once():
    """Work that grows with the square of the lines takes hours here."""
    text = "```x\n" * 200_000
    assert with_section(text, "S").startswith(text)
