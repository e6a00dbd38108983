"""`--set KEY=VALUE`: JSON where it is JSON, a plain string everywhere else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memaudit.errors import ArgumentError
from memaudit.options import parse_settings, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2.5e-3", -0.0025),
        ("true", True),
        ("null", None),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
        ("tanh", "tanh"),
        ("True", "True"),
        ("", ""),
        ("a=b", "a=b"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ('{"a": 1}', '{"a": 1}'),
        ("[1,", "[1,"),
        ("9" * 5000, "9" * 5000),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_or_itself(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_only_the_first_equals_sign_separates():
    assert parse_settings(["a-b=c=d", "x = 1"]) == {"a_b": "c=d", "x": 1}


@given(st.text())
def test_any_text_is_parsed_or_refused(text):
    with contextlib.suppress(ArgumentError):
        assert len(parse_settings([text])) == 1
