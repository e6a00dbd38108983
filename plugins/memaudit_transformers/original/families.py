"""Which of the original families a file belongs to, and who translates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit_transformers.original.keys import TABLE, layer_numbers, layer_prefix
from memaudit_transformers.original.mamba1 import translate_mamba1
from memaudit_transformers.original.mamba2 import translate_mamba2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from memaudit_transformers.original.translated import Translated

#: model type in transformers → who translates it.
_TRANSLATORS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Tensor]], Translated]] = {
    "mamba": translate_mamba1,
    "mamba2": translate_mamba2,
}


def family_of(tensors: Mapping[str, Tensor]) -> str | None:
    """The model type of a language model as its first authors store it; None for other files.

    Mamba-1 has a matrix A_log in its first layer, Mamba-2 a vector; a Mamba-2 whose first layer has
    attention in the place of the mixer is one, too, and can then be refused with the reason.
    """
    if TABLE not in tensors:
        return None
    numbers = sorted(layer_numbers(tensors))
    named = [(number, f"{layer_prefix(number)}mixer.A_log") for number in numbers]
    number, rates = next(((n, tensors[k]) for n, k in named if k in tensors), (0, None))
    if rates is None:
        return None
    if rates.ndim == 2:
        return "mamba" if number == 0 else None
    return "mamba2" if rates.ndim == 1 else None


def translate(family: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Translated:
    """What transformers needs to build the model.

    Raises E_CONFIG when the config contradicts the shapes, E_WEIGHTS when they contradict each
    other, and E_UNSUPPORTED for what the classes of transformers do not compute.
    """
    return _TRANSLATORS[family](config, tensors)
