"""A config without whatever makes a library fetch, import or run something."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Why a key is left out: a verb, and the rest of the sentence.
_CODE = ("name", "code in the repository")
_KERNEL = ("choose", "a kernel, which may come from the hub")
_ELSEWHERE = ("name", "a file or a repository to load from")
_REWIRING = ("rewire", "the library that reads the config")

#: Which keys are left out. Everything else in a config is sizes, flags and the names of a
#: library's own parts, which decide what is built but fetch and run nothing.
_LEFT_OUT = {
    _CODE: re.compile(r"auto_map|trust_remote_code|custom_pipelines|custom_generate|code_revision"),
    _KERNEL: re.compile(
        r"\w*implementation(?:_internal|_autoset)?"
        r"|kernel_config|kernel_mapping|use_kernels|fusion_config|distributed_config"
    ),
    # The weights' own file name among them: it may lead out of the folder.
    _ELSEWHERE: re.compile(
        r"\w*name_or_path|transformers_weights|configuration_files|gguf_file|repo_id|peft_config"
        r"|has_lora_adapter|use_pretrained_backbone|pretrained_cfg_overlay|checkpoint_path"
        r"|index_path|passages_path|hf_hub_id|hf_hub_filename|custom_load"
    ),
    # An attribute map, or a whole __dict__, brings back under another name what is left out here.
    _REWIRING: re.compile(r"__\w*|attribute_map|sub_configs\w*|base_model_\w+_plan"),
}
#: Written by every save_pretrained and read by nothing that counts: not worth a sentence.
_BOOKKEEPING = frozenset({"_name_or_path", "_commit_hash", "_attn_implementation_autoset"})
#: A model's name that means a repository or a folder: hf-hub:org/name, local-dir:/path.
_PLACE = re.compile(r"\s*(?:hf[-_]hub|local[-_]dir):", re.IGNORECASE)
#: Dictionaries from and to the names of classes, which may look like anything.
_LABELS = ("id2label", "label2id")
#: How transformers writes the numbers that JSON lacks: {"__float__": "Infinity"}.
_TAG = "__float__"
_TAGGED = {"Infinity": math.inf, "-Infinity": -math.inf}
_QUANTIZED = ("quantization_config", "compression_config")
#: The kinds of quantization that transformers reads.
_METHODS = frozenset(
    {
        *("aqlm", "auto-round", "awq", "bitnet", "bitsandbytes", "compressed-tensors", "eetq"),
        *("fbgemm_fp8", "fouroversix", "fp8", "fp_quant", "gemma", "gguf", "gptq", "higgs", "hqq"),
        *("metal", "mxfp4", "mxfp8", "nvfp4", "quanto", "quark", "sinq", "spqr", "torchao", "vptq"),
    }
)
#: By these Hydra and its users say which class was built: in a trainer's settings they are kept as
#: words, which tell one family of models from another. No library is handed them.
_KINDS = ("_target_", "_name_")
#: In a config.json only a word of a registry is kept, which neither imports nor leads anywhere.
_NAME, _WORD = "_name_", re.compile(r"[A-Za-z0-9_.-]+")
_SHOWN = 6

_Dropped = dict[tuple[str, str], list[str]]


def clean_config(
    values: dict[str, Any], *, name: str, library: bool = True
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config without what names code, kernels, files or repositories; a sentence on each.

    `library` says that this is the config.json of a library, not the settings of a trainer.
    Raises E_UNSUPPORTED when the config says that the weights are quantized.
    """
    _refuse_quantized(values, name=name)
    dropped: _Dropped = {}
    kept = _cleaned(values, "", dropped, () if library else _KINDS)
    return kept, tuple(_sentence(name, keys, reason) for reason, keys in dropped.items())


def _cleaned(
    values: dict[str, Any], path: str, dropped: _Dropped, kinds: tuple[str, ...]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in values.items():
        reason = None if _is_kind(key, value, kinds) else _reason(key, value)
        if reason is None:
            inner = f"{path}{key}."
            kept[key] = value if key in _LABELS else _inside(value, inner, dropped, kinds)
        elif value and key not in _BOOKKEEPING:  # null and false choose nothing
            dropped.setdefault(reason, []).append(path + key)
    return kept


def _inside(value: Any, path: str, dropped: _Dropped, kinds: tuple[str, ...]) -> Any:
    """A value cleaned at every depth."""
    if isinstance(value, list):
        return [_inside(item, path, dropped, kinds) for item in value]
    if not isinstance(value, dict):
        return value
    for text, number in _TAGGED.items():
        if value == {_TAG: text}:
            return number
    return _cleaned(value, path, dropped, kinds)


def _is_kind(key: str, value: Any, kinds: tuple[str, ...]) -> bool:
    """Whether an entry only says, in a word, what was built."""
    if not isinstance(value, str):
        return False
    return key in kinds or (key == _NAME and _WORD.fullmatch(value) is not None)


def _reason(key: str, value: Any) -> tuple[str, str] | None:
    """Why a key is left out, or None."""
    for reason, keys in _LEFT_OUT.items():
        if keys.fullmatch(key):
            return reason
    # OPT and Gemma keep sizes and flags in private names; text and structures are no sizes.
    if key.startswith("_") and not isinstance(value, bool | int | float | None):
        return _REWIRING
    if isinstance(value, str) and (_PLACE.match(value) or (key == "backbone" and "/" in value)):
        return _ELSEWHERE
    return None


def _sentence(name: str, keys: list[str], reason: tuple[str, str]) -> str:
    shown = listed(keys, most=_SHOWN, limit=80)
    verb, rest = reason
    why = f"was left out: it {verb}s" if len(keys) == 1 else f"were left out: they {verb}"
    return f"{clean(name)}: {shown} {why} {rest}"


def _refuse_quantized(values: dict[str, Any], *, name: str) -> None:
    for stated in _quantizations(values):
        method = _method(stated)
        if method in _METHODS:
            fact = f"says that the weights are quantized ({method}), which is not audited yet"
        else:
            fact = f"names the quantization {clean(method)!r}, which is not known"
        raise SourceError(
            "E_UNSUPPORTED",
            f"{clean(name)} {fact}",
            hint="give the checkpoint from before the quantization",
            stage="config",
        )


def _quantizations(value: Any) -> Iterator[Any]:
    """Every filled quantization entry, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _quantizations(item)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in _QUANTIZED and inner:
                yield inner
            else:
                yield from _quantizations(inner)


def _method(stated: Any) -> str:
    if not isinstance(stated, dict):
        return str(stated)
    if stated.get("load_in_8bit") or stated.get("load_in_4bit"):
        return "bitsandbytes"
    return str(stated.get("quant_method", "without a name"))
