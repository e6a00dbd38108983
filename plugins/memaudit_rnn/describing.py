"""The words and numbers of an identity: description, coverage, assumptions, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean, listed
from memaudit_rnn.naming import BACK_SIDE, FRONT_SIDE, likely_side

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch
    from torch import Tensor

    from memaudit_rnn.stack import Stack
    from memaudit_rnn.surroundings import Layer, Surroundings

UNSAID = "not stored in the file"


def count(tensors: Mapping[str, Tensor], names: Iterable[str] | None = None) -> int:
    """Floating-point parameters among the named tensors, or among all."""
    chosen = tensors.values() if names is None else [tensors[name] for name in set(names)]
    return sum(tensor.numel() for tensor in chosen if tensor.is_floating_point())


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype as reports write it: float64."""
    return str(dtype).removeprefix("torch.")


def describe(stack: Stack, around: Surroundings) -> str:
    """One line: kind, sizes, and what stands around the stack."""
    words = [stack.title]
    if around.table is not None:
        words.append(f"embedding of {around.table.rows} tokens")
    if around.encoder is not None:
        words.append(f"linear encoder from {around.encoder.columns}")
    if around.head is not None:
        words.append(f"head to {around.head.rows}")
    return ", ".join(words)


def describe_host(stacks: Iterable[Stack]) -> str:
    """One line for a model that is audited layer by layer."""
    return "host of " + listed((f"{clean(x.name)} ({x.title})" for x in stacks), joint="; ")


def assumed_around(
    stack: Stack, around: Surroundings, *, encoder: str, head: str
) -> dict[str, str]:
    """What was taken for certain about the surroundings although the file does not state it."""
    assumed: dict[str, str] = {}
    front = around.table or around.encoder
    if encoder == "auto" and front is not None:
        kind = "embedding" if around.table is not None else "linear, no nonlinearity behind it"
        assumed["encoder"] = _placed(stack, front, kind, "encoder")
    if head == "auto" and around.head is not None:
        assumed["head"] = _placed(stack, around.head, "linear, no nonlinearity around it", "head")
    return assumed


def assumed_nonlinearity(stated: str | None) -> dict[str, str]:
    """The nonlinearity of a vanilla RNN, when nobody stated it."""
    if stated is not None:
        return {}
    return {"nonlinearity": f"tanh ({UNSAID}; --set nonlinearity=relu to change)"}


def assumed_orientation(stacks: Iterable[Stack]) -> dict[str, str]:
    """How weights lie that do not have torch's own names: square ones could be transposed."""
    foreign = [
        clean(key)
        for stack in stacks
        for place, key in stack.keys.keys.items()
        if place.role == "weight" and key.removeprefix(stack.keys.prefix).startswith("w_")
    ]
    if not foreign:
        return {}
    return {"orientation": f"rows are gates as in torch ({listed(foreign)}; {UNSAID})"}


def unused_notes(
    tensors: Mapping[str, Tensor], used: Iterable[str], alike: Iterable[str]
) -> tuple[str, ...]:
    """Which tensors are not run; those that look recurrent are named first and by themselves."""
    taken = set(used)
    recurrent = [name for name in alike if name not in taken]
    taken.update(recurrent)
    rest = [n for n, tensor in tensors.items() if n not in taken and tensor.is_floating_point()]
    notes: list[str] = []
    if recurrent:
        names = listed(map(clean, recurrent))
        notes.append(f"recurrent-looking tensors that were not matched: {names}")
    if rest:
        notes.append(f"not run: {listed(map(clean, rest))}")
    return tuple(notes)


def _placed(stack: Stack, layer: Layer, kind: str, option: str) -> str:
    side = FRONT_SIDE if option == "encoder" else BACK_SIDE
    named = likely_side(layer.name, stack.keys.prefix) == side
    reason = "by name and shape" if named else "by shape"
    return f"{clean(layer.name)} ({kind}; {reason}, {UNSAID}; --set {option}=none to change)"
