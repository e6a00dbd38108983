"""A family of checkpoints: recognised by the names of its tensors, rebuilt from their shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from torch import Tensor

    from memaudit_ssm.facts import Facts
    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.models.net import SequenceNet


@dataclass(frozen=True, slots=True)
class Group:
    """The tensors of one recurrent layer: the name inside the layer → the name in the file.

    `prefix` is what all names in the file begin with, with its last dot. `strange` are further
    names inside the layer's recurrent part that the family does not know.
    """

    prefix: str
    keys: Mapping[str, str]
    strange: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole model without weights, and how its names are found in the file.

    `names` maps names in the file to names in the model where they differ, `reshaped` holds
    tensors in the model's form, by the model's names, where a family stores them in another one.
    """

    net: SequenceNet
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    reshaped: Mapping[str, Tensor] = field(default_factory=dict)


class AbstractFamily(ABC):
    """Knows one family of layers, and the models that its own examples build of them.

    Laws: `find` looks at names and numbers of axes only; `layer` and `whole` build modules on the
    meta device whose state dict must then be filled, name by name, from the file; a contradiction
    between shapes is E_WEIGHTS, one between config and shapes E_CONFIG.
    """

    name: ClassVar[str]

    @abstractmethod
    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        """Every layer of the family among the tensors, in their order."""

    @abstractmethod
    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> Core:
        """One layer by itself, on the meta device; its state dict has the names `group.keys`."""

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        """The whole model, on the meta device, or why its surroundings are not recognised."""
        del groups, tensors, facts
        return "what stands around the layers is not known"


def shape_of(tensors: Mapping[str, Tensor], key: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor that must be there and have so many filled axes; or E_WEIGHTS."""
    if key not in tensors:
        raise weights_error(f"{clean(key)} is not there")
    shape = tuple(int(n) for n in tensors[key].shape)
    if len(shape) != axes or 0 in shape:
        raise weights_error(f"{clean(key)} has the shape {shape}, not {axes} filled axes")
    return shape


def weights_error(fact: str) -> SourceError:
    """A file that is damaged, or of another kind."""
    hint = "the file is damaged or holds another kind of layer; save the whole state dict"
    return SourceError("E_WEIGHTS", fact, hint=hint, stage="weights")


def indexed(groups: list[Group], start: str, end: str = ".") -> bool:
    """Whether the prefixes are start + 0, 1, 2, … + end, in any order."""
    wanted = {f"{start}{i}{end}" for i in range(len(groups))}
    return wanted == {group.prefix for group in groups}


def unused(tensors: Mapping[str, Tensor], known: Collection[str]) -> list[str]:
    """The names of the tensors that are not known."""
    return [name for name in tensors if name not in known]
