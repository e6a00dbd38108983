"""Complex numbers move within discs: sizes, draws, projections and steepest moves."""

from __future__ import annotations

import pytest
import torch

from memaudit.stability.moves import draw, project, size, steepest

DOUBLE = torch.float64


def modulus(pairs: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(pairs.contiguous()).abs()


@pytest.mark.parametrize("ball", ["spectral", "max-abs"])
def test_the_size_of_a_move_is_its_largest_modulus(ball: str) -> None:
    move = torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[0.0, 0.0], [0.6, 0.8]]], dtype=DOUBLE)
    assert size(move, "pairs", ball).tolist() == pytest.approx([5.0, 1.0])


def test_the_euclidean_size_is_that_of_all_parts() -> None:
    move = torch.tensor([[[3.0, 4.0], [0.0, 12.0]]], dtype=DOUBLE)
    assert size(move, "pairs", "frobenius").tolist() == pytest.approx([13.0])


def test_draws_touch_the_rim_in_all_directions() -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = draw((5, 2), "pairs", "spectral", 400, generator, dtype=DOUBLE)
    assert modulus(drawn).amax(1).tolist() == pytest.approx([1.0] * 400)
    assert modulus(drawn[::2]).flatten().tolist() == pytest.approx([1.0] * 1000)
    assert drawn.mean((0, 1)).abs().max() < 0.05


def test_a_projection_keeps_the_angles() -> None:
    move = torch.tensor([[[3.0, 4.0], [0.3, 0.4]]], dtype=DOUBLE)
    found = project(move, "pairs", "spectral", 1.0)
    torch.testing.assert_close(found, torch.tensor([[[0.6, 0.8], [0.3, 0.4]]], dtype=DOUBLE))


def test_the_steepest_move_has_the_largest_inner_product() -> None:
    generator = torch.Generator().manual_seed(2)
    gradient = torch.randn(1, 7, 2, generator=generator, dtype=DOUBLE)
    best = steepest(gradient, "pairs", "spectral")
    assert size(best, "pairs", "spectral").tolist() == pytest.approx([1.0])
    gained = float((best * gradient).sum())
    assert gained == pytest.approx(float(modulus(gradient).sum()))
    others = draw((7, 2), "pairs", "spectral", 200, generator, dtype=DOUBLE)
    assert float((others * gradient).sum((1, 2)).max()) < gained
