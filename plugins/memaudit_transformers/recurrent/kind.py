"""What there is to know about one kind of recurrence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

    from memaudit_transformers.recurrent.kernels import Kernel
    from memaudit_transformers.recurrent.steps import Steps

    Hear = Callable[[Steps], None]


class AbstractKind(ABC):
    """A kind of recurrent layer, known by the names and shapes of its parameters alone.

    Law: what `rest` says and what is heard while the layer runs are the same modes in the same
    order; a layer of another kind does not match.
    """

    cell: ClassVar[str]
    #: What the step sizes are called in a report, and what they are at rest.
    quantity: ClassVar[str] = "forgetting"
    at_rest: ClassVar[str] = "rest, gate at its bias"
    #: False when the decay is the same for every input.
    selective: ClassVar[bool] = True
    #: The library's function that the layer hands its decays to; None: `listen` hears them.
    kernel: ClassVar[Kernel | None] = None
    #: How the names of the weights end that make the decay, inside the layer.
    decays: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def matches(self, module: nn.Module) -> bool:
        """Whether the module is a layer of this kind."""

    @abstractmethod
    def rest(self, module: nn.Module) -> Steps:
        """The steps in float64 with what depends on the data at its bias."""

    @abstractmethod
    def parameterization(self, module: nn.Module) -> str:
        """How the decay is made from the raw weight: exp, softplus, sigmoid, fixed."""

    def listen(self, module: nn.Module, hear: Hear) -> Iterable[RemovableHandle]:
        """Hooks that tell the steps while the module runs, where no kernel is handed them."""
        del module, hear
        return ()


def raw(module: nn.Module, name: str) -> Tensor:
    """The tensor of a module that matches, for exact sums: in float64, which not all devices do."""
    found = tensor_of(module, name)
    if found is None:
        raise AttributeError(f"{type(module).__name__} has no tensor {name}")
    return found.cpu().double()


def tensor_of(module: nn.Module, name: str) -> Tensor | None:
    """The parameter or buffer of the module itself, None when it has none of that name."""
    found = module._parameters.get(name)
    return module._buffers.get(name) if found is None else found
