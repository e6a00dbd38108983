"""A config.json is an object or a sentence."""

import pytest

from memaudit.errors import SourceError
from memaudit.loading.config import read_config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{not json", "is not JSON"),
        (b"", "is not JSON"),
        (b"null", "NoneType"),
        (b"[1]", "a list"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"n": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested"),
    ],
)
def test_a_broken_config_is_one_sentence(tmp_path, text, words):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(SourceError) as caught:
        read_config(tmp_path / "config.json")
    assert caught.value.code == "E_CONFIG"
    assert words in caught.value.fact
    assert caught.value.hint


def test_a_byte_order_mark_is_forgiven(tmp_path):
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"n": 1}')
    assert read_config(tmp_path / "config.json") == {"n": 1}


def test_infinity_is_a_value_that_real_configs_hold(tmp_path):
    (tmp_path / "config.json").write_text('{"time_step_limit": [0.0, Infinity]}')
    assert read_config(tmp_path / "config.json") == {"time_step_limit": [0.0, float("inf")]}
