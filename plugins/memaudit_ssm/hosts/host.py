"""A model of unknown make: its selective scans are audited one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.contracts import AbstractSubject
from memaudit.errors import ArgumentError, SourceError
from memaudit_ssm.hosts.naming import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from memaudit.contracts import AbstractPerturbable
    from memaudit.results import Identity, Spectrum
    from memaudit_ssm.hosts.subject import ScanSubject


class ScanHost(AbstractSubject):
    """A host of selective scans; with exactly one part it answers as that part does."""

    def __init__(self, parts: Mapping[str, ScanSubject], identity: Identity) -> None:
        first = next(iter(parts.values()))
        self._parts = dict(parts)
        self._only = first if len(parts) == 1 else None
        self.identity = identity
        self.input_size = None if self._only is None else first.input_size
        self.pooled = False
        self.device = first.device
        self.dtype = first.dtype

    def parts(self) -> Mapping[str, ScanSubject]:
        """The scans by name."""
        return dict(self._parts)

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of every part."""
        parts = self._parts.items()
        return {f"{name}.{key}": t for name, part in parts for key, t in part.weights().items()}

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The scan of every part."""
        return {name: part.network for name, part in self._parts.items()}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The spectra of all parts at rest; only a single part can be fed inputs."""
        if inputs is not None and self._only is None:
            raise ArgumentError(
                f"{len(self._parts)} scans have no input in common",
                hint="feed them one by one: subject.parts()[name].spectra(inputs)",
            )
        return tuple(item for part in self._parts.values() for item in part.spectra(inputs))

    def perturbable(self) -> AbstractPerturbable | None:
        """That of the only part; several have no answer in common."""
        return None if self._only is None else self._only.perturbable()

    def respond(self, inputs: Tensor) -> Tensor:
        """The answer of the only part; with several parts there is no answer of the whole."""
        if self._only is None:
            raise SourceError(
                "E_UNSUPPORTED",
                f"how the selective scans {listed(self._parts)} are joined is not known, "
                "so the model cannot be run as a whole",
                hint="audit them one by one: subject.parts()",
                source=self.identity.source,
                stage="respond",
            )
        return self._only.respond(inputs)
