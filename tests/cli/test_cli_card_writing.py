"""Both files of a card are written or none, and what is not ours in them stays to the byte."""

from __future__ import annotations

import os
import pathlib

import pytest

from memaudit.errors import MachineError
from memaudit.writers import card as writing
from tests.cli.played import one_line


def tree(folder) -> dict[str, bytes | None]:
    """Everything in a folder, with what is in it."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


@pytest.mark.parametrize("known", [None, "old: 1\n"], ids=["new", "known"])
@pytest.mark.parametrize("failing", ["README.md", "memaudit.yaml"])
def test_what_fails_in_between_leaves_both_files(card, folder, saved, monkeypatch, failing, known):
    (folder / "README.md").write_text("mine\n")
    if known is not None:
        (folder / ".eval_results").mkdir()
        (folder / ".eval_results" / "memaudit.yaml").write_text(known)
    before, write = tree(folder), writing.write_text

    def full(text: str, path: pathlib.Path) -> pathlib.Path:
        if path.name == failing and text not in ("mine\n", known):
            raise MachineError("E_DISK", "cannot write: no room", source=path)
        return write(text, path)

    monkeypatch.setattr(writing, "write_text", full)
    code, _, err = card(folder, saved)
    assert code == 5
    assert one_line(err).endswith(f"{failing}: cannot write: no room")
    assert tree(folder) == before


def test_a_file_in_the_place_of_the_folder_of_results_is_told_before_the_scan(card, stage, folder):
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
def test_what_is_write_protected_is_told_before_the_scan(
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
