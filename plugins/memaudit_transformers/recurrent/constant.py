"""Layers whose decay is the same for every input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from memaudit_transformers.recurrent.kind import AbstractKind
from memaudit_transformers.recurrent.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from memaudit_transformers.recurrent.kind import Hear


class AbstractConstant(AbstractKind):
    """A kind whose steps over data are those at rest, once per token."""

    at_rest: ClassVar[str] = "every input"
    selective: ClassVar[bool] = False

    def listen(self, module: nn.Module, hear: Hear) -> Iterable[RemovableHandle]:
        def tell(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
            hidden = next(x for x in found if x.ndim == 3)
            sizes = self.rest(module).sizes.detach().to(hidden)
            hear(Steps(sizes.expand(*hidden.shape[:2], len(sizes))))

        yield module.register_forward_pre_hook(tell, with_kwargs=True)
