"""The sizes of a selective scan, read from its tensors; contradictions are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from memaudit_ssm.hosts.keys import ScanKeys


@dataclass(frozen=True, slots=True)
class ScanShape:
    """Sizes of one scan: channels d, states N per channel, rank R of dt, directions K."""

    channels: int
    states: int
    rank: int
    directions: int = 1

    def single(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor of one direction, by role."""
        d, n, rank = self.channels, self.states, self.rank
        return {
            "A_log": (d, n),
            "D": (d,),
            "dt_weight": (d, rank),
            "dt_bias": (d,),
            "x_weight": (rank + 2 * n, d),
            "x_bias": (rank + 2 * n,),
        }

    def stored(self, role: str, *, merged: bool) -> list[tuple[int, ...]]:
        """The shapes that a file may keep a tensor in; A and D may hold directions as rows."""
        one = self.single()[role]
        if not merged:
            return [one]
        stacked = (self.directions, *one)
        rows = (self.directions * one[0], *one[1:])
        return [rows, stacked] if role in ("A_log", "D") else [stacked]


def read_shape(keys: ScanKeys, tensors: Mapping[str, Tensor]) -> ScanShape:
    """The sizes behind some keys, or E_WEIGHTS when the shapes contradict each other."""
    found = {role: tensors[key] for role, key in keys.keys.items()}
    for role, tensor in found.items():
        if not tensor.is_floating_point():
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise _refusal(
                f"{clean(keys.keys[role])} holds {dtype}, not floats",
                "quantized weights must be dequantized before they are saved",
            )
    dt, a = found["dt_weight"], found["A_log"]
    axes = 3 if keys.merged else 2
    if dt.ndim != axes or a.ndim not in (2, axes) or 0 in (*dt.shape, *a.shape):
        raise _contradiction(keys, found, "filled axes (d, N) of A and (d, R) of dt_proj")
    directions = int(dt.shape[0]) if keys.merged else 1
    shape = ScanShape(int(dt.shape[-2]), int(a.shape[-1]), int(dt.shape[-1]), directions)
    for role, tensor in found.items():
        possible = shape.stored(role, merged=keys.merged)
        if tuple(tensor.shape) not in possible:
            end = clean(keys.keys[role].removeprefix(keys.prefix))
            raise _contradiction(keys, found, f"{possible[0]} for {end}")
    return shape


def directions_of(
    keys: ScanKeys, shape: ScanShape, tensors: Mapping[str, Tensor]
) -> Iterator[dict[str, Tensor]]:
    """The tensors of every direction by role, as views of the stored ones."""
    single = shape.single()
    stacked = {
        role: tensors[key].reshape(shape.directions, *single[role])
        for role, key in keys.keys.items()
    }
    for k in range(shape.directions):
        yield {role: tensor[k] for role, tensor in stacked.items()}


def _contradiction(keys: ScanKeys, found: Mapping[str, Tensor], wanted: str) -> SourceError:
    facts = ", ".join(
        f"{keys.keys[role].removeprefix(keys.prefix)} {tuple(tensor.shape)}"
        for role, tensor in found.items()
    )
    where = clean(keys.prefix.rstrip(".")) or "the file"
    return _refusal(
        f"the shapes in {where} contradict each other: {clean(facts, limit=600)}; wanted: {wanted}",
        "the file is damaged or holds another kind of scan; save the whole state dict",
    )


def _refusal(fact: str, hint: str) -> SourceError:
    return SourceError("E_WEIGHTS", fact, hint=hint, stage="weights")
