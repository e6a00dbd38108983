"""Reading back from states, and the p-values of the ring."""

import pytest
import torch

from examples.reproduce.recurrences.f05_roots_of_unity import folded
from examples.reproduce.recurrences.reading import WAYS, Reader, relative, stepped_state
from examples.reproduce.vandermonde import ring, roots_of_unity, vandermonde


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def sequences(length: int) -> torch.Tensor:
    return torch.randn(length, 3, generator=draw(), dtype=torch.float64)


def test_stepping_is_the_vandermonde_matrix():
    modes, u = ring(5, radii=(0.5, 1.0), generator=draw()), sequences(11)
    matrix = vandermonde(modes, 11)
    assert torch.allclose(stepped_state(modes, u), matrix @ u.to(matrix.dtype), atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_enough_modes_on_the_circle_give_the_inputs_back(way: str):
    matrix, u = vandermonde(roots_of_unity(24), 24), sequences(24)
    reader = Reader.of(matrix, way=way)
    assert relative(reader.read(matrix @ u.to(matrix.dtype)), u) < 1e-12
    assert reader.log_condition() == pytest.approx(0.0, abs=1e-10)


def test_too_few_roots_of_unity_fold_the_sequence():
    matrix, u = vandermonde(roots_of_unity(5), 12), sequences(12)
    found = Reader.of(matrix, way="complex").read(matrix @ u.to(matrix.dtype))
    assert torch.allclose(found, folded(u, 5), atol=1e-12)
