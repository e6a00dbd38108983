"""Weights under watch: a probe that moves them is found out, and they are put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.loading.filling import digest_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class WeightsKept:
    """A copy of the weights that a function gives, and their digest."""

    def __init__(self, weights: Callable[[], Mapping[str, Any]]) -> None:
        self.weights = weights
        tensors = self._live()
        self.digest = digest_tensors(tensors)
        self.copies = {name: t.detach().clone() for name, t in tensors.items()}

    def restore(self) -> list[str]:
        """Put back what moved, and name it; an empty list when nothing did."""
        live = self._live()
        if digest_tensors(live) == self.digest:
            return []
        moved = [name for name, kept in self.copies.items() if not _same(live.get(name), kept)]
        with torch.no_grad():
            for name in moved:
                if name in live and live[name].shape == self.copies[name].shape:
                    live[name].copy_(self.copies[name])
        return moved or ["new tensors"]

    def is_restored(self) -> bool:
        """Whether the weights are what they were, to the last bit."""
        return digest_tensors(self._live()) == self.digest

    def _live(self) -> dict[str, torch.Tensor]:
        return {k: t for k, t in self.weights().items() if isinstance(t, torch.Tensor)}


def _same(live: torch.Tensor | None, kept: torch.Tensor) -> bool:
    return live is not None and digest_tensors({"": live}) == digest_tensors({"": kept})
