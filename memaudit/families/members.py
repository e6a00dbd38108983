"""The models of a family: opened, checked against each other, and ordered by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.opening import Opened, open_source
from memaudit.subjects.copies import real_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memaudit.contracts import AbstractPerturbable, AbstractSubject

    Progress = Callable[[str, int, int], None]

#: Models that a family has at least; without a target one of them is the reference.
FEWEST, FEWEST_ALONE = 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A model, its weights as an argument, and its size m."""

    subject: AbstractSubject
    copies: AbstractPerturbable
    size: int

    @property
    def name(self) -> str:
        """Where it came from."""
        return self.subject.identity.source


def open_members(
    sources: Sequence[Any], options: Mapping[str, Any], progress: Progress
) -> tuple[list[Member], str, list[Opened]]:
    """The members by growing size, and what their sizes count."""
    opened = []
    for number, source in enumerate(sources):
        progress("opening", number, len(sources))
        opened.append(open_source(source, **options))
    progress("opening", len(sources), len(sources))
    pairs = [(item.subject, _copies(item.subject)) for item in opened]
    _check_alike([subject for subject, _ in pairs])
    sizes, counted = _sizes(pairs)
    members = [Member(*pair, size) for pair, size in zip(pairs, sizes, strict=True)]
    return sorted(members, key=lambda member: member.size), counted, opened


def check_count(sources: Sequence[Any], *, target: bool) -> None:
    """Refuse too few models, before anything is opened."""
    count = 1 if isinstance(sources, str) else len(sources)
    if count < FEWEST:
        hint = "give models of growing size; for one use memaudit scan"
        raise ArgumentError(f"a family has at least {FEWEST} members, not {count}", hint=hint)
    if count < FEWEST_ALONE and not target:
        fact = f"a family without a target has at least {FEWEST_ALONE} members, not {count}"
        raise ArgumentError(fact, hint="the largest is the reference: give a target or more models")


def mode_values(copies: AbstractPerturbable) -> Mapping[str, Any]:
    """The eigenvalues (1,n) of every layer as it is, where the weights alone decide them."""
    first = next(iter(copies.weights), None)
    return {} if first is None else copies.modes({first: copies.weights[first][None]})


def _copies(subject: AbstractSubject) -> AbstractPerturbable:
    copies = None if subject.parts() else subject.perturbable()
    copies = None if copies is None else real_copies(copies)
    if copies is None:
        why = "it runs part by part" if subject.parts() else "they are not known by name"
        raise SourceError(
            "E_UNSUPPORTED",
            f"the weights of this model cannot be moved: {why}",
            hint="build the model in Python and pass the module to memaudit.family",
            source=subject.identity.source,
            stage="open",
        )
    return copies


def _check_alike(subjects: Sequence[AbstractSubject]) -> None:
    first = subjects[0]
    for other in subjects[1:]:
        for what, mine, theirs in (
            ("inputs", first.input_size, other.input_size),
            ("pooled answers", first.pooled, other.pooled),
        ):
            if mine != theirs:
                raise unlike(first, other, what, mine, theirs)


def unlike(
    first: AbstractSubject, other: AbstractSubject, what: str, mine: Any, theirs: Any
) -> ArgumentError:
    """The error for members that do not answer the same question."""
    names = f"{clean(first.identity.source)} and {clean(other.identity.source)}"
    fact = f"{names} are no family: {what} {mine} and {theirs}"
    return ArgumentError(fact, hint="give models that map the same inputs to the same outputs")


def _sizes(
    pairs: Sequence[tuple[AbstractSubject, AbstractPerturbable]],
) -> tuple[list[int], str]:
    """The size of each member, and the first count by which they all differ."""
    counts = {
        "states": [_states(subject) for subject, _ in pairs],
        "modes": [sum(v.shape[-1] for v in mode_values(c).values()) for _, c in pairs],
        "parameters": [subject.identity.parameters for subject, _ in pairs],
    }
    for counted, sizes in counts.items():
        if all(sizes) and len(set(sizes)) == len(sizes):
            return sizes, counted
    told = ", ".join(str(size) for size in counts["parameters"])
    fact = f"two members are of one size (parameters: {told})"
    raise ArgumentError(fact, hint="a family grows: give models of different sizes")


def _states(subject: AbstractSubject) -> int:
    return sum(layer.size * layer.directions for layer in subject.identity.recurrences)
