"""Weights that are not numbers are named, never audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 5


def require_finite(tensors: Mapping[str, torch.Tensor], *, source: object) -> None:
    """Raise E_NONFINITE with counts per tensor unless every number is finite."""
    bad = {name: counts for name, tensor in tensors.items() if any(counts := _count(tensor))}
    if not bad:
        return
    nans, infinite = (sum(counts) for counts in zip(*bad.values(), strict=True))
    subject = "1 tensor holds" if len(bad) == 1 else f"{len(bad)} tensors hold"
    some = list(bad.items())[:_SHOWN]
    shown = [f"{clean(name, limit=120)} ({_phrase(*counts)})" for name, counts in some]
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    noun = "number" if infinite == 1 else "numbers"
    raise SourceError(
        "E_NONFINITE",
        f"{subject} {_phrase(nans, infinite, noun=noun)}: {', '.join(shown)}{more}",
        hint="the training diverged or the file is damaged; audit an earlier checkpoint",
        source=source,
        stage="open",
    )


def _count(tensor: torch.Tensor) -> tuple[int, int]:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0, 0
    # The 8-bit floats have no comparison of their own; float32 holds them exactly.
    wide = tensor.float() if tensor.element_size() == 1 else tensor
    if bool(torch.isfinite(wide).all()):
        return 0, 0
    nan = torch.isnan(wide)
    return int(nan.sum()), int((torch.isinf(wide) & ~nan).sum())


def _phrase(nans: int, infinite: int, *, noun: str = "") -> str:
    parts = [f"{nans} NaN"] if nans else []
    if infinite:
        parts.append(f"{infinite} infinite {noun}".rstrip())
    return (" and " if noun else ", ").join(parts)
