"""One thing wrong with a state dict: a name, a shape, a kind of number, or a number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

State = dict[str, Tensor]


class Damaged:
    """A state dict after one corruption, and the name that a refusal is to tell.

    `harmless` is one whose numbers are all there, under their names and alone. No dataclass: of
    those, hypothesis prints every number.
    """

    def __init__(self, state: State, blamed: str | None = None, *, harmless: bool = False) -> None:
        self.state = state
        self.blamed = blamed
        self.harmless = harmless

    def __repr__(self) -> str:
        tensor = self.state.get(self.blamed or "")
        form = "gone" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"
        return f"Damaged({self.blamed or list(self.state)}: {form})"


def dropped(state: State, key: str, draw: st.DrawFn) -> Damaged:
    """One tensor is missing."""
    del draw
    return Damaged({name: t for name, t in state.items() if name != key}, key)


def renamed(state: State, key: str, draw: st.DrawFn) -> Damaged | None:
    """One character of a name is another one."""
    at = draw(st.integers(0, len(key) - 1))
    other = draw(st.sampled_from("0129.WPxD_"))
    name = key[:at] + other + key[at + 1 :]
    if name in state:
        return None
    return Damaged({name if n == key else n: t for n, t in state.items()}, None)


def doubled(state: State, key: str, draw: st.DrawFn) -> Damaged:
    """One tensor, or all of them, stand there again under another prefix."""
    prefix = draw(st.sampled_from(["copy.", "module.", "ema.", "net.", "model.", "x."]))
    keys = [key] if draw(st.booleans()) else list(state)
    again = {f"{prefix}{name}": state[name] + 1.0 for name in keys}
    return Damaged({**again, **state} if draw(st.booleans()) else {**state, **again}, None)


def crowded(state: State, key: str, draw: st.DrawFn) -> Damaged:
    """A tensor that nobody knows, beside a known one or apart from all."""
    leaf = draw(st.sampled_from(["bias2", "E", "scale", "log_gain", "P.weight2"]))
    room = key.rpartition(".")[0] + "." if draw(st.booleans()) else "somewhere."
    shape = draw(st.sampled_from([(1,), (3,), tuple(state[key].shape)]))
    return Damaged({**state, f"{room}{leaf}": torch.full(shape, 0.5)}, None)


def cut(state: State, key: str, draw: st.DrawFn) -> Damaged | None:
    """One axis is shorter by one."""
    if not state[key].ndim:
        return None
    axis = draw(st.integers(0, state[key].ndim - 1))
    return _changed(state, key, lambda t: t.narrow(axis, 0, t.shape[axis] - 1))


def grown(state: State, key: str, draw: st.DrawFn) -> Damaged | None:
    """One axis is longer by one."""
    if not state[key].ndim:
        return None
    axis = draw(st.integers(0, state[key].ndim - 1))
    return _changed(state, key, lambda t: torch.cat([t, t.narrow(axis, 0, 1)], dim=axis))


def lifted(state: State, key: str, draw: st.DrawFn) -> Damaged:
    """There is one axis more."""
    axis = draw(st.integers(0, state[key].ndim))
    return _changed(state, key, lambda t: t.unsqueeze(axis))


def turned(state: State, key: str, draw: st.DrawFn) -> Damaged | None:
    """Two axes are exchanged; in a square no file can tell."""
    del draw
    tensor = state[key]
    if tensor.ndim < 2 or tensor.shape[0] == tensor.shape[1]:
        return None
    return _changed(state, key, lambda t: t.transpose(0, 1))


def recast(state: State, key: str, draw: st.DrawFn) -> Damaged:
    """The numbers are of another kind."""
    kind = torch.float32
    if state[key].is_floating_point():
        kind = draw(st.sampled_from([torch.int64, torch.int8, torch.bool, torch.complex64]))
    return _changed(state, key, lambda t: (t.real if t.is_complex() else t).to(kind))


def widened(state: State, key: str, draw: st.DrawFn) -> Damaged | None:
    """The same numbers with more room: no corruption at all."""
    del draw
    if not state[key].is_floating_point():
        return None
    return Damaged({**state, key: state[key].double()}, harmless=True)


def poisoned(state: State, key: str, draw: st.DrawFn) -> Damaged | None:
    """One number is none."""
    if not (state[key].is_floating_point() or state[key].is_complex()):
        return None
    tensor = state[key].contiguous().clone()
    value = draw(st.sampled_from([float("nan"), float("inf")]))
    tensor.view(-1)[draw(st.integers(0, tensor.numel() - 1))] = value
    return Damaged({**state, key: tensor}, key)


Corruption = Callable[[State, str, st.DrawFn], Damaged | None]
CORRUPTIONS: dict[str, Corruption] = {
    corrupt.__name__: corrupt
    for corrupt in (
        dropped, renamed, doubled, crowded, cut, grown, lifted, turned, recast, widened, poisoned
    )
}  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, source: Callable[[], State], how: str) -> Damaged | None:
    """The state dict after one corruption of a kind; None where it cannot be done."""
    state = source()
    return CORRUPTIONS[how](state, draw(st.sampled_from(sorted(state))), draw)


def _changed(state: State, key: str, change: Callable[[Tensor], Tensor]) -> Damaged:
    return Damaged({**state, key: change(state[key]).contiguous()}, key)
