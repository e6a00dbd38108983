"""What a config asks for, weighed against the weights that are there, before anything is built.

A fence, not a proof: a size that a config leaves out is a library's default. Adapters build on
torch's meta device and let `fill` compare every shape before memory is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit.loading.configs.config_sizes import LAYERS, SIDES, WIDTHS, read_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from memaudit.loading.configs.config import Config

#: Numbers that may be asked for whatever the file holds: 256 MB in float32.
FREE_NUMBERS = 1 << 26
#: Layers may share their weights (ALBERT), and embeddings be far narrower than the states are:
#: an honest config seems to ask for several times the numbers that are there.
SHARING = 16
#: Where there are no weights to compare with: four times the tables of the largest models.
UNWEIGHED_NUMBERS = 1 << 33
FREE_LAYERS = 256
#: One side of a tensor, or a long context, for which nothing need be stored.
FREE_SIDE = 1 << 24
#: transformers writes a dictionary with a name for every class.
FREE_LABELS = 1 << 20
LABELS = ("num_labels", "num_classes")
#: How wide an embedding is when nothing says so.
USUAL_WIDTH = 512


@dataclass(frozen=True, slots=True)
class Stock:
    """What the weights hold: how many tensors and numbers, and the longest side among them."""

    tensors: int
    numbers: int
    side: int

    @property
    def affordable(self) -> int:
        """How many numbers a config may seem to ask for."""
        if not self.tensors:
            return UNWEIGHED_NUMBERS
        return max(FREE_NUMBERS, SHARING * self.numbers)


class _AsksTooMuch(Exception):  # noqa: N818
    """What is asked for and what is there; the message completes the sentence `FILE …`."""


def check_config(config: Config, tensors: Mapping[str, Tensor]) -> None:
    """Refuse sizes that are no sizes (E_CONFIG) or that the weights cannot fill (E_LIMIT)."""
    stock = Stock(
        tensors=len(tensors),
        numbers=sum(tensor.numel() for tensor in tensors.values()),
        side=max((side for tensor in tensors.values() for side in tensor.shape), default=0),
    )
    try:
        _check(config, stock)
    except _AsksTooMuch as error:
        raise SourceError(
            "E_LIMIT",
            f"{clean(config.name)} {error}",
            hint="put the right config beside the weights, or remove it",
            stage="config",
        ) from None


def _check(config: Config, stock: Stock) -> None:
    library = "model_type" in config.values
    for where, values in _groups(config.values, ""):
        sizes = read_sizes(values, where=where, library=library, strict=config.of_library)
        for key, numbers in sizes.items():
            _check_alone(where, key, numbers, stock)
        _check_together(where, {key: max(numbers) for key, numbers in sizes.items()}, stock)


def _groups(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The config and every one inside it, with what stands before their keys."""
    if isinstance(value, list):
        for item in value:
            yield from _groups(item, where)
    elif isinstance(value, dict):
        yield where, value
        for key, inner in value.items():
            yield from _groups(inner, f"{where}{clean(key, limit=40)}.")


def _check_alone(where: str, key: str, numbers: list[int], stock: Stock) -> None:
    if key in LAYERS and (key == "depths" or len(numbers) == 1):
        layers, most = sum(numbers), max(FREE_LAYERS, stock.tensors)
        if layers > most:
            raise _refusal(f"{where}{key} {layers}", f"{stock.tensors} tensors")
    most = max(FREE_LABELS if key in LABELS else FREE_SIDE, stock.side)
    if max(numbers) > most:
        raise _refusal(f"{where}{key} {_count(max(numbers))}", _held(stock))


def _check_together(where: str, sizes: dict[str, int], stock: Stock) -> None:
    """The tables and matrices that one dictionary of a config asks for."""
    widths = {key: sizes[key] for key in WIDTHS if key in sizes}
    wide, width = max(widths.items(), key=lambda pair: pair[1], default=("", 0))
    vocabulary = sizes.get("vocab_size", 0)
    if vocabulary and not width and vocabulary > stock.side:
        _afford(where, {"vocab_size": vocabulary, "a usual width of": USUAL_WIDTH}, stock)
    if not width:
        return
    _afford(where, {"vocab_size": vocabulary, wide: width}, stock)
    for key in SIDES:
        _afford(where, {key: sizes.get(key, 0), wide: width}, stock)
    if stock.tensors:
        layers = {key: sizes[key] for key in LAYERS if key in sizes}
        deep, depth = max(layers.items(), key=lambda pair: pair[1], default=("layers", 1))
        _afford(where, {deep: depth, wide: width, f"{wide} again": width}, stock)


def _afford(where: str, factors: Mapping[str, int], stock: Stock) -> None:
    """Refuse a product of sizes that is more than the weights can hold."""
    asked = math.prod(factors.values())
    if asked > stock.affordable:
        words = " x ".join(f"{key} {_count(number)}" for key, number in factors.items())
        raise _refusal(f"at least {_count(asked)} numbers ({where}{words})", _held(stock))


def _held(stock: Stock) -> str:
    return f"{_count(stock.numbers)} numbers"


def _count(number: int) -> str:
    return str(number) if number < 10**16 else f"10^{len(str(number)) - 1}"


def _refusal(asked: str, held: str) -> _AsksTooMuch:
    return _AsksTooMuch(f"asks for {asked}, the weights hold {held}")
