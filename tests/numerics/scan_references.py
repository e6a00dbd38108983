"""Recurrences written out step by step, and a count of the memory that a call holds."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import softplus
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Tensors = dict[str, torch.Tensor]


def selective(x: Tensors, state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Mamba's recurrence with every option, one step at a time."""
    dt = softplus(x["dt"] + x["delta_bias"][:, None])
    h = torch.zeros(*x["hidden"].shape[:2], x["A"].shape[1]).to(dt) if state is None else state
    answers = []
    for t in range(dt.shape[2]):
        rate, u = dt[:, :, t, None], x["hidden"][:, :, t, None]
        h = torch.exp(rate * x["A"]) * h + rate * x["B"][:, None, :, t] * u
        y = (h * x["C"][:, None, :, t]).sum(-1) + x["D"] * u[..., 0]
        answers.append(y * x["z"][:, :, t] * torch.sigmoid(x["z"][:, :, t]))
    return torch.stack(answers, 2), h


def dual(x: Tensors, state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Mamba-2's recurrence with shift, softplus and skip, one step at a time."""
    u, heads = x["hidden"], x["hidden"].shape[2]
    repeats = heads // x["B"].shape[2]
    keys, queries = (x[name].repeat_interleave(repeats, 2) for name in ("B", "C"))
    dt = softplus(x["dt"] + x["dt_bias"])
    h = u.new_zeros(*u[:, 0].shape, keys.shape[3]) if state is None else state
    answers = []
    for t in range(u.shape[1]):
        rate = dt[:, t, :, None, None]
        h = torch.exp(rate * x["A"][:, None, None]) * h
        h = h + rate * u[:, t, :, :, None] * keys[:, t, :, None, :]
        answers.append((h * queries[:, t, :, None, :]).sum(-1) + x["D"][:, None] * u[:, t])
    return torch.stack(answers, 1), h


def attention(
    time_decay: torch.Tensor, time_first: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """RWKV-4's answer at every step, as the weighted mean that it is, without a state."""
    answers = []
    for t in range(key.shape[1]):
        age = torch.arange(t - 1, -1, -1).to(key)[:, None]
        past = key[:, :t] - age * torch.exp(time_decay)
        weights = torch.softmax(torch.cat([past, key[:, t : t + 1] + time_first], 1), 1)
        answers.append((weights * value[:, : t + 1]).sum(1))
    return torch.stack(answers, 1)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a share of the largest expected number."""
    return float((found - expected).abs().max() / expected.abs().max())


class _Held(TorchDispatchMode):
    """Adds up the bytes of the tensors that are alive, and remembers the most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.largest = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for storage in _storages((args, kwargs)):
            self.known.add(storage._cdata)  # a slice of what was there before is not new
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most, self.largest = max(self.most, self.now), max(self.largest, size)
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [x.untyped_storage() for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def bytes_beyond_output(call: Callable[[], torch.Tensor]) -> tuple[int, int]:
    """Most bytes alive at once beyond the output, and the largest single tensor but for it."""
    with _Held() as held:
        output = call()
    return held.most - output.untyped_storage().nbytes(), held.largest
