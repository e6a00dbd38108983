"""Every state-space layer inside a module, by the weight that makes its modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.contracts import DiagonalDecay, NoDecay
from memaudit.errors import clean
from memaudit_ssm.decays.published import published
from memaudit_ssm.hosts.network import SelectiveScan
from memaudit_ssm.hosts.scans import CELL
from memaudit_ssm.layers.core import Core
from memaudit_ssm.layers.stored import Stored, class_name, is_computed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from memaudit.contracts import StoredDecay

COMPUTED = "{name} is computed from other weights by something else already; remove that first"
UNTRAINED = "{name} is a buffer, which no training moves"


def stored_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """The layers of the families, ours and the published ones, each once."""
    inside: set[int] = set()
    for path, part in module.named_modules():
        if id(part) in inside:
            continue
        layer = clean(path or class_name(part))
        if isinstance(part, Core):
            # The kernel of one of our layers looks like a published one.
            inside.update(map(id, part.modules()))
            yield _told(layer, part.cell, part.decay())
        elif isinstance(part, SelectiveScan):
            yield _told(layer, CELL, part.decay())
        else:
            yield from (_told(layer, cell, stored) for cell, stored in published(part))


def _told(layer: str, cell: str, stored: Stored | str) -> StoredDecay:
    if isinstance(stored, str):
        return NoDecay(layer, cell, stored)
    owner, name = stored.owner, stored.name
    if is_computed(owner, name):
        return NoDecay(layer, cell, COMPUTED.format(name=name))
    if name in owner._buffers:
        return NoDecay(layer, cell, UNTRAINED.format(name=name))
    return DiagonalDecay(layer, cell, owner, name, stored.law, stored.part, stored.note)
