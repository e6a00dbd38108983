"""Errors along directions are the norms of their differences, however they are cut."""

from __future__ import annotations

import pytest
import torch

from memaudit.stability import moves as module
from memaudit.stability.moves import error_norm, error_norms
from memaudit.stability.result import NORMS


@pytest.mark.parametrize("at_a_time", [1, 100, 2**20])
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_every_entry_is_the_norm_of_its_difference(norm, pooled, at_a_time, monkeypatch):
    monkeypatch.setattr(module, "AT_A_TIME", at_a_time)
    draw = torch.Generator().manual_seed(0)
    shape = (2, 3) if pooled else (2, 7, 3)
    answers = torch.randn(5, 4, *shape, generator=draw)
    answers[1, 2, 0, 0] = torch.nan
    reference = torch.randn(shape, generator=draw, dtype=torch.float64)
    whole = error_norm((answers.double() - reference).flatten(0, 1), norm, pooled=pooled)
    found = error_norms(answers, reference, norm, pooled=pooled)
    assert torch.equal(found, whole.reshape(5, 4))
    assert found.isinf().sum() == 1
