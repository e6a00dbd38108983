"""The section of a model card: exact text, and names that stay text whatever they hold."""

from __future__ import annotations

import shlex
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt

from memaudit.options import command, parse_settings
from memaudit.reports.markdown import Markdown
from memaudit.reports.markdown_text import escaped, paragraph
from memaudit.testing import sample_reports
from memaudit.testing.report_format import HOSTILE, NAMES, everywhere
from tests.findings.spectral_evidence import modes
from tests.handmade import curve, identity, report
from tests.reports.handmade_page import recall
from tests.reports.samples_told import cut_short, told

TOLD = """\
## Memory audit

**demo:lstm**: LSTM, 1 layer of 32. 4,384 parameters, 100 % of them run, in float64 on cpu.

2 layers.

It remembers for **139 steps** (query heaviside, the shortest; under impulse more than 512 steps).

| query | decay | strength | half-life | horizon |
|---|---|---|---|---|
| heaviside | exponential | rate 0.05 (0.0499 to 0.0501) | 13.86 | 139 |
| impulse | polynomial | exponent 0.5 (0.49 to 0.51) | 4 | &gt; 512 |

Half-lives and horizons count steps. The horizon is the lag from which memory stays below 0.001 of \
its maximum; > N is beyond the window, ? is hidden by rounding. Lag 0 of an impulse is the \
present and counts for neither.

| recurrent layer | cell | form | margin | time scale |
|---|---|---|---|---|
| cell_0 | lru | exp | 0.1 | 9.491 |
| layers.0 | lru | exp | 0 | infinite |

- Stability radius of the recurrent weights: 0.05 (no mode reaches the boundary)
- Error of the answers in other number formats: bf16 5 %, fp16 0.005 %
- Form for fine-tuning cell: best (now exp)

Assumptions of the theory that do not hold: linear.

### Findings

- **MA201 warning: near-boundary**
  - cell.0: 100% of it, at a: b
  - cell.1: less of it
  - *train it, then*
- **MA105 note: supremum-at-edge**
  - still rising
  - *try others*

### Gates

- --fail-on horizon&lt;200 was **hit by** horizon = 139 at heaviside
- --fail-on MA301 was not hit
- --fail-on impulse.horizon&lt;1024 was not hit: impulse.horizon is beyond 512

### Settings

<pre>memaudit scan demo:lstm --horizon 512 --seed 0 --dtype float64</pre>

Measured with memaudit 0.1.0, python 3.11.9; sha256 of the weights ab12.

What the source does not say was assumed:

- pool: none (not stored in the file)
"""


def test_a_report_as_a_section():
    assert Markdown().render(told()) == TOLD


def test_a_partial_report_says_so_first():
    lines = Markdown().render(cut_short()).splitlines()
    assert lines[2].startswith("**PARTIAL REPORT")
    assert lines[4] == "- E_MEMORY: no room"


def test_a_report_without_anything_is_short():
    text = Markdown().render(report(subject=identity(description=""), environment={}))
    assert "No memory was measured." in text
    assert text.endswith("--dtype float64</pre>\n")
    assert "### Findings\n\nNone.\n" in text


def test_many_layers_are_cut():
    text = Markdown().render(report(curve(), spectrum=(modes(0.9),) * 24))
    assert text.count("| layers.0 |") == 12
    assert "… and 12 more layers." in text


def test_the_capacity_of_a_state_is_told():
    most = recall().capacity
    text = Markdown().render(report(curve(), recall=recall()))
    assert f"\n- Memory capacity of a state: {most:.4g} past inputs\n" in text


def kinds(text: str) -> list[str]:
    """The elements that a reader makes of it, lines of text aside."""
    parser = MarkdownIt("gfm-like", {"linkify": False}).enable("table")
    tokens = [t for token in parser.parse(text) for t in (token, *(token.children or ()))]
    return [t.type for t in tokens if t.type not in ("text", "text_special")]


@pytest.mark.parametrize("what", ["control characters", *NAMES])
def test_a_reader_finds_no_element_that_a_name_brought(what):
    name = {"control characters": HOSTILE, **NAMES}[what]
    sample = sample_reports()["deep"]
    found, harmless = (kinds(Markdown().render(everywhere(sample, n))) for n in (name, "plain"))
    assert found == harmless
    assert not {"link_open", "image", "html_inline", "code_inline"} & set(found)


@pytest.mark.parametrize(
    "text",
    [
        "a_b",
        "x < y & z",
        "[a](b)",
        "![i](j)",
        "`c`",
        "<img src=x>",
        "a|b",
        "*x* _y_ ~z~",
        "\\| \\",
        "#1",
        "https://example.org www.example.org a@example.org",
        "$x$",
        "- a",
        "1. a",
        "+ b",
        "---",
        "==",
    ],
)
def test_escaped_text_reads_as_it_was(text):
    parser = MarkdownIt("commonmark").enable("table")
    page = parser.parse(f"| {escaped(text)} |\n|---|\n\n{paragraph(text)}\n")
    cells = [token for token in page if token.type == "inline"]
    shown = ["".join(child.content for child in token.children or ()) for token in cells]
    assert shown == [text, text]


def test_a_common_name_is_left_readable():
    assert escaped("model.layers_0.mixer: 0.5, demo:lstm (a-b)") == (
        "model.layers_0.mixer: 0.5, demo:lstm (a-b)"
    )


def test_the_command_measures_the_same_again():
    settings = {
        **{"horizon": 64, "seed": 3, "level": "quick", "queries": ["impulse"]},
        **{"probes": ["assumptions", "spectrum", "closed-form"], "baseline": 0.1},
        **{"amplitudes": [1.0, 2.0], "epsilon": 0.001, "normalization": "iatn", "words": None},
    }
    made = report(subject=identity(source="my model; rm x"), settings=settings)
    assert command(made) == (
        "memaudit scan 'my model; rm x' --horizon 64 --seed 3 --quick --query impulse "
        "--set 'amplitudes=[1.0, 2.0]' --set baseline=0.1 --dtype float64"
    )


def test_what_lives_in_python_is_called_there():
    settings = {"horizon": 64, "seed": 3, "level": "quick", "queries": ["impulse"], "probes": []}
    made = report(subject=identity(source="<lambda>", adapter="wrap"), settings=settings)
    assert command(made) == (
        "memaudit.scan(model, horizon=64, seed=3, level='quick', queries=['impulse'])"
    )
    module = report(subject=identity(source="GRU"), settings={**settings, "baseline": "natural"})
    assert command(module).endswith("queries=['impulse'], baseline='natural')")
    assert command(report(subject=identity(source="GRU", sha256="ab"))).startswith("memaudit scan")


OPTIONS = {"recall.lags": 16, "stability.ball": "max-abs", "precision.formats": ["bf16", "a b"]}


def test_the_command_gives_probes_their_options():
    settings = {"probes": ["recall"], "probe_options": {**OPTIONS, "recall.rounding": "16"}}
    line = command(report(settings=settings))
    assert line == (
        "memaudit scan demo:lstm --probe recall --set recall.lags=16 --set stability.ball=max-abs "
        '--set \'precision.formats=["bf16", "a b"]\' --set \'recall.rounding="16"\' '
        "--dtype float64"
    )
    given = shlex.split(line)
    told = [after for before, after in pairwise(given) if before == "--set"]
    assert parse_settings(told) == settings["probe_options"]


def test_an_option_that_only_python_gives_makes_it_a_call():
    settings = {"probes": ["stability"], "probe_options": {"stability.target": "<function>"}}
    made = report(subject=identity(source="my model"), settings=settings)
    assert command(made) == (
        "memaudit.scan('my model', probes=['stability'], dtype='float64', "
        "**{'stability.target': <function>})"
    )


def test_hostile_options_of_a_file_are_quoted():
    settings = {"probe_options": {"a b; rm": "x\n$(y)"}}
    assert "--set 'a b; rm=x $(y)'" in command(report(settings=settings))
