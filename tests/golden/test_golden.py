"""The demos have the answers that were recorded by `python -m tests.golden --record`."""

from __future__ import annotations

import copy

import pytest

from tests.golden.answers import DEMOS, answer, differences, stored


@pytest.mark.parametrize("demo", DEMOS)
def test_a_demo_has_its_recorded_answers(demo: str) -> None:
    assert list(differences(stored()[demo], answer(demo))) == []


def test_a_number_a_kind_and_a_finding_that_move_are_told() -> None:
    was = stored()["lstm"]
    now = copy.deepcopy(was)
    now["memory"]["impulse"]["values"][3] *= 1 + 3e-6
    now["memory"]["driven"]["kind"] = "growing"
    now["findings"].append("MA999")
    told = [line.partition(":")[0] for line in differences(was, now)]
    assert told == ["/findings", "/memory/driven/kind", "/memory/impulse/values[3]"]
