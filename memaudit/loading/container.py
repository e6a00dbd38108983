"""Where in a torch file the weights are: trainers wrap them in dictionaries of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.access import Limits
from memaudit.loading.formats.magic import SAFETENSORS_HINT
from memaudit.loading.pickles.rebuilding import Unnamed
from memaudit.loading.plain_values import plain_values
from memaudit.loading.tensors import Tally, plain_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What trainers call the model's weights, the surest name first.
MODEL_NAMES = (
    "model_state_dict",
    "state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "module",
    "model_weights",
    "weights",
    "params",
)
_AUXILIARY = re.compile(
    r"optimi[sz]er|(^|_)(opt|optim|rng)(_|$)|sched|scaler|callback|criterion|^amp$|^loops$"
)
#: What trainers call the settings: arrays in them are no weights.
_SETTINGS = re.compile(r"(datamodule_)?(hyper_?parameters|hparams)|config|cfg|args")
_AVERAGED = re.compile(r"(^|_)(ema|swa|shadow)(_|$)")
#: Deeper than any trainer nests; a dictionary that holds itself stops here.
DEEPEST = 8
MOST_TENSORS = Limits().max_tensors


@dataclass(frozen=True, slots=True)
class Weights:
    """The flat weights, the dotted path of their dictionary, and what stood beside them."""

    tensors: dict[str, torch.Tensor]
    container: str
    metadata: dict[str, str]
    notes: tuple[str, ...]


def find_weights(content: Any, *, max_tensors: int = MOST_TENSORS) -> Weights:
    """The model's weights in what torch.save wrote.

    Optimizer and scheduler states are never the model; averaged weights are only when nothing
    else is there. Several modules side by side are taken together, under dotted names.
    """
    _require_model(content)
    metadata: dict[str, str] = {}
    notes: list[str] = []
    path: list[str] = []
    node: dict[Any, Any] = content
    while len(path) < DEEPEST:
        metadata.update(plain_values(_beside(node), prefix=path))
        key = _inner(node, outermost=not path, notes=notes)
        if key is None:
            break
        node = dict.__getitem__(node, key)
        path.append(key)
    tally = Tally()
    found = islice(_flatten(node, outermost=not path), max_tensors + 1)
    tensors: dict[str, torch.Tensor] = {}
    for name, value in found:
        if name in tensors:
            raise _twice(name)
        tensors[name] = plain_tensor(name, value, tally)
    if len(tensors) > max_tensors:
        raise SourceError(
            "E_LIMIT",
            f"the file holds more than {max_tensors} tensors",
            hint="is this a model? if so, raise the limit with --set max_tensors=N",
            stage="open",
        )
    lists = [key for key, value in dict.items(node) if _is_list_of_tensors(value)]
    if lists:
        notes.append(f"lists of unnamed tensors were left out: {_listed(lists)}")
    return Weights(tensors, ".".join(path), metadata, tuple(notes))


def is_auxiliary(key: str) -> bool:
    """Whether a name means what trainers keep beside the model, such as an optimizer's state."""
    return _AUXILIARY.search(key.lower()) is not None


def _require_model(content: object) -> None:
    if not isinstance(content, dict):
        what = "a bare tensor" if isinstance(content, torch.Tensor) else type(content).__name__
        raise _unsupported(f"the file holds {what}, not a dictionary of named tensors")
    if set(dict.keys(content)) == {"state", "param_groups"}:
        raise SourceError(
            "E_WEIGHTS",
            "the file holds an optimizer's state, not a model",
            hint="give the model's own file",
            stage="open",
        )


def _inner(node: dict[Any, Any], *, outermost: bool, notes: list[str]) -> str | None:
    """The key of the dictionary to descend into, or None when the weights are here."""
    inner = [k for k, v in dict.items(node) if _may_be_model(k) and _holds_tensors(v)]
    loose = [k for k, v in dict.items(node) if isinstance(v, torch.Tensor)]
    first = [k for k in inner if not _AVERAGED.search(k.lower())]
    # Inside the model's own dictionary a layer may be called "net" or "ema": no choice there.
    named = sorted((k for k in first if k in MODEL_NAMES), key=MODEL_NAMES.index)
    if outermost and named:
        beside = [k for k in inner if k != named[0]] + loose
        if beside:
            notes.append(f"the weights are {named[0]}; left out: {_listed(beside)}")
        return named[0]
    if outermost and inner and not loose and not first:
        notes.append(f"only averaged weights are there: {inner[0]} was opened")
        return inner[0]
    if outermost and len(first) < len(inner):
        notes.append(f"left out: {_listed([k for k in inner if k not in first])}")
    if outermost and len(first) > 1:
        notes.append(f"several modules were opened together: {_listed(first)}")
    candidates = first if outermost else inner
    return candidates[0] if len(candidates) == 1 and not loose else None


def _flatten(
    node: dict[Any, Any], *, outermost: bool, prefix: str = "", depth: int = 0
) -> Iterable[tuple[str, torch.Tensor]]:
    if depth > DEEPEST:
        raise _unsupported("the dictionaries in the file are nested too deeply")
    for key, value in dict.items(node):
        if isinstance(value, torch.Tensor):
            if not isinstance(key, str):
                raise _unsupported(f"tensors are named by {_kind(key)}, not by text")
            yield prefix + key, value
        elif _holds_tensors(value):
            if not isinstance(key, str):
                raise _unsupported(f"tensors are named by {_kind(key)}, not by text")
            if outermost and (_AVERAGED.search(key.lower()) or not _may_be_model(key)):
                continue
            yield from _flatten(value, outermost=False, prefix=f"{prefix}{key}.", depth=depth + 1)


def _kind(key: object) -> str:
    """What a key is; one that torch files cannot say has left only that."""
    return clean(key.kind, limit=100) if isinstance(key, Unnamed) else type(key).__name__


def _beside(node: dict[Any, Any]) -> dict[str, Any]:
    return {k: v for k, v in dict.items(node) if _is_name(k)}


def _is_name(key: object) -> bool:
    return isinstance(key, str) and not is_auxiliary(key)


def _may_be_model(key: object) -> bool:
    return isinstance(key, str) and _is_name(key) and not _SETTINGS.fullmatch(key.lower())


def _holds_tensors(value: object) -> bool:
    """Whether a dictionary holds a tensor at any depth; an optimizer's state does not count."""
    seen: set[int] = set()
    layer: list[object] = [value]
    for _ in range(DEEPEST):
        dicts = [
            d for d in layer if isinstance(d, dict) and not dict.__contains__(d, "param_groups")
        ]
        fresh = {id(d): d for d in dicts if id(d) not in seen}
        seen.update(fresh)
        layer = [v for d in fresh.values() for v in dict.values(d)]
        if any(isinstance(v, torch.Tensor) for v in layer):
            return True
    return False


def _is_list_of_tensors(value: object) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value)


def _listed(names: Iterable[object]) -> str:
    return listed(names, most=6, limit=100)


def _twice(name: str) -> SourceError:
    fact = f"two tensors in the file have the name {clean(name, limit=100)!r}"
    hint = "save the model's own state dict, in which every name is unique"
    return SourceError("E_CORRUPT", fact, hint=hint, stage="open")


def _unsupported(fact: str) -> SourceError:
    return SourceError("E_UNSUPPORTED", fact, hint=SAFETENSORS_HINT, stage="open")
