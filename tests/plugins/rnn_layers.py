"""Recurrent layers of torch with drawn weights, and the same behind a form."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from memaudit.interfaces import DenseDecay, StoredDecay
from memaudit.reparams import Exp
from memaudit.retrofitting.weights import swap
from memaudit_rnn import RnnAdapter

FORM = Exp(time="discrete")
LAYERS = [nn.RNN, nn.GRU]
CELLS = [nn.RNNCell, nn.GRUCell]


def told(module: nn.Module) -> list[StoredDecay]:
    return list(RnnAdapter().stored_decays(module))


def dense(module: nn.Module) -> list[DenseDecay]:
    found = told(module)
    dense = [decay for decay in found if isinstance(decay, DenseDecay)]
    assert len(dense) == len(found)
    return dense


def drawn(module: nn.Module, *, candidate: float | None = None, seed: int = 3) -> nn.Module:
    """Weights of moderate size; of a GRU perhaps with that bias for all candidates."""
    draw = torch.Generator().manual_seed(seed)
    for name, weight in module.named_parameters():
        weight.data.uniform_(-0.5, 0.5, generator=draw)
        if candidate is not None and "bias" in name:
            weight.data.chunk(3)[2].fill_(candidate)
    return module


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def retrofitted(module: nn.Module) -> nn.Module:
    """The module with all its dense weights in the form of this test."""
    for decay in told(module):
        if isinstance(decay, DenseDecay):
            swap(decay, FORM)
    return module
