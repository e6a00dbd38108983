"""The functional that a family approximates: by name, from a file, or as a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, clean
from memaudit.target import AbstractTarget
from memaudit.targets import known
from memaudit.targets import target as named

if TYPE_CHECKING:
    import torch

FORMS = (
    "give exp:0.9, poly:1.1 … (memaudit list targets), or a file with a kernel (.npy, .txt, .csv)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a family is held against: the words for the report, and the answers to inputs."""

    told: str
    answer: Callable[[torch.Tensor], torch.Tensor]


def check_target(target: Any) -> None:
    """Refuse what cannot be a target, before anything is opened."""
    if target is None or callable(target) or isinstance(target, AbstractTarget):
        return
    if not isinstance(target, str | Path) or not str(target).strip():
        raise ArgumentError(f"the target is {clean(target)!r}", hint=FORMS)
    if known(target):
        named(str(target))
    elif not _is_file(Path(target)):
        raise ArgumentError(f"the target {clean(target)!r} is no name and no file", hint=FORMS)


def make_target(target: Any, *, inputs: int, outputs: int, pooled: bool) -> Target:
    """The target of models that map `inputs` channels to `outputs`."""
    if callable(target):
        function: Any = target
        return Target(f"the function {clean(getattr(target, '__name__', 'target'))}", function)
    if pooled:
        raise ArgumentError(
            "a target answers at every step, these models answer once per sequence",
            hint="give the target as a function (B,T,D) -> (B,M) in Python",
        )
    if isinstance(target, AbstractTarget) or known(target):
        return _known_target(named(target) if isinstance(target, str) else target, inputs, outputs)
    from memaudit.loading.numpy_file import read_kernel
    from memaudit.numerics.target_kernel import filtered, shaped_kernel

    kernel = shaped_kernel(read_kernel(Path(target).expanduser()), outputs, inputs)
    return Target(f"the kernel {clean(target)}", lambda u: filtered(u, kernel))


def _known_target(target: AbstractTarget, inputs: int, outputs: int) -> Target:
    if (inputs, outputs) != (target.inputs, target.outputs):
        fact = f"the target {target} maps {target.inputs} inputs to {target.outputs} outputs"
        hint = f"these models map {inputs} to {outputs}: give a kernel (T, {outputs}, {inputs})"
        raise ArgumentError(fact, hint=f"{hint}, or a function in Python")
    return Target(f"the target {target}", target.answer)


def _is_file(path: Path) -> bool:
    try:
        return path.expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL byte, or of an unknown home
        return False
