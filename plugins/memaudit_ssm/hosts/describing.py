"""The words of an identity: what the scans are, what was not run, and what is unknown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memaudit.errors import clean, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from torch import Tensor

    from memaudit_ssm.hosts.scans import Scan


def describe(scans: Sequence[Scan]) -> str:
    """One line: how many scans of which size, in how many modules."""
    modules = len({scan.layer for scan in scans})
    inside = f" in {modules} modules" if 1 < modules < len(scans) else ""
    kinds = Counter(scan.sizes for scan in scans)
    words = listed(
        f"{count} selective scan{'s' if count > 1 else ''} ({sizes})"
        for sizes, count in kinds.items()
    )
    return f"host of {words}{inside}"


def joining_note(scans: Sequence[Scan]) -> str:
    """What was taken for granted about every scan that is run."""
    whom = "its scan is run by itself" if len(scans) == 1 else "each scan is run by itself"
    return (
        f"how the model feeds and joins its scans is not stored in the file: {whom}, fed where "
        "x_proj reads, with nothing between x_proj and the scan"
    )


def direction_notes(scans: Iterable[Scan]) -> tuple[str, ...]:
    """What a direction means, where there are several."""
    if max(Counter(scan.layer for scan in scans).values()) == 1:
        return ()
    return (
        "a direction may read its sequence backwards or across; each is run forwards, so lags "
        "count steps of its own order",
    )


def idle_notes(scans: Sequence[Scan], run: Sequence[Scan]) -> tuple[str, ...]:
    """The scans that the option `layers` left out."""
    taken = {scan.name for scan in run}
    idle = [scan.name for scan in scans if scan.name not in taken]
    if not idle:
        return ()
    share = sum(scan.parameters for scan in scans if scan.name not in taken)
    share /= sum(scan.parameters for scan in scans)
    return (
        f"left out by the option layers: {len(idle)} of {len(scans)} scans "
        f"({share:.0%} of their parameters): {listed(idle)}",
    )


def unmatched_notes(
    alike: Iterable[str], used: Collection[str], refused: Mapping[str, str]
) -> tuple[str, ...]:
    """The tensors that look recurrent and belong to no scan, with the reason where there is one."""
    taken = set(used)
    names = [name for name in alike if name not in taken]
    if not names:
        return ()
    # Those with a reason first: the others are often their companions.
    names.sort(key=lambda name: name not in refused)
    words = (f"{clean(n)} ({clean(refused[n])})" if n in refused else clean(n) for n in names)
    return (f"recurrent-looking tensors that were not matched: {listed(words)}",)


def unused_notes(tensors: Mapping[str, Tensor], named: Collection[str]) -> tuple[str, ...]:
    """The other tensors of floats, which nothing runs; weight and bias of a layer count once."""
    rest = [n for n, tensor in tensors.items() if n not in named and tensor.is_floating_point()]
    owners = dict.fromkeys(n.removesuffix(".weight").removesuffix(".bias") for n in rest)
    return (f"not run: {listed(map(clean, owners))}",) if rest else ()
