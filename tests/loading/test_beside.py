"""Small files beside the weights are read whole, from the folder itself, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memaudit.errors import SourceError
from memaudit.loading.configs import code_map
from memaudit.loading.files import read_beside, require_beside


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[1]")
    assert read_beside(tmp_path, "a.json", most=3) == b"[1]"
    assert read_beside(tmp_path, "b.json", most=3) is None


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[12]")
    for read in (read_beside, lambda f, n, most: require_beside(f, [n], most=most)):
        with pytest.raises(SourceError) as caught:
            read(tmp_path, "a.json", most=3)  # type: ignore[operator]
        assert caught.value.code == "E_LIMIT"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_that_leads_elsewhere_is_refused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, exists: bool
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "a.json"
    if exists:
        elsewhere.write_text("secret")
    (tmp_path / "a.json").symlink_to(elsewhere)
    with pytest.raises(SourceError) as caught:
        read_beside(tmp_path, "a.json", most=100)
    assert caught.value.code == ("E_PATH" if exists else "E_NOT_FOUND")
    with pytest.raises(SourceError):
        require_beside(tmp_path, ["a.json"], most=100)


def test_the_files_that_are_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    assert require_beside(tmp_path, ["a", "b"], most=1) == ("b",)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"AutoModel": "own.Own"}, {"AutoModel": "own.Own"}),
        ({"AutoModel": "own.Own", "AutoTokenizer": ["own.Words", None]}, {"AutoModel": "own.Own"}),
        ("own.Own", {}),
        (None, {}),
    ],
)
def test_code_is_named_and_not_run(tmp_path: Path, stated: object, expected: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": stated}))
    assert code_map(tmp_path) == expected


def test_without_a_config_no_code_is_named(tmp_path: Path) -> None:
    assert code_map(tmp_path) == {}
