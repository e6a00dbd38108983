"""What `ssm_cfg` of a config.json states about the mixers of an original Mamba-2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memaudit.errors import clean
from memaudit_transformers.original.surroundings import odd, unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

LAYER = "Mamba2"
#: What decides how a mixer is built but leaves its shapes alone: the original code's default, and
#: why transformers has no model for another value.
_ONLY: dict[str, tuple[object, str]] = {
    "ngroups": (1, "its gated norm is taken group by group, that of transformers over all at once"),
    "norm_before_gate": (False, "in transformers the gate always comes before the norm"),
    "rmsnorm": (True, "in transformers there always is a gated norm"),
    "D_has_hdim": (False, "in transformers D has one number per head"),
}
#: What the tensors answer for.
_SHAPES = frozenset({"d_state", "d_conv", "expand", "headdim", "d_ssm", "bias", "conv_bias"})
#: What only the start of a training, or the kernels, take from it.
_IDLE = frozenset(
    {
        *("conv_init", "A_init_range", "dt_min", "dt_max", "dt_init_floor", "chunk_size"),
        *("use_mem_eff_path", "layer_idx", "sequence_parallel"),
    }
)
_KNOWN = frozenset({"layer", "dt_limit", *_ONLY, *_SHAPES, *_IDLE})
#: What no tensor tells, and what the original code does when the config is silent about it.
_UNSEEN = {
    "ngroups": "one group of heads shares B and C",
    "norm_before_gate": "the gate comes before the norm",
    "dt_limit": "step sizes have no limits",
}


def read_ssm_cfg(config: Mapping[str, Any]) -> dict[str, Any]:
    """The statements on the mixers, none of which asks for what transformers does not compute."""
    stated = config.get("ssm_cfg") or {}
    if not isinstance(stated, dict):
        raise odd(f"config.json states ssm_cfg {clean(stated, limit=60)}, which is no dictionary")
    layer = stated.get("layer", LAYER)
    if layer != LAYER:
        said = clean(layer, limit=60)
        raise odd(f"config.json states the layer {said}, the tensors are those of {LAYER}")
    strange = sorted(stated.keys() - _KNOWN)
    if strange:
        named = ", ".join(clean(name, limit=60) for name in strange[:5])
        raise odd(f"config.json states ssm_cfg {named}, which the original {LAYER} does not have")
    for name, (only, reason) in _ONLY.items():
        if stated.get(name, only) != only:
            said = clean(stated[name], limit=60)
            raise unsupported(f"config.json states {name} {said}: {reason}")
    return stated


def dt_limit(stated: Mapping[str, Any]) -> tuple[float, float]:
    """Between which the step sizes are held; E_CONFIG unless they are two numbers in order."""
    limit = stated.get("dt_limit")
    if limit is None:
        return (0.0, math.inf)
    if isinstance(limit, list) and len(limit) == 2 and all(map(_is_number, limit)):
        lowest, highest = map(float, limit)
        if 0.0 <= lowest <= highest:
            return (lowest, highest)
    raise odd(f"config.json states dt_limit {clean(limit, limit=60)}, not two sizes in order")


def silence_notes(stated: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence on what neither the config nor a tensor tells."""
    silent = {name: said for name, said in _UNSEEN.items() if stated.get(name) is None}
    if not silent:
        return ()
    return (
        f"config.json does not state {', '.join(silent)}; as in the original code by default, "
        f"{', '.join(silent.values())}",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
