"""Equation 142 of IATN is the Jacobian of a GRU at rest, and says where it stops to be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

from examples.reproduce.iatn.eq142_gru import gru_linearisation
from memaudit_rnn.network import CellWeights, cell_weights

SIZE = 5
EXACT = 1e-12


def layer(*, candidate_bias: float) -> nn.GRU:
    """A GRU in double precision whose candidate biases are all this number."""
    gru = nn.GRU(2, SIZE, dtype=torch.float64).requires_grad_(False)
    draw = torch.Generator().manual_seed(3)
    for name, weight in gru.named_parameters():
        weight.uniform_(-1, 1, generator=draw)
        if name.startswith("bias"):
            weight[2 * SIZE :] = candidate_bias
    return gru


def weights_of(gru: nn.GRU) -> CellWeights:
    return cell_weights(dict(gru.named_parameters()), "_l0")


def torchs_step(gru: nn.GRU, h: Tensor) -> Tensor:
    return gru(torch.zeros(1, 1, 2, dtype=h.dtype), h[None, None])[0][0, 0]


def papers_step(weights: CellWeights, h: Tensor) -> Tensor:
    """Equations 129 to 132 without an input; the sign of b_z follows torch's gate."""
    assert weights.bias_ih is not None
    assert weights.bias_hh is not None
    b_r, b_z, b_h = (weights.bias_ih + weights.bias_hh).chunk(3)
    u_r, u_z, u_h = weights.weight_hh.chunk(3)
    z = torch.sigmoid(-(u_z @ h + b_z))
    candidate = torch.tanh(u_h @ (torch.sigmoid(u_r @ h + b_r) * h) + b_h)
    return h + z * (candidate - h)


def at_rest() -> Tensor:
    return torch.zeros(SIZE, dtype=torch.float64)


def test_equation_142_is_the_jacobian_of_the_papers_cell() -> None:
    weights = weights_of(layer(candidate_bias=0.0))
    jacobian = jacrev(lambda h: papers_step(weights, h))(at_rest())
    torch.testing.assert_close(
        gru_linearisation(weights), jacobian - torch.eye(SIZE), rtol=0, atol=EXACT
    )


def test_torchs_cell_resets_later_and_has_the_similar_matrix() -> None:
    gru = layer(candidate_bias=0.0)
    weights = weights_of(gru)
    jacobian = torch.autograd.functional.jacobian(lambda h: torchs_step(gru, h), at_rest())
    after = gru_linearisation(weights, reset_first=False)
    torch.testing.assert_close(after, jacobian - torch.eye(SIZE), rtol=0, atol=EXACT)
    assert (after - gru_linearisation(weights)).abs().max() > 0.01
    found = torch.linalg.eigvals(gru_linearisation(weights))
    expected = torch.linalg.eigvals(jacobian - torch.eye(SIZE))
    assert (found[:, None] - expected[None]).abs().amin(1).max() < 1e-12


def test_equation_142_stops_to_hold_where_the_candidate_has_a_bias() -> None:
    gru = layer(candidate_bias=0.5)
    assert torchs_step(gru, at_rest()).abs().max() > 0.1
    jacobian = torch.autograd.functional.jacobian(lambda h: torchs_step(gru, h), at_rest())
    claimed = gru_linearisation(weights_of(gru), reset_first=False)
    assert (claimed - (jacobian - torch.eye(SIZE))).abs().max() > 0.1


@pytest.mark.parametrize("keep", [20.0, -20.0])
def test_a_gate_that_keeps_everything_leaves_nothing_to_move(keep: float) -> None:
    gru = layer(candidate_bias=0.0)
    gru.get_parameter("bias_ih_l0")[SIZE : 2 * SIZE] = keep
    size = gru_linearisation(weights_of(gru)).abs().max()
    assert size < 1e-7 if keep > 0 else size > 0.5
