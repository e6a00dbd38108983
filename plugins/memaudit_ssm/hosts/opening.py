"""Opening the selective scans among some tensors, from a file or from a module in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.filling import require_finite
from memaudit.results import Identity
from memaudit_ssm.hosts import describing
from memaudit_ssm.hosts.host import ScanHost
from memaudit_ssm.hosts.keys import find_scans, lookalikes
from memaudit_ssm.hosts.network import build
from memaudit_ssm.hosts.scans import Scan, read_scans, recurrences
from memaudit_ssm.hosts.subject import ScanSubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor

    from memaudit_ssm.settings import Settings

FAMILY = "selective-scan"


@dataclass(frozen=True, slots=True)
class Opening:
    """Where tensors came from, and how they are to be run."""

    text: str
    tensors: Mapping[str, Tensor] = field(repr=False)
    device: torch.device
    dtype: torch.dtype
    sha256: str
    notes: tuple[str, ...]
    settings: Settings


def open_scans(opening: Opening) -> ScanHost:
    """The host of every selective scan that the settings choose."""
    tensors = opening.tensors
    found = find_scans(tensors)
    if not found.scans:
        raise _no_scan(tensors, found.refused)
    scans = read_scans(found.scans, tensors)
    chosen = opening.settings.chosen(scan.name for scan in scans)
    run = [scan for scan in scans if scan.name in chosen]
    whole = {scan.keys[0]: scan.keys for scan in run}
    require_finite({k: tensors[k] for keys in whole.values() for k in keys}, source=opening.text)
    identity = _identity(opening, scans, run, found.refused)
    parts = {scan.name: _part(opening, scan, identity) for scan in run}
    return ScanHost(parts, identity)


def _part(opening: Opening, scan: Scan, whole: Identity) -> ScanSubject:
    identity = Identity(
        source=whole.source,
        adapter=whole.adapter,
        family=whole.family,
        parameters=scan.parameters,
        dtype=whole.dtype,
        device=whole.device,
        sha256=whole.sha256,
        description=f"selective scan, {scan.sizes}",
        recurrences=recurrences([scan]),
    )
    network = build(scan, device=opening.device, dtype=opening.dtype)
    return ScanSubject(scan.name, network, identity)


def _identity(
    opening: Opening, scans: Sequence[Scan], run: Sequence[Scan], refused: Mapping[str, str]
) -> Identity:
    tensors = opening.tensors
    total = _size(tensors)
    used = {key for scan in scans for key in scan.keys}
    notes = (
        *opening.notes,
        describing.joining_note(scans),
        *describing.direction_notes(scans),
        *describing.idle_notes(scans, run),
        *describing.unmatched_notes(lookalikes(tensors), used, refused),
        *describing.unused_notes(tensors, {*used, *lookalikes(tensors)}),
    )
    return Identity(
        source=opening.text,
        adapter="ssm",
        family=FAMILY,
        parameters=total,
        dtype=str(opening.dtype).removeprefix("torch."),
        device=str(opening.device),
        sha256=opening.sha256,
        description=describing.describe(scans),
        coverage=min(1.0, sum(scan.parameters for scan in run) / total),
        recurrences=recurrences(scans),
        notes=notes,
    )


def _size(tensors: Mapping[str, Tensor]) -> int:
    """Floating-point parameters; tied ones, which share their memory, count once."""
    floats = [tensor for tensor in tensors.values() if tensor.is_floating_point()]
    return sum({(t.data_ptr(), t.shape, t.stride()): t.numel() for t in floats}.values())


def _no_scan(tensors: Mapping[str, Tensor], refused: Mapping[str, str]) -> SourceError:
    shown = listed(clean(f"{name} {tuple(tensor.shape)}") for name, tensor in tensors.items())
    alike = describing.unmatched_notes(lookalikes(tensors), (), refused)
    close = "".join(f"; {note}" for note in alike)
    return SourceError(
        "E_UNSUPPORTED",
        f"no selective scan (A_log, D, dt_proj, x_proj) is among its tensors: {shown}{close}",
        hint="memaudit list adapters shows what else can be opened",
        stage="recognise",
    )
