"""A model of unknown make: its selective scans are audited one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError
from memaudit.subjects.hosts import AbstractHost
from memaudit_ssm.hosts.subject import ScanSubject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from memaudit.spectrum.result import LayerSpectrum as Spectrum


class ScanHost(AbstractHost[ScanSubject]):
    """A host of selective scans."""

    called = "selective scans"

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
