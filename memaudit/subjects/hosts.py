"""A model whose recurrent layers are known and whose rest is not: they are audited one by one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from memaudit.errors import SourceError, listed
from memaudit.interfaces import AbstractSubject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from memaudit.interfaces import AbstractPerturbable
    from memaudit.report import Identity

Part = TypeVar("Part", bound=AbstractSubject)


class AbstractHost(AbstractSubject, Generic[Part]):
    """A host of parts; with exactly one it answers as that part does, with several not at all."""

    #: What its parts are, in the plural, for sentences.
    called: ClassVar[str]

    def __init__(self, parts: Mapping[str, Part], identity: Identity) -> None:
        first = next(iter(parts.values()))
        self._parts = dict(parts)
        self._only = first if len(parts) == 1 else None
        self.identity = identity
        self.input_size = None if self._only is None else first.input_size
        self.pooled = first.pooled
        self.device = first.device
        self.dtype = first.dtype

    @abstractmethod
    def live_modules(self) -> Mapping[str, nn.Module]:
        """The modules behind the parts."""

    def why_unjoined(self) -> str:
        """Why several parts have no answer in common."""
        return (
            f"how the {self.called} {listed(self._parts)} are joined is not known, "
            "so the model cannot be run as a whole"
        )

    def parts(self) -> Mapping[str, Part]:
        """The parts by name."""
        return dict(self._parts)

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of every part, under its name."""
        parts = self._parts.items()
        return {f"{name}.{key}": t for name, part in parts for key, t in part.weights().items()}

    def perturbable(self) -> AbstractPerturbable | None:
        """That of the only part; several have no answer in common."""
        return None if self._only is None else self._only.perturbable()

    def respond(self, inputs: Tensor) -> Tensor:
        """The answer of the only part; with several parts there is no answer of the whole."""
        if self._only is None:
            raise SourceError(
                "E_UNSUPPORTED",
                self.why_unjoined(),
                hint="audit them one by one: subject.parts()",
                source=self.identity.source,
                stage="respond",
            )
        return self._only.respond(inputs)
