"""What a report says of a rebuilt model, and of its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean, listed
from memaudit.report import Identity
from memaudit_ssm.opening.parts import recurrences

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from memaudit_ssm.facts import Facts
    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import SequenceNet
    from memaudit_ssm.opening.recognising import Checked, Recognised


def whole_identity(
    checked: Checked, found: Recognised, net: SequenceNet, facts: Facts, notes: tuple[str, ...]
) -> Identity:
    """A model that is run as a whole."""
    return Identity(
        source=checked.text,
        adapter="ssm",
        family=found.family.name,
        parameters=_size(checked.tensors),
        dtype=_word(checked.dtype),
        device=str(checked.device),
        sha256=checked.sha256,
        description=net.describe(),
        recurrences=recurrences(net.cores()),
        assumed=dict(facts.assumed),
        notes=(*checked.notes, *said(checked, facts), *notes),
    )


def host_identity(
    checked: Checked, found: Recognised, cores: Mapping[str, Core], facts: Facts, *, why: str
) -> Identity:
    """Layers that are run one by one, and the reason."""
    total, plural = _size(checked.tensors), "s" if len(cores) > 1 else ""
    run = sum(p.numel() for core in cores.values() for p in core.parameters())
    used = {key for group in found.groups for key in group.keys.values()}
    rest = [clean(found.names[name]) for name in found.tensors if name not in used]
    notes = (
        *checked.notes,
        *said(checked, facts),
        f"the layers are run one by one, without what stands around them: {why}",
        *([f"not run: {listed(rest)}"] if rest else []),
    )
    return Identity(
        source=checked.text,
        adapter="ssm",
        family=found.family.name,
        parameters=total,
        dtype=_word(checked.dtype),
        device=str(checked.device),
        sha256=checked.sha256,
        description=f"host of {len(cores)} {found.family.name} layer{plural}",
        coverage=min(1.0, run / total),
        recurrences=recurrences(cores),
        assumed=dict(facts.assumed),
        notes=notes,
        whole=False,
    )


def said(checked: Checked, facts: Facts) -> tuple[str, ...]:
    """What the user chose, so that the audit can be repeated from its report."""
    how = checked.settings.execution
    return (*facts.notes, *([f"linear layers were run by {how}"] if how != "auto" else []))


def layer_identity(host: Identity, name: str, core: Core) -> Identity:
    """One layer of a host."""
    return Identity(
        source=host.source,
        adapter=host.adapter,
        family=host.family,
        parameters=sum(p.numel() for p in core.parameters()),
        dtype=host.dtype,
        device=host.device,
        sha256=host.sha256,
        description=f"{core.cell} layer {name}",
        recurrences=recurrences({name: core}),
    )


def _size(tensors: Mapping[str, Tensor]) -> int:
    numbers = [t for t in tensors.values() if t.is_floating_point() or t.is_complex()]
    return sum({(t.data_ptr(), t.shape, t.stride()): t.numel() for t in numbers}.values())


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
