"""Collecting what is heard, layer by layer."""

from __future__ import annotations

from memaudit_transformers.recurrent.steps import Steps, side_by_side


class Recorder:
    """Collects the steps of the layer that is running; what runs outside of one is not kept."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Steps]] = {}
        self._layer: str | None = None
        self._parts: list[Steps] = []

    def enter(self, layer: str) -> None:
        """A layer begins to run."""
        self._layer, self._parts = layer, []

    def hear(self, steps: Steps) -> None:
        """The steps of the layer, or of one of its heads."""
        if self._layer is not None:
            self._parts.append(steps)

    def leave(self) -> None:
        """The layer has run, or failed."""
        if self._layer is not None and self._parts:
            self.calls.setdefault(self._layer, []).append(side_by_side(self._parts))
        self._layer, self._parts = None, []
