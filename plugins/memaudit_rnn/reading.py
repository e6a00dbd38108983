"""Reading a recurrent stack from tensors, and refusing shapes that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import SourceError, clean
from memaudit_rnn.keys import Place, StackKeys, originals
from memaudit_rnn.stack import CELLS, Stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor


#: A report of that many recurrent layers is read by nobody; real models have a few dozen.
MOST_STACKS = 2000
#: Names that a sentence may hold.
SHOWN = 8


def read_stacks(
    groups: Sequence[StackKeys], tensors: Mapping[str, Tensor], alike: Sequence[str]
) -> list[Stack]:
    """The stacks behind all keys; E_LIMIT when there are far more than a model has."""
    if len(groups) > MOST_STACKS:
        raise SourceError(
            "E_LIMIT",
            f"{len(groups)} recurrent layers stand side by side; at most {MOST_STACKS} are audited",
            hint="save the recurrent layers that matter in a file of their own",
            stage="recognise",
        )
    sources = originals(alike)
    return [_read(keys, tensors, alike, sources) for keys in groups]


def read_stack(keys: StackKeys, tensors: Mapping[str, Tensor], alike: Iterable[str]) -> Stack:
    """The stack behind some keys, or E_WEIGHTS when their shapes contradict each other."""
    names = tuple(alike)
    return _read(keys, tensors, names, originals(names))


def _read(
    keys: StackKeys,
    tensors: Mapping[str, Tensor],
    alike: Sequence[str],
    sources: Mapping[str, Sequence[str]],
) -> Stack:
    _refuse_rivals(keys)
    _require_floats(keys, tensors)
    _refuse_copies(keys, sources)
    first = Place("weight", "hh", 0)
    for place in (Place("weight", "ih", 0), first):
        if place not in keys.keys:
            raise _missing(keys, place, alike)
    ih, hh = tensors[keys.key(Place("weight", "ih", 0))], tensors[keys.key(first)]
    if ih.ndim != 2 or hh.ndim != 2 or min(*ih.shape, *hh.shape) == 0:
        raise _contradiction(
            keys, tensors, [Place("weight", "ih", 0), first], "two filled axes each"
        )
    hidden = _hidden(keys, tensors)
    blocks, rest = divmod(hh.shape[0], hidden)
    if rest or blocks not in CELLS:
        raise SourceError(
            "E_WEIGHTS",
            f"{keys.key(first)} has shape {tuple(hh.shape)}: {hh.shape[0]} rows for {hidden} "
            "hidden units are neither 1 (RNN), 3 (GRU) nor 4 (LSTM) blocks",
            stage="weights",
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
    _check(stack, tensors, alike)
    return stack


def _hidden(keys: StackKeys, tensors: Mapping[str, Tensor]) -> int:
    """The hidden size: columns of weight_hr under a projection, else of weight_hh."""
    projection = keys.keys.get(Place("weight", "hr", 0))
    if projection is None:
        return int(tensors[keys.key(Place("weight", "hh", 0))].shape[1])
    if tensors[projection].ndim != 2 or tensors[projection].shape[1] == 0:
        raise _contradiction(keys, tensors, [Place("weight", "hr", 0)], "two filled axes")
    return int(tensors[projection].shape[1])


def _check(stack: Stack, tensors: Mapping[str, Tensor], alike: Iterable[str]) -> None:
    if stack.output != stack.hidden and stack.cell != "LSTM":
        places = [Place("weight", "hh", 0), Place("weight", "hr", 0)]
        raise _contradiction(stack.keys, tensors, places, f"no projection in a {stack.cell}")
    wanted = stack.shapes()
    for place, shape in wanted.items():
        if place not in stack.keys.keys:
            raise _missing(stack.keys, place, alike)
        if tuple(tensors[stack.keys.key(place)].shape) != shape:
            against = [place, Place("weight", "hh", 0)]
            raise _contradiction(stack.keys, tensors, against, f"{shape} for the first")
    extra = [place for place in stack.keys.keys if place not in wanted]
    if extra:
        raise _contradiction(stack.keys, tensors, extra, f"no such tensor in a {stack.title}")


def _require_floats(keys: StackKeys, tensors: Mapping[str, Tensor]) -> None:
    for key in keys.keys.values():
        if not tensors[key].is_floating_point():
            raise SourceError(
                "E_WEIGHTS",
                f"{key} holds {str(tensors[key].dtype).removeprefix('torch.')}, not floats",
                hint="quantized weights must be dequantized before they are saved",
                stage="weights",
            )


def _refuse_rivals(keys: StackKeys) -> None:
    """Refuse two keys for one place: which of them the model runs is not known."""
    if keys.rivals:
        first, second = keys.rivals[0]
        raise SourceError(
            "E_WEIGHTS",
            f"{clean(first)} and {clean(second)} are two names for the same weights",
            hint="remove the one that the model does not run",
            stage="weights",
        )


def _refuse_copies(keys: StackKeys, sources: Mapping[str, Sequence[str]]) -> None:
    """Refuse weights that were computed from others in the file: dropping, norms."""
    pairs = [(key, name) for key in keys.keys.values() for name in sources.get(key, ())]
    if pairs:
        copies = list(dict.fromkeys(key for key, _ in pairs))[:SHOWN]
        stored = [name for _, name in pairs][:SHOWN]
        raise SourceError(
            "E_WEIGHTS",
            f"{', '.join(copies)} may be a computed copy of {', '.join(stored)}",
            hint="remove the parametrization (weight dropping, weight norm) before saving",
            stage="weights",
        )


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
    return SourceError(
        "E_WEIGHTS",
        f"the recurrent layer {keys.name('without a name')} lacks {name}; it has {there}",
        hint=hint,
        stage="weights",
    )


def _contradiction(
    keys: StackKeys, tensors: Mapping[str, Tensor], places: Iterable[Place], wanted: str
) -> SourceError:
    facts = " and ".join(
        f"{keys.key(place)} {tuple(tensors[keys.key(place)].shape)}"
        for place in list(dict.fromkeys(places))[:SHOWN]
    )
    return SourceError(
        "E_WEIGHTS", f"the shapes contradict each other: {facts}; wanted: {wanted}", stage="weights"
    )
