"""A config.json is an object of plain values, or a sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from memaudit.errors import SourceError
from memaudit.loading.configs import DEEPEST, LARGEST_CONFIG, LONGEST_NUMBER, Config, open_config


def written(folder: Path, text: bytes | str, name: str = "config.json") -> Path:
    """The folder, with a file in it."""
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def refusal(folder: Path) -> SourceError:
    """The error that opening the config ends in."""
    with pytest.raises(SourceError) as caught:
        open_config(folder)
    assert caught.value.hint
    return caught.value


def nested(depth: int) -> str:
    """An object with lists in it, so deep altogether."""
    return '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{not json", "is not JSON"),
        (b"", "is not JSON"),
        (b'{"n": 1} {"n": 2}', "is not JSON"),
        (b"null", "holds null"),
        (b"[1]", "holds a list"),
        (b"true", "holds a bool"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"n": NaN}', "holds NaN"),
        (b'{"n": ["\\ud800"]}', "no text"),
        (b'{"n": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"n": 1.' + b"9" * LONGEST_NUMBER + b"}", "digits"),
        (nested(200_000).encode(), "nested"),
        (nested(DEEPEST + 1).encode(), "nested"),
        (b'{"n": 1, "n": 2}', "'n' twice"),
        (b'{"inner": [{"n": 1, "n": true}]}', "'n' twice"),
    ],
)
def test_a_broken_config_is_one_sentence(tmp_path: Path, text: bytes, words: str) -> None:
    error = refusal(written(tmp_path, text))
    assert error.code == "E_CONFIG"
    assert words in error.fact


def test_a_key_that_is_only_repeated_is_forgiven(tmp_path: Path) -> None:
    assert open_config(written(tmp_path, '{"n": [1], "n": [1]}')).values == {"n": [1]}


def test_the_deepest_nesting_that_is_allowed_is_read(tmp_path: Path) -> None:
    assert "a" in open_config(written(tmp_path, nested(DEEPEST))).values


def test_a_config_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    written(tmp_path, "{}")
    os.truncate(tmp_path / "config.json", LARGEST_CONFIG + 1)
    assert refusal(tmp_path).code == "E_LIMIT"


def test_a_byte_order_mark_is_forgiven(tmp_path: Path) -> None:
    assert open_config(written(tmp_path, b'\xef\xbb\xbf{"n": 1}')).values == {"n": 1}


@pytest.mark.parametrize("infinity", ["Infinity", '{"__float__": "Infinity"}'])
def test_infinity_is_a_value_that_real_configs_hold(tmp_path: Path, infinity: str) -> None:
    config = open_config(written(tmp_path, f'{{"time_step_limit": [0.0, {infinity}]}}'))
    assert config.values == {"time_step_limit": [0.0, float("inf")]}
    assert config.notes == ()


def test_without_a_config_there_are_no_values(tmp_path: Path) -> None:
    assert open_config(tmp_path) == Config(None, {}, ())


def test_the_path_of_the_config_is_kept(tmp_path: Path) -> None:
    assert open_config(written(tmp_path, "{}")).path == tmp_path / "config.json"


def test_a_config_outside_the_folder_is_refused(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    written(outside, '{"secret": 1}')
    (inside / "config.json").symlink_to(outside / "config.json")
    error = refusal(inside)
    assert error.code == "E_PATH"
    assert "secret" not in str(error)


def test_a_link_that_leads_nowhere_is_not_taken_for_no_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "gone.json")
    assert refusal(tmp_path).code == "E_NOT_FOUND"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(tmp_path: Path, make) -> None:
    make(tmp_path / "config.json")
    assert refusal(tmp_path).code == "E_PATH"


def test_an_adapter_without_its_base_is_refused_by_name(tmp_path: Path) -> None:
    base = {"base_model_name_or_path": "org/base\x1b[31m", "peft_type": "LORA"}
    written(tmp_path, json.dumps(base), "adapter_config.json")
    written(tmp_path, b"weights", "adapter_model.safetensors")
    written(tmp_path, b"weights", "optimizer.pt")
    error = refusal(tmp_path)
    assert error.code == "E_UNSUPPORTED"
    assert "org/base[31m" in error.fact
    assert "merge" in error.hint


def test_an_adapter_beside_whole_weights_is_not_applied_and_said(tmp_path: Path) -> None:
    written(tmp_path, "no JSON at all", "adapter_config.json")
    written(tmp_path, b"weights", "model.safetensors")
    config = open_config(written(tmp_path, '{"n": 1}'))
    assert config.values == {"n": 1}
    assert config.notes == (
        "adapter_config.json was not read: the adapter is not applied to the weights",
    )
