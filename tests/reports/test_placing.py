"""Layers are called by the part that they stand in."""

from __future__ import annotations

import pytest

from memaudit.reports.placing import placed


@pytest.mark.parametrize(
    ("where", "name", "called"),
    [("decoder", "l0", "decoder: l0"), ("", "l0", "l0"), ("lstm_cell", "lstm_cell", "lstm_cell")],
)
def test_a_part_is_named_once(where: str, name: str, called: str) -> None:
    assert placed(where, name) == called
