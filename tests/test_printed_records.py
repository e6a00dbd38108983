"""Records that hold foreign text print none of its control characters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memaudit.numerics.verdict import Decay
from memaudit.report import Finding
from memaudit.retrofitting.result import RefusedLayer, Retrofit, RetrofittedLayer
from tests.handmade import curve, identity, linear_layer, report
from tests.spectrum.evidence import cell

HOSTILE = "a\x1b[2J\u202eb\x00\nMA999 c\u2028d"
UNSAFE = "\x1b\u202e\x00\u2028"


def records() -> list[Any]:
    finding = Finding(HOSTILE, HOSTILE, "note", HOSTILE, HOSTILE)
    spectrum = replace(cell(0.9), layer=HOSTILE, at=HOSTILE, parameterization=HOSTILE)
    subject = identity(source=HOSTILE, description=HOSTILE, notes=(HOSTILE,))
    measured = curve(HOSTILE, decay=Decay(HOSTILE))
    done = RetrofittedLayer(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, "discrete", 1)
    retrofit = Retrofit(HOSTILE, (done,), (RefusedLayer(HOSTILE, HOSTILE, HOSTILE),))
    return [
        finding,
        retrofit,
        spectrum,
        subject,
        measured,
        linear_layer(HOSTILE),
        report(measured, subject=subject, spectrum=(spectrum,), findings=(finding,)),
    ]


@pytest.mark.parametrize("record", records(), ids=lambda record: type(record).__name__)
def test_no_control_character_is_printed(record: Any) -> None:
    for text in (str(record), repr(record)):
        assert not set(UNSAFE) & set(text)
        assert not any(line.startswith("MA999") for line in text.splitlines())


def test_ordinary_names_are_printed_as_they_are() -> None:
    made = report(curve("impulse"))
    assert str(made).startswith("Report(demo:lstm: LSTM, 1 layer of 32\n  memory: impulse expo")
    assert str(made).endswith("\n  findings: none)")
