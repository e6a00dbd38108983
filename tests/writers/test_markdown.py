"""The section of a model card, word for word, and names that stay text in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memaudit.report import Finding
from memaudit.sections import Column, Document, Section, Table
from memaudit.writers.markdown import escaped, paragraph, render_document
from tests.writers.documents import document

TEXT = """\
## Memory audit

**demo:lstm**: LSTM, 1 layer of 32. parameters 4,384, 37.0 % of them run; run as float64 on cpu; \
family lstm (adapter rnn).

**Remembers 139 steps (query heaviside, the shortest; under impulse more).**

| query | decay | half-life | horizon |
|---|---|---|---|
| heaviside | exponential | 13.86 | 139 |
| impulse | polynomial | 4 | &gt; 512 |
| reversed | growing | - | - |

- reversed: the state had not settled

- Spectrum: margin 1.00e-01 (layers.0)
- Stability: radius 0.01 until tolerance
- Assumptions: 1 holds; fail: linear

### Findings

- **MA102 error: growing-memory**
  - l.3: the memory grows
  - *an advice*
- **MA201 warning: near-boundary**
  - near
  - *another advice*
- **MA105 note: supremum-at-edge**
  - at the edge

### Gates

- --fail-on error was **hit by** MA102
- --fail-on horizon&lt;10 was not hit

### Settings

<pre>memaudit scan demo:lstm --horizon 512</pre>

Measured with horizon 512, seed 0, 1.2 s, torch 2.6.
"""


def test_a_document_word_for_word():
    assert render_document(document()) == TEXT


def test_an_empty_document_has_a_heading_and_no_findings():
    assert render_document(Document("x")) == "## Memory audit\n\n**x**.\n\n### Findings\n\nNone.\n"


def test_long_tables_and_many_places_are_cut_and_say_so():
    rows = tuple((f"l{k}",) for k in range(30))
    section = Section("S", headline="Many.", tables=(Table((Column("layer", key=True),), rows),))
    places = tuple(Finding("MA1", "n", "note", "m", "a", f"l{k}") for k in range(9))
    text = render_document(Document("x", sections=(section,), findings=places))
    assert "… and 18 more rows." in text
    assert "  - … and 5 more places" in text
    assert text.count("*a*") == 1


def test_detail_is_left_to_the_report():
    assert "seed | 0" not in render_document(document())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a|b", "a&#124;b"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("[x](javascript:y)", "&#91;x&#93;(javascript:y)"),
        ("snake_case _it_", "snake_case &#95;it&#95;"),
        ("https://example.org", "https&#58;//example.org"),
        ("a\nb\x1b\u202e", "a b"),
        ("`c` $d$ #e *f* ~g~", "&#96;c&#96; &#36;d&#36; &#35;e &#42;f&#42; &#126;g&#126;"),
    ],
)
def test_foreign_text_stays_text(name, text):
    assert escaped(name) == text


@pytest.mark.parametrize("word", ["- a", "+ a", "1. a", "2) a", "= a"])
def test_a_paragraph_begins_no_list(word):
    assert paragraph(word)[: len(word)] != word


def test_a_hostile_name_adds_no_cell_and_no_line():
    def named(name: str) -> str:
        table = Table((Column(name, key=True),), ((name,),))
        section = Section(name, line=name, headline=name, tables=(table,))
        finding = Finding("MA1", name, "note", name, name, name)
        return render_document(Document(name, ((name, name),), (name,), (section,), (finding,)))

    plain = named("plain")
    for name in ("a|b\n|c|", "</pre><script>", "**x** ](y)", "a\ud800b", "x" * 10_000):
        text = named(name)
        assert len(text.splitlines()) == len(plain.splitlines())
        assert text.count("|") == plain.count("|")
        assert text.count("<") == plain.count("<")
        text.encode()


def test_warnings_stand_before_everything():
    text = render_document(replace(document(), warnings=("PARTIAL REPORT",)))
    assert text.startswith("## Memory audit\n\n**PARTIAL REPORT**\n\n**demo:lstm**")


def test_commands_can_be_copied_as_they_stand():
    words = "--set 'amplitudes=[0.5, 1.0]'"
    finding = Finding("MA1", "n", "note", "m", f"try `memaudit scan x_y {words}`, or [a](b)")
    text = render_document(
        Document("x", findings=(finding,), command=f"memaudit scan a<b> {words}"),
    )
    assert f"<pre>memaudit scan a&lt;b&gt; {words}</pre>" in text
    assert f"  - *try `memaudit scan x_y {words}`, or &#91;a&#93;(b)*" in text
