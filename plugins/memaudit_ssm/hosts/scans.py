"""Every direction of every selective scan in a file: name, sizes and tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memaudit.errors import SourceError
from memaudit.report import Recurrence
from memaudit_ssm.hosts.naming import fresh, module_names, scan_names
from memaudit_ssm.hosts.shapes import ScanShape, directions_of, read_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from memaudit_ssm.hosts.keys import ScanKeys

CELL = "mamba1"
#: A report of that many scans is read by nobody; large models have a few hundred.
MOST_SCANS = 2000


@dataclass(frozen=True, slots=True)
class Scan:
    """One direction of a selective scan; `layer` is the module that it belongs to.

    `tensors` are views of the file's by role, `keys` the names of the tensors they were cut from.
    """

    name: str
    layer: str
    shape: ScanShape
    tensors: dict[str, Tensor] = field(repr=False)
    keys: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """How many weights this direction has."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def sizes(self) -> str:
        """Its sizes in a few words."""
        return f"{self.shape.channels} channels of {self.shape.states} states"


def read_scans(groups: Sequence[ScanKeys], tensors: Mapping[str, Tensor]) -> list[Scan]:
    """The scans behind all keys; E_WEIGHTS for contradicting shapes, E_LIMIT for too many."""
    shapes = [read_shape(keys, tensors) for keys in groups]
    total = sum(shape.directions for shape in shapes)
    if total > MOST_SCANS:
        raise SourceError(
            "E_LIMIT",
            f"{total} selective scans stand side by side; at most {MOST_SCANS} are audited",
            hint="save the layers that matter in a file of their own",
            stage="recognise",
        )
    modules = module_names(keys.prefix for keys in groups)
    taken: set[str] = set()
    scans: list[Scan] = []
    for prefix, layer in modules.items():
        inside = [(k, s) for k, s in zip(groups, shapes, strict=True) if k.prefix == prefix]
        # A file may be sorted by name, and A_b_log stands before A_log there.
        inside.sort(key=lambda pair: (pair[0].merged, pair[0].letter))
        counts = [shape.directions for _, shape in inside]
        names = iter(scan_names(layer, [keys for keys, _ in inside], counts))
        for keys, shape in inside:
            used = tuple(keys.keys.values())
            for cut in directions_of(keys, shape, tensors):
                name = fresh(next(names), taken, len(scans))
                scans.append(Scan(name, layer, shape, cut, used))
    return scans


def recurrences(scans: Iterable[Scan]) -> tuple[Recurrence, ...]:
    """One record per module, with the number of its directions."""
    groups: dict[tuple[str, int, int], list[Scan]] = {}
    for scan in scans:
        key = (scan.layer, scan.shape.channels, scan.shape.states)
        groups.setdefault(key, []).append(scan)
    return tuple(
        Recurrence(
            layer=layer,
            cell=CELL,
            size=channels * states,
            parameters=sum(scan.parameters for scan in group),
            directions=len(group),
        )
        for (layer, channels, states), group in groups.items()
    )
