"""What takes the place of a patch embedding while a model is audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class GivenPatches(nn.Module):
    """Gives the sequences that it was handed, in the form of the embedding that it stands for.

    Models ask their embedding for the size of the grid: such questions go to the original.
    """

    def __init__(self, original: nn.Module, form: Sequence[int], extras: tuple[Any, ...]) -> None:
        super().__init__()
        self._originals = (original,)  # in a tuple: its weights are none of the audited ones
        self._form = tuple(form)
        self._extras = extras
        self._sequences: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            originals = self.__dict__.get("_originals", ())
            if not originals or name.startswith("__"):
                raise
            return getattr(originals[0], name)

    def hand(self, sequences: Tensor | None) -> None:
        """Keep (B,N,D) for the next call."""
        self._sequences = sequences

    def forward(self, *images: Any, **ignored: Any) -> Any:
        """The sequences in the shape that the model expects behind its embedding."""
        assert self._sequences is not None
        shaped = self._sequences.reshape(len(self._sequences), *self._form)
        return (shaped, *self._extras) if self._extras else shaped
