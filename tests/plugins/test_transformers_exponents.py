"""Lyapunov exponents of layers whose modes keep apart, against the means they are."""

from __future__ import annotations

import math

import pytest
import torch

from memaudit_transformers.kinds import find_recurrences, largest_exponent, spectra_of
from memaudit_transformers.scans import Steps, decays_of
from tests.plugins.test_transformers_recurrent_families import answer, ids
from tests.plugins.transformers_families import FAMILIES, Family


class Kind:
    """A kind that follows its input."""

    kernel = None
    selective = True


class Layer:
    """As much of a recurrent layer as the exponent asks for."""

    kind = Kind()


def of(steps: Steps):
    return largest_exponent(Layer(), steps)  # type: ignore[arg-type]


def test_the_slowest_channel_gives_its_mean_log_decay() -> None:
    sizes = torch.tensor([[[1.0, 3.0], [2.0, 0.1], [3.0, 0.2]]])
    found = of(Steps(sizes))
    assert found is not None
    assert found.value == pytest.approx(-(3.0 + 0.1 + 0.2) / 3)


def test_rates_per_channel_and_mode_multiply_the_step_sizes() -> None:
    sizes = torch.tensor([[[1.0, 3.0], [2.0, 1.0]]])
    found = of(Steps(sizes, torch.tensor([[2.0, 1.0], [0.5, 4.0]])))
    assert found is not None
    assert found.value == pytest.approx(-0.5 * 2.0)


def test_equal_tokens_leave_no_doubt() -> None:
    found = of(Steps(torch.full((1, 64, 3), 0.25)))
    assert found is not None
    assert found.value == -0.25
    assert found.interval == (-0.25, -0.25)


def test_a_channel_that_was_shut_once_is_not_the_slowest() -> None:
    sizes = torch.tensor([[[math.inf, 1.0], [0.0, 1.0]]])
    found = of(Steps(sizes))
    assert found is not None
    assert found.value == -1.0
    assert of(Steps(torch.full((1, 4, 2), math.inf))) is None


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_every_family_has_the_largest_mean_of_its_log_decays(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    decays = decays_of(found, lambda x: answer(model, x), ids())
    spectra = spectra_of(found, lambda x: answer(model, x), ids())
    for recurrent, item in zip(found, spectra, strict=True):
        if recurrent.cell in {"gated-delta", "kimi-delta"}:  # the delta rule mixes its modes
            assert item.lyapunov is None
            continue
        means = decays[recurrent.layer].double().flatten(0, 1).flatten(1).log().mean(0)
        assert item.lyapunov == pytest.approx(float(means.max()), rel=1e-4, abs=1e-7)
        assert item.lyapunov is not None
        assert item.lyapunov_interval is not None
        assert item.lyapunov_interval[0] <= item.lyapunov <= item.lyapunov_interval[1]
