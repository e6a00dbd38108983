"""The layers of a model, found by watching one call: who answers a sequence by a sequence?"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Blocks:
    """The layers in the order in which they are called, as paths; shared ones appear again."""

    calls: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """One name per call; a layer that is called several times is numbered."""
        often = Counter(self.calls)
        seen: Counter[str] = Counter()
        names: list[str] = []
        for path in self.calls:
            seen[path] += 1
            names.append(path if often[path] == 1 else f"{path} (pass {seen[path]})")
        return tuple(names)


@dataclass(slots=True)
class Watch:
    """Which elements of which lists were called, and whether each answer was (B,T,H).

    `links` counts how often an element was fed what the one before it had answered.
    """

    calls: dict[str, list[str]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    links: Counter[str] = field(default_factory=Counter)
    last: dict[str, Tensor] = field(default_factory=dict)

    def note(self, home: str, path: str, fed: Tensor | None, state: Tensor | None) -> None:
        """One call of an element: what it was fed, and its answer when that is (B,T,H)."""
        if state is None:
            self.others.add(home)
            return
        before = self.last.get(home)
        alike = before is not None and fed is not None and before.shape == fed.shape
        self.links[home] += bool(alike and torch.equal(before, fed))  # type: ignore[arg-type]
        self.last[home] = state
        self.calls.setdefault(home, []).append(path)

    def blocks(self) -> Blocks:
        """The longest list of layers, all of which answered sequences; the outermost of equals.

        In most of its steps a layer is fed what the layer before it answered; the feed-forward
        parts of all layers, kept in a list of their own, are not.
        """
        homes = [name for name in self.calls if name not in self.others and self._is_chain(name)]
        home = max(homes, key=lambda name: (len(self.calls[name]), -len(name)), default="")
        return Blocks(tuple(self.calls.get(home, ())))

    def _is_chain(self, home: str) -> bool:
        steps = len(self.calls[home]) - 1
        return 2 * self.links[home] >= steps


@contextmanager
def watched(core: nn.Module, shape: tuple[int, int]) -> Iterator[Watch]:
    """While open, the calls of all elements of module lists are noted."""
    watch = Watch()

    def note(home: str, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            del module
            state = hidden_state(output)
            sequence = state is not None and tuple(state.shape[:2]) == shape
            fed = hidden_state(args[0] if args else kwargs.get("hidden_states"))
            watch.note(home, path, fed, state if sequence else None)

        return hook

    with ExitStack() as stack:
        for home, group in core.named_modules():
            if isinstance(group, nn.ModuleList) and not isinstance(group, ParametrizationList):
                for index, element in enumerate(group):
                    hook = note(home, f"{home}.{index}")
                    handle = element.register_forward_hook(hook, with_kwargs=True)
                    stack.callback(handle.remove)
        yield watch


@contextmanager
def heard(core: nn.Module, blocks: Blocks, hear: Callable[[str, Tensor], None]) -> Iterator[None]:
    """While open, the hidden state after every layer is passed on as soon as it is there."""
    names = iter(blocks.names)

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        del module, args
        state = hidden_state(output)
        name = next(names, None)
        if state is not None and name is not None:
            hear(name, state)

    with ExitStack() as stack:
        for path in dict.fromkeys(blocks.calls):
            stack.callback(core.get_submodule(path).register_forward_hook(hook).remove)
        yield


def hidden_state(output: Any) -> Tensor | None:
    """The (B,T,H) hidden state in what a layer answers, or None; parallel streams side by side."""
    first = output[0] if isinstance(output, tuple | list) and output else output
    state = getattr(first, "last_hidden_state", first)
    if not isinstance(state, Tensor) or not state.is_floating_point() or state.ndim < 3:
        return None
    return state.flatten(2)
