"""`memaudit card`: two files in a folder, written from a report or from a scan."""

from __future__ import annotations

import hashlib
import os
import pathlib

import pytest
import yaml

from memaudit import faults
from memaudit.writers.card import BEGIN, END
from tests.cli.played import Interrupted, one_line
from tests.handmade import curve, identity, report


def test_a_report_is_put_into_the_card(card, folder, saved):
    (folder / "README.md").write_bytes(b"---\r\nlicense: mit\r\n---\r\n# M\r\n")
    code, out, err = card(folder, saved)
    assert (code, out) == (0, "")
    assert one_line(err).endswith("were written; nothing was pushed")
    text = (folder / "README.md").read_bytes()
    assert text.startswith(b"---\r\nlicense: mit\r\n---\r\n# M\r\n\r\n<!-- memaudit begin")
    assert text.count(b"\r\n") == text.count(b"\n")
    entries = yaml.safe_load((folder / ".eval_results" / "memaudit.yaml").read_text())
    assert entries[0] == {
        "dataset": {"id": "memaudit/memory", "task_id": "horizon"},
        "value": 139,
        "notes": "memaudit 0.1.0, horizon 512, seed 0, level standard, query heaviside",
    }
    assert sorted(p.name for p in folder.rglob("*")) == [
        *(".eval_results", "README.md", "memaudit.yaml")
    ]


def test_the_card_does_not_show_where_the_folder_lies(card, folder, saved, tmp_path):
    card(folder, saved)
    text = (folder / "README.md").read_text()
    assert str(tmp_path) not in text
    assert "<pre>memaudit scan model --horizon 512" in text


def test_without_a_report_the_folder_is_scanned(card, stage, folder):
    code, out, _ = card(folder, "--quick", "--horizon", "64", "--query", "impulse")
    assert (code, out) == (0, "")
    (call,) = stage.calls
    assert call["source"] == str(folder)
    assert (call["horizon"], call["level"], call["queries"]) == (64, "quick", ["impulse"])
    assert call["offline"] is True
    assert "## Memory audit" in (folder / "README.md").read_text()


def test_the_card_says_that_an_audit_is_incomplete(card, stage, folder):
    stage.answer = report(curve(), complete=False)
    code, _, err = card(folder)
    assert code == 4
    assert "the audit is incomplete, and the card says so" in err
    assert "**PARTIAL REPORT" in (folder / "README.md").read_text()


def test_an_interrupted_audit_leaves_the_card(card, stage, folder):
    stage.answer = Interrupted(report(curve(), complete=False))
    code, _, err = card(folder)
    assert code == 130
    assert "the card was left as it was" in err
    assert not (folder / "README.md").exists()


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        (["missing"], 3, "error[E_NOT_FOUND] missing: no such folder"),
        (["{saved}"], 3, "not a folder"),
        (["{folder}", "missing.json"], 3, "error[E_NOT_FOUND] missing.json"),
        (["{folder}", "{folder}"], 3, "error[E_NOT_FOUND]"),
        (["{folder}", "{saved}", "--quick"], 2, "--quick is for a scan"),
        (["{folder}", "{saved}", "--set", "epsilon=0.1"], 2, "--set is for a scan"),
        (["{folder}", "{saved}", "--dataset", "x"], 2, "write it as org/name"),
        (["{folder}", "--quick", "--thorough"], 2, "contradict each other"),
        ([], 2, "DIR"),
    ],
)
def test_wrong_arguments_write_nothing(card, folder, saved, words, code, fact):
    got, out, err = card(*(word.format(folder=folder, saved=saved) for word in words))
    assert (got, out) == (code, "")
    assert fact in one_line(err)
    assert list(folder.iterdir()) == []


def test_markers_that_do_not_pair_up_leave_everything(card, folder, saved):
    text = f"{BEGIN}\n{BEGIN}\n{END}\n"
    (folder / "README.md").write_text(text)
    code, _, err = card(folder, saved)
    assert code == 3
    assert f"error[E_UNSUPPORTED] {folder}/README.md: the markers" in one_line(err)
    assert [p.name for p in folder.iterdir()] == ["README.md"]
    assert (folder / "README.md").read_text() == text


@pytest.mark.parametrize("name", ["README.md", ".eval_results"])
def test_a_link_in_the_folder_is_not_followed(card, folder, saved, tmp_path, name):
    outside = tmp_path / "outside"
    if name == "README.md":
        outside.write_text("mine\n")
    else:
        outside.mkdir()
    (folder / name).symlink_to(outside)
    code, _, err = card(folder, saved)
    assert code == 3
    assert f"error[E_PATH] {folder}/{name}" in one_line(err)
    assert not outside.is_file() or outside.read_text() == "mine\n"
    assert not outside.is_dir() or list(outside.iterdir()) == []


def test_a_readme_that_is_no_text_is_refused(card, folder, saved):
    (folder / "README.md").write_bytes(b"\xff\xfe\x00")
    code, _, err = card(folder, saved)
    assert code == 3
    assert "not UTF-8 text" in one_line(err)
    assert (folder / "README.md").read_bytes() == b"\xff\xfe\x00"


def of_weights(path, sha256: str) -> pathlib.Path:
    return report(curve(), subject=identity(source="org/name", sha256=sha256)).save(path)


def test_a_report_about_other_weights_is_refused(card, folder, tmp_path):
    (folder / "model.safetensors").write_bytes(b"these")
    saved = of_weights(tmp_path / "r.json", hashlib.sha256(b"those").hexdigest())
    code, out, err = card(folder, saved)
    assert (code, out) == (3, "")
    assert one_line(err).startswith(f"memaudit: error[E_CHANGED] {folder}: no weights in it have")
    assert "or give --force" in err
    assert [p.name for p in folder.iterdir()] == ["model.safetensors"]
    code, _, err = card(folder, saved, "--force")
    assert code == 0
    assert one_line(err).startswith(f"memaudit: {folder}/README.md and")


@pytest.mark.parametrize("names", [["model.safetensors"], ["notes.txt", "a.bin", "model.pt"]])
def test_a_report_about_one_of_the_weight_files_is_taken(card, folder, tmp_path, names):
    for name in names:
        (folder / name).write_bytes(name.encode())
    sha256 = hashlib.sha256(names[-1].encode()).hexdigest()
    code, _, err = card(folder, of_weights(tmp_path / "r.json", sha256))
    assert code == 0
    assert one_line(err).startswith(f"memaudit: {folder}/README.md and")


def test_a_report_about_shards_is_taken(card, folder, tmp_path):
    lines = []
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (folder / name).write_bytes(name.encode())
        lines.append(f"{name} {hashlib.sha256(name.encode()).hexdigest()}\n")
    joint = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert card(folder, of_weights(tmp_path / "r.json", joint))[0] == 0


def test_the_card_says_that_weights_cannot_be_compared(card, folder, tmp_path):
    words = "memaudit: nobody can tell whether the report is about the weights of this folder; "
    assert one_line(card(folder, of_weights(tmp_path / "r.json", "ab12"))[2]).startswith(words)
    (folder / "model.safetensors").write_bytes(b"these")
    assert one_line(card(folder, of_weights(tmp_path / "r.json", ""))[2]).startswith(words)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "r.json")  # leads out of the folder
    assert one_line(card(folder, of_weights(tmp_path / "r.json", "ab12"))[2]).startswith(words)


# Both files of a card are written or none, and what is not ours in them stays to the byte.


def tree(folder) -> dict[str, bytes | None]:
    """Everything in a folder, with what is in it."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


@pytest.mark.parametrize("known", [None, "old: 1\n"], ids=["new", "known"])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_both_files(card, folder, saved, monkeypatch, failing, known):
    (folder / "README.md").write_text("mine\n")
    (folder / ".eval_results").mkdir()
    if known is not None:
        (folder / ".eval_results" / "memaudit.yaml").write_text(known)
    before, steps = tree(folder), []

    def full(step: str) -> None:
        steps.append(step)
        if steps.count("write.flushed") == failing:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(faults, "step", full)
    code, _, err = card(folder, saved)
    assert code == 5
    assert "error[E_DISK]" in one_line(err)
    assert tree(folder) == before


def test_a_file_in_the_place_of_the_folder_of_results_is_refused_before_the_scan(
    card, stage, folder
):
    (folder / "README.md").write_text("mine\n")
    (folder / ".eval_results").write_text("a file\n")
    before = tree(folder)
    code, _, err = card(folder)
    assert code == 3
    assert one_line(err) == (
        f"memaudit: error[E_PATH] {folder}/.eval_results: this is no folder; "
        "rename it, the results go into a folder of that name"
    )
    assert stage.calls == []
    assert tree(folder) == before


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((".", "folder"), ("README.md", "file"), (".eval_results", "folder")),
        (".eval_results/memaudit.yaml", "file"),
    ],
)
def test_what_is_write_protected_is_refused_before_the_scan(
    card, stage, folder, monkeypatch, name, what
):
    (folder / "README.md").write_text("mine\n")
    (folder / ".eval_results").mkdir()
    (folder / ".eval_results" / "memaudit.yaml").write_text("old: 1\n")
    before, access = tree(folder), os.access

    # Rights do not hold for root, as whom tests may run.
    def refuse(path, mode: int) -> bool:
        return access(path, mode) and not (mode & os.W_OK and path == folder / name)

    monkeypatch.setattr(os, "access", refuse)
    code, _, err = card(folder)
    assert code == 5
    told = f"{folder / name}: the {what} is write-protected; see its rights"
    assert one_line(err) == f"memaudit: error[E_DISK] {told}"
    assert stage.calls == []
    assert tree(folder) == before


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_line_ends_of_every_kind_stay_and_a_second_time_changes_no_byte(
    card, folder, saved, end, mark
):
    text = f"{mark}---\nlicense: mit\n---\n# M\n\nno last line break".replace("\n", end)
    (folder / "README.md").write_bytes(text.encode())
    card(folder, saved)
    first = tree(folder)
    assert first["README.md"].startswith(text.encode())
    assert card(folder, saved)[0] == 0
    assert tree(folder) == first
