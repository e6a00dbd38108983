"""Reports on disk: strict, whole, and equal to what was saved."""

from __future__ import annotations

import json

import pytest

import memaudit
from memaudit.errors import MachineError, SourceError

ORDER = [
    "schema",
    "memaudit",
    "subject",
    "settings",
    "assumptions",
    "memory",
    "layers",
    "spectrum",
    "stability",
    "precision",
    "recall",
    "findings",
    "complete",
    "errors",
    "timing",
    "environment",
]


@pytest.fixture(scope="module")
def report() -> memaudit.Report:
    return memaudit.scan("demo:gru", horizon=64)


def test_loading_what_was_saved_is_the_identity(report, tmp_path) -> None:
    path = report.save(tmp_path / "report.json")
    again = memaudit.Report.load(path)
    assert again == report
    assert again.save(tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_changed_number_breaks_equality(report, tmp_path) -> None:
    data = report.to_dict()
    data["memory"]["impulse"]["values"][3] += 1e-15
    assert memaudit.Report.from_dict(data) != report


def test_the_keys_stand_in_the_documented_order(report) -> None:
    assert list(report.to_dict()) == ORDER


def test_the_json_is_strict(report, tmp_path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = report.save(tmp_path / "report.json").read_text()
    json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 99}', "null", "\x00"])
def test_what_is_no_report_is_refused(text, tmp_path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SourceError):
        memaudit.Report.load(tmp_path / "x.json")


def test_a_report_with_a_missing_field_is_refused(report, tmp_path) -> None:
    data = report.to_dict()
    del data["memory"]["impulse"]["floor"]
    with pytest.raises(SourceError, match="E_CORRUPT"):
        memaudit.Report.from_dict(data)


@pytest.mark.parametrize("place", [(), ("subject",), ("memory", "impulse", "decay")])
def test_a_report_with_an_unknown_field_is_refused(report, place) -> None:
    data = inner = report.to_dict()
    for key in place:
        inner = inner[key]
    inner["surprise"] = 1
    with pytest.raises(SourceError, match="surprise"):
        memaudit.Report.from_dict(data)


def test_a_failed_write_leaves_the_old_report_whole(report, tmp_path, monkeypatch) -> None:
    path = report.save(tmp_path / "report.json")
    before = path.read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(MachineError, match="No space left"):
        report.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(report, tmp_path) -> None:
    with pytest.raises(MachineError, match="E_DISK"):
        report.save(tmp_path / "nowhere" / "report.json")
