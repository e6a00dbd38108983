"""Reports on disk: strict, equal to what was saved, and never half of anything."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
from collections import Counter
from pathlib import Path

import pytest

import memaudit
from memaudit import faults, report_files
from memaudit.errors import MachineError, SourceError
from memaudit.report_files import STALE_SECONDS, dumps, sweep, write_text

POSIX = pytest.mark.skipif(os.name != "posix", reason="links, rights and locks of POSIX systems")

ORDER = [
    "schema",
    "memaudit",
    "subject",
    "settings",
    "results",
    "findings",
    "gates",
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
    data["results"]["memory"]["curves"]["impulse"]["values"][3] += 1e-15
    assert memaudit.Report.from_dict(data) != report


def test_the_keys_stand_in_the_documented_order(report) -> None:
    data = report.to_dict()
    assert list(data) == ORDER
    assert list(data["results"]) == ["assumptions", "memory", "spectrum", "closed-form"]


def test_the_json_is_strict(report, tmp_path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = report.save(tmp_path / "report.json").read_text()
    json.loads(text, parse_constant=refuse)


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


def test_a_report_with_a_missing_field_is_refused(report, tmp_path) -> None:
    data = report.to_dict()
    del data["results"]["memory"]["curves"]["impulse"]["floor"]
    with pytest.raises(SourceError, match="E_CORRUPT"):
        memaudit.Report.from_dict(data)


def test_a_probe_that_did_not_run_has_no_result(report) -> None:
    data = report.to_dict()
    del data["results"]["closed-form"]
    again = memaudit.Report.from_dict(data)
    assert again.closed_form == ()
    assert "closed-form" not in again


def test_the_result_of_a_probe_that_is_not_installed_is_kept(report) -> None:
    data = report.to_dict()
    data["results"]["acme-sharpness"] = {"sharpness": [1.5, {"unit": "nats"}]}
    again = memaudit.Report.from_dict(data)
    assert again.to_dict() == data
    assert again.metrics() == report.metrics()


@pytest.mark.parametrize(
    "place", [(), ("subject",), ("results", "memory", "curves", "impulse", "decay")]
)
def test_a_report_with_an_unknown_field_is_refused(report, place) -> None:
    data = inner = report.to_dict()
    for key in place:
        inner = inner[key]
    inner["surprise"] = 1
    with pytest.raises(SourceError, match="surprise"):
        memaudit.Report.from_dict(data)


def test_a_missing_folder_is_named(report, tmp_path) -> None:
    with pytest.raises(MachineError, match="E_DISK"):
        report.save(tmp_path / "nowhere" / "report.json")


TEXTS = ["plain", "é ∂ 😀", 'a "quoted" \\ \\ud800 word', "\x00\x07\x1b[31m\x7f\x9b\u2028\u202e"]


@pytest.mark.parametrize("text", TEXTS)
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


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EROFS", "EIO"])
@pytest.mark.parametrize("step", ["write.opened", "write.flushed"])
def test_a_failed_write_leaves_the_old_report_whole(name, step, tmp_path, monkeypatch) -> None:
    path = write_text("old", tmp_path / "report.json")
    monkeypatch.setattr(faults, "_reached", Counter())
    monkeypatch.setenv(faults.VARIABLE, f"{step}={name}")
    with pytest.raises(MachineError, match=os.strerror(getattr(errno, name))):
        write_text("new", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@POSIX
def test_the_file_and_then_its_folder_reach_the_disk(tmp_path, monkeypatch) -> None:
    synced = []

    def record(handle: int) -> None:
        synced.append((stat.S_IFMT(os.fstat(handle).st_mode), (tmp_path / "r").exists()))

    monkeypatch.setattr(os, "fsync", record)
    write_text("new", tmp_path / "r")
    assert synced == [(stat.S_IFREG, False), (stat.S_IFDIR, True)]


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


@POSIX
def test_a_link_to_itself_is_told(tmp_path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(MachineError, match="E_DISK"):
        write_text("new", tmp_path / "loop")


@POSIX
@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root gives files away")
def test_a_strangers_link_in_a_folder_of_everybody_is_not_followed(tmp_path) -> None:
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    victim.write_text("precious")
    shared.mkdir()
    link = shared / "report.json"
    link.symlink_to(victim)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    shared.chmod(0o1777)
    with pytest.raises(MachineError, match="belongs to somebody else"):
        write_text("new", link)
    assert victim.read_text() == "precious"
    shared.chmod(0o755)  # a folder of one's own is trusted
    write_text("new", link)
    assert victim.read_text() == "new"


@POSIX
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_never_replaced(make, tmp_path) -> None:
    make(tmp_path / "x")
    before = (tmp_path / "x").stat()
    with pytest.raises(MachineError, match="not a regular file"):
        write_text("new", tmp_path / "x")
    assert os.path.samestat(before, (tmp_path / "x").stat())


def temporary(folder: Path) -> Path:
    """A temporary as a killed process leaves it."""
    handle, name = tempfile.mkstemp(".tmp", ".memaudit-", folder)
    os.close(handle)
    return Path(name)


@POSIX
def test_only_temporaries_of_ours_without_a_writer_are_swept(tmp_path) -> None:
    import fcntl

    dead, live, linked = temporary(tmp_path), temporary(tmp_path), tmp_path / "linked"
    linked.touch()
    strange = [tmp_path / name for name in (".memaudit-notes", "memaudit-aaaaaaaa.tmp")]
    strange += [tmp_path / f".memaudit-{c * 8}.tmp" for c in "abc"]
    for path in strange[:2]:
        path.touch()
    strange[2].mkdir()
    strange[3].symlink_to(linked)
    os.mkfifo(strange[4])
    with live.open("r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        sweep(tmp_path)
        assert not dead.exists()
        assert sorted(tmp_path.iterdir()) == sorted([live, linked, *strange])
    sweep(tmp_path)
    assert not live.exists()


def test_without_locks_only_old_temporaries_are_swept(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(report_files, "fcntl", None)
    old, young = temporary(tmp_path), temporary(tmp_path)
    past = young.stat().st_mtime - STALE_SECONDS - 60
    os.utime(old, (past, past))
    write_text("new", tmp_path / "r")
    assert sorted(tmp_path.iterdir()) == sorted([young, tmp_path / "r"])


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_sweep_never_fails(folder, tmp_path) -> None:
    (tmp_path / "file").touch()
    sweep(tmp_path / folder)


def test_a_temporary_that_a_sweeper_takes_away_is_made_again(tmp_path, monkeypatch) -> None:
    made = []
    create = tempfile.NamedTemporaryFile

    def taken(**options):
        stream = create(**options)
        made.append(stream.name)
        if len(made) < 3:
            os.unlink(stream.name)
        return stream

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", taken)
    write_text("new", tmp_path / "r")
    assert len(made) == 3
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("r", "new")]
