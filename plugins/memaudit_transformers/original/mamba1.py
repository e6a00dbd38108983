"""The original format of Mamba: its config is read off the shapes, its keys are renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit_transformers.original.keys import (
    TABLE,
    count_layers,
    layer_prefix,
    renamed,
    weights_error,
)
from memaudit_transformers.original.surroundings import (
    head_notes,
    is_tied,
    odd,
    require_agreement,
    require_plain,
    vocabulary_notes,
)
from memaudit_transformers.original.translated import Translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_FIRST = f"{layer_prefix(0)}mixer."
_NOTE = (
    "the original format of Mamba: sizes were read off the tensors, keys renamed; the epsilon "
    "of its norms, which is not stored, is 1e-5"
)


def translate_mamba1(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Translated:
    """What transformers needs to build it; E_CONFIG when the config contradicts the shapes."""
    shapes = _shapes(tensors)
    vocabulary, width = shapes[TABLE]
    inner, state = shapes[_FIRST + "A_log"]
    layers = count_layers(tensors)
    require_agreement(config, d_model=width, n_layer=layers)
    require_plain(config, tensors)
    if inner % width:
        raise odd(f"the inner width {inner} is no multiple of the width {width}")
    tied = is_tied(config, tensors)
    values = {
        "model_type": "mamba",
        "architectures": ["MambaForCausalLM"],
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "state_size": state,
        "expand": inner // width,
        "intermediate_size": inner,
        "conv_kernel": shapes[_FIRST + "conv1d.weight"][-1],
        "time_step_rank": shapes[_FIRST + "dt_proj.weight"][1],
        "use_conv_bias": _FIRST + "conv1d.bias" in tensors,
        "use_bias": _FIRST + "in_proj.bias" in tensors,
        "residual_in_fp32": bool(config.get("residual_in_fp32", True)),
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": tied,
    }
    notes = (_NOTE, *vocabulary_notes(config, vocabulary), *head_notes(tied=tied))
    return Translated(values, renamed(tensors), notes)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shapes of what the sizes are read off."""
    ranks = {
        TABLE: 2,
        _FIRST + "A_log": 2,
        _FIRST + "conv1d.weight": 3,
        _FIRST + "dt_proj.weight": 2,
    }
    for name, rank in ranks.items():
        if name not in tensors or tensors[name].ndim != rank or not tensors[name].numel():
            fact = f"{name}, a tensor of {rank} dimensions in every original Mamba, is not there"
            raise weights_error(fact)
    return {name: tuple(tensors[name].shape) for name in ranks}
