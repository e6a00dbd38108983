"""The examples run."""

from __future__ import annotations

from xml.etree import ElementTree

import memaudit
from examples import draw_report


def test_a_report_is_drawn_as_a_picture_that_fetches_nothing(tmp_path) -> None:
    memaudit.scan("demo:rnn", horizon=64, level="quick").save(tmp_path / "report.json")
    draw_report.main([str(tmp_path / "report.json"), str(tmp_path / "report.svg")])
    text = (tmp_path / "report.svg").read_text()
    ElementTree.fromstring(text)
    assert "heaviside" in text
    assert text.count("http") == 1  # the name space of SVG itself
    assert text.count("<circle") > 50
