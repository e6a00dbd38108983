"""Foreign text that is made safe to print."""

from __future__ import annotations

import pytest

from memaudit.errors import MemauditError, clean


@pytest.mark.parametrize(
    "name",
    [
        "::stop-commands::token",
        "layer ::set-output name=x::y",
        "##vso[task.setvariable variable=PATH]/tmp",
        "##[group]",
        ":::::",
        "####[x]",
    ],
)
def test_foreign_text_gives_no_order_to_a_build_server(name):
    for told in (clean(name), str(MemauditError("E_CONFIG", f"the key {name} is unknown"))):
        assert "::" not in told
        assert "##" not in told


def test_single_signs_stay_as_they_are():
    assert clean("demo:lstm #1 a:b") == "demo:lstm #1 a:b"
