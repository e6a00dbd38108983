"""What timm writes beside its weights, read as plain data: the architecture and its sizes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

#: What of a stated pretrained_cfg decides how the model is built; addresses are not among it.
_BUILDING = ("input_size", "fixed_input_size", "num_classes", "first_conv", "classifier")
#: Arguments that load, wrap, move or prune instead of giving a size.
_REFUSED = re.compile(
    r"pretrained\w*|checkpoint_path|cache_dir|features_only|feature_c\w+|out_indices|pruned"
    r"|scriptable|exportable|no_jit|device|dtype|kwargs_filter|model_cfg|model_name|variant"
)
_DEPTHS = re.compile(r"depths?|layers|num_\w*layers|\w*_depth")
#: What trainers put before every name.
_PREFIXES = ("module.", "_orig_mod.", "model.")
#: Sizes that need no tensor of that side, such as the number of classes or pixels.
FREE_SIDE = 1 << 14
FREE_LAYERS = 256
LONGEST_LIST = 64
LONGEST_WORD = 64


def is_timm_config(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is timm's; one with a model_type belongs to transformers."""
    stated = isinstance(config.get("architecture"), str) and "model_type" not in config
    return stated and ("pretrained_cfg" in config or "num_features" in config)


def looks_like_patches(tensors: Mapping[str, Tensor]) -> bool:
    """Whether weights have the names that timm gives to a vision transformer."""
    names = set(short_names(tensors).values())
    return "patch_embed.proj.weight" in names and any(x.startswith("blocks.0.") for x in names)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The names without what a trainer put before all of them."""
    short = {name: name for name in names}
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in short.values()):
            short = {full: name.removeprefix(prefix) for full, name in short.items()}
    return short


def stated_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a timm config that timm builds a model from; older ones have one level."""
    inner = config.get("pretrained_cfg", config)
    if not isinstance(inner, dict):
        raise _wrong("pretrained_cfg", inner)
    found = {key: inner[key] for key in _BUILDING if inner.get(key) is not None}
    if "num_classes" in config:
        found["num_classes"] = config["num_classes"]
    _check_image(found.get("input_size"))
    if not isinstance(found.get("num_classes", 0), int):
        raise _wrong("num_classes", found["num_classes"])
    return {key: _plain(key, value) for key, value in found.items()}


def stated_sizes(sizes: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of a model as sizes, flags and words that its weights can fill."""
    if not isinstance(sizes, dict):
        raise _wrong("model_args", sizes)
    most = max([FREE_SIDE, *(side for t in tensors.values() for side in t.shape)])
    deepest = max(FREE_LAYERS, len(tensors))
    for key, value in sizes.items():
        if _REFUSED.fullmatch(key):
            raise _wrong(f"model_args.{key}", value, "which is no size of a model")
        layers = _DEPTHS.fullmatch(key) is not None
        numbers = [x for x in _flat(value) if isinstance(x, int | float)]
        if numbers and (max(numbers) > most or (layers and sum(numbers) > deepest)):
            raise _wrong(f"model_args.{key}", value, "more than the weights can fill")
    return {key: _plain(f"model_args.{key}", value) for key, value in sizes.items()}


def class_count(classifier: Any, tensors: Mapping[str, Tensor]) -> int:
    """The number of classes by the shape of the head; 0 when the file has no head."""
    heads = classifier if isinstance(classifier, list | tuple) else [classifier]
    full = {short: name for name, short in short_names(tensors).items()}
    for head in heads:
        weight = tensors.get(full.get(f"{head}.weight", ""))
        if weight is not None and weight.ndim >= 1:
            return int(weight.shape[0])
    return 0


def _check_image(size: Any) -> None:
    if size is None:
        return
    whole = isinstance(size, list | tuple) and all(type(x) is int and x > 0 for x in size)
    if not whole or len(size) != 3:
        raise _wrong("input_size", size, "not channels, height and width")


def _plain(key: str, value: Any) -> Any:
    """A number, a word, or a short list of them; timm takes tuples."""
    if isinstance(value, list | tuple):
        if len(value) > LONGEST_LIST:
            raise _wrong(key, value, "a list too long")
        return tuple(_plain(key, item) for item in value)
    if isinstance(value, str) and len(value) <= LONGEST_WORD:
        return value
    if value is None or isinstance(value, int | float):
        return value
    raise _wrong(key, value)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [x for item in value[: LONGEST_LIST + 1] for x in _flat(item)]
    return [value]


def _wrong(key: str, value: Any, why: str = "which timm cannot be built from") -> SourceError:
    return SourceError(
        "E_CONFIG",
        f"{clean(key, limit=80)} is {clean(repr(value), limit=80)}, {why}",
        hint="put the right config beside the weights, or remove it and give --set model=NAME",
        stage="config",
    )
