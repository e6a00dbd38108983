"""What decides the modes of torch's recurrent layers: their recurrent weights, as stored."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from memaudit.errors import clean
from memaudit.interfaces import DenseDecay, NoDecay
from memaudit_rnn.network import (
    RecurrentNetwork,
    recurrent_layers,
    retrofitted_forms,
    time_directions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from memaudit.interfaces import StoredDecay


#: Shares of the candidate below this count as none.
SHUT = 1e-4


def gru_matrix(owner: nn.Module, stored: Tensor, *, end: str) -> Tensor:
    """Diag(z) + Diag((1 - z) r) W_n: the same step with the identity, in torch's order.

    r and z are the gates of a layer of torch at its biases; z is the share that is kept. `stored`
    is its recurrent weight, with the rows of r, of z and of n; names of weights have that `end`.
    """
    candidate = stored[2 * stored.shape[-1] :]
    kept, added = _shares(owner, end, like=stored)
    return torch.diag(kept) + added[:, None] * candidate


def gru_rest(stored: Tensor) -> Tensor:
    """The rows of the two gates, which do not act at rest."""
    return stored[: 2 * stored.shape[-1]]


def gru_weight(owner: nn.Module, matrix: Tensor, rest: Tensor, *, end: str) -> Tensor:
    """The stored weight with that matrix as its step at rest: the inverse of the two above."""
    kept, added = _shares(owner, end, like=matrix)
    # A gate that training shuts must not make the weights behind it infinite.
    candidate = (matrix - torch.diag(kept)) / added[:, None].clamp(min=SHUT)
    return torch.cat([rest.to(candidate.dtype), candidate])


def least_share(owner: nn.Module, end: str) -> float:
    """The least share of the candidate that a unit takes at rest; nothing is divided by zero."""
    like = getattr(owner, f"weight_hh{end}").detach().double()
    return float(_shares(owner, end, like=like)[1].detach().min())


def _shares(owner: nn.Module, end: str, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """The shares z and (1 - z) r at the biases of the layer now; 1/2 and 1/4 without biases."""
    size = like.shape[-1]
    bias = like.new_zeros(3 * size)
    for name in (f"bias_ih{end}", f"bias_hh{end}"):
        part = getattr(owner, name, None)
        bias = bias if part is None else bias + part.to(like.dtype)
    reset, keep = bias[:size], bias[size : 2 * size]
    return keep.sigmoid(), (-keep).sigmoid() * reset.sigmoid()


LSTM = (
    "the cell of an LSTM decays by its forget gate, which the data decide: "
    "no weight stands for a mode"
)
COMPUTED = "{name} is computed from other weights by something else already; remove that first"
CLOSED = "a gate of its units is shut at rest: their recurrent weights do not reach the step"
TANH_NOTE = "the step linearised at the zero state, which is at rest only without biases"
RELU_NOTE = "the step of units that are active; a unit that is not forgets at once"
GRU_NOTE = (
    "the step linearised at rest with the gates at their biases, "
    "exact where the candidate has no bias"
)


def stored_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """Every layer and direction of every RNN, GRU, LSTM and cell of them inside a module."""
    dropped = [name for name, _ in module.named_parameters() if name.endswith("_raw")]
    for path, owner in recurrent_layers(module).items():
        for layer, end in _places(owner, _names(module, path, owner)):
            name = f"weight_hh{end}"
            if _cell(owner) == "LSTM":
                yield NoDecay(LSTM, layer, "LSTM")
            elif not _is_stored(owner, name, dropped):
                yield NoDecay(COMPUTED.format(name=name), layer, _cell(owner))
            else:
                yield _decay(owner, layer, end)


def _decay(owner: nn.Module, layer: str, end: str) -> StoredDecay:
    """That of one layer and direction, the names of whose weights have that end."""
    name, own = f"weight_hh{end}", _own_forward(owner)
    if _cell(owner) == "RNN":
        note = RELU_NOTE if getattr(owner, "nonlinearity", "tanh") == "relu" else TANH_NOTE
        return DenseDecay(owner, name, note=note + own, layer=layer, cell="RNN")
    if least_share(owner, end) < SHUT:
        return NoDecay(CLOSED, layer, "GRU")
    matrix, joined = partial(gru_matrix, end=end), partial(gru_weight, end=end)
    return DenseDecay(owner, name, matrix, gru_rest, joined, GRU_NOTE + own, layer, "GRU")


def _cell(owner: nn.Module) -> str:
    if isinstance(owner, nn.LSTM | nn.LSTMCell):
        return "LSTM"
    return "GRU" if isinstance(owner, nn.GRU | nn.GRUCell) else "RNN"


def _names(module: nn.Module, path: str, owner: nn.Module) -> tuple[str, ...]:
    """What spectra call the layers: by their path, or by their cell when they are the module."""
    if isinstance(module, RecurrentNetwork) and module.layers:
        return module.layers
    name = path or _cell(owner).lower()
    if not isinstance(owner, nn.RNNBase):
        return (name,)
    return tuple(f"{name}.l{number}" for number in range(owner.num_layers))


def _places(owner: nn.Module, layers: tuple[str, ...]) -> list[tuple[str, str]]:
    """Every layer and direction, and how the names of its weights end."""
    if not isinstance(owner, nn.RNNBase):
        return [(layers[0], "")]
    ways = time_directions(owner)
    return [(f"{name}{way}", f"_l{k}{end}") for k, name in enumerate(layers) for way, end in ways]


def _is_stored(owner: nn.Module, name: str, dropped: list[str]) -> bool:
    """Whether the weight is the owner's own: weight norms and weight dropping write over it."""
    if any(raw.endswith(f"{name}_raw") for raw in dropped):
        return False
    return name in owner._parameters or name in retrofitted_forms(owner)


def _own_forward(owner: nn.Module) -> str:
    if type(owner).forward.__module__.startswith("torch."):
        return ""
    return f"; {clean(type(owner).__name__)} has a forward of its own, which may do more"
