"""Recurrent layers in a checkpoint: their key names, their shapes, and what a config states."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit.errors import SourceError, clean
from memaudit.report import Recurrence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


#: One spelling per layer: other digits, zeros in front and a newline behind make another name.
RECURRENT = re.compile(
    r"^(?P<prefix>(?:.*[._])?)(?P<role>weight|bias|w|b)_(?P<gate>ih|hh|hr)"
    r"(?:_l(?P<layer>0|[1-9][0-9]{0,2}))?(?P<reverse>_reverse)?\Z"
)
#: Weight norm, spectral norm and parametrizations keep the plain name inside a longer one.
PARAMETRIZED = re.compile(r"(?:^|[._])(?:weight|bias|w|b)_(?:ih|hh|hr)(?:[._]|$)")
#: The stored original of a weight whose plain name holds what was computed from it.
ORIGINAL = re.compile(
    r"^(?P<prefix>(?:.*?[._])??)(?:parametrizations\.)?(?P<name>(?:weight|bias|w|b)_(?:ih|hh|hr)"
    r"(?:_l[0-9]{1,3})?(?:_reverse)?)(?:_raw|_orig|_g|_v|\.original[0-9]*)\Z"
)
#: Recurrent parameters of other families.
FOREIGN = re.compile(
    r"(?:^|\.)(?:A_logs?|nu_log|theta_log|Lambda(?:_re|_im)?|log_A_real|inv_dt|time_decay"
    r"|recurrent_param|recurrent_kernel)$"
)
#: What training wrappers put in front of every name.
WRAPPERS = re.compile(r"^(?:(?:module|_orig_mod|state_dict|model|net)\.)+")
ROLES = {"weight": "weight", "w": "weight", "bias": "bias", "b": "bias"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor stands in its stack: torch's name for it is `str(place)`."""

    role: str
    gate: str
    layer: int
    reverse: bool = False

    def __str__(self) -> str:
        return f"{self.role}_{self.gate}_l{self.layer}{'_reverse' if self.reverse else ''}"


@dataclass(frozen=True, slots=True)
class StackKeys:
    """The names of one recurrent stack: place → key in the checkpoint.

    `rivals` are pairs of keys that claim the same place.
    """

    prefix: str
    is_cell: bool
    keys: dict[Place, str] = field(default_factory=dict)
    rivals: list[tuple[str, str]] = field(default_factory=list)

    def name(self, fallback: str) -> str:
        """The stack's own name, without wrappers; the fallback when it has none."""
        return clean(WRAPPERS.sub("", self.prefix)).rstrip("._") or fallback

    def key(self, place: Place) -> str:
        """The key of a place, or what it would be called."""
        return self.keys.get(place) or f"{self.prefix}{place}"


def find_stacks(names: Iterable[str]) -> list[StackKeys]:
    """Every recurrent stack among the names, in the order of their first tensor."""
    stacks: dict[tuple[str, bool], StackKeys] = {}
    for name in names:
        match = RECURRENT.match(name)
        if match is None:
            continue
        is_cell = match["layer"] is None
        place = Place(
            ROLES[match["role"]], match["gate"], int(match["layer"] or 0), bool(match["reverse"])
        )
        stack = stacks.setdefault(
            (match["prefix"], is_cell), StackKeys(match["prefix"], is_cell=is_cell)
        )
        first = stack.keys.setdefault(place, name)
        if first != name:
            stack.rivals.append((first, name))
    return list(stacks.values())


def is_parametrized(name: str) -> bool:
    """Whether a name holds a recurrent weight in another form than torch's plain one."""
    return RECURRENT.match(name) is None and PARAMETRIZED.search(name) is not None


def lookalikes(names: Iterable[str]) -> list[str]:
    """The names that speak of a recurrence but are no plain weight of an RNN, GRU or LSTM."""
    return [name for name in names if is_parametrized(name) or FOREIGN.search(name)]


def originals(alike: Iterable[str]) -> dict[str, list[str]]:
    """Plain key → the stored originals that it may be computed from.

    An original stands beside its plain key or in the module around: weight dropping keeps
    `weight_hh_l0_raw` around what it calls `module.weight_hh_l0`.
    """
    found: dict[str, list[str]] = {}
    for name in alike:
        if match := ORIGINAL.match(name):
            for inner in ("", "module."):
                found.setdefault(f"{match['prefix']}{inner}{match['name']}", []).append(name)
    return found


#: Rows of weight_hh over the hidden size → the cell.
CELLS = {1: "RNN", 3: "GRU", 4: "LSTM"}
BLOCKS = {cell: blocks for blocks, cell in CELLS.items()}


@dataclass(frozen=True, slots=True)
class Stack:
    """The shape of one recurrent stack; `output` is per direction, smaller when projected."""

    name: str
    cell: str
    input_size: int
    hidden: int
    output: int
    layers: int
    directions: int
    bias: bool
    keys: StackKeys

    @property
    def output_size(self) -> int:
        """Width of what the stack answers at every step."""
        return self.output * self.directions

    @property
    def title(self) -> str:
        """The words for this stack in a description: kind and sizes."""
        two_way = "bidirectional " if self.directions == 2 else ""
        kind = (
            f"{self.cell}Cell" if self.keys.is_cell else f"{self.layers}-layer {two_way}{self.cell}"
        )
        projected = f" projected to {self.output}" if self.output != self.hidden else ""
        return f"{kind}, {self.input_size} → {self.hidden}{projected}"

    def width(self, layer: int) -> int:
        """Input width of one layer."""
        return self.input_size if layer == 0 else self.output_size

    def shapes(self) -> dict[Place, tuple[int, ...]]:
        """The shape that every tensor of the stack must have."""
        rows = BLOCKS[self.cell] * self.hidden
        shapes: dict[Place, tuple[int, ...]] = {}
        for layer in range(self.layers):
            for reverse in (False, True)[: self.directions]:
                shapes[Place("weight", "ih", layer, reverse)] = (rows, self.width(layer))
                shapes[Place("weight", "hh", layer, reverse)] = (rows, self.output)
                if self.bias:
                    shapes[Place("bias", "ih", layer, reverse)] = (rows,)
                    shapes[Place("bias", "hh", layer, reverse)] = (rows,)
                if self.output != self.hidden:
                    shapes[Place("weight", "hr", layer, reverse)] = (self.output, self.hidden)
        return shapes

    def recurrences(self) -> tuple[Recurrence, ...]:
        """One record per layer."""
        sizes = dict.fromkeys(range(self.layers), 0)
        for place, shape in self.shapes().items():
            sizes[place.layer] += int(torch.Size(shape).numel())
        return tuple(
            Recurrence(
                self.name if self.keys.is_cell else f"{self.name}.l{layer}",
                self.cell,
                self.hidden,
                parameters,
                self.directions,
            )
            for layer, parameters in sizes.items()
        )


#: A report of that many recurrent layers is read by nobody; real models have a few dozen.
MOST_STACKS = 2000
#: Names that a sentence may hold.
SHOWN = 8


def read_stacks(
    groups: Sequence[StackKeys], tensors: Mapping[str, Tensor], alike: Sequence[str]
) -> list[Stack]:
    """The stacks behind all keys, or E_WEIGHTS when their shapes contradict each other.

    `alike` are the lookalikes, among which originals of computed weights may be. E_LIMIT when
    there are far more stacks than a model has.
    """
    if len(groups) > MOST_STACKS:
        raise SourceError(
            "E_LIMIT",
            f"{len(groups)} recurrent layers stand side by side; at most {MOST_STACKS} are audited",
            hint="save the recurrent layers that matter in a file of their own",
            stage="recognise",
        )
    stored = originals(alike)
    for keys in groups:
        _require_plain(keys, tensors, stored)
    return [_read(keys, tensors, alike) for keys in groups]


def _require_plain(
    keys: StackKeys, tensors: Mapping[str, Tensor], stored: Mapping[str, Sequence[str]]
) -> None:
    """Refuse two keys for one place, whole numbers, and weights computed from others."""
    if keys.rivals:
        first, second = keys.rivals[0]
        raise _bad_weights(
            f"{clean(first)} and {clean(second)} are two names for the same weights",
            "remove the one that the model does not run",
        )
    for key in keys.keys.values():
        if not tensors[key].is_floating_point():
            raise _bad_weights(
                f"{key} holds {str(tensors[key].dtype).removeprefix('torch.')}, not floats",
                "quantized weights must be dequantized before they are saved",
            )
    pairs = [(key, name) for key in keys.keys.values() for name in stored.get(key, ())]
    if pairs:
        computed = list(dict.fromkeys(key for key, _ in pairs))[:SHOWN]
        sources = [name for _, name in pairs][:SHOWN]
        raise _bad_weights(
            f"{', '.join(computed)} may be a computed copy of {', '.join(sources)}",
            "remove the parametrization (weight dropping, weight norm) before saving",
        )


def _read(keys: StackKeys, tensors: Mapping[str, Tensor], alike: Iterable[str]) -> Stack:
    """The stack of the shapes of its first layer, which all others must have, too."""
    first_ih, first_hh, first_hr = (Place("weight", gate, 0) for gate in ("ih", "hh", "hr"))
    for place in (first_ih, first_hh):
        if place not in keys.keys:
            raise _missing(keys, place, alike)
    ih, hh = tensors[keys.key(first_ih)], tensors[keys.key(first_hh)]
    if ih.ndim != 2 or hh.ndim != 2 or min(*ih.shape, *hh.shape) == 0:
        raise _contradiction(keys, tensors, [first_ih, first_hh], "two filled axes each")
    projection = hh if first_hr not in keys.keys else tensors[keys.key(first_hr)]
    if projection.ndim != 2 or projection.shape[1] == 0:
        raise _contradiction(keys, tensors, [first_hr], "two filled axes")
    hidden = int(projection.shape[1])
    blocks, rest = divmod(hh.shape[0], hidden)
    if rest or blocks not in CELLS:
        raise _bad_weights(
            f"{keys.key(first_hh)} has shape {tuple(hh.shape)}: {hh.shape[0]} rows for {hidden} "
            "hidden units are neither 1 (RNN), 3 (GRU) nor 4 (LSTM) blocks"
        )
    cell = CELLS[blocks]
    stack = Stack(
        name=keys.name(cell.lower()),
        cell=cell,
        input_size=int(ih.shape[1]),
        hidden=hidden,
        output=int(hh.shape[1]),
        layers=1 + max(place.layer for place in keys.keys),
        directions=2 if any(place.reverse for place in keys.keys) else 1,
        bias=any(place.role == "bias" for place in keys.keys),
        keys=keys,
    )
    if stack.output != hidden and cell != "LSTM":
        raise _contradiction(keys, tensors, [first_hh, first_hr], f"no projection in a {cell}")
    wanted = stack.shapes()
    for place, shape in wanted.items():
        if place not in keys.keys:
            raise _missing(keys, place, alike)
        if tuple(tensors[keys.key(place)].shape) != shape:
            raise _contradiction(keys, tensors, [place, first_hh], f"{shape} for the first")
    extra = [place for place in keys.keys if place not in wanted]
    if extra:
        raise _contradiction(keys, tensors, extra, f"no such tensor in a {stack.title}")
    return stack


def _missing(keys: StackKeys, place: Place, alike: Iterable[str]) -> SourceError:
    forms = [name for name in alike if name.startswith(keys.prefix.removesuffix("module."))][:SHOWN]
    there = ", ".join(list(keys.keys.values())[:SHOWN])
    hint = "the file is incomplete; save the whole state dict"
    if forms:
        there += f"; {', '.join(forms)} may be a parametrization of it"
        hint = (
            "remove the parametrization (weight norm, spectral norm, weight dropping) before saving"
        )
    name = str(place).removesuffix("_l0") if keys.is_cell else str(place)
    fact = f"the recurrent layer {keys.name('without a name')} lacks {name}; it has {there}"
    return _bad_weights(fact, hint)


def _contradiction(
    keys: StackKeys, tensors: Mapping[str, Tensor], places: Iterable[Place], wanted: str
) -> SourceError:
    facts = " and ".join(
        f"{keys.key(place)} {tuple(tensors[keys.key(place)].shape)}"
        for place in list(dict.fromkeys(places))[:SHOWN]
    )
    return _bad_weights(f"the shapes contradict each other: {facts}; wanted: {wanted}")


def _bad_weights(fact: str, hint: str = "") -> SourceError:
    return SourceError("E_WEIGHTS", fact, hint=hint, stage="weights")


HYPER_PARAMETERS = ("hparams", "config", "hyper_parameters")
KIND = ("kind", "cell", "cell_type", "rnn_type")
HIDDEN = ("hidden", "hidden_size", "hidden_dim")
LAYERS = ("layers", "num_layers", "n_layers")
NONLINEARITIES = ("tanh", "relu")
#: Digits of a number that is written as text; no size has more.
LONGEST_NUMBER = 18
CLASSES = ("classes", "num_classes", "num_labels", "n_classes")


@dataclass(frozen=True, slots=True)
class StatedConfig:
    """The stated facts; None where nothing, or nothing readable, is stated."""

    kind: str | None = None
    nonlinearity: str | None = None
    hidden: int | None = None
    layers: int | None = None
    bidirectional: bool | None = None
    classes: int | None = None

    def check(self, stack: Stack) -> None:
        """Refuse a config that contradicts the tensors.

        Some configs state the hidden size of both directions together: that is accepted.
        """
        if stack.cell == "RNN" and self.nonlinearity not in (None, *NONLINEARITIES):
            raise SourceError(
                "E_CONFIG",
                f"the config states the nonlinearity {clean(self.nonlinearity)!r}; "
                "an RNN of torch has tanh or relu",
                stage="config",
            )
        wide = (stack.hidden, stack.hidden * stack.directions, stack.output)
        checks = (
            ("kind", self.kind, stack.cell, (stack.cell,)),
            ("hidden", self.hidden, stack.hidden, wide),
            ("layers", self.layers, stack.layers, (stack.layers,)),
            ("bidirectional", self.bidirectional, stack.directions == 2, (stack.directions == 2,)),
        )
        for name, stated, found, possible in checks:
            if stated is not None and stated not in possible:
                raise SourceError(
                    "E_CONFIG",
                    f"the config states {name} {stated}, the tensors of {stack.name} say {found}",
                    hint="put the right config beside the weights, or remove it",
                    stage="config",
                )


def read_config(config: Mapping[str, Any], metadata: Mapping[str, str]) -> StatedConfig:
    """The facts in a config and in the file's own metadata; the config goes first."""
    stated = {**_hyper_parameters(metadata), **metadata, **config}
    kind_text = str(_first(stated, KIND) or "").lower()
    kind = next((cell for cell in ("LSTM", "GRU", "RNN") if cell.lower() in kind_text), None)
    return StatedConfig(
        kind=kind,
        nonlinearity=_nonlinearity(stated, kind_text),
        hidden=_whole(_first(stated, HIDDEN)),
        layers=_whole(_first(stated, LAYERS)),
        bidirectional=_truth(stated.get("bidirectional")),
        classes=_whole(_first(stated, CLASSES)),
    )


def _hyper_parameters(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What a trainer stored beside the weights, as Lightning does; one level of nesting."""
    stated: dict[str, Any] = {}
    for key in HYPER_PARAMETERS:
        try:
            values = json.loads(metadata.get(key, "{}"))
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict):
            nested = [inner for inner in values.values() if isinstance(inner, dict)]
            for group in (*nested, values):
                stated |= {str(name): value for name, value in group.items()}
    return stated


def _nonlinearity(stated: Mapping[str, Any], kind: str) -> str | None:
    """The stated nonlinearity; an `activation` may belong to another part and goes last."""
    text = str(stated.get("nonlinearity") or "").lower()
    from_kind = next((name for name in NONLINEARITIES if kind.endswith(name)), None)
    if text and from_kind not in (None, text):
        raise SourceError(
            "E_CONFIG",
            f"the config states the kind {clean(kind)!r} and the nonlinearity {clean(text)!r}",
            hint="put the right config beside the weights, or remove it",
            stage="config",
        )
    if text:
        return text
    activation = str(stated.get("activation") or "").lower()
    return from_kind or (activation if activation in NONLINEARITIES else None)


def _first(stated: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((stated[name] for name in names if stated.get(name) is not None), None)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) <= LONGEST_NUMBER else None
    return value if isinstance(value, int) else None


def _truth(value: Any) -> bool | None:
    known = {"true": True, "false": False, "1": True, "0": False}
    return known.get(str(value).lower())
