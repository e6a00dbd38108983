"""Mamba and Mamba-2 as their first authors store them, translated for transformers.

Sizes are read off the tensors and keys are renamed. What the config contradicts is refused with
E_CONFIG, what contradicts itself with E_WEIGHTS, and what the classes of transformers do not
compute with E_UNSUPPORTED.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    Tensors = Mapping[str, Tensor]
    Config = Mapping[str, Any]

TABLE = "backbone.embedding.weight"
HEAD = "lm_head.weight"
LAST_NORM = "backbone.norm_f."
_LAYER = re.compile(r"backbone\.layers\.([0-9]{1,6})\.")
_FIRST = "backbone.layers.0.mixer."
#: What only a mixer with a state has; attention has no more than its projections.
_STATEFUL = ("A_log", "D", "dt_bias", "dt_proj.weight", "x_proj.weight")
_PROJECTIONS = ("in_proj.weight", "Wqkv.weight")
_MLP = ("norm2.weight", "mlp.fc1.weight", "mlp.fc2.weight")
_LAYER_TYPE = "Mamba2"
#: What decides how a Mamba-2 mixer is built but leaves its shapes alone: the original code's
#: default, and why transformers has no model for another value.
_ONLY: dict[str, tuple[object, str]] = {
    "ngroups": (1, "its gated norm is taken group by group, that of transformers over all at once"),
    "norm_before_gate": (False, "in transformers the gate always comes before the norm"),
    "rmsnorm": (True, "in transformers there always is a gated norm"),
    "D_has_hdim": (False, "in transformers D has one number per head"),
}
#: Every key of ssm_cfg: the ones above, those that the tensors answer for, and those that only
#: the start of a training, or the kernels, take from it.
_KNOWN = frozenset(
    {
        *("layer", "dt_limit", *_ONLY),
        *("d_state", "d_conv", "expand", "headdim", "d_ssm", "bias", "conv_bias"),
        *("conv_init", "A_init_range", "dt_min", "dt_max", "dt_init_floor", "chunk_size"),
        *("use_mem_eff_path", "layer_idx", "sequence_parallel"),
    }
)
#: What no tensor shows, and what the original code does when the config does not state it.
_DEFAULTS = {
    "ngroups": "one group of heads shares B and C",
    "norm_before_gate": "the gate comes before the norm",
    "dt_limit": "step sizes have no limits",
}
#: The length of the convolution that the original code takes by itself.
_CONV_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Translated:
    """The values of a config of transformers, the tensors by its names, and notes on both."""

    values: dict[str, Any]
    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def family_of(tensors: Tensors) -> str | None:
    """The model type of a language model as its first authors store it; None for other files.

    Mamba-1 has a matrix A_log in its first layer, Mamba-2 a vector; a Mamba-2 whose first layer has
    attention in the place of the mixer is one, too, and can then be refused with the reason.
    """
    if TABLE not in tensors:
        return None
    for number in sorted(_layer_numbers(tensors)):
        rates = tensors.get(f"{_prefix(number)}mixer.A_log")
        if rates is not None and rates.ndim == 2:
            return "mamba" if number == 0 else None
        if rates is not None:
            return "mamba2" if rates.ndim == 1 else None
    return None


def translate(family: str, config: Config, tensors: Tensors) -> Translated:
    """What transformers needs to build the model."""
    values, notes = (_mamba if family == "mamba" else _mamba2)(config, tensors)
    tied, vocabulary = _is_tied(config, tensors), tensors[TABLE].shape[0]
    values |= {
        "model_type": family,
        "vocab_size": vocabulary,
        "residual_in_fp32": bool(config.get("residual_in_fp32", True)),
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": tied,
    }
    notes += _vocabulary_notes(config, vocabulary)
    if not tied:
        notes += (f"{HEAD} is stored and differs from the embedding: it is not tied",)
    names = {TABLE: "backbone.embeddings.weight"}
    return Translated(values, {names.get(name, name): t for name, t in tensors.items()}, notes)


def _mamba(config: Config, tensors: Tensors) -> tuple[dict[str, Any], tuple[str, ...]]:
    ranks = {
        TABLE: 2,
        f"{_FIRST}A_log": 2,
        f"{_FIRST}conv1d.weight": 3,
        f"{_FIRST}dt_proj.weight": 2,
    }
    for name, rank in ranks.items():
        if name not in tensors or tensors[name].ndim != rank or not tensors[name].numel():
            fact = f"{name}, a tensor of {rank} dimensions in every original Mamba, is not there"
            raise _weights_error(fact)
    width = tensors[TABLE].shape[1]
    inner, state = tensors[f"{_FIRST}A_log"].shape
    layers = _count_layers(tensors)
    _require_agreement(config, d_model=width, n_layer=layers)
    _require_plain(config, tensors)
    if inner % width:
        raise _config_error(f"the inner width {inner} is no multiple of the width {width}")
    values = {
        "architectures": ["MambaForCausalLM"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "state_size": state,
        "expand": inner // width,
        "intermediate_size": inner,
        "conv_kernel": tensors[f"{_FIRST}conv1d.weight"].shape[-1],
        "time_step_rank": tensors[f"{_FIRST}dt_proj.weight"].shape[1],
        "use_conv_bias": f"{_FIRST}conv1d.bias" in tensors,
        "use_bias": f"{_FIRST}in_proj.bias" in tensors,
    }
    note = (
        "the original format of Mamba: sizes were read off the tensors, keys renamed; the epsilon "
        "of its norms, which is not stored, is 1e-5"
    )
    return values, (note,)


def _mamba2(config: Config, tensors: Tensors) -> tuple[dict[str, Any], tuple[str, ...]]:
    _require_plain(config, tensors)
    stated = _read_ssm_cfg(config)
    sizes = _read_sizes(tensors)
    _refuse_variants(sizes, tensors)
    # Only a config tells a convolution without biases from one whose biases were lost.
    if "ssm_cfg" in config:
        bias, conv_bias = bool(stated.get("bias", False)), bool(stated.get("conv_bias", True))
    else:
        ends = {name.partition(".mixer.")[2] for name in tensors}
        bias, conv_bias = bool(ends & {"in_proj.bias", "out_proj.bias"}), "conv1d.bias" in ends
    _require_tensors(tensors, sizes, bias=bias, conv_bias=conv_bias)
    _require_whole(sizes)
    expand = sizes.inner // sizes.width
    _require_agreement(config, d_model=sizes.width, n_layer=sizes.layers)
    # A config that does not state the convolution means the length that the code takes itself.
    defaults = {"d_conv": _CONV_LENGTH} if config else {}
    _require_agreement(
        {**defaults, **stated},
        where="ssm_cfg ",
        d_state=sizes.state,
        d_conv=sizes.kernel,
        headdim=sizes.head,
        d_ssm=sizes.inner,
        expand=expand,
    )
    values = {
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "state_size": sizes.state,
        "expand": expand,
        "num_heads": sizes.heads,
        "head_dim": sizes.head,
        "n_groups": 1,
        "conv_kernel": sizes.kernel,
        "hidden_act": "silu",
        "use_bias": bias,
        "use_conv_bias": conv_bias,
        "time_step_limit": _dt_limit(stated),
    }
    notes = (
        "the original format of Mamba-2: sizes were read off the tensors, keys renamed; the "
        "epsilon of its norms, the gated one included, is not stored: it is 1e-5",
    )
    missing = {name: default for name, default in _DEFAULTS.items() if stated.get(name) is None}
    if missing:
        notes += (
            f"config.json does not state {', '.join(missing)}; as in the original code by default, "
            f"{', '.join(missing.values())}",
        )
    return values, notes


# Layers, embedding and head, which both have in common.


def _prefix(number: int) -> str:
    """What stands before the names of one layer."""
    return f"backbone.layers.{number}."


def _layer_numbers(names: Iterable[str]) -> set[int]:
    return {int(match[1]) for name in names if (match := _LAYER.match(name))}


def _count_layers(names: Iterable[str]) -> int:
    """How many layers there are; E_WEIGHTS when one of them is left out.

    A single name with a high number must not make the library build a model of that many layers.
    """
    numbers = _layer_numbers(names)
    absent = next((n for n in range(len(numbers)) if n not in numbers), None)
    if absent is not None:
        raise _weights_error(f"{_prefix(absent)}* is missing in the file")
    return len(numbers)


def _require_plain(config: Config, tensors: Tensors) -> None:
    """Raise E_UNSUPPORTED for LayerNorm, attention and MLPs: transformers' classes lack them."""
    prefixes = {number: _prefix(number) for number in sorted(_layer_numbers(tensors))}
    biases = (f"{LAST_NORM}bias", *(f"{prefix}norm.bias" for prefix in prefixes.values()))
    if config.get("rms_norm") is False or any(name in tensors for name in biases):
        raise _unsupported("this Mamba has LayerNorm, which those of transformers do not have")
    attention = config.get("attn_layer_idx") or [
        number
        for number, prefix in prefixes.items()
        if any(f"{prefix}mixer.{end}" in tensors for end in _PROJECTIONS)
        and not any(f"{prefix}mixer.{end}" in tensors for end in _STATEFUL)
    ]
    if attention:
        where = clean(attention, limit=80)
        raise _unsupported(
            f"some layers of this Mamba are attention ({where}), which those of transformers lack"
        )
    with_mlp = [n for n, prefix in prefixes.items() if any(prefix + end in tensors for end in _MLP)]
    if config.get("d_intermediate") or with_mlp:
        stated = f"d_intermediate {clean(config.get('d_intermediate'), limit=40)}"
        where = f"layer {with_mlp[0]}" if with_mlp else stated
        raise _unsupported(
            f"this Mamba has an MLP beside its mixers ({where}), which those of transformers lack"
        )


def _require_agreement(config: Config, *, where: str = "", **found: object) -> None:
    """Raise E_CONFIG where the config states something else than was found in the tensors."""
    for name, value in found.items():
        if config.get(name) is not None and config[name] != value:
            stated = clean(config[name], limit=60)
            raise _config_error(
                f"config.json states {where}{name} {stated}, the tensors say {value}"
            )


def _is_tied(config: Config, tensors: Tensors) -> bool:
    """Whether the head is the embedding; a config that states otherwise is refused."""
    stated, head, table = config.get("tie_embeddings"), tensors.get(HEAD), tensors[TABLE]
    if head is None:
        if stated is False:
            raise _weights_error(f"{HEAD} is missing in the file, and config.json does not tie it")
        return True
    tied = head.dtype == table.dtype and torch.equal(head, table)
    if stated is True and not tied:
        raise _config_error(
            f"config.json states tie_embeddings true, but {HEAD} differs from {TABLE}"
        )
    return tied


def _vocabulary_notes(config: Config, rows: int) -> tuple[str, ...]:
    """A note when the table has more rows than there are tokens; fewer are refused."""
    stated = config.get("vocab_size")
    if stated is None or stated == rows:
        return ()
    if not isinstance(stated, int | float) or stated > rows:
        shown = clean(stated, limit=60)
        raise _config_error(f"config.json states vocab_size {shown}, the embedding has {rows} rows")
    return (f"config.json states {stated} tokens, the embedding has {rows} rows",)


# Mamba-2: what its config states, the sizes that most tensors agree on, and every tensor compared.


def _read_ssm_cfg(config: Config) -> Config:
    """The statements on the mixers, none of which asks for what transformers does not compute."""
    stated = config.get("ssm_cfg") or {}
    if not isinstance(stated, dict):
        shown = clean(stated, limit=60)
        raise _config_error(f"config.json states ssm_cfg {shown}, which is no dictionary")
    layer = stated.get("layer", _LAYER_TYPE)
    if layer != _LAYER_TYPE:
        shown = clean(layer, limit=60)
        raise _config_error(
            f"config.json states the layer {shown}, the tensors are those of {_LAYER_TYPE}"
        )
    unknown = sorted(stated.keys() - _KNOWN)
    if unknown:
        shown = ", ".join(clean(name, limit=60) for name in unknown[:5])
        raise _config_error(
            f"config.json states ssm_cfg {shown}, which the original {_LAYER_TYPE} does not have"
        )
    for name, (only, reason) in _ONLY.items():
        if stated.get(name, only) != only:
            shown = clean(stated[name], limit=60)
            raise _unsupported(f"config.json states {name} {shown}: {reason}")
    return stated


def _dt_limit(stated: Config) -> list[float]:
    """Between which the step sizes are held; E_CONFIG unless they are two numbers in order."""
    limit = stated.get("dt_limit")
    if limit is None:
        return [0.0, math.inf]
    numbers = isinstance(limit, list) and all(type(value) in (int, float) for value in limit)
    if not numbers or len(limit) != 2 or not 0.0 <= limit[0] <= limit[1]:
        shown = clean(limit, limit=60)
        raise _config_error(f"config.json states dt_limit {shown}, not two sizes in order")
    return [float(value) for value in limit]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of the language model; `mixed` are the channels of the convolution: x, B and C."""

    layers: int
    vocabulary: int
    width: int
    inner: int
    heads: int
    mixed: int
    kernel: int

    @property
    def state(self) -> int:
        """States per channel; the channels of B and C are that many each."""
        return (self.mixed - self.inner) // 2

    @property
    def head(self) -> int:
        """Channels of one head."""
        return self.inner // self.heads


def _read_sizes(tensors: Tensors) -> _Sizes:
    """The sizes that most tensors agree on, so that the odd one can be named afterwards."""
    table = tensors[TABLE]
    if table.ndim != 2 or not table.numel():
        raise _weights_error(f"{TABLE} has the form {tuple(table.shape)}, which is no table")
    layers = _count_layers(tensors)

    def sizes_of(end: str, axis: int = 0, *, rank: int = 1) -> list[int]:
        """One side of a tensor in all layers, as far as it is there and of this rank."""
        found = (tensors.get(_prefix(number) + end) for number in range(layers))
        return [
            tensor.shape[axis] for tensor in found if tensor is not None and tensor.ndim == rank
        ]

    widths = [
        table.shape[1],
        *sizes_of("norm.weight"),
        *sizes_of("mixer.in_proj.weight", 1, rank=2),
    ]
    heads = _most(
        "A_log", sizes_of("mixer.A_log") + sizes_of("mixer.dt_bias") + sizes_of("mixer.D")
    )
    rows = sizes_of("mixer.in_proj.weight", rank=2)
    mixed = sizes_of("mixer.conv1d.weight", rank=3) + sizes_of("mixer.conv1d.bias")
    # The rows of in_proj are those of z, x, B, C and dt: they decide where two others differ.
    implied = [total - channels - heads for total, channels in zip(rows, mixed, strict=False)]
    inner = _most(
        "out_proj.weight",
        sizes_of("mixer.out_proj.weight", 1, rank=2) + sizes_of("mixer.norm.weight") + implied,
    )
    return _Sizes(
        layers=layers,
        vocabulary=table.shape[0],
        width=_most("norm.weight", widths),
        inner=inner,
        heads=heads,
        mixed=_most("conv1d.weight", mixed + [total - inner - heads for total in rows]),
        kernel=_most("conv1d.weight", sizes_of("mixer.conv1d.weight", 2, rank=3)),
    )


def _most(name: str, sizes: Iterable[int]) -> int:
    """The most frequent size; the first of several."""
    counted = Counter(size for size in sizes if size > 0)
    if not counted:
        raise _weights_error(f"no layer has a {name} of the form that it has in a Mamba-2")
    return counted.most_common(1)[0][0]


def _refuse_variants(sizes: _Sizes, tensors: Tensors) -> None:
    """Raise E_UNSUPPORTED with the reason, before a variant is taken for a damaged file."""

    def shapes(name: str) -> set[tuple[int, ...]]:
        """The shapes that a tensor of the mixers has, over all layers."""
        found = (tensors.get(f"{_prefix(n)}mixer.{name}") for n in range(sizes.layers))
        return {tuple(tensor.shape) for tensor in found if tensor is not None}

    norms = shapes("norm.weight")
    if not norms:
        raise _unsupported("the mixers have no norm.weight: in transformers the gate has a norm")
    if shapes("D") == {(sizes.inner,)} != {(sizes.heads,)}:
        raise _unsupported(
            f"D has {sizes.inner} numbers for {sizes.heads} heads (D_has_hdim): in transformers "
            "it has one per head"
        )
    outs, ins = shapes("out_proj.weight"), shapes("in_proj.weight")
    if [[len(shape) for shape in found] for found in (norms, outs, ins)] != [[1], [2], [2]]:
        return
    (scanned,), (_, channels), (rows, _) = norms.pop(), outs.pop(), ins.pop()
    # The rows of in_proj: z and x for the channels that are not scanned too, then B, C and dt.
    if scanned < channels and rows == 2 * channels - scanned + sizes.mixed + sizes.heads:
        raise _unsupported(
            f"the mixers scan {scanned} of their {channels} channels (d_ssm): in transformers all"
        )


def _require_tensors(tensors: Tensors, sizes: _Sizes, *, bias: bool, conv_bias: bool) -> None:
    """Raise E_WEIGHTS, naming what is missing, what is not known and what has another form."""
    rows = sizes.inner + sizes.mixed + sizes.heads  # z, then x with B and C, then dt
    layer: dict[str, tuple[int, ...]] = {
        "norm.weight": (sizes.width,),
        "mixer.in_proj.weight": (rows, sizes.width),
        "mixer.conv1d.weight": (sizes.mixed, 1, sizes.kernel),
        "mixer.dt_bias": (sizes.heads,),
        "mixer.A_log": (sizes.heads,),
        "mixer.D": (sizes.heads,),
        "mixer.norm.weight": (sizes.inner,),
        "mixer.out_proj.weight": (sizes.width, sizes.inner),
    }
    if bias:
        layer |= {"mixer.in_proj.bias": (rows,), "mixer.out_proj.bias": (sizes.width,)}
    if conv_bias:
        layer["mixer.conv1d.bias"] = (sizes.mixed,)
    wanted: dict[str, tuple[int, ...]] = {TABLE: (sizes.vocabulary, sizes.width)}
    for number in range(sizes.layers):
        wanted |= {_prefix(number) + end: shape for end, shape in layer.items()}
    wanted[f"{LAST_NORM}weight"] = (sizes.width,)
    if HEAD in tensors:
        wanted[HEAD] = wanted[TABLE]
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    facts = {
        "missing in the file": [name for name in wanted if name not in shapes],
        "not known to the model": [name for name in shapes if name not in wanted],
        "of another form": [
            f"{name} {shapes[name]} instead of {shape}"
            for name, shape in wanted.items()
            if shapes.get(name, shape) != shape
        ],
    }
    found = [
        f"{what}: {listed(names, most=6, limit=120)}" for what, names in facts.items() if names
    ]
    if found:
        raise _weights_error("these are not the tensors of one Mamba-2; " + "; ".join(found))


def _require_whole(sizes: _Sizes) -> None:
    """Raise E_WEIGHTS or E_CONFIG where one size must be a multiple of another."""
    if sizes.inner % sizes.heads:
        raise _weights_error(
            f"A_log has {sizes.heads} heads, which do not share {sizes.inner} channels"
        )
    rest = sizes.mixed - sizes.inner
    if rest <= 0 or rest % 2:
        raise _weights_error(
            f"conv1d.weight has {sizes.mixed} channels, {rest} beside the {sizes.inner} that are "
            "scanned: B and C cannot share them"
        )
    if sizes.inner % sizes.width:
        raise _config_error(
            f"the inner width {sizes.inner} is no multiple of the width {sizes.width}"
        )


def _weights_error(fact: str) -> SourceError:
    return SourceError("E_WEIGHTS", fact, hint="is the file complete?", stage="weights")


def _config_error(fact: str) -> SourceError:
    hint = "put the right config beside the weights, or remove it"
    return SourceError("E_CONFIG", fact, hint=hint, stage="config")


def _unsupported(fact: str) -> SourceError:
    """E_UNSUPPORTED with what the classes of transformers do not compute."""
    hint = "build the model in Python and pass the module to memaudit.scan"
    return SourceError("E_UNSUPPORTED", fact, hint=hint, stage="config")
