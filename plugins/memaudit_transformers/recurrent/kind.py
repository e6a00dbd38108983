"""What there is to know about one kind of recurrence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch.nn.utils import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

    from memaudit.contracts import AbstractReparam
    from memaudit_transformers.recurrent.kernels import Kernel
    from memaudit_transformers.recurrent.steps import Steps

    Hear = Callable[[Steps], None]


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A tensor of a layer, or of a gate inside it, and the law that makes its rates of it.

    `note` is a sentence for what the law does not promise.
    """

    owner: nn.Module
    name: str
    law: AbstractReparam
    note: str = ""


class AbstractKind(ABC):
    """A kind of recurrent layer, known by the names and shapes of its parameters alone.

    Laws: what `rest` says and what is heard while the layer runs are the same modes in the same
    order; a layer of another kind does not match; log λ of every mode is a rate that the law of
    the `stored` tensor gives, times a positive number that the tensor has no part in.
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

    @abstractmethod
    def stored(self, module: nn.Module) -> Stored | str:
        """What makes the modes of the layer decay, or a sentence why no tensor alone does."""

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


def unwrapped(module: nn.Module | None) -> nn.Module | None:
    """The projection that adapters of low rank were put around; most have none around them."""
    inner = None if module is None else module._modules.get("base_layer")
    return module if inner is None else inner


def tensor_of(module: nn.Module, name: str) -> Tensor | None:
    """The parameter or buffer of the module itself, None when it has none of that name.

    Behind a parametrization it is what the parametrization makes.
    """
    if parametrize.is_parametrized(module, name):
        return getattr(module, name)
    found = module._parameters.get(name)
    return module._buffers.get(name) if found is None else found
