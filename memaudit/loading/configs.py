"""The config beside a checkpoint: untrusted text, read as plain data and compared with the weights.

Nothing is left out here: a plugin that builds a model hands on what the library's class declares.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.files import open_within, rank_weights, read_beside, read_whole
from memaudit.loading.formats import BadJson, parse_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

# -- From text to plain values, or one sentence on what is wrong.

#: Configs are a few kilobytes; one with the names of 20 000 classes has a megabyte.
LARGEST_CONFIG = 4 << 20
#: The reader of YAML is written in Python and takes seconds for a megabyte.
LARGEST_YAML = 1 << 18
#: The configs of transformers are nested six deep.
DEEPEST = 32
#: Hydra's configs have some hundred values; an alias counts for all that it repeats, and a long
#: text for several.
MOST_PARTS, PER_PART = 100_000, 32
_LEFT_OUT = object()


#: Real configs hold infinity.
_load_json = partial(parse_object, constant=float)


def _parse(data: bytes, name: str, load: Callable[[bytes], Any] = _load_json) -> dict[str, Any]:
    """The mapping in a file called `name`, or E_CONFIG."""
    try:
        return _plain(load(data))
    except BadJson as error:
        fact = str(error)
    except UnicodeError:
        fact = "holds characters that are no text"
    except RecursionError:
        fact = "is nested too deeply"
    hint = "repair the file, or move it away to open the weights without it"
    raise SourceError("E_CONFIG", f"{clean(name)} {fact}", hint=hint, stage="open")


def _plain(value: Any, depth: int = 0) -> Any:
    """A copy with text as keys; refused is what is too deep, or no report could be written with."""
    if isinstance(value, dict | list) and depth == DEEPEST:
        raise BadJson(f"is nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        # How transformers writes the numbers that JSON lacks.
        if list(value) == ["__float__"] and value["__float__"] in ("Infinity", "-Infinity", "NaN"):
            return _plain(float(value["__float__"]))
        kept = {str(key): part for key, part in value.items() if part is not _LEFT_OUT}
        return {_plain(key): _plain(part, depth + 1) for key, part in kept.items()}
    if isinstance(value, list):
        return [None if part is _LEFT_OUT else _plain(part, depth + 1) for part in value]
    if isinstance(value, str):
        value.encode()  # half a character is none
    if isinstance(value, float) and math.isnan(value):
        raise BadJson("holds NaN, which is no number")
    return value


class _Settings(yaml.SafeLoader):
    """YAML 1.1 as Hydra and Lightning write it; what has another tag is noted and left out."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.left_out, self._parts, self._sizes = list[str](), 0, dict[Any, int]()

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Count what the text unfolds into before anything is built."""
        before, repeated = self._parts, self.check_event(yaml.AliasEvent)
        node: Any = super().compose_node(parent, index)
        if repeated and node not in self._sizes:
            raise BadJson("refers to something that is not finished")
        self._parts += self._sizes[node] if repeated else 1 + len(node.value) // PER_PART
        self._sizes.setdefault(node, self._parts - before)
        if self._parts > MOST_PARTS:
            raise BadJson("unfolds into more values than settings have")
        return node

    def leave_out(self, node: Any) -> Any:
        """What has another tag than plain YAML: nothing is looked up or built for it."""
        self.left_out.append(node.tag.removeprefix("tag:yaml.org,2002:"))
        return _LEFT_OUT


for _tag, _construct in {
    **dict.fromkeys(("binary", "omap", "pairs", "set"), _Settings.leave_out),
    **dict.fromkeys(("timestamp", "value"), _Settings.construct_yaml_str),
    "python/tuple": _Settings.construct_yaml_seq,  # so Lightning writes its lists
}.items():
    _Settings.add_constructor(f"tag:yaml.org,2002:{_tag}", _construct)
_Settings.add_constructor(None, _Settings.leave_out)  # pyright: ignore[reportArgumentType]
# Hydra takes 1e-3 for a number, which PyYAML alone does not.
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$", re.ASCII)
_Settings.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def _load_yaml(data: bytes, left_out: list[str]) -> Any:
    """An empty file states nothing; interpolations such as ${model.width} stay text."""
    try:
        loader = _Settings(data)
        content = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise BadJson(f"is not YAML ({line}{clean(error.problem, limit=120)})") from None
    except BadJson:
        raise
    # Numbers in escapes, directives and tags are converted without a look at them.
    except (yaml.YAMLError, ValueError, LookupError, TypeError, OverflowError) as error:
        raise BadJson(f"is not YAML ({clean(error, limit=120)})") from None
    left_out += loader.left_out
    content = None if content is _LEFT_OUT else content
    if not isinstance(content, dict | None):
        raise BadJson(f"holds a {type(content).__name__}, not a mapping")
    return content or {}


# -- The file that states the config of a folder.

CONFIG_NAME = "config.json"
ADAPTER_NAME = "adapter_config.json"
#: Where trainers leave their settings, read when there is no config.json: the first one counts.
SETTINGS_NAMES = ("config.yaml", "config.yml", ".hydra/config.yaml", "hparams.yaml")


@dataclass(frozen=True, slots=True)
class Config:
    """What the config of a folder states, as plain data, and sentences on how it was read.

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

    Refused are a folder with nothing but an adapter (LoRA), whose base lies elsewhere, and weights
    that are said to be quantized.
    """
    notes = _without_adapter(folder)
    found = config_names(folder)
    if not found:
        return Config(None, {}, notes)
    name, *others = found
    if name == CONFIG_NAME:
        values = read_json(folder, name)
    else:
        left_out: list[str] = []
        data = _read(folder, name, most=LARGEST_YAML)
        values = _parse(data, name, lambda data: _load_yaml(data, left_out))
        passed = f"; not {', '.join(others)}" if others else ""
        notes += (f"settings were read from {name} beside the weights{passed}",)
        if left_out:
            shown = listed(dict.fromkeys(left_out), most=6)
            notes += (f"{name}: left out, with tags that are not plain YAML: {shown}",)
    _refuse_quantized(values, name)
    return Config(folder / name, values, notes, name)


def config_names(folder: Path) -> tuple[str, ...]:
    """What states settings in a folder, the one that counts first; a config.json counts alone."""
    # A link that leads nowhere is there, too.
    if os.path.lexists(folder / CONFIG_NAME):
        return (CONFIG_NAME,)
    return tuple(name for name in SETTINGS_NAMES if os.path.lexists(folder / name))


def code_map(folder: Path) -> dict[str, str]:
    """What `auto_map` in the folder's config.json names: role → module.Class, as it stands there.

    Nothing is run or imported.
    """
    data = read_beside(folder, CONFIG_NAME, most=LARGEST_CONFIG)
    stated: Any = {} if data is None else _parse(data, CONFIG_NAME).get("auto_map")
    named = stated.items() if isinstance(stated, dict) else ()
    return {role: name for role, name in named if isinstance(name, str)}


def _read(folder: Path, name: str, *, most: int) -> bytes:
    below, _, last = name.rpartition("/")
    with open_within(folder, last, below=below) as file:
        return read_whole(file, most=most)


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """The object in a small JSON file of a folder."""
    return _parse(_read(folder, name, most=LARGEST_CONFIG), name)


def _without_adapter(folder: Path) -> tuple[str, ...]:
    """A sentence when an adapter beside the weights is not applied."""
    if not os.path.lexists(folder / ADAPTER_NAME):
        return ()
    try:
        chosen, whole = rank_weights(os.listdir(folder))
    except OSError:
        return ()  # whoever looks for the weights says what is wrong
    if any(not name.lower().startswith("adapter_") for name in (*chosen, *whole)):
        return (f"{ADAPTER_NAME} was not read: the adapter is not applied to the weights",)
    base = read_json(folder, ADAPTER_NAME).get("base_model_name_or_path")
    named = f"its base, {clean(base)}," if isinstance(base, str) and base else "its base"
    raise SourceError(
        "E_UNSUPPORTED",
        f"this is an adapter without a model: {named} is not here and is not fetched",
        hint="merge it into its base first, e.g. with peft's merge_and_unload, and save the model",
        stage="config",
    )


def _refuse_quantized(values: dict[str, Any], name: str) -> None:
    for _, inner in _groups(values, ""):
        stated = inner.get("quantization_config") or inner.get("compression_config")
        if not stated:
            continue
        method = stated
        if isinstance(stated, dict):
            bits = stated.get("load_in_8bit") or stated.get("load_in_4bit")
            method = stated.get("quant_method", "bitsandbytes" if bits else "without a name")
        raise SourceError(
            "E_UNSUPPORTED",
            f"{clean(name)} says that the weights are quantized ({clean(method)}), "
            "which is not audited yet",
            hint="give the checkpoint from before the quantization",
            stage="config",
        )


def _groups(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The config and every one inside it, with what stands before their keys."""
    if isinstance(value, dict):
        yield where, value
        for key, inner in value.items():
            yield from _groups(inner, f"{where}{clean(key, limit=40)}.")
    elif isinstance(value, list):
        for item in value:
            yield from _groups(item, where)


# -- What a config asks for, before anything is built.
#
# A fence, not a proof: adapters build on torch's meta device and let `fill` compare every shape
# before memory is taken. What costs there are layers, names of classes, and tables of positions.

LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "layers", "num_blocks", "n_blocks"),
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers", "depths"),
)
_WIDTHS = ("hidden_size", "d_model", "n_embd")
#: There is no model without these: here null is no answer, and neither is a list.
_INDISPENSABLE = (*_WIDTHS, "num_hidden_layers", "n_layer", "n_layers")
_SIZES = (
    *(*_INDISPENSABLE, "num_layers", "vocab_size", "max_position_embeddings", "n_positions"),
    *("intermediate_size", "n_inner", "d_ff", "ffn_dim", "embedding_size", "num_key_value_heads"),
    *("num_attention_heads", "num_heads", "n_head", "n_heads", "state_size", "d_state", "d_conv"),
    *("ssm_state_size", "conv_kernel", "time_step_rank", "dt_rank", "expand"),
)
#: What else is a size by its name in a config of transformers; elsewhere it may be anything.
_ALIKE = re.compile(
    r"(?:.*_)?(?:size|dim|width|depths?|embeddings|heads?|layers?|experts|channels|blocks|labels"
    r"|classes|positions|groups|codebooks)"
)
FREE_LAYERS = 256
#: One side of a tensor, or a long context, for which nothing need be stored.
FREE_SIDE = 1 << 24
#: transformers writes a dictionary with a name for every class.
FREE_LABELS = 1 << 20


def check_config(config: Config, tensors: Mapping[str, Tensor]) -> None:
    """Refuse sizes that are no sizes (E_CONFIG) or that the weights cannot fill (E_LIMIT)."""
    side = max((side for tensor in tensors.values() for side in tensor.shape), default=0)
    library = "model_type" in config.values
    hint = "put the right config beside the weights, or remove it"
    for where, values in _groups(config.values, ""):
        for key, value in values.items():
            # A trainer's settings also hold references, gaps and the sizes of other things.
            if config.of_library and key in _SIZES and not _is_size(key, value):
                shown = clean(json.dumps(value), limit=60)
                fact = f"config.json: {where}{key} is {shown}, not a whole number above 0"
                raise SourceError("E_CONFIG", fact, hint=hint, stage="config")
            if key not in (*_SIZES, *LAYERS) and not (library and _ALIKE.fullmatch(key)):
                continue
            numbers = [item for item in _items(value) if _is_number(item)]
            if key in LAYERS and (key == "depths" or len(numbers) == 1):  # or widths of layers
                asked, most = sum(numbers), max(FREE_LAYERS, len(tensors))
            else:
                free = FREE_LABELS if key in ("num_labels", "num_classes") else FREE_SIDE
                asked, most = max(numbers, default=0), max(free, side)
            if asked > most:
                fact = f"{clean(config.name)} asks for {where}{key} {clean(asked, limit=40)}"
                held = f"the weights hold {len(tensors)} tensors of at most {side} rows or columns"
                raise SourceError("E_LIMIT", f"{fact}, {held}", hint=hint, stage="config")


def _is_size(key: str, value: Any) -> bool:
    """Whether this can be a size: a whole number above 0, or several of them."""
    if value is None or isinstance(value, list):
        if key in _INDISPENSABLE:
            return False
    elif value == "auto":  # Mamba lets the library work out its rank
        return key in ("time_step_rank", "dt_rank")
    return value is None or all(
        _is_number(x) and 0 < x < math.inf and (x % 1 == 0 or key == "expand")
        for x in _items(value)
    )


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):  # one number for every part of the model
        return [item for item in value.values() if _is_number(item)]
    return value if isinstance(value, list) else [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
        values = _parse(text.encode("utf-8", "surrogatepass"), HYPER_PARAMETERS)
        _refuse_quantized(values, HYPER_PARAMETERS)
        note = f"settings were read from {HYPER_PARAMETERS} in the file"
        found = Config(None, values, (*config.notes, note), HYPER_PARAMETERS)
        check_config(found, tensors)
    except SourceError as error:
        if error.code == "E_UNSUPPORTED":
            raise
        note = f"{HYPER_PARAMETERS} in the file were not read: {error.fact}"
        return Config(None, {}, (*config.notes, note))
    return found
