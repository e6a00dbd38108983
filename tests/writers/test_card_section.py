"""The section between the markers is replaced, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memaudit.errors import SourceError
from memaudit.writers.card import BEGIN, END, with_section

FRONT = "---\nlicense: mit\ntags: [a]\n---\n"
BLOCK = f"{BEGIN}\nnew\n{END}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{BLOCK}\n"),
        ("# Model\n", f"# Model\n\n{BLOCK}\n"),
        ("# Model", f"# Model\n\n{BLOCK}\n"),
        ("# Model\n\n", f"# Model\n\n{BLOCK}\n"),
        (FRONT, f"{FRONT}\n{BLOCK}\n"),
        (f"{FRONT}# M\n\n{BEGIN}\nold\n{END}\n\nrest", f"{FRONT}# M\n\n{BLOCK}\n\nrest"),
        (f"{BEGIN}\nold\n{END}", BLOCK),
        (f"{BEGIN}\n{END}\n", f"{BLOCK}\n"),
        ("<!-- memaudit begin -->\nold\n<!--memaudit end-->\n", f"{BLOCK}\n"),
        (f"---\n\n{BEGIN}\nold\n{END}\n---\n", f"---\n\n{BLOCK}\n---\n"),
        (f"<pre>\nopen\n{BEGIN}\nold\n{END}\n", f"<pre>\nopen\n{BLOCK}\n"),
        (f"<prefix>\n{BEGIN}\nold\n{END}\n</pre>\n", f"<prefix>\n{BLOCK}\n</pre>\n"),
        ("  <!-- memaudit begin: mine --> \nold\n <!-- memaudit end --> \nx", f"{BLOCK}\nx"),
    ],
)
def test_the_section_stands_between_the_markers(before, after):
    assert with_section(before, "new\n") == after


def test_line_ends_are_those_of_the_file():
    text = f"{FRONT}# M\n\n{BEGIN}\nold\n{END}\nrest\n".replace("\n", "\r\n")
    made = with_section(text, "new\n\nmore\n")
    assert made == f"{FRONT}# M\n\n{BEGIN}\nnew\n\nmore\n{END}\nrest\n".replace("\n", "\r\n")
    assert with_section("# M\r\n", "new") == f"# M\n\n{BLOCK}\n".replace("\n", "\r\n")


def test_lone_carriage_returns_are_kept():
    once = with_section("# M\r\rtext\r", "new\n\nmore")
    assert once == f"# M\r\rtext\r\r{BEGIN}\rnew\r\rmore\r{END}\r"
    assert with_section(once, "new\n\nmore") == once
    assert with_section("a\nb\r", "new") == f"a\nb\r\r{BEGIN}\rnew\r{END}\r"


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_a_second_time_changes_no_byte(mark, end, last):
    text = mark + f"---\nlicense: mit\n---\n# M\n\ntext{chr(10) * last}".replace("\n", end)
    once = with_section(text, "new\n\nmore\n")
    assert once.startswith(text)
    assert len(once.splitlines()) == once.count(end)
    assert with_section(once, "new\n\nmore\n") == once


def test_a_section_behind_a_byte_order_mark_is_found():
    assert with_section(f"\ufeff{BEGIN}\nold\n{END}\n", "new") == f"\ufeff{BLOCK}\n"


def test_markers_inside_of_code_are_somebodys_example():
    text = f"```html\n{BEGIN}\n{END}\n```\n"
    made = with_section(text, "new")
    assert made == f"{text}\n{BLOCK}\n"
    assert with_section(made, "new") == made


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{BEGIN}\n", "1 (begin)"),
        (f"x\n{END}\n", "2 (end)"),
        (f"{END}\n{BEGIN}\n", "2 (begin), 1 (end)"),
        (f"{BEGIN}\na\n{END}\n{BEGIN}\nb\n{END}\n", "1 (begin), 4 (begin), 3 (end), 6 (end)"),
        (f"{BEGIN}\n{BEGIN}\n{END}\n", "1 (begin), 2 (begin), 3 (end)"),
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
        f"\ufeff---\r\ncode: |\r\n  {BEGIN}\r\n  {END}\r\n--- \r\n# M\r\n",
        f"---\ncode: |\n  ```\n---\n# M\n\n```\n{BEGIN}\n{END}\n```\n",
        f"<pre>\n{BEGIN}\n{END}\n</pre>\n",
        f'  <PRE class="a">x\n{BEGIN}\n```\n{END}\n</PRE>\n',
        f"<pre>one line</pre>\n```\n{BEGIN}\n{END}\n```\n",
    ],
)
def test_markers_in_code_are_an_example(text):
    assert with_section(text, "S").startswith(text)


def test_many_fences_are_read_once():
    """Work that grows with the square of the lines takes hours here."""
    text = "```x\n" * 200_000
    assert with_section(text, "S").startswith(text)
