"""The config beside a checkpoint: untrusted text, read as plain data and compared with the weights.

Nothing is left out here: a plugin that builds a model hands on what the library's class declares.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.files import open_within, rank_weights, read_beside, read_whole

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
#: A size has 20 digits at most; Python itself gives up at 4300.
LONGEST_NUMBER = 300
#: Hydra's configs have some hundred values; an alias counts for all that it repeats, and a long
#: text for several.
MOST_PARTS, PER_PART = 100_000, 32


class _BadTextError(Exception):
    """What is wrong with the text; the message completes the sentence `FILE …`."""


def _parse(data: bytes, name: str, load: Callable[[str], Any]) -> dict[str, Any]:
    """The mapping in a file called `name`, or E_CONFIG; a byte-order mark is forgiven."""
    try:
        content = load(data.decode("utf-8-sig"))
        if not isinstance(content, dict):
            kind = "null" if content is None else f"a {type(content).__name__}"
            raise _BadTextError(f"holds {kind}, not a mapping")
        _require_plain(content)
        return content
    except _BadTextError as error:
        fact = str(error)
    except UnicodeDecodeError:
        fact = "is not UTF-8 text"
    except UnicodeEncodeError:
        fact = "holds characters that are no text"
    except RecursionError:
        fact = "is nested too deeply"
    hint = "repair the file, or move it away to open the weights without it"
    raise SourceError("E_CONFIG", f"{clean(name)} {fact}", hint=hint, stage="open")


def _require_plain(value: Any, depth: int = 0) -> None:
    """Refuse what is too deep, and what no report could be written with."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list):
        if depth == DEEPEST:
            raise _BadTextError(f"is nested more than {DEEPEST} deep")
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _require_plain(item, depth + 1)
    elif isinstance(value, float) and math.isnan(value):
        raise _BadTextError("holds NaN, which is no number")


def _put(found: dict[str, Any], key: str, value: Any) -> None:
    """Add an entry, unless it contradicts one that is there: readers differ in which they take."""
    if key in found and repr(found[key]) != repr(value):  # 1, 1.0 and true are different
        raise _BadTextError(f"states {clean(key, limit=60)!r} twice, with different values")
    found[key] = value


def _short(digits: str) -> str:
    if len(digits) > LONGEST_NUMBER:
        raise _BadTextError(f"holds a number with {len(digits)} digits")
    return digits


def _load_json(text: str) -> Any:
    def mapping(pairs: list[tuple[str, Any]]) -> Any:
        found: dict[str, Any] = {}
        for key, value in pairs:
            _put(found, key, value)
        # How transformers writes the numbers that JSON lacks.
        if list(found) == ["__float__"] and found["__float__"] in ("Infinity", "-Infinity", "NaN"):
            return float(found["__float__"])
        return found

    try:
        return json.loads(
            text, object_pairs_hook=mapping, parse_int=lambda digits: int(_short(digits))
        )
    except json.JSONDecodeError as error:
        raise _BadTextError(f"is not JSON (line {error.lineno}: {error.msg})") from None


_UNKNOWN = object()


class _YamlLoader(yaml.SafeLoader):
    """YAML 1.1 as Hydra reads it; keys are text, and unknown tags are noted and left out."""

    def __init__(self, text: str, left_out: list[str]) -> None:
        super().__init__(text)
        self._left_out, self._place = left_out, list[str]()
        self._parts, self._sizes = 0, dict[Any, int]()

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Count what the text unfolds into before anything is built."""
        before, repeated = self._parts, self.check_event(yaml.AliasEvent)
        node: Any = super().compose_node(parent, index)
        if repeated and node not in self._sizes:
            raise _BadTextError("refers to something that is not finished")
        self._parts += self._sizes[node] if repeated else 1 + len(node.value) // PER_PART
        self._sizes.setdefault(node, self._parts - before)
        if self._parts > MOST_PARTS:
            raise _BadTextError("unfolds into more values than settings have")
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Own entries beat merged ones, and must not contradict one another."""
        own = sum(key.tag != "tag:yaml.org,2002:merge" for key, _ in node.value)
        self.flatten_mapping(node)
        merged, stated = dict[str, Any](), dict[str, Any]()
        for number, (key, part) in enumerate(node.value, own - len(node.value)):
            if not isinstance(key, yaml.ScalarNode):
                raise _BadTextError("has a key that is no text")
            self._place.append(key.value)
            value = self.construct_object(part, deep=True)
            self._place.pop()
            if value is not _UNKNOWN and number < 0:
                merged[key.value] = value
            elif value is not _UNKNOWN:
                _put(stated, key.value, value)
        return {**merged, **stated}

    def construct_sequence(self, node: Any, deep: bool = False) -> list[Any]:
        """A list, with null for what has an unknown tag."""
        items = super().construct_sequence(node, deep=True)
        return [None if item is _UNKNOWN else item for item in items]

    def construct_yaml_int(self, node: Any) -> int:
        """A whole number of bounded length."""
        _short(self.construct_scalar(node))
        return super().construct_yaml_int(node)

    def construct_unknown(self, node: Any) -> Any:
        """What has another tag than plain YAML: nothing is looked up or built for it."""
        self._left_out.append(".".join(clean(key, limit=60) for key in self._place))
        return _UNKNOWN


_YamlLoader.yaml_constructors = {
    **yaml.SafeLoader.yaml_constructors,
    **{
        f"tag:yaml.org,2002:{kind}": construct
        for kind, construct in {
            "int": _YamlLoader.construct_yaml_int,
            **dict.fromkeys(("timestamp", "value"), _YamlLoader.construct_yaml_str),
            "python/tuple": _YamlLoader.construct_yaml_seq,  # so Lightning writes its lists
            **dict.fromkeys(("binary", "omap", "pairs", "set"), _YamlLoader.construct_unknown),
        }.items()
    },
    None: _YamlLoader.construct_unknown,
}
# Hydra takes 1e-3 for a number, which PyYAML alone does not.
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$", re.ASCII)
_YamlLoader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def _load_yaml(text: str, left_out: list[str]) -> Any:
    """An empty file states nothing; interpolations such as ${model.width} stay text."""
    try:
        loader = _YamlLoader(text, left_out)
        content = loader.get_data() if loader.check_data() else None
        if loader.check_data():
            raise _BadTextError("holds several documents, not one")
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise _BadTextError(f"is not YAML ({line}{clean(error.problem, limit=120)})") from None
    # Numbers in escapes, directives and tags are converted without a look at them.
    except (yaml.YAMLError, ValueError, KeyError, OverflowError):
        raise _BadTextError("is not YAML") from None
    return {} if content is None or content is _UNKNOWN else content


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
        values = _read_json(folder, name)
    else:
        left_out: list[str] = []
        data = _read(folder, name, most=LARGEST_YAML)
        values = _parse(data, name, lambda text: _load_yaml(text, left_out))
        passed = f"; not {', '.join(others)}" if others else ""
        notes += (f"settings were read from {name} beside the weights{passed}",)
        if left_out:
            shown = listed(left_out, most=6)
            notes += (f"{name}: left out, for a tag that is not plain YAML: {shown}",)
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
    stated: Any = {} if data is None else _parse(data, CONFIG_NAME, _load_json).get("auto_map")
    named = stated.items() if isinstance(stated, dict) else ()
    return {role: name for role, name in named if isinstance(name, str)}


def _read(folder: Path, name: str, *, most: int) -> bytes:
    below, _, last = name.rpartition("/")
    with open_within(folder, last, below=below) as file:
        return read_whole(file, most=most)


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    return _parse(_read(folder, name, most=LARGEST_CONFIG), name, _load_json)


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
    base = _read_json(folder, ADAPTER_NAME).get("base_model_name_or_path")
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


# -- What a config asks for, weighed against the weights that are there, before anything is built.
#
# A fence, not a proof: a size that a config leaves out is a library's default. Adapters build on
# torch's meta device and let `fill` compare every shape before memory is taken.

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
#: What else is a size by its name in a config of transformers; elsewhere it may be anything.
_ALIKE = re.compile(
    r"(?:.*_)?(?:size|sizes|dim|dims|width|depths?|embeddings|vocab|heads?|layers?|experts|channels"
    r"|rank|blocks|buckets|queries|labels|classes|state|groups|filters|kernel|positions|codebooks)"
)
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
#: How wide an embedding is when nothing says so.
USUAL_WIDTH = 512


def check_config(config: Config, tensors: Mapping[str, Tensor]) -> None:
    """Refuse sizes that are no sizes (E_CONFIG) or that the weights cannot fill (E_LIMIT)."""
    numbers = sum(tensor.numel() for tensor in tensors.values())
    side = max((side for tensor in tensors.values() for side in tensor.shape), default=0)
    affordable = max(FREE_NUMBERS, SHARING * numbers) if tensors else UNWEIGHED_NUMBERS
    hint = "put the right config beside the weights, or remove it"
    for where, values in _groups(config.values, ""):
        # A trainer's settings also hold references, gaps and the sizes of other things.
        for key in values if config.of_library else ():
            if key in _SIZES and not _is_size(key, values[key]):
                shown = clean(json.dumps(values[key]), limit=60)
                fact = f"config.json: {where}{key} is {shown}, not a whole number above 0"
                raise SourceError("E_CONFIG", fact, hint=hint, stage="config")
        sizes = _sizes(values, library="model_type" in config.values)
        for factors, most in _demands(sizes, len(tensors), side, affordable):
            if math.prod(factors.values()) > most:
                asked = " x ".join(f"{key} {_in_digits(n)}" for key, n in factors.items())
                held = f"{_in_digits(numbers)} numbers in {len(tensors)} tensors"
                fact = f"{clean(config.name)} asks for {where}{asked}, the weights hold {held}"
                raise SourceError("E_LIMIT", fact, hint=hint, stage="config")


def _sizes(values: dict[str, Any], *, library: bool) -> dict[str, list[int]]:
    """Every size in one dictionary of a config, rounded up; a list holds several."""
    found: dict[str, list[int]] = {}
    for key, value in values.items():
        if key in _SIZES or key in LAYERS or (library and _ALIKE.fullmatch(key)):
            numbers = [item for item in _items(value) if _is_number(item) and item > 0]
            if numbers:  # infinity is more than there can be
                found[key] = [math.ceil(x) if x < math.inf else 1 << 200 for x in numbers]
    return found


def _demands(
    sizes: dict[str, list[int]], tensors: int, side: int, affordable: int
) -> Iterator[tuple[dict[str, int], int]]:
    """Sizes, and the tables and matrices they make as factors, with the most that each may be."""
    for key, numbers in sizes.items():
        if key in LAYERS and (key == "depths" or len(numbers) == 1):
            yield {key: sum(numbers)}, max(FREE_LAYERS, tensors)
        free = FREE_LABELS if key in ("num_labels", "num_classes") else FREE_SIDE
        yield {key: max(numbers)}, max(free, side)
    largest = {key: max(numbers) for key, numbers in sizes.items()}
    wide = max((key for key in WIDTHS if key in largest), key=largest.__getitem__, default=None)
    if wide is not None:
        width = {wide: largest[wide]}
        for key in ("vocab_size", *SIDES):
            yield {key: largest.get(key, 0), **width}, affordable
        deep = max((key for key in LAYERS if key in largest), key=largest.__getitem__, default="")
        if tensors:
            layers = {deep or "layers": largest.get(deep, 1)}
            yield {**layers, **width, f"{wide} again": largest[wide]}, affordable
    elif largest.get("vocab_size", 0) > side:
        yield {"vocab_size": largest["vocab_size"], "a usual width of": USUAL_WIDTH}, affordable


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


def _in_digits(number: int) -> str:
    return str(number) if number < 10**16 else f"10^{len(str(number)) - 1}"


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
        values = _parse(text.encode("utf-8", "surrogatepass"), HYPER_PARAMETERS, _load_json)
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
