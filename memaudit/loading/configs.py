"""The config beside a checkpoint: untrusted text, cleaned, and compared with the weights."""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.files import open_within, rank_weights, read_beside, read_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

# -- The JSON of a config: plain values, or one sentence on what is wrong.
#
# People and older libraries write configs, so they are less tidy than the headers of weight files:
# a byte-order mark is forgiven, and so are Infinity and a key that is merely repeated.

#: Configs are a few kilobytes; one with the names of 20 000 classes has a megabyte.
LARGEST_CONFIG = 4 << 20
#: The configs of transformers are nested six deep.
DEEPEST = 32
#: A size has 20 digits at most; Python itself gives up at 4300.
LONGEST_NUMBER = 300


class BadText(Exception):  # noqa: N818
    """What is wrong with the text; the message completes the sentence `FILE …`."""


def parse_config(data: bytes, *, name: str) -> dict[str, Any]:
    """The JSON object in a file called `name`, or E_CONFIG.

    A key that is stated twice with different values is refused: readers differ in which they take.
    """
    with in_words(name):
        return _parse_json(data)


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """Turn what is wrong with a text into E_CONFIG, with the name of its file."""
    try:
        yield
    except BadText as error:
        raise SourceError(
            "E_CONFIG",
            f"{clean(name)} {error}",
            hint="mend the file, or move it away to open the weights without it",
            stage="open",
        ) from None


def require_plain(content: dict[str, Any]) -> None:
    """Refuse what is nested too deeply, or holds what no report can be written with."""
    _require_shallow(content)
    _require_text(content)


def put(found: dict[str, Any], key: str, value: Any) -> None:
    """Add an entry, unless it contradicts one that is there; 1, 1.0 and true are different."""
    if key in found and repr(found[key]) != repr(value):
        raise BadText(f"states {clean(key, limit=60)!r} twice, with different values")
    found[key] = value


def short_number(digits: str) -> str:
    """The digits, unless they are more than any number has."""
    if len(digits) > LONGEST_NUMBER:
        raise BadText(f"holds a number with {len(digits)} digits")
    return digits


def _parse_json(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_parse_object,
            parse_constant=_parse_constant,
            parse_int=_parse_integer,
            parse_float=_parse_float,
        )
    except UnicodeDecodeError:
        raise BadText("is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise BadText(f"is not JSON (line {error.lineno}: {error.msg})") from None
    except RecursionError:
        raise BadText("is nested too deeply") from None
    if not isinstance(content, dict):
        kind = "null" if content is None else f"a {type(content).__name__}"
        raise BadText(f"holds {kind}, not an object")
    require_plain(content)
    return content


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        put(found, key, value)
    return found


def _parse_constant(text: str) -> float:
    if text == "NaN":
        raise BadText("holds NaN, which is no number")
    return float(text)


def _parse_integer(digits: str) -> int:
    return int(short_number(digits))


def _parse_float(digits: str) -> float:
    return float(short_number(digits))


def _require_shallow(content: dict[str, Any]) -> None:
    layer: list[Any] = [content]
    for _ in range(DEEPEST):
        inner = (v.values() if isinstance(v, dict) else v for v in layer)
        layer = [v for values in inner for v in values if isinstance(v, dict | list)]
        if not layer:
            return
    raise BadText(f"is nested more than {DEEPEST} deep")


def _require_text(content: dict[str, Any]) -> None:
    """Refuse half a surrogate pair, which no report could be written with."""
    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise BadText("holds characters that are no text") from None


# -- What a bare word in YAML stands for: nothing, a truth value, a number, or itself.

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
#: Hydra and Lightning read YAML 1.1, in which yes and on are true.
_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_TRUTH = {
    form: value
    for word, value in _WORDS.items()
    for form in (word, word.capitalize(), word.upper())
}
#: 012 is ten in YAML 1.1 and twelve in 1.2, 1:30 is ninety or text: such words stay text.
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)", re.ASCII)
_HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-fA-F_]+", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*[eE][-+]?[0-9]+)",
    re.ASCII,
)
_INFINITE = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")


def plain_scalar(text: str) -> bool | int | float | str | None:
    """The value of a word without quotes; a date is text, and so is what is no number."""
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    bare = text.replace("_", "")
    if _WHOLE.fullmatch(text):
        return int(short_number(bare))
    if _HEXADECIMAL.fullmatch(text) and bare[-1] not in "xX":
        return int(short_number(bare), 16)
    if _FLOAT.fullmatch(text):
        return float(short_number(bare))
    if found := _INFINITE.fullmatch(text):
        return -math.inf if found[1] == "-" else math.inf
    return text


# -- From the events of a YAML text to plain values, built step by step and within bounds.

#: Hydra's configs have some hundred values; a reference counts for all that it repeats.
MOST_PARTS = 100_000
#: Characters of text that count as one part.
_PER_PART = 32
_PREFIX = "tag:yaml.org,2002:"
_TEXT_TAGS = (f"{_PREFIX}str", "!")
_SCALAR_TAGS = tuple(_PREFIX + kind for kind in ("int", "float", "bool", "null"))
_MAP_TAGS = (None, "!", f"{_PREFIX}map")
#: Lightning writes tuples by a name of Python; they are lists.
_LIST_TAGS = (None, "!", f"{_PREFIX}seq", f"{_PREFIX}python/tuple")
_UNKNOWN_TAG = object()
_MERGE = object()


@dataclass(slots=True)
class _Frame:
    """A mapping or a list that is not finished."""

    is_map: bool
    known: bool
    anchor: str | None
    left: int
    items: list[Any] = field(default_factory=list)
    merged: dict[str, Any] = field(default_factory=dict)


class YamlBuilder:
    """Takes the events of one document; `left_out` names values of foreign tags."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.documents: list[Any] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._left = MOST_PARTS

    def begin(self, *, is_map: bool, tag: str | None, anchor: str | None) -> None:
        """A mapping or a list begins."""
        if len(self._frames) >= DEEPEST:
            raise BadText(f"is nested more than {DEEPEST} deep")
        if self._expects_key():
            raise BadText("has a key that is no text")
        known = tag in (_MAP_TAGS if is_map else _LIST_TAGS)
        self._frames.append(_Frame(is_map, known, anchor, self._left))
        self._spend(1)

    def end(self) -> None:
        """The innermost mapping or list ends."""
        frame = self._frames.pop()
        value: Any = frame.items
        if frame.is_map:
            value = {}
            for key, part in zip(frame.items[::2], frame.items[1::2], strict=True):
                put(value, key, part)
            value = {**frame.merged, **value}
        value = value if frame.known else _UNKNOWN_TAG
        self._remember(frame.anchor, value, frame.left - self._left)
        self._add(value)

    def scalar(self, text: str, *, tag: str | None, plain: bool, anchor: str | None) -> None:
        """One value, which stands for itself or for a number; as a key it is always text."""
        parts = 1 + len(text) // _PER_PART
        self._spend(parts)
        value: Any = text
        if self._expects_key():
            value = _MERGE if plain and text == "<<" else text
        elif tag in _SCALAR_TAGS or (tag is None and plain):
            value = plain_scalar(text)
        elif tag not in (None, *_TEXT_TAGS):
            value = _UNKNOWN_TAG
        self._remember(anchor, value, parts)
        self._add(value)

    def alias(self, anchor: str) -> None:
        """What was written before, once more."""
        if anchor not in self._anchors:
            raise BadText("refers to something that is not finished or not there")
        value, parts = self._anchors[anchor]
        if self._expects_key() and not isinstance(value, str):
            raise BadText("has a key that is no text")
        self._spend(parts)
        self._add(value)

    def _expects_key(self) -> bool:
        frame = self._frames[-1] if self._frames else None
        return frame is not None and frame.is_map and len(frame.items) % 2 == 0

    def _add(self, value: Any) -> None:
        if not self._frames:
            self.documents.append(None if value is _UNKNOWN_TAG else value)
            return
        frame = self._frames[-1]
        if frame.is_map and len(frame.items) % 2 and frame.items[-1] is _MERGE:
            frame.items.pop()
            self._merge(frame, value)
        elif value is _UNKNOWN_TAG:
            self.left_out.append(self._place())
            if frame.is_map:
                frame.items.pop()
            else:
                frame.items.append(None)
        else:
            frame.items.append(value)

    def _merge(self, frame: _Frame, value: Any) -> None:
        """Take over the entries of other mappings; the first one that has a key wins."""
        for other in value if isinstance(value, list) else [value]:
            if not isinstance(other, dict):
                raise BadText("merges what is no mapping")
            self._spend(len(other))
            frame.merged = {**other, **frame.merged}

    def _remember(self, anchor: str | None, value: Any, parts: int) -> None:
        if anchor is not None and value is not _MERGE:
            self._anchors[anchor] = value, parts

    def _place(self) -> str:
        """The dotted name of the value that comes next."""
        keys = [f.items[-1] for f in self._frames if f.is_map and f.items]
        return ".".join(clean(key, limit=60) for key in keys if isinstance(key, str))

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise BadText("unfolds into more values than settings have")


# -- The YAML of a trainer's settings: plain values, or one sentence on what is wrong.
#
# The events of the text are all that is asked of the library: no tag is looked up, nothing is built
# by it, and a text that would unfold, nest or refer to itself is refused on the way.

#: The reader is written in Python and takes seconds for a megabyte; settings have kilobytes.
LARGEST_YAML = 1 << 18


def parse_yaml(data: bytes, *, name: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The mapping in a file called `name` and a note on what was left out, or E_CONFIG.

    Interpolations such as ${model.width} stay text, and so do dates. Values with a tag that is
    not plain YAML are left out. An empty file states nothing.
    """
    with in_words(name):
        building = YamlBuilder()
        for event in _events(data):
            _take(building, event)
        content = building.documents[0] if building.documents else None
        if len(building.documents) > 1:
            raise BadText("holds several documents, not one")
        if not isinstance(content, dict | None):
            raise BadText(f"holds a {type(content).__name__}, not a mapping")
        require_plain(content or {})
    return content or {}, _left_out(building.left_out, name)


def _events(data: bytes) -> Iterator[Any]:
    import yaml

    try:
        yield from yaml.parse(data.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError:
        raise BadText("is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise BadText(f"is not YAML ({line}{clean(error.problem, limit=120)})") from None
    # Numbers in escapes and directives are converted without a look at them.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise BadText("is not YAML") from None


def _take(building: YamlBuilder, event: Any) -> None:
    import yaml

    match event:
        case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
            is_map = isinstance(event, yaml.MappingStartEvent)
            building.begin(is_map=is_map, tag=event.tag, anchor=event.anchor)
        case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
            building.end()
        case yaml.ScalarEvent():
            plain = event.style is None
            building.scalar(event.value, tag=event.tag, plain=plain, anchor=event.anchor)
        case yaml.AliasEvent():
            building.alias(event.anchor)


def _left_out(places: list[str], name: str) -> tuple[str, ...]:
    if not places:
        return ()
    shown = listed(places, most=_SHOWN)
    return (f"{clean(name)}: left out, for a tag that is not plain YAML: {shown}",)


# -- A config without whatever makes a library fetch, import or run something.

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


# -- The config beside a checkpoint: hostile text read as plain data, without what names code.

CONFIG_NAME = "config.json"
ADAPTER_NAME = "adapter_config.json"
#: Where trainers leave their settings, read when there is no config.json: the first one counts.
SETTINGS_NAMES = ("config.yaml", "config.yml", ".hydra/config.yaml", "hparams.yaml")


@dataclass(frozen=True, slots=True)
class Config:
    """What the config of a folder states, and sentences on what was left out of it.

    `path` is None when no file states it, `name` is what messages call it.
    """

    path: Path | None
    values: dict[str, Any]
    notes: tuple[str, ...]
    name: str = CONFIG_NAME

    @property
    def of_library(self) -> bool:
        """Whether this is a config.json, which a library reads, and not a trainer's settings."""
        return self.name == CONFIG_NAME


def open_config(folder: Path) -> Config:
    """The folder's config.json, or a trainer's settings; without either there are no values.

    A folder with nothing but an adapter (LoRA) is refused: its base lies elsewhere.
    """
    notes = _without_adapter(folder)
    found = config_names(folder)
    if not found:
        return Config(None, {}, notes)
    name, *others = found
    if name == CONFIG_NAME:
        values, dropped = clean_config(_read(folder, name), name=name)
        return Config(folder / name, values, (*notes, *dropped))
    passed = f"; not {', '.join(others)}" if others else ""
    stated, tagged = parse_yaml(_bytes(folder, name, most=LARGEST_YAML), name=name)
    values, dropped = clean_config(stated, name=name, library=False)
    source_note = f"settings were read from {name} beside the weights{passed}"
    return Config(folder / name, values, (*notes, source_note, *tagged, *dropped), name)


def config_names(folder: Path) -> tuple[str, ...]:
    """What states settings in a folder, the one that counts first; a config.json counts alone."""
    if _is_there(folder, CONFIG_NAME):
        return (CONFIG_NAME,)
    return tuple(name for name in SETTINGS_NAMES if _is_there(folder, name))


def _is_there(folder: Path, name: str) -> bool:
    """Whether the folder has an entry of this name, be it a link that leads nowhere."""
    return os.path.lexists(folder / name)


def _read(folder: Path, name: str) -> dict[str, Any]:
    return parse_config(_bytes(folder, name, most=LARGEST_CONFIG), name=name)


def _bytes(folder: Path, name: str, *, most: int) -> bytes:
    below, _, last = name.rpartition("/")
    with open_within(folder, last, below=below) as file:
        return read_whole(file, most=most)


def _without_adapter(folder: Path) -> tuple[str, ...]:
    """A sentence when an adapter beside the weights is not applied."""
    if not _is_there(folder, ADAPTER_NAME):
        return ()
    if _full_weights(folder):
        return (f"{ADAPTER_NAME} was not read: the adapter is not applied to the weights",)
    base = _read(folder, ADAPTER_NAME).get("base_model_name_or_path")
    named = f"its base, {clean(base)}," if isinstance(base, str) and base else "its base"
    raise SourceError(
        "E_UNSUPPORTED",
        f"this is an adapter without a model: {named} is not here and is not fetched",
        hint="merge it into its base first, e.g. with peft's merge_and_unload, and save the model",
        stage="config",
    )


def _full_weights(folder: Path) -> bool:
    """Whether the folder has weights besides those of an adapter."""
    try:
        chosen, whole = rank_weights(os.listdir(folder))
    except OSError:
        return True  # whoever looks for the weights says what is wrong
    return any(not name.lower().startswith("adapter_") for name in (*chosen, *whole))


def code_map(folder: Path) -> dict[str, str]:
    """What `auto_map` in the folder's config.json names: role → module.Class, as it stands there.

    Nothing is run or imported. The cleaned config of a checkpoint leaves this out on purpose.
    """
    data = read_beside(folder, CONFIG_NAME, most=LARGEST_CONFIG)
    if data is None:
        return {}
    stated: Any = parse_config(data, name=CONFIG_NAME).get("auto_map")
    if not isinstance(stated, dict):
        return {}
    return {role: name for role, name in stated.items() if isinstance(name, str)}


# -- The sizes that a config states: whole numbers above 0, or a sentence on what stands there.

WIDTHS = ("hidden_size", "d_model", "n_embd")
LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "layers", "num_blocks", "n_blocks"),
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers", "depths"),
)
#: There is no model without these: here null is no answer, and neither is a list.
_INDISPENSABLE = (*WIDTHS, "num_hidden_layers", "n_layer", "n_layers")
#: Sizes of one matrix, beside the width.
SIDES = (
    *("intermediate_size", "n_inner", "d_ff", "ffn_dim", "embedding_size", "num_key_value_heads"),
    *("num_attention_heads", "num_heads", "n_head", "n_heads", "state_size", "d_state", "d_conv"),
    *("ssm_state_size", "conv_kernel", "time_step_rank", "dt_rank", "expand"),
)
_SIZES = frozenset(
    (*_INDISPENSABLE, *SIDES, "vocab_size", "num_layers", "max_position_embeddings", "n_positions")
)
#: Mamba lets the library work out its rank.
_AUTOMATIC = ("time_step_rank", "dt_rank")
#: A factor may be 1.5.
_FACTORS = ("expand",)
#: What else is a size by its name in a config of transformers; elsewhere it may be anything.
_ALIKE = re.compile(
    r"(?:.*_)?(?:size|sizes|dim|dims|width|depths?|embeddings|vocab|heads?|layers?|experts|channels"
    r"|rank|blocks|buckets|queries|labels|classes|state|groups|filters|kernel|positions|codebooks)"
)


def read_sizes(
    values: Mapping[str, Any], *, where: str, library: bool, strict: bool = True
) -> dict[str, list[int]]:
    """Every size in one dictionary of a config; a list holds several.

    `where` stands before the keys in an error, `library` says that transformers wrote the config.
    Raises E_CONFIG, naming key and value, for what cannot be a size; unless `strict`, that is left
    out, since a trainer's settings also hold references, gaps and the sizes of other things.
    """
    found: dict[str, list[int]] = {}
    for key, value in values.items():
        if key in _SIZES and strict:
            found[key] = _stated(key, value, where=where)
        elif key in _SIZES or key in LAYERS or (library and _ALIKE.fullmatch(key)):
            items = value if isinstance(value, list) else [value]
            found[key] = [_whole(item) for item in items if _is_number(item) and item > 0]
    return {key: numbers for key, numbers in found.items() if numbers}


def _stated(key: str, value: Any, *, where: str) -> list[int]:
    optional = key not in _INDISPENSABLE
    if (value is None and optional) or (value == "auto" and key in _AUTOMATIC):
        return []
    items: list[Any]
    if isinstance(value, dict):  # one number for every part of the model
        items = [item for item in value.values() if _is_number(item)]
    else:
        items = value if isinstance(value, list) and optional else [value]
    for item in items:
        if not _is_size(item) or (item != math.floor(item) and key not in _FACTORS):
            raise SourceError(
                "E_CONFIG",
                f"config.json: {where}{key} is {_shown(value)}, not a whole number above 0",
                hint="put the right config beside the weights, or remove it",
                stage="config",
            )
    return [_whole(item) for item in items]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_number(value) and 0 < value < math.inf


def _whole(value: float) -> int:
    """The number, rounded up; infinity as more than there can be."""
    return math.ceil(value) if value < math.inf else 1 << 200


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return clean(repr(value), limit=60)


# -- What a config asks for, weighed against the weights that are there, before anything is built.
#
# A fence, not a proof: a size that a config leaves out is a library's default. Adapters build on
# torch's meta device and let `fill` compare every shape before memory is taken.

#: Numbers that may be requested whatever the file holds: 256 MB in float32.
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
class WeightCounts:
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
    counts = WeightCounts(
        tensors=len(tensors),
        numbers=sum(tensor.numel() for tensor in tensors.values()),
        side=max((side for tensor in tensors.values() for side in tensor.shape), default=0),
    )
    try:
        _check(config, counts)
    except _AsksTooMuch as error:
        raise SourceError(
            "E_LIMIT",
            f"{clean(config.name)} {error}",
            hint="put the right config beside the weights, or remove it",
            stage="config",
        ) from None


def _check(config: Config, counts: WeightCounts) -> None:
    library = "model_type" in config.values
    for where, values in _groups(config.values, ""):
        sizes = read_sizes(values, where=where, library=library, strict=config.of_library)
        for key, numbers in sizes.items():
            _check_alone(where, key, numbers, counts)
        _check_together(where, {key: max(numbers) for key, numbers in sizes.items()}, counts)


def _groups(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The config and every one inside it, with what stands before their keys."""
    if isinstance(value, list):
        for item in value:
            yield from _groups(item, where)
    elif isinstance(value, dict):
        yield where, value
        for key, inner in value.items():
            yield from _groups(inner, f"{where}{clean(key, limit=40)}.")


def _check_alone(where: str, key: str, numbers: list[int], counts: WeightCounts) -> None:
    if key in LAYERS and (key == "depths" or len(numbers) == 1):
        layers, most = sum(numbers), max(FREE_LAYERS, counts.tensors)
        if layers > most:
            raise _refusal(f"{where}{key} {layers}", f"{counts.tensors} tensors")
    most = max(FREE_LABELS if key in LABELS else FREE_SIDE, counts.side)
    if max(numbers) > most:
        raise _refusal(f"{where}{key} {_short_count(max(numbers))}", _held(counts))


def _check_together(where: str, sizes: dict[str, int], counts: WeightCounts) -> None:
    """The tables and matrices that one dictionary of a config asks for."""
    widths = {key: sizes[key] for key in WIDTHS if key in sizes}
    wide, width = max(widths.items(), key=lambda pair: pair[1], default=("", 0))
    vocabulary = sizes.get("vocab_size", 0)
    if vocabulary and not width and vocabulary > counts.side:
        _afford(where, {"vocab_size": vocabulary, "a usual width of": USUAL_WIDTH}, counts)
    if not width:
        return
    _afford(where, {"vocab_size": vocabulary, wide: width}, counts)
    for key in SIDES:
        _afford(where, {key: sizes.get(key, 0), wide: width}, counts)
    if counts.tensors:
        layers = {key: sizes[key] for key in LAYERS if key in sizes}
        deep, depth = max(layers.items(), key=lambda pair: pair[1], default=("layers", 1))
        _afford(where, {deep: depth, wide: width, f"{wide} again": width}, counts)


def _afford(where: str, factors: Mapping[str, int], counts: WeightCounts) -> None:
    """Refuse a product of sizes that is more than the weights can hold."""
    requested = math.prod(factors.values())
    if requested > counts.affordable:
        words = " x ".join(f"{key} {_short_count(number)}" for key, number in factors.items())
        raise _refusal(
            f"at least {_short_count(requested)} numbers ({where}{words})", _held(counts)
        )


def _held(counts: WeightCounts) -> str:
    return f"{_short_count(counts.numbers)} numbers"


def _short_count(number: int) -> str:
    return str(number) if number < 10**16 else f"10^{len(str(number)) - 1}"


def _refusal(requested: str, held: str) -> _AsksTooMuch:
    return _AsksTooMuch(f"asks for {requested}, the weights hold {held}")


# -- The settings that a trainer saved inside the weight file, when no config lies beside it.

#: What Lightning calls them.
HYPER_PARAMETERS = "hyper_parameters"


def with_hyper_parameters(
    config: Config, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> Config:
    """The config; where no file states one, that of the hyper-parameters among the metadata.

    Those that cannot be read, or cannot be those of the weights, are left aside, with a note.
    """
    text = metadata.get(HYPER_PARAMETERS, "")
    if config.path is not None or not text or len(text) > LARGEST_CONFIG:
        return config
    try:
        stated = parse_config(text.encode("utf-8", "surrogatepass"), name=HYPER_PARAMETERS)
        values, dropped = clean_config(stated, name=HYPER_PARAMETERS, library=False)
        found = Config(None, values, (), HYPER_PARAMETERS)
        check_config(found, tensors)
    except SourceError as error:
        if error.code == "E_UNSUPPORTED":
            raise
        return Config(
            None, {}, (*config.notes, f"{HYPER_PARAMETERS} in the file were not read: {error.fact}")
        )
    source_note = f"settings were read from {HYPER_PARAMETERS} in the file"
    return Config(None, values, (*config.notes, source_note, *dropped), HYPER_PARAMETERS)
