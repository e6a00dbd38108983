"""The original format of Mamba: its config is read off the shapes, its keys are renamed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

TABLE = "backbone.embedding.weight"
HEAD = "lm_head.weight"
_FIRST = "backbone.layers.0.mixer."
_LAYER = re.compile(r"backbone\.layers\.(\d{1,6})\.")
_HINT = "put the right config beside the weights, or remove it"


@dataclass(frozen=True, slots=True)
class Translated:
    """The values of a config of transformers, the tensors by its names, and sentences on both."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]
    notes: tuple[str, ...]


def is_original(tensors: Mapping[str, Tensor]) -> bool:
    """Whether these are the weights of a Mamba as its first authors store them."""
    decay = tensors.get(_FIRST + "A_log")
    return TABLE in tensors and decay is not None and decay.ndim == 2


def translate(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Translated:
    """What transformers needs to build it; E_CONFIG when the config contradicts the shapes."""
    shapes = _shapes(tensors)
    vocabulary, width = shapes[TABLE]
    inner, state = shapes[_FIRST + "A_log"]
    layers = 1 + max(int(m[1]) for name in tensors if (m := _LAYER.match(name)))
    _require_agreement(config, d_model=width, n_layer=layers)
    if config.get("rms_norm") is False or "backbone.norm_f.bias" in tensors:
        raise SourceError(
            "E_UNSUPPORTED",
            "this Mamba has LayerNorm, which the Mamba of transformers does not have",
            hint="build the model in Python and pass the module to memaudit.scan",
            stage="config",
        )
    if inner % width:
        raise _odd(f"the inner width {inner} is no multiple of the width {width}")
    tied = HEAD not in tensors or torch.equal(tensors[HEAD], tensors[TABLE])
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
    renamed = {_inside(name): tensor for name, tensor in tensors.items()}
    return Translated(values, renamed, _notes(config, vocabulary, tied=tied))


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
            raise SourceError(
                "E_WEIGHTS",
                f"{name}, a tensor of {rank} dimensions in every original Mamba, is not there",
                hint="is the file complete?",
                stage="weights",
            )
    return {name: tuple(tensors[name].shape) for name in ranks}


def _require_agreement(config: Mapping[str, Any], **found: int) -> None:
    for name, size in found.items():
        if config.get(name) not in (None, size):
            raise _odd(f"config.json states {name} {config[name]}, the tensors say {size}")


def _inside(name: str) -> str:
    return "backbone.embeddings.weight" if name == TABLE else name


def _notes(config: Mapping[str, Any], vocabulary: int, *, tied: bool) -> tuple[str, ...]:
    notes = [
        "the original format of Mamba: sizes were read off the tensors, keys renamed; the epsilon "
        "of its norms, which is not stored, is 1e-5"
    ]
    if config.get("vocab_size") not in (None, vocabulary):
        stated = config["vocab_size"]
        notes.append(f"config.json states {stated} tokens, the embedding has {vocabulary} rows")
    if not tied:
        notes.append(f"{HEAD} is stored and differs from the embedding: it is not tied")
    return tuple(notes)


def _odd(fact: str) -> SourceError:
    return SourceError("E_CONFIG", fact, hint=_HINT, stage="config")
