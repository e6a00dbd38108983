"""The original format of Mamba-2: sizes are read off the tensors, and every one accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit_transformers.original.keys import HEAD, renamed, weights_error
from memaudit_transformers.original.parts import has_any, parts_of, require_parts
from memaudit_transformers.original.sizes import Sizes, read_sizes
from memaudit_transformers.original.ssm_cfg import dt_limit, read_ssm_cfg, silence_notes
from memaudit_transformers.original.surroundings import (
    head_notes,
    is_tied,
    odd,
    require_agreement,
    require_plain,
    vocabulary_notes,
)
from memaudit_transformers.original.translated import Translated
from memaudit_transformers.original.variants import refuse_variants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_CONVOLVED = 4
_NOTE = (
    "the original format of Mamba-2: sizes were read off the tensors, keys renamed; the epsilon "
    "of its norms, the gated one included, is not stored: it is 1e-5"
)


def translate_mamba2(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Translated:
    """What transformers needs to build it; what it does not compute is refused with the reason."""
    require_plain(config, tensors)
    stated = read_ssm_cfg(config)
    sizes = read_sizes(tensors)
    refuse_variants(sizes, tensors)
    bias, conv_bias = _biases(config, stated, sizes, tensors)
    parts = parts_of(sizes, bias=bias, conv_bias=conv_bias, head=HEAD in tensors)
    require_parts(tensors, parts)
    _require_whole(sizes)
    require_agreement(config, d_model=sizes.width, n_layer=sizes.layers)
    inside = {"d_state": sizes.state, "d_conv": sizes.kernel, "headdim": sizes.head}
    inside |= {"d_ssm": sizes.inner, "expand": sizes.inner // sizes.width}
    # A config that is silent about the convolution means the length that the code takes itself.
    silent = {"d_conv": _CONVOLVED} if config else {}
    require_agreement({**silent, **stated}, where="ssm_cfg ", **inside)
    tied = is_tied(config, tensors)
    values = {
        **_sizes_by_name(sizes),
        "use_bias": bias,
        "use_conv_bias": conv_bias,
        "time_step_limit": list(dt_limit(stated)),
        "residual_in_fp32": bool(config.get("residual_in_fp32", True)),
        "tie_word_embeddings": tied,
    }
    notes = (*vocabulary_notes(config, sizes.vocabulary), *head_notes(tied=tied))
    return Translated(values, renamed(tensors), (_NOTE, *silence_notes(stated), *notes))


def _sizes_by_name(sizes: Sizes) -> dict[str, Any]:
    """The values that are the same for all or follow from the sizes, by transformers' names."""
    return {
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "state_size": sizes.state,
        "expand": sizes.inner // sizes.width,
        "num_heads": sizes.heads,
        "head_dim": sizes.head,
        "n_groups": 1,
        "conv_kernel": sizes.kernel,
        "hidden_act": "silu",
        "layer_norm_epsilon": 1e-5,
    }


def _biases(
    config: Mapping[str, Any],
    stated: Mapping[str, Any],
    sizes: Sizes,
    tensors: Mapping[str, Tensor],
) -> tuple[bool, bool]:
    """Whether the projections and the convolution have biases; a config knows, with its defaults.

    Only the config tells a convolution without biases from one whose biases were lost.
    """
    if "ssm_cfg" in config:
        return bool(stated.get("bias", False)), bool(stated.get("conv_bias", True))
    projections = has_any(tensors, sizes, "mixer.in_proj.bias", "mixer.out_proj.bias")
    return projections, has_any(tensors, sizes, "mixer.conv1d.bias")


def _require_whole(sizes: Sizes) -> None:
    """Raise E_WEIGHTS or E_CONFIG where one size must be a multiple of another."""
    if sizes.inner % sizes.heads:
        raise weights_error(
            f"A_log has {sizes.heads} heads, which do not share {sizes.inner} channels"
        )
    rest = sizes.mixed - sizes.inner
    if rest <= 0 or rest % 2:
        raise weights_error(
            f"conv1d.weight has {sizes.mixed} channels, {rest} beside the {sizes.inner} that are "
            "scanned: B and C cannot share them"
        )
    if sizes.inner % sizes.width:
        raise odd(f"the inner width {sizes.inner} is no multiple of the width {sizes.width}")
