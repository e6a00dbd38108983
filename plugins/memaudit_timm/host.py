"""A timm model whose recurrent layers are audited one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.subjects.hosts import AbstractHost
from memaudit_timm.layer_subject import LayerSubject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from memaudit.report import Identity


class TimmHost(AbstractHost[LayerSubject]):
    """A host of recurrent layers."""

    called = "recurrent layers"

    def __init__(
        self, parts: Mapping[str, LayerSubject], identity: Identity, model: nn.Module
    ) -> None:
        super().__init__(parts, identity)
        self.model = model

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The whole model, with the layers that are not audited."""
        return {"": self.model}

    def why_unjoined(self) -> str:
        """How they are joined is known, but it is no sequence."""
        return "the model scans rows and columns of an image, which is no single sequence"
