"""The identity of a model: its description, its layers by kind, and what was not audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import clean, listed
from memaudit.report import Identity
from memaudit_transformers.recurrent import unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from memaudit_transformers.examining import Examined

SHOWN = 6


def describe(
    examined: Examined,
    *,
    source: str,
    sha256: str,
    stored: int | None = None,
    assumed: dict[str, str],
    notes: Iterable[str],
) -> Identity:
    """The identity; `stored` is how many numbers the file holds, where there is one."""
    model = examined.machine.model
    total = max(count(model.parameters()), stored or 0)
    used = count(examined.readout.speaker.parameters()) - _pooler(examined)
    return Identity(
        source=source,
        adapter="transformers",
        family=clean(getattr(model.config, "model_type", "") or "transformers", limit=60),
        parameters=total,
        dtype=str(examined.machine.dtype).removeprefix("torch."),
        device=str(examined.device),
        sha256=sha256,
        description=_title(examined),
        coverage=min(1.0, used / max(total, 1)),
        recurrences=tuple(recurrent.record() for recurrent in examined.recurrents),
        assumed={**assumed, **examined.readout.assumed},
        notes=(*notes, *_part_notes(examined), *_layer_notes(examined, total)),
    )


def count(parameters: Iterable[Any]) -> int:
    """How many numbers there are, tied ones once."""
    return sum({id(p): p.numel() for p in parameters}.values())


def _pooler(examined: Examined) -> int:
    """What a bare model computes beside the hidden state."""
    pooler = getattr(examined.machine.core, "pooler", None)
    if examined.readout.logits or pooler is None:
        return 0
    return count(pooler.parameters())


def _title(examined: Examined) -> str:
    words = [type(examined.machine.model).__name__]
    if examined.blocks.calls:
        words.append(f"{len(examined.blocks.calls)} layers")
    words.append(f"width {examined.width}")
    if examined.vocabulary is not None:
        words.append(f"{examined.vocabulary} tokens")
    return ", ".join(words)


def _part_notes(examined: Examined) -> tuple[str, ...]:
    part = examined.part
    where = f" ({clean(part.path)})" if part.path and part.note else ""
    note = (f"{part.note}{where}",) if part.note else ()
    odd = unmatched(examined.machine.core, examined.recurrents)
    if not odd:
        return note
    told = listed(map(clean, odd), most=SHOWN)
    return (*note, f"recurrent-looking tensors that were not matched: {told}")


def _layer_notes(examined: Examined, total: int) -> tuple[str, ...]:
    """Which layers are recurrent, which attention or other, each with its share of parameters."""
    core = examined.machine.core
    kinds: dict[str, list[str]] = {}
    for path in dict.fromkeys(examined.blocks.calls):
        kinds.setdefault(_kind(path, core.get_submodule(path), examined), []).append(path)
    notes: list[str] = []
    for kind, paths in kinds.items():
        numbers = count(p for path in paths for p in core.get_submodule(path).parameters())
        share = 100 * numbers / max(total, 1)
        noun = "layer" if len(paths) == 1 else "layers"
        notes.append(
            f"{len(paths)} {kind} {noun}, {share:.1f} % of the parameters: "
            + listed(paths, most=SHOWN)
        )
    return tuple(notes)


def _kind(path: str, block: nn.Module, examined: Examined) -> str:
    inside = f"{path}."
    recurrent = any(f"{r.layer}.".startswith(inside) for r in examined.recurrents)
    attention = any("attention" in type(m).__name__.lower() for m in _others(block, examined))
    if recurrent:
        return "recurrent and attention" if attention else "recurrent"
    return "attention" if attention else "other"


def _others(block: nn.Module, examined: Examined) -> list[nn.Module]:
    """The modules of a block that are no part of a recurrence: RWKV calls its own attention."""
    own = {id(m) for r in examined.recurrents for m in r.module.modules()}
    return [m for m in block.modules() if id(m) not in own and m is not block]
