"""What a family of checkpoints is: recognised by names and rebuilt from shapes, with its models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import SourceError, clean
from memaudit.interfaces import StoredDecay
from memaudit_ssm.core import Core
from memaudit_ssm.settings import Hyperparameters, config_error

Tensors = Mapping[str, Tensor]
#: Takes the name of a block and the hidden state after it.
Record = Callable[[str, Tensor], None]


@dataclass(frozen=True, slots=True)
class Group:
    """The tensors of one recurrent layer: the name inside the layer → the name in the file.

    `prefix` is what all names in the file begin with, with its last dot. `unknown` are further
    names inside the layer's recurrent part that the family does not know.
    """

    prefix: str
    keys: Mapping[str, str]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole model without weights, and how its names are found in the file.

    `names` maps names in the file to names in the model where they differ, `reshaped` holds
    tensors in the model's form, by the model's names, where a family stores them in another one.
    """

    net: SequenceNet
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    reshaped: Tensors = field(default_factory=dict)


class AbstractFamily(ABC):
    """Knows one family of layers, and the models that its own examples build of them.

    Laws: `find` looks at names and numbers of axes only; `layer` and `whole` build modules on the
    meta device whose state dict must then be filled, name by name, from the file; a contradiction
    between shapes is E_WEIGHTS, one between config and shapes E_CONFIG.
    """

    name: ClassVar[str]
    #: What its layers are called in reports.
    cell: ClassVar[str]

    @abstractmethod
    def find(self, tensors: Tensors) -> list[Group]:
        """Every layer of the family among the tensors, in their order."""

    @abstractmethod
    def layer(self, group: Group, tensors: Tensors, hyper: Hyperparameters) -> Core:
        """One layer by itself, on the meta device; its state dict has the names `group.keys`."""

    @abstractmethod
    def whole(self, groups: list[Group], tensors: Tensors, hyper: Hyperparameters) -> Whole | str:
        """The whole model, on the meta device, or why what is around the layers is not known."""

    def published(self, module: nn.Module, own: Tensors) -> StoredDecay | None:
        """The weight that makes the modes of a layer of the published code, or why there is none.

        The layer is known by the names and shapes of its `own` tensors; None for other modules.
        """
        del module, own
        return None


def shape_of(tensors: Tensors, key: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor that must be there and have so many filled axes; or E_WEIGHTS."""
    if key not in tensors:
        raise weights_error(f"{clean(key)} is not there")
    shape = tuple(tensors[key].shape)
    if len(shape) != axes or 0 in shape:
        raise weights_error(f"{clean(key)} has the shape {shape}, not {axes} filled axes")
    return shape


def paired_shape(tensors: Tensors, key: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor whose last axis is (real, imaginary), without that axis."""
    shape = shape_of(tensors, key, axes + 1)
    if shape[-1] != 2:
        raise weights_error(f"{clean(key)} does not end in pairs (real, imaginary)")
    return shape[:-1]


def plain_numbers(tensors: Tensors, key: str) -> Tensor:
    """A tensor in a precision in which all kinds of real numbers can be compared."""
    if tensors[key].is_complex():
        raise weights_error(f"{clean(key)} holds complex numbers in the place of real ones")
    return tensors[key].to(torch.float64)


def require_alike(
    tensors: Tensors, first: tuple[str, int], second: tuple[str, int], *, axes: int = 1
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


def weights_error(fact: str) -> SourceError:
    """A file that is damaged, or of another kind."""
    hint = "the file is damaged or holds another kind of layer; save the whole state dict"
    return SourceError("E_WEIGHTS", fact, hint=hint, stage="weights")


def in_order(groups: Iterable[Group], start: str, end: str = ".") -> list[Group] | None:
    """The layers by their numbers; None unless their prefixes are start + 0, 1, 2, … + end."""
    by_prefix = {group.prefix: group for group in groups}
    wanted = [f"{start}{i}{end}" for i in range(len(by_prefix))]
    return [by_prefix[name] for name in wanted] if set(wanted) == set(by_prefix) else None


class SequenceNet(nn.Module, ABC):
    """A whole model of a state-space family; its state dict has the names of the original's.

    Law: `forward` answers (B,T,width) by (B,T,M), or by (B,M) when `pooled`, and gives `record`
    the hidden state after every block, under the names of `cores`.
    """

    #: Inputs.
    width: int
    pooled: bool = False

    @abstractmethod
    def cores(self) -> Mapping[str, Core]:
        """The recurrent layer of every block, by the name of the block, in their order."""

    @abstractmethod
    def forward(self, inputs: Tensor, record: Record | None = None) -> Tensor:
        """Answer a batch of sequences."""

    @property
    def embedding(self) -> nn.Embedding | None:
        """The embedding of tokens, whose vectors `forward` takes; None for a model of floats."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """What it is, in a few words."""

    def run_blocks(
        self, x: Tensor, blocks: Iterable[Callable[[Tensor], Tensor]], record: Record | None
    ) -> Tensor:
        """One block after the other, each recorded under its name."""
        for name, block in zip(self.cores(), blocks, strict=True):
            x = block(x)
            if record is not None:
                record(name, x)
        return x


def pool(x: Tensor, how: str) -> Tensor:
    """Steps (B,T,M) as they are, or one vector (B,M) of them; `how` is one of POOLINGS."""
    if how == "none":
        return x
    return x.mean(dim=1) if how == "mean" else x[:, -1]


def residual_blocks(count: int, width: int) -> str:
    """How many blocks of which width, for descriptions."""
    return f"{count} residual block{'s' * (count != 1)} of width {width}"


class ResidualStack(SequenceNet):
    """Residual blocks with norms between an `encoder` and a `decoder`.

    `pooling` is one of POOLINGS: what the decoder reads.
    """

    #: What the list of layers is called.
    listed: ClassVar[str]
    encoder: nn.Module
    decoder: nn.Module

    def __init__(self, *, inputs: int, hidden: int, prenorm: bool, pooling: str) -> None:
        super().__init__()
        self.width = inputs
        self.hidden = hidden
        self.prenorm = prenorm
        self.pooling = pooling
        self.pooled = pooling != "none"

    @abstractmethod
    def stack(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        """The layers and their norms."""

    def cores(self) -> Mapping[str, Core]:
        return cores_of(self.stack()[0], self.listed)

    def forward(self, inputs: Tensor, record: Record | None = None) -> Tensor:
        blocks = [partial(self._block, *pair) for pair in zip(*self.stack(), strict=True)]
        x = self.run_blocks(self.encoder(inputs), blocks, record)
        return self.decoder(pool(x, self.pooling))

    def describe(self) -> str:
        cores = self.cores().values()
        return residual_blocks(len(cores), self.hidden) + restored(cores)

    def _block(self, layer: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
        return x + layer(norm(x)) if self.prenorm else norm(x + layer(x))


def cores_of(blocks: Iterable[nn.Module], listed: str) -> dict[str, Core]:
    """The recurrent layer inside every block, by the names listed.0, listed.1 and so on."""
    return {
        f"{listed}.{i}": next(part for part in block.modules() if isinstance(part, Core))
        for i, block in enumerate(blocks)
    }


def restored(cores: Iterable[Core]) -> str:
    """How well the readouts were restored that the files hold in another form; or nothing."""
    worst = max(core.condition for core in cores)
    return "" if worst <= 1.0 else f"; readouts restored, condition number {worst:.1e}"


PROJECTION_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "softmax": lambda x: torch.softmax(x, dim=-1),
}


class Projection(nn.Module):
    """A linear layer named U, with an activation behind it, as in StableSSM and Curse-of-memory."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, activation: str) -> None:
        super().__init__()
        self.U = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return PROJECTION_ACTIVATIONS[self.activation](self.U(x))


def read_projection(tensors: Tensors, hyper: Hyperparameters, where: str) -> Projection:
    """The layer `where`.U, where is encoder or decoder, as the weights and the config say."""
    key, bias = f"{where}.U.weight", f"{where}.U.bias"
    outputs, inputs = shape_of(tensors, key, 2)
    places = (("model", where), (where,))
    sizes = {
        "in_size": (inputs, f"the inputs of {key} are"),
        "out_size": (outputs, f"the outputs of {key} are"),
    }
    hyper.require_sizes(sizes, places=places)
    if bias not in tensors:
        sections = [hyper.section(*path) for path in places if hyper.section(*path)]
        if sections and sections[0].get("bias") is not False:
            # The code's own default is a bias, so its absence is a loss.
            raise weights_error(f"{bias} is not there, and the config does not say bias: false")
        if not sections:
            hyper.assumed[f"{where} bias"] = "none (the file has none, and no config speaks of it)"
    # The option activation belongs to the recurrence, not to this layer.
    activation = hyper.stated("activation", places=places)
    if activation is None:
        assumed = "linear (the code's own default; a config may say more)"
        hyper.assumed[f"{where} activation"] = assumed
    elif str(activation) not in PROJECTION_ACTIVATIONS:
        raise config_error(
            f"the config says that the activation of the {where} is {clean(activation)}, "
            f"not one of {', '.join(PROJECTION_ACTIVATIONS)}",
            hint="build the model in Python and pass the module to memaudit.scan",
        )
    chosen = str(activation or "linear")
    return Projection(inputs, outputs, bias=bias in tensors, activation=chosen)
