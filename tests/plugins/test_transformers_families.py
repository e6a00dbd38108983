"""Every recurrent family of the installed library is opened from its files, in full precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.plugins.transformers_families import FAMILIES, Family
from tests.plugins.transformers_zoo import ids, noise, opened, saved

STEPS = 13


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_saved_model_of_the_family_is_audible(family: Family, tmp_path: Path) -> None:
    subject = opened(saved(family.build(), tmp_path))
    assert subject.identity.family == family.model_type
    assert len(subject.layers()) == family.config().num_hidden_layers
    cells = [recurrence.cell for recurrence in subject.identity.recurrences]
    assert cells == [family.cell] * len(family.recurrent_layers())
    tokens = ids(2, STEPS, words=subject.vocabulary or 0)
    table = subject.embedding
    assert table is not None
    heard: list[str] = []
    answer = subject.listen(tokens, lambda layer, state: heard.append(layer))
    assert tuple(heard) == subject.layers()
    assert answer.dtype == torch.float64
    assert torch.equal(subject.respond(tokens), answer)
    torch.testing.assert_close(subject.respond(table(tokens)), answer, rtol=0, atol=1e-12)
    _require_slope(subject.respond, 0.5 * noise(2, STEPS, subject.input_size or 0))


def _require_slope(respond: object, x: Tensor) -> None:
    """A step of 1e-10 and one of 1e-5 have the same slope, which float32 would round away."""
    direction = torch.zeros_like(x)
    direction[:, 2] = noise(x.shape[2])

    def slope(step: float) -> Tensor:
        ahead, back = (respond(x + sign * step * direction) for sign in (1, -1))  # type: ignore
        return (ahead - back) / (2 * step)

    wide, fine = slope(1e-5), slope(1e-10)
    # Answers of size one to ten, rounded at 1e-15, over a step of 1e-10.
    assert (wide - fine).abs().max() < 1e-4 * wide.abs().max() + 1e-4
    assert wide.abs().max() > 1e-2
