"""A family of checkpoints, recognised by names and rebuilt from shapes, and its models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import SourceError, clean
from memaudit_ssm.core import Core
from memaudit_ssm.settings import Facts, require_stated


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


def plain_numbers(tensors: Mapping[str, Tensor], key: str) -> Tensor:
    """A tensor in a precision in which all kinds of real numbers can be compared."""
    if tensors[key].is_complex():
        raise weights_error(f"{clean(key)} holds complex numbers in the place of real ones")
    return tensors[key].to(torch.float64)


def require_alike(
    tensors: Mapping[str, Tensor], first: tuple[str, int], second: tuple[str, int], *, axes: int = 1
) -> None:
    """Both (name, axis) go on alike for so many axes; or E_WEIGHTS, which names the two."""
    (one, start), (other, begin) = first, second
    if one not in tensors or other not in tensors:
        return
    shapes = tuple(tensors[one].shape), tuple(tensors[other].shape)
    if shapes[0][start : start + axes] != shapes[1][begin : begin + axes]:
        raise weights_error(
            f"{clean(one)} has the shape {shapes[0]}, which does not fit {clean(other)} {shapes[1]}"
        )


Hear = Callable[[str, Tensor], None]


class SequenceNet(nn.Module, ABC):
    """A whole model of a state-space family; its state dict has the names of the original's.

    Law: `forward` answers (B,T,width) by (B,T,M), or by (B,M) when `pooled`, and tells `hear`
    the hidden state after every block, under the names of `blocks`.
    """

    #: Inputs.
    width: int
    pooled: bool = False

    @abstractmethod
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks in their order."""

    @abstractmethod
    def cores(self) -> Mapping[str, Core]:
        """The recurrent layers by name."""

    @abstractmethod
    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        """Answer a batch of sequences."""

    @property
    def table(self) -> nn.Embedding | None:
        """The embedding of tokens, whose vectors `forward` takes; None for a model of floats."""
        return None

    def describe(self) -> str:
        """What it is, in a few words."""
        return f"{type(self).__name__}, {len(self.blocks())} blocks"


def pool(x: Tensor, how: str) -> Tensor:
    """Steps (B,T,M) as they are, or one vector (B,M) of them; `how` is one of POOLINGS."""
    if how == "none":
        return x
    return x.mean(dim=1) if how == "mean" else x[:, -1]


class ResidualStack(SequenceNet):
    """Subclasses have an `encoder` and a `decoder`, and say where the layers and norms are.

    With `pooled` the decoder reads one vector: the mean over time, or the last step.
    """

    #: What the list of layers is called.
    listed: ClassVar[str]
    encoder: nn.Module
    decoder: nn.Module

    def __init__(self, *, inputs: int, prenorm: bool, pooled: bool, pooling: str) -> None:
        super().__init__()
        self.width = inputs
        self.prenorm = prenorm
        self.pooled = pooled
        self.pooling = pooling if pooled else "none"

    @abstractmethod
    def stack(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        """The layers and their norms."""

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"{self.listed}.{i}" for i in range(len(self.stack()[0])))

    def cores(self) -> Mapping[str, Core]:
        return dict(zip(self.blocks(), self.stack()[0], strict=True))  # type: ignore[arg-type]

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        x = self.encoder(inputs)
        for name, layer, norm in zip(self.blocks(), *self.stack(), strict=True):
            x = residual(x, layer, norm, prenorm=self.prenorm)
            if hear is not None:
                hear(name, x)
        return self.decoder(pool(x, self.pooling))

    def describe(self) -> str:
        layers, norms = self.stack()
        width = next(norm.normalized_shape[0] for norm in norms if isinstance(norm, nn.LayerNorm))
        return f"{len(layers)} residual block{'s' if len(layers) > 1 else ''} of width {width}"


def residual(x: Tensor, layer: nn.Module, norm: nn.Module, *, prenorm: bool) -> Tensor:
    """A layer with its skip connection, the norm before it or after the sum."""
    return x + layer(norm(x)) if prenorm else norm(x + layer(x))


PROJECTION_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "softmax": lambda x: torch.softmax(x, dim=-1),
}


class Projection(nn.Module):
    """A linear layer named U, with an activation behind it."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, activation: str) -> None:
        super().__init__()
        self.U = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return PROJECTION_ACTIVATIONS[self.activation](self.U(x))


def projection(facts: Facts, tensors: Mapping[str, Tensor], where: str) -> tuple[int, int, bool]:
    """Outputs, inputs and bias of the linear layer `where`.U, as the weights and config say."""
    key, bias = f"{where}.U.weight", f"{where}.U.bias"
    outputs, inputs = shape_of(tensors, key, 2)
    places = (("model", where), (where,))
    require_stated(facts, places, "in_size", inputs, f"the inputs of {key} are")
    require_stated(facts, places, "out_size", outputs, f"the outputs of {key} are")
    if bias in tensors:
        return outputs, inputs, True
    said = [facts.section(*path).get("bias") for path in places if facts.section(*path)]
    if said and said[0] is not False:
        # The code's own default is a bias, so its absence is a loss.
        raise weights_error(f"{bias} is not there, and the config does not say bias: false")
    if not said:
        facts.assumed[f"{where} bias"] = "none (the file has none, and no config speaks of it)"
    return outputs, inputs, False


def activation_of(facts: Facts, where: str) -> str:
    """The activation behind `where`.U; the option of that name belongs to the recurrence."""
    for path in (("model", where), (where,)):
        word = facts.section(*path).get("activation")
        if word is None:
            continue
        if str(word) not in PROJECTION_ACTIVATIONS:
            raise SourceError(
                "E_CONFIG",
                f"the config says that the activation of the {where} is {clean(word)}, "
                f"not one of {', '.join(PROJECTION_ACTIVATIONS)}",
                hint="build the model in Python and pass the module to memaudit.scan",
                stage="config",
            )
        return str(word)
    facts.assumed[f"{where} activation"] = "linear (the code's own default; a config may say more)"
    return "linear"
