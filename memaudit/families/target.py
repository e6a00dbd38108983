"""The functional that a family approximates: by name, from a file, or as a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, clean

if TYPE_CHECKING:
    import torch

FORMS = "give exp:0.9, poly:1.1, or a file with a kernel (.npy, .txt, .csv)"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a family is held against: the words for the report, and the answers to inputs."""

    told: str
    answer: Callable[[torch.Tensor], torch.Tensor]


def check_target(target: Any) -> None:
    """Refuse what cannot be a target, before anything is opened."""
    if target is None or callable(target):
        return
    if not isinstance(target, str | Path) or not str(target).strip():
        raise ArgumentError(f"the target is {clean(target)!r}", hint=FORMS)
    if _named(target) is None and not _is_file(Path(target)):
        raise ArgumentError(f"the target {clean(target)!r} is no name and no file", hint=FORMS)
    if (named := _named(target)) is not None:
        from memaudit.numerics.target_kernel import named_kernel

        named_kernel(*named, 1)


def make_target(target: Any, *, inputs: int, outputs: int, steps: int, pooled: bool) -> Target:
    """The target of models that map `inputs` channels to `outputs`, for `steps` steps."""
    from memaudit.loading.kernel_file import read_kernel
    from memaudit.numerics.target_kernel import filtered, named_kernel, shaped_kernel

    if callable(target):
        function: Any = target
        return Target(f"the function {clean(getattr(target, '__name__', 'target'))}", function)
    if pooled:
        raise ArgumentError(
            "a kernel answers at every step, these models answer once per sequence",
            hint="give the target as a function (B,T,D) -> (B,M) in Python",
        )
    named = _named(target)
    values = (
        read_kernel(Path(target).expanduser())
        if named is None
        else named_kernel(*named, steps).numpy()
    )
    kernel = shaped_kernel(values, outputs, inputs)
    told = f"the kernel {clean(target)}" if named is None else f"the target {':'.join(named)}"
    return Target(told, lambda u: filtered(u, kernel))


def _named(target: str | Path) -> tuple[str, str] | None:
    from memaudit.numerics.target_kernel import NAMED

    name, colon, number = str(target).partition(":")
    return (name, number) if colon and name in NAMED and isinstance(target, str) else None


def _is_file(path: Path) -> bool:
    try:
        return path.expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL byte, or of an unknown home
        return False
