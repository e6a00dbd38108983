"""The JSON report is what `Report.save` writes, and reads back as the same report."""

from __future__ import annotations

import json

import pytest

from memaudit import registry
from memaudit.report import Report
from memaudit.writers.json_file import JsonFile
from tests.handmade import curve, power_law, report


def test_the_text_is_what_save_writes(tmp_path):
    made = report(curve(), power_law("impulse"))
    path = made.save(tmp_path / "report.json")
    assert JsonFile().render(made) == path.read_text()


def test_the_text_reads_back_as_the_same_report():
    made = report(curve(), power_law("impulse"), layers={"a": {"heaviside": curve()}})
    assert Report.from_dict(json.loads(JsonFile().render(made))) == made


def test_a_number_that_json_cannot_hold_raises():
    with pytest.raises(ValueError, match="JSON"):
        JsonFile().render(report(curve(floor=float("nan"))))


@pytest.mark.parametrize("name", registry.available("reports"))
def test_every_report_format_names_itself_as_the_catalog_does(name):
    form = registry.build("reports", name)
    assert form.name == name
    assert form.suffix.startswith(".")
    assert form.render(report(curve())).endswith("\n")
