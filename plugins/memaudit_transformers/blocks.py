"""The layers of a model, found by watching one call: who answers a sequence by a sequence?"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

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
    """Which elements of which lists were called, and whether each answer was (B,T,H)."""

    calls: dict[str, list[str]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)

    def blocks(self) -> Blocks:
        """The longest list of layers, all of which answered sequences; the outermost of equals."""
        homes = [name for name in self.calls if name not in self.others]
        home = max(homes, key=lambda name: (len(self.calls[name]), -len(name)), default="")
        return Blocks(tuple(self.calls.get(home, ())))


@contextmanager
def watched(core: nn.Module, shape: tuple[int, int]) -> Iterator[Watch]:
    """While open, the calls of all elements of module lists are noted."""
    watch = Watch()

    def note(home: str, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            del module, args
            state = hidden_state(output)
            if state is None or tuple(state.shape[:2]) != shape:
                watch.others.add(home)
            else:
                watch.calls.setdefault(home, []).append(path)

        return hook

    with ExitStack() as stack:
        for home, group in core.named_modules():
            if isinstance(group, nn.ModuleList):
                for index, element in enumerate(group):
                    handle = element.register_forward_hook(note(home, f"{home}.{index}"))
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
