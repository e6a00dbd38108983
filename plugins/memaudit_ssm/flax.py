"""Checkpoints of flax: names, forms, and the classifier that minimal-LRU and S5 share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import clean
from memaudit_ssm.core import Core
from memaudit_ssm.family import (
    AbstractFamily,
    Group,
    Record,
    SequenceNet,
    Tensors,
    Whole,
    pool,
    residual_blocks,
    shape_of,
    weights_error,
)
from memaudit_ssm.settings import (
    MODEL_PLACES,
    POOLINGS,
    Hyperparameters,
    config_error,
    read_pooling,
)

_JOINT = re.compile(r"[/.]")

#: Members of a list have their number behind the name: layers_0.
_LISTED = re.compile(r"^(layers)_([0-9]+)\Z")

_PARAMETERS, _STATISTICS = "params", "batch_stats"

#: Copies of the parameters that an optimizer keeps.
_OPTIMIZER = "opt_state"

_LEAVES = {"kernel": "weight", "scale": "weight"}

_RUNNING = {"mean": "running_mean", "var": "running_var"}


@dataclass(frozen=True, slots=True)
class Translated:
    """Tensors under the names and in the forms of torch, and their names in the file."""

    tensors: dict[str, Tensor] = field(repr=False)
    #: name in the file → name of torch
    names: dict[str, str] = field(repr=False)


def translated(tensors: Tensors) -> Translated:
    """A flax tree as torch would store it; kernels (in,out) become weights (out,in)."""
    names = {name: torch_name(name) for name in tensors}
    if len(set(names.values())) < len(names):
        names = {name: name for name in tensors}
    given = {
        names[name]: tensor.mT if _is_kernel(name, tensor) else tensor
        for name, tensor in tensors.items()
    }
    return Translated(given, names)


def torch_name(name: str) -> str:
    """params/encoder/layers_0/out1/kernel → encoder.layers.0.out1.weight."""
    parts = _JOINT.split(name)
    leaves = _LEAVES
    if parts[0] == _STATISTICS:
        parts, leaves = parts[1:], _RUNNING
    while len(parts) > 1 and parts[0] == _PARAMETERS:
        parts = parts[1:]
    parts[-1] = leaves.get(parts[-1], parts[-1])
    return ".".join(_LISTED.sub(r"\1.\2", part) for part in parts)


def layer_name(prefix: str) -> str:
    """What a layer is called in a report: params/encoder/layers_0/seq/ → encoder.layers_0.seq."""
    parts = [part for part in _JOINT.split(prefix) if part]
    while parts and parts[0] == _PARAMETERS:
        parts = parts[1:]
    return ".".join(parts)


def find_layers(
    tensors: Tensors,
    first: re.Pattern[str],
    roles: Callable[[str, str], Mapping[str, str] | None],
) -> list[Group]:
    """The layers whose first tensor matches (prefix, leaf), with prefixes as reports show them.

    `roles` gives the names of a layer's tensors, or None where the first tensor is none of it.
    """
    found: dict[str, Group] = {}
    for name in tensors:
        match = first.match(name)
        # An optimizer keeps copies of the parameters.
        if match is None or of_optimizer(name):
            continue
        prefix = match["prefix"]
        keys = roles(prefix, match["leaf"])
        if keys is not None:
            inside = [key for key in tensors if key.startswith(prefix)]
            beside = [key for key in inside if not _JOINT.search(key, len(prefix))]
            unknown = tuple(key for key in beside if key not in keys.values())
            found[prefix] = Group(prefix, keys, unknown)
    shown = {prefix: f"{layer_name(prefix)}.".lstrip(".") for prefix in found}
    alike = len(set(shown.values())) < len(shown)
    return [replace(g, prefix=p if alike else shown[p]) for p, g in found.items()]


def of_optimizer(name: str) -> bool:
    """Whether a tensor belongs to the optimizer that a training state carries."""
    return _JOINT.split(name)[0] == _OPTIMIZER


def _is_kernel(name: str, tensor: Tensor) -> bool:
    return _JOINT.split(name)[-1] == "kernel" and tensor.ndim == 2


#: flax's own constants, which are not torch's.
_LAYER_EPSILON, _BATCH_EPSILON = 1e-6, 1e-5

#: Which linear layers every activation has behind the recurrence.
ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "full_glu": ("out1", "out2"),
    "half_glu1": ("out2",),
    "half_glu2": ("out2",),
    "gelu": (),
}


class FrozenBatchNorm(nn.Module):
    """A batch norm by its running statistics, over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.running_mean = nn.Buffer(torch.zeros(width))
        self.running_var = nn.Buffer(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + _BATCH_EPSILON)
        return (x - self.running_mean) * scale + self.bias


class FlaxBlock(nn.Module):
    """A recurrent layer `seq`, its activation and gate, the skip connection and the norm.

    `norm` is layer or batch; `called` is the norm's name in the original.
    """

    def __init__(
        self, seq: Core, *, activation: str, norm: str, called: str, prenorm: bool
    ) -> None:
        super().__init__()
        width = seq.width
        self.seq = seq
        self.activation = activation
        self.prenorm = prenorm
        self._norm = called
        for name in ACTIVATIONS[activation]:
            self.add_module(name, nn.Linear(width, width))
        layer = norm == "layer"
        made = nn.LayerNorm(width, eps=_LAYER_EPSILON) if layer else FrozenBatchNorm(width)
        self.add_module(called, made)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.get_submodule(self._norm)
        if self.prenorm:
            return x + self._gated(self.seq(norm(x)))
        return norm(x + self._gated(self.seq(x)))

    def _gated(self, x: Tensor) -> Tensor:
        # flax's gelu is the approximation by tanh.
        active = functional.gelu(x, approximate="tanh")
        if self.activation == "gelu":
            return active
        gate = torch.sigmoid(self.get_submodule("out2")(active))
        if self.activation == "full_glu":
            return self.get_submodule("out1")(active) * gate
        return (active if self.activation == "half_glu1" else x) * gate


class FlaxEncoder(nn.Module):
    """A linear encoder and the blocks behind it."""

    def __init__(self, blocks: Sequence[FlaxBlock], *, inputs: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(inputs, blocks[0].seq.width)
        self.layers = nn.ModuleList(blocks)


class FlaxStack(SequenceNet):
    """ClassificationModel of minimal-LRU and of S5; answers are logarithms of probabilities.

    `pooling` is one of POOLINGS. With `groups` above 1, every so many outputs are a
    distribution of their own.
    """

    def __init__(
        self,
        blocks: Sequence[FlaxBlock],
        *,
        inputs: int,
        outputs: int,
        pooling: str,
        groups: int = 1,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"{pooling!r} is none of {', '.join(POOLINGS)}")
        self.width = inputs
        self.pooling = pooling
        self.pooled = pooling != "none"
        self.groups = groups
        self.encoder = FlaxEncoder(blocks, inputs=inputs)
        self.decoder = nn.Linear(blocks[0].seq.width, outputs)

    def cores(self) -> Mapping[str, Core]:
        blocks = enumerate(self.encoder.layers)
        return {f"layers_{i}": cast("Core", block.get_submodule("seq")) for i, block in blocks}

    def forward(self, inputs: Tensor, record: Record | None = None) -> Tensor:
        x = self.run_blocks(self.encoder.encoder(inputs), self.encoder.layers, record)
        return self._distribution(self.decoder(pool(x, self.pooling)))

    def describe(self) -> str:
        count, width = len(self.encoder.layers), self.decoder.in_features
        return f"{residual_blocks(count, width)}, log-softmax"

    def _distribution(self, x: Tensor) -> Tensor:
        if self.groups == 1:
            return x.log_softmax(-1)
        return x.unflatten(-1, (-1, self.groups)).log_softmax(-1).flatten(-2)


def require_filled(net: nn.Module, tree: Translated) -> None:
    """Every tensor of the model is in the tree, with its shape; or E_WEIGHTS, which names it."""
    in_file = {short: name for name, short in tree.names.items()}
    for name, wanted in net.state_dict().items():
        if name not in tree.tensors:
            raise weights_error(f"{clean(_flax_name(name, in_file))} is not there")
        found = tree.tensors[name]
        if found.shape != wanted.shape or _kind(found) != _kind(wanted):
            # As the file has it: kernels are the other way round there.
            turned = in_file[name].endswith("kernel") and found.ndim == wanted.ndim == 2
            shapes = [tuple((t.mT if turned else t).shape) for t in (found, wanted)]
            kind = str(found.dtype).removeprefix("torch.")
            raise weights_error(
                f"{clean(in_file[name])} is {shapes[0]} {kind}, where {shapes[1]} "
                f"{'complex' if wanted.is_complex() else 'real'} numbers belong"
                f"{_beside(name, in_file)}"
            )


def _beside(name: str, in_file: dict[str, str]) -> str:
    """Of a bias: the weight that it must fit, which may be the one that is damaged."""
    weight = in_file.get(f"{name.removesuffix('bias')}weight")
    return f" beside {clean(weight)}" if name.endswith(".bias") and weight else ""


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    return tensor.is_complex(), tensor.is_floating_point()


def _flax_name(name: str, in_file: dict[str, str]) -> str:
    """What a missing tensor would be called, by the tensor beside it; else torch's name."""
    room, _, leaf = name.rpartition(".")
    beside = next((file for short, file in in_file.items() if short.startswith(f"{room}.")), None)
    if beside is None:
        return name
    norm = "norm" in room.rpartition(".")[2]
    own = {"weight": "scale" if norm else "kernel"}.get(leaf, leaf)
    cut = max(beside.rfind("/"), beside.rfind("."))
    return beside[: cut + 1] + own


_ENCODER_DECODER = ("encoder.encoder.weight", "decoder.weight")


@dataclass(frozen=True, slots=True)
class Convention:
    """What differs between the two code bases: names, and what their code takes by default.

    `norm` is the norm's name in a block, `batch` the setting that makes it a batch norm, and
    `pooling` what configs call the pooling. `gated` is the one activation of a code that has no
    other.
    """

    norm: str
    batch: str
    pooling: tuple[str, ...]
    gated: str | None = None


LRU_CODE = Convention("normalization", "norm", pooling=("pooling",), gated="full_glu")

S5_CODE = Convention(norm="norm", batch="batchnorm", pooling=("mode", "pooling"))


def whole_model(
    family: AbstractFamily,
    groups: list[Group],
    tensors: Tensors,
    hyper: Hyperparameters,
    code: Convention,
) -> Whole | str:
    """The whole classifier on the meta device, or why it is none."""
    if any(of_optimizer(name) for name in tensors):
        return "the file holds the state of an optimizer as well"
    tree = translated(tensors)
    if not set(_ENCODER_DECODER) <= set(tree.tensors):
        return "encoder/encoder or decoder is missing"
    by_name = {torch_name(next(iter(g.keys.values()))).rpartition(".")[0]: g for g in groups}
    wanted = [f"encoder.layers.{i}.seq" for i in range(len(groups))]
    if set(wanted) != set(by_name):
        return "the layers are not named encoder/layers_N/seq"
    norm = _norm(tree, hyper, len(groups), code)
    if norm is None:
        return "the running statistics of the batch norms are not in the file"
    prenorm = hyper.flag("prenorm", default=False)
    activation = _activation(tree, hyper) if code.gated is None else code.gated
    blocks = [
        FlaxBlock(
            family.layer(by_name[name], tensors, hyper),
            activation=activation,
            norm=norm,
            called=code.norm,
            prenorm=prenorm,
        )
        for name in wanted
    ]
    in_file = {short: name for name, short in tree.names.items()}
    # Kernels that are no matrices are known by their own names.
    given = {in_file[name]: tree.tensors[name] for name in _ENCODER_DECODER}
    first, last = (in_file[name] for name in _ENCODER_DECODER)
    inputs, outputs = shape_of(given, first, 2)[1], shape_of(given, last, 2)[0]
    # minimal-LRU's multidim: how many classes every one of several outputs has.
    classes = hyper.number("multidim") or 1.0
    if classes not in range(1, outputs + 1) or outputs % int(classes):
        raise config_error(
            f"the config says that multidim is {classes:g}, and the decoder has {outputs} outputs"
        )
    pooling = read_pooling(hyper, default="mean", also=code.pooling)
    net = FlaxStack(blocks, inputs=inputs, outputs=outputs, pooling=pooling, groups=int(classes))
    require_filled(net, tree)
    hyper.require_sizes(
        {
            "d_input": (inputs, f"the inputs of {clean(first)} are"),
            "d_output": (outputs // int(classes), f"the outputs of {clean(last)} are"),
            "d_model": (net.decoder.in_features, f"the inputs of {clean(last)} are"),
            "n_layers": (len(blocks), "the layers in the file are"),
        }
    )
    turned = {name: t for name, t in tree.tensors.items() if name.endswith(".weight")}
    return Whole(net, names=tree.names, reshaped=turned)


def _norm(tree: Translated, hyper: Hyperparameters, layers: int, code: Convention) -> str | None:
    """Batch where its statistics are stored; else layer, unless somebody says batch: None."""
    ends = ("running_mean", "running_var")
    names = [f"encoder.layers.{i}.{code.norm}.{end}" for i in range(layers) for end in ends]
    if set(names) <= set(tree.tensors):
        for path in MODEL_PLACES:
            stated = hyper.section(*path).get(code.batch)
            if stated is not None and stated not in ("batch", True):
                raise config_error(
                    f"the config says {code.batch} = {clean(stated)}, and the file has the running "
                    "statistics of batch norms"
                )
        return "batch"
    if code.batch == "norm":
        word, batch = "layer", hyper.choice("norm", ("layer", "batch"), default="layer") == "batch"
    else:
        word, batch = "false", hyper.flag("batchnorm", default=False)
    if code.batch in hyper.assumed:
        hyper.assumed[code.batch] = f"{word} (the file has no running statistics)"
    return None if batch else "layer"


def _activation(tree: Translated, hyper: Hyperparameters) -> str:
    """The two linear layers tell all but one thing: what the half gate multiplies."""
    first, second = (f"encoder.layers.0.{name}.weight" in tree.tensors for name in ("out1", "out2"))
    shown = "full_glu" if first else "half_glu" if second else "gelu"
    stated = hyper.stated("activation", "activation_fn")
    if stated is not None and not str(stated).startswith(shown):
        raise config_error(
            f"the config says the activation {clean(stated)}, the tensors are those of {shown}"
        )
    if shown != "half_glu":
        return shown
    return hyper.choice("activation", ("half_glu1", "half_glu2"), also=("activation_fn",))
