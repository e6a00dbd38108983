"""A model whose recurrent layers are known and whose rest is not: they are audited one by one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, SourceError, clean, listed
from memaudit.interfaces import AbstractSubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Generator, Tensor, nn

    from memaudit.interfaces import AbstractDynamics, AbstractLinearPart, AbstractPerturbable
    from memaudit.modes import LayerSpectrum as Spectrum
    from memaudit.report import Identity

#: What an adapter says of its option `layers`.
LAYERS = (
    "all, or names or numbers of the parts to run, with commas; a number is the first one in a "
    "part's name (default all)"
)
ALL = "all"
#: How many choices an error lists.
SHOWN = 40
_DIGITS = re.compile(r"([0-9]{1,18})")
_NUMBER = re.compile(r"(?:^|[._])([0-9]+)(?=[._]|\Z)")


def natural_order(names: Iterable[str]) -> list[str]:
    """The names with numbers in their order (0, 1, 2, 10) and words in that of their appearance."""
    words: dict[str, int] = {}

    def place(name: str) -> list[int]:
        # Words and digits take turns, so that equal places hold the same kind.
        pieces = enumerate(_DIGITS.split(name))
        return [int(p) if k % 2 else words.setdefault(p, len(words)) for k, p in pieces]

    return sorted(names, key=place)


def read_layers(value: Any) -> tuple[str, ...] | None:
    """The words of the option `layers`; None for all parts."""
    if value is None:
        return None
    # A layer may be called 3, and a number is what the command line makes of that.
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    words = tuple(str(item).strip() for item in items)
    if not words or not all(words):
        raise ArgumentError(
            f"layers={clean(value)!r} names no recurrent layer",
            hint="give all, or names or numbers with commas",
        )
    return None if words == (ALL,) else words


def choose_parts(names: Iterable[str], layers: tuple[str, ...] | None) -> list[str]:
    """The parts to run, in natural order: all, or those that the option `layers` means.

    A name stands for a part and for everything inside it, a number for all parts in whose names
    it is the first number.
    """
    every = natural_order(names)
    if layers is None:
        return every
    chosen: set[str] = set()
    for word in layers:
        meant = [name for name in every if name == word or name.startswith(f"{word}.")]
        meant = meant or [n for n in every if (m := _NUMBER.search(n)) and m[1] == word]
        if not meant:
            raise ArgumentError(
                f"there is no recurrent layer {clean(word)!r}",
                hint=f"layers is all, or some of: {listed(every, most=SHOWN)}",
            )
        chosen.update(meant)
    return [name for name in every if name in chosen]


def require_all(layers: tuple[str, ...] | None) -> None:
    """Refuse a choice of parts where the model runs as a whole."""
    if layers is not None:
        raise ArgumentError(
            "the model runs as a whole: layers chooses among layers that are run one by one",
            hint="leave it out",
        )


class Host(AbstractSubject):
    """A host of parts; with exactly one it answers as that part does, with several not at all.

    `modules` are the live modules of the model, those of the parts where nothing else is given.
    `reason` says why several parts have no answer in common.
    """

    def __init__(
        self,
        parts: Mapping[str, AbstractSubject],
        identity: Identity,
        *,
        modules: Mapping[str, nn.Module] | None = None,
        reason: str = "",
    ) -> None:
        first = next(iter(parts.values()))
        self._parts = dict(parts)
        self._only = first if len(parts) == 1 else None
        self._modules = modules
        self._reason = reason or (
            f"how the recurrent layers {listed(parts)} are joined is not known, "
            "so the model cannot be run as a whole"
        )
        self.identity = identity
        self.input_size = None if self._only is None else first.input_size
        self.pooled = first.pooled
        self.device = first.device
        self.dtype = first.dtype

    def parts(self) -> Mapping[str, AbstractSubject]:
        """The parts by name."""
        return dict(self._parts)

    def live_modules(self) -> Mapping[str, nn.Module]:
        """Those of the model, or the module of every part under its name."""
        if self._modules is not None:
            return self._modules
        parts = self._parts.items()
        return {name: module for name, part in parts for module in part.live_modules().values()}

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of every part, under its name."""
        parts = self._parts.items()
        return {f"{name}.{key}": t for name, part in parts for key, t in part.weights().items()}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The spectra of all parts at rest; only a single part can be fed inputs."""
        if inputs is not None and self._only is None:
            raise ArgumentError(
                f"{len(self._parts)} layers have no input in common",
                hint="feed them one by one: subject.parts()[name].spectra(inputs)",
            )
        return tuple(item for part in self._parts.values() for item in part.spectra(inputs))

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        """Those of all parts."""
        return {k: v for part in self._parts.values() for k, v in part.linear_parts().items()}

    def dynamics(self) -> Mapping[str, AbstractDynamics]:
        """Those of all parts."""
        return {k: v for part in self._parts.values() for k, v in part.dynamics().items()}

    def natural_inputs(self, count: int, generator: Generator) -> Tensor | None:
        """Those of the only part."""
        return None if self._only is None else self._only.natural_inputs(count, generator)

    def perturbable(self) -> AbstractPerturbable | None:
        """That of the only part; several have no answer in common."""
        return None if self._only is None else self._only.perturbable()

    def respond(self, inputs: Tensor) -> Tensor:
        """The answer of the only part; with several parts there is no answer of the whole."""
        if self._only is None:
            raise SourceError(
                "E_UNSUPPORTED",
                self._reason,
                hint="audit them one by one: subject.parts()",
                source=self.identity.source,
                stage="respond",
            )
        return self._only.respond(inputs)
