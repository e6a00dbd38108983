"""Reports on disk: strict, equal to what was saved, and never half of anything."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memaudit
from memaudit import faults
from memaudit.cli import main
from memaudit.errors import MachineError, SourceError
from memaudit.report_files import dumps, write_text

POSIX = pytest.mark.skipif(os.name != "posix", reason="links and rights of POSIX systems")
ORDER = ["schema", "memaudit", "subject", "settings", "results", "findings", "gates", "complete"]
ORDER += ["errors", "timing", "environment"]


@pytest.fixture(scope="module")
def report() -> memaudit.Report:
    return memaudit.scan("demo:gru", horizon=64)


def test_loading_what_was_saved_is_the_identity(report, tmp_path) -> None:
    path = report.save(tmp_path / "report.json")
    again = memaudit.Report.load(path)
    assert again == report
    assert again.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    data = report.to_dict()
    assert list(data) == ORDER
    data["results"]["memory"]["curves"]["impulse"]["values"][3] += 1e-15
    assert memaudit.Report.from_dict(data) != report


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": 99}', "null", "\x00", "[" * 100_000, "9" * 5000]
)
def test_what_is_no_report_is_refused(text, tmp_path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SourceError):
        memaudit.Report.load(tmp_path / "x.json")


@pytest.mark.parametrize("name", ["missing.json", ".", "x" * 5000, "a\0b"])
def test_a_path_without_a_file_is_refused(name, tmp_path) -> None:
    with pytest.raises(SourceError):
        memaudit.Report.load(tmp_path / name)


def test_a_missing_field_is_refused_and_a_missing_result_is_none(report) -> None:
    data = report.to_dict()
    del data["results"]["closed-form"]
    again = memaudit.Report.from_dict(data)
    assert again.closed_form == ()
    assert "closed-form" not in again
    del data["results"]["memory"]["curves"]["impulse"]["floor"]
    with pytest.raises(SourceError, match="E_CORRUPT"):
        memaudit.Report.from_dict(data)


def test_the_result_of_a_probe_that_is_not_installed_is_kept(report) -> None:
    data = report.to_dict()
    data["results"]["acme-sharpness"] = {"sharpness": [1.5, {"unit": "nats"}]}
    again = memaudit.Report.from_dict(data)
    assert again.to_dict() == data
    assert again.metrics() == report.metrics()


@pytest.mark.parametrize(
    "place", [(), ("subject",), ("results", "memory", "curves", "impulse", "decay")]
)
def test_an_unknown_field_is_refused(report, place) -> None:
    data = inner = report.to_dict()
    for key in place:
        inner = inner[key]
    inner["surprise"] = 1
    with pytest.raises(SourceError, match="surprise"):
        memaudit.Report.from_dict(data)


@given(st.text(st.characters(codec="utf-8")))
def test_every_text_survives_as_printable_ascii(text) -> None:
    made = dumps({text: [text]})
    assert re.fullmatch(r"[\n -~]*", made)
    assert json.loads(made) == {text: [text]}


@pytest.mark.parametrize(
    ("text", "kept"),
    [("a\ud800b", "a\ufffdb"), ("\udcff.pt", "\ufffd.pt"), ("\ud83d\ude00", "😀")],
)
def test_half_a_surrogate_pair_never_gets_into_the_json(text, kept) -> None:
    assert json.loads(dumps({"name": text})) == {"name": kept}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_cannot_hold_raises(number) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps({"number": number})


@pytest.mark.parametrize("name", ["ENOSPC", "EROFS"])
@pytest.mark.parametrize("step", ["write.opened", "write.flushed"])
def test_a_failed_write_leaves_the_old_report_whole(name, step, tmp_path, monkeypatch) -> None:
    path = write_text("old", tmp_path / "report.json")
    monkeypatch.setattr(faults, "_reached", Counter())
    monkeypatch.setenv(faults.VARIABLE, f"{step}={name}")
    with pytest.raises(MachineError, match=os.strerror(getattr(errno, name))):
        write_text("new", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(tmp_path) -> None:
    with pytest.raises(MachineError, match="E_DISK"):
        write_text("new", tmp_path / "nowhere" / "report.json")


def test_letters_that_no_encoding_has_do_not_lose_the_report(tmp_path) -> None:
    assert write_text("a\ud800b", tmp_path / "r").read_text() == "a\\ud800b"


@POSIX
def test_rights_are_those_of_the_old_file_or_of_any_new_one(tmp_path) -> None:
    private, fresh, usual = tmp_path / "private", tmp_path / "fresh", tmp_path / "usual"
    private.touch(mode=0o640)
    usual.open("w").close()
    modes = [write_text("x", path).stat().st_mode & 0o777 for path in (private, fresh)]
    assert modes == [0o640, usual.stat().st_mode & 0o777]


@POSIX
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_file_is_replaced(there, tmp_path) -> None:
    real, first, second = tmp_path / "deep" / "real", tmp_path / "first", tmp_path / "second"
    real.parent.mkdir()
    if there:
        real.write_text("old")
    first.symlink_to("deep/../second")
    second.symlink_to(real)
    assert write_text("new", first) == first
    assert first.is_symlink()
    assert second.is_symlink()
    assert real.read_text() == "new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["deep", "first", "real", "second"]


def test_a_folder_in_the_place_of_the_report_is_refused(tmp_path) -> None:
    with pytest.raises(MachineError, match="not a regular file"):
        write_text("new", tmp_path)
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_a_pipe_gets_the_report_and_stays(tmp_path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that nobody waits for anybody
    try:
        write_text("a\r\nb\n", pipe)
        assert os.read(reader, 100) == b"a\r\nb\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@POSIX
def test_a_terminal_gets_the_report(tmp_path) -> None:
    ours, theirs = os.openpty()
    try:
        terminal = Path(os.ttyname(theirs))
        write_text("report", terminal)
        assert os.read(ours, 100) == b"report"
        assert terminal.is_char_device()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.fixture
def full(tmp_path) -> Path:
    """A device like /dev/full; that one itself, a mistake would replace for everybody."""
    device = tmp_path / "full"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        device.open("w").close()
    except (AttributeError, OSError):
        pytest.skip("only root makes devices, and not everywhere")
    return device


@pytest.mark.parametrize("name", ["full", "link"])
def test_a_full_device_is_reported_and_stays_a_device(name, full, capsys) -> None:
    full.with_name("link").symlink_to(full)
    node = full.stat()
    with pytest.raises(MachineError, match=r"E_DISK.*No space left"):
        write_text("new", full.with_name(name))
    assert main(["scan", "demo:lstm", "--quick", "--json", str(full.with_name(name))]) == 5
    assert "error[E_DISK]" in capsys.readouterr().err
    assert stat.S_ISCHR(full.lstat().st_mode)
    assert os.path.samestat(node, full.stat())
    assert sorted(p.name for p in full.parent.iterdir()) == ["full", "link"]
