"""The tables of recall, letter by letter at 80 columns."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO

import numpy as np
from rich.console import Console

from memaudit.memory.result import Status
from memaudit.recall.result import Decoding, LinearRecall, Recall, StateRecall
from memaudit.report import Report
from memaudit.reports.recall_table import recall_block, recall_lines, states_table
from memaudit.reports.terminal import Terminal
from tests.handmade import identity

EXPECTED = """\
Recall
state  read    numbers  inputs  capacity  half  R^2 at 0, 1, 8  floor
─────────────────────────────────────────────────────────────────────
gru    state   32       1       13.53     2     1.00 0.75 0.25  9e-03
layer  exact   8        1       8         > 8   1.00 1.00 1.00      0
lost   hidden  4        1       -         0     -                   0

linear layer  numbers  inputs  k  cond(V_k)  error    rank   Haar
─────────────────────────────────────────────────────────────────
ring          8        2       4  1.2e+05    1.0e-02  8 (6)  4
R^2: how much of the input of so many steps ago a linear readout finds in the
state, after inputs that came for ever. Capacity: its sum over the lags asked
for and the inputs, without what is below the floor; at most the numbers of the
state. Half: lags, from 0 on, with R^2 of one half or more. Exact: in closed
form, from the matrices of the layer. Fed: noise.
V_k leads from k inputs after rest to the state of a layer; k is as large as the
state allows. Error: of the least-squares inputs from the state rounded to
float32. Rank: at 16 steps, in float64 and rounded. Haar: functions of which an
input of 16 steps may be made, of those tried, and still be read back within
0.01 of its size.
projected
lost: the response is not finite; the curve ends where it overflows
shut: the model shows no state after every step that could be read
"""


def decoding(state: str, numbers: int, values: np.ndarray, **changes) -> Decoding:
    made = Decoding(
        *(state, "state", numbers, numbers, 1, values, 0.009, 13.53, 2, 8192, False, Status.OK)
    )
    return replace(made, **changes)


def ring(**changes) -> LinearRecall:
    lengths = (
        StateRecall(2, 4, 4, 10.0, 0.0, 1e-6),
        StateRecall(4, 8, 6, 123456.0, 0.0, 1e-2),
        StateRecall(16, 8, 6, math.inf, 0.5, 0.5),
    )
    sparse = (StateRecall(4, 8, 8, 3.0, 0.0, 1e-6), StateRecall(8, 8, 6, math.inf, 0.3, 0.3))
    flat = np.full(16, 0.5)
    made = ("ring", 8, 2, 0, 16, "float32", Status.OK, lengths, sparse, *(flat,) * 4, 8.0, 7.5)
    return replace(LinearRecall(*made), **changes)


def sample() -> Recall:
    none, falling = np.zeros(0), np.linspace(1.0, 0.0, 9)
    falling[[1, 8]] = 0.75, 0.25
    decodings = (
        decoding("gru", 32, falling),
        decoding("layer", 8, np.ones(9), exact=True, capacity=8.0, half=9, floor=0.0),
        decoding("lost", 4, none, kind="hidden", capacity=None, half=0, floor=0.0),
    )
    lost = replace(decodings[2], status=Status.DIVERGED)
    shut = ring(layer="shut", status=Status.NO_STATE, lengths=(), sparse=(), capacity=None)
    linear = (ring(), shut)
    return Recall(linear, (*decodings[:2], lost), 9, "noise", Status.OK, note="projected")


def drawn(renderable) -> str:
    console = Console(width=80, file=StringIO(), force_terminal=False)
    console.print(renderable)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_the_block_letter_by_letter():
    assert drawn(recall_block(sample(), ascii_only=False)) == EXPECTED


def test_ascii_is_ascii():
    assert drawn(recall_block(sample(), ascii_only=True)).isascii()


def test_the_report_shows_recall_only_where_it_was_measured():
    report = Report(identity(), {})
    assert "Recall" not in Terminal().render(report)
    assert "cond(V_k)" in Terminal().render(replace(report, recall=sample()))
    assert "Recall" not in Terminal().render(replace(report, recall={"a": "stranger's"}))


def test_the_parts_of_a_host_are_named():
    one, other = replace(sample(), where="first"), replace(sample(), where="second")
    text = drawn(recall_block(one.joined(other), ascii_only=False))
    assert "first: gru" in text
    assert "second: ring" in text
    assert "... and 2 more notes" in text


def test_what_was_not_measured_is_a_sentence():
    found = replace(sample(), linear=(), decodings=(), fed="", note="", status=Status.NO_STATE)
    assert drawn(recall_block(found, ascii_only=False)) == f"Recall\n{Status.NO_STATE.value}\n"


def test_foreign_names_do_not_draw():
    wild = replace(sample().decodings[0], state="a\x1b[31m[bold]b")
    found = replace(sample(), decodings=(wild,))
    assert "\x1b" not in drawn(states_table(found, ascii_only=False))
    assert "[bold]b" in drawn(states_table(found, ascii_only=False))


def test_many_states_are_cut_and_counted():
    found = replace(sample(), decodings=sample().decodings[:1] * 30)
    assert drawn(states_table(found, ascii_only=False)).count("gru") == 24
    assert "... and 6 more" in drawn(recall_lines(found)[0])


def test_the_records_print_themselves_in_a_line():
    held = sample()
    assert repr(held) == "Recall(capacity 13.53 of 32 numbers, 9 lags)"
    told = "Decoding('gru', state: capacity 13.53 of 32 numbers, 9 lags)"
    assert repr(held.decodings[0]) == told
    assert "4 numbers, capacity not measured" in repr(held.decodings[2])
    assert repr(held.linear[0]) == "LinearRecall('ring': capacity 8 of 8 numbers, 16 steps)"
    none = replace(held, decodings=(), status=Status.NO_STATE)
    assert repr(none) == f"Recall({Status.NO_STATE}, 9 lags)"
    assert none.capacity is None


def test_the_fullest_state_may_be_in_another_part():
    most = replace(sample(), decodings=(decoding("far", 64, np.ones(2), capacity=40.0),))
    assert sample().joined(most).capacity == 40.0
