"""A timm model whose recurrent layers are audited one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.contracts import AbstractSubject
from memaudit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from memaudit.contracts import AbstractPerturbable
    from memaudit.results import Identity
    from memaudit_timm.layer_subject import LayerSubject


class TimmHost(AbstractSubject):
    """A host of recurrent layers; with exactly one part it answers as that part does."""

    def __init__(
        self, parts: Mapping[str, LayerSubject], identity: Identity, model: nn.Module
    ) -> None:
        first = next(iter(parts.values()))
        self._parts = dict(parts)
        self.model = model
        self.identity = identity
        self.input_size = first.input_size if len(parts) == 1 else None
        self.pooled = False
        self.device = first.device
        self.dtype = first.dtype

    def parts(self) -> Mapping[str, LayerSubject]:
        """The recurrent layers by name."""
        return dict(self._parts)

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters of every part."""
        parts = self._parts.items()
        return {f"{name}.{key}": t for name, part in parts for key, t in part.weights().items()}

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The whole model, with the layers that are not audited."""
        return {"": self.model}

    def perturbable(self) -> AbstractPerturbable | None:
        """That of the only part; several have no answer in common."""
        only = self.input_size is not None
        return next(iter(self._parts.values())).perturbable() if only else None

    def respond(self, inputs: Tensor) -> Tensor:
        """The answer of the only part; the whole scans images in two directions at once."""
        if len(self._parts) > 1:
            raise SourceError(
                "E_UNSUPPORTED",
                "the model scans rows and columns of an image, which is no single sequence",
                hint="audit its recurrent layers one by one: subject.parts()",
                source=self.identity.source,
                stage="respond",
            )
        return next(iter(self._parts.values())).respond(inputs)
