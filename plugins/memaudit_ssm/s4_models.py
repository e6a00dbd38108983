"""The models that example and trainer of state-spaces/s4 build around layers of any version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from memaudit.errors import clean
from memaudit_ssm.core import Core
from memaudit_ssm.family import (
    Group,
    Record,
    SequenceNet,
    Tensors,
    cores_of,
    in_order,
    residual_blocks,
    restored,
    shape_of,
    weights_error,
)
from memaudit_ssm.s4d import example_stack
from memaudit_ssm.settings import Hyperparameters, config_error, pool_word, read_pooling

_EXAMPLE, _TRAINER = "s4_layers", "model.layers"


def stack_of(
    groups: list[Group],
    tensors: Tensors,
    hyper: Hyperparameters,
    block: Callable[[Group], nn.Module | str],
    *,
    end: str,
) -> SequenceNet | str:
    """The whole model, or why it is not known; `end` follows the number of a layer."""
    example = in_order(groups, f"{_EXAMPLE}.", end)
    ordered = example or in_order(groups, f"{_TRAINER}.", f".layer{end}")
    if ordered is None:
        return f"the layers are named neither {_EXAMPLE}.N{end} nor {_TRAINER}.N.layer{end}"
    blocks: list[nn.Module] = []
    for group in ordered:
        made = block(group)
        if isinstance(made, str):
            return made
        blocks.append(made)
    if not example:
        return _trainer_net(blocks, tensors, hyper)
    if not {"encoder.weight", "decoder.weight"} <= set(tensors):
        return "encoder or decoder is missing"
    pooling = read_pooling(hyper, default="none", also=("pooled",))
    net = example_stack(blocks, tensors, hyper, pooling=pooling)
    for name, core in net.cores().items():
        if core.width != net.hidden:
            fact = f"{name} has {core.width} features, and decoder.weight {net.hidden}"
            raise weights_error(fact)
    return net


@dataclass(frozen=True, slots=True)
class TrainerPlan:
    """How the parts are joined: norms before the layers or after the sum, residuals or none.

    `norm` is layer, batch, scalar or none. With `pooled` the decoder keeps one step, by its
    `mode`: the last, the first, the mean or the sum of all; else every step.
    """

    prenorm: bool = True
    residual: bool = True
    norm: str = "layer"
    mode: str = "last"
    pooled: bool = False


class ScalarNorm(nn.Module):
    """Each step with its own mean and deviation, then one scale s and one shift m for all."""

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.zeros(1))
        self.s = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(x, dim=-1, correction=0, keepdim=True)
        return self.s / deviation * (x - mean + self.m)


class StepNorm(nn.BatchNorm1d):
    """Batch norm over the last axis, with the statistics of training."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in torch)
        return super().forward(input.mT).mT


class Norm(nn.Module):
    """A norm under the name that the trainer gives it."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        made = {"layer": nn.LayerNorm, "batch": StepNorm, "none": nn.Identity}
        self.norm = ScalarNorm() if kind == "scalar" else made[kind](width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class ResidualBlock(nn.Module):
    """A layer with its norm and its residual."""

    def __init__(self, layer: nn.Module, width: int, plan: TrainerPlan) -> None:
        super().__init__()
        self.layer = layer
        self.norm = Norm(plan.norm, width)
        self.plan = plan

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.norm(x) if self.plan.prenorm else x)
        y = x + y if self.plan.residual else y
        return y if self.plan.prenorm else self.norm(y)


class Backbone(nn.Module):
    """The blocks, and the norm behind them where norms stand before the layers."""

    def __init__(self, layers: Sequence[nn.Module], width: int, plan: TrainerPlan) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ResidualBlock(layer, width, plan) for layer in layers)
        self.norm = Norm(plan.norm if plan.prenorm else "none", width)


class Decoder(nn.Module):
    """The linear layer behind the model, under the trainer's name."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.output_transform = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_transform(x)


class TrainerNet(SequenceNet):
    """SequenceModel between its encoder and its decoder, as Lightning saves them.

    `encoder` is a linear layer, an embedding of tokens, or None; without `outputs` there is no
    linear layer at the end.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        plan: TrainerPlan,
        *,
        hidden: int,
        encoder: nn.Linear | nn.Embedding | None,
        outputs: int | None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.hidden = hidden
        self.pooled = plan.pooled
        self.width = encoder.in_features if isinstance(encoder, nn.Linear) else hidden
        self.encoder = nn.ModuleList([] if encoder is None else [encoder])
        self.model = Backbone(layers, hidden, plan)
        self.decoder = nn.ModuleList([] if outputs is None else [Decoder(hidden, outputs)])

    def cores(self) -> Mapping[str, Core]:
        return cores_of(self.model.layers, _TRAINER)

    @property
    def embedding(self) -> nn.Embedding | None:
        return next((part for part in self.encoder if isinstance(part, nn.Embedding)), None)

    def forward(self, inputs: Tensor, record: Record | None = None) -> Tensor:
        x = inputs
        for encoder in self.encoder:
            x = encoder(x) if self.embedding is None else x
        x = self._kept(self.model.norm(self.run_blocks(x, self.model.layers, record)))
        for decoder in self.decoder:
            x = decoder(x)
        return x

    def describe(self) -> str:
        cores = self.cores().values()
        return residual_blocks(len(cores), self.hidden) + restored(cores)

    def _kept(self, x: Tensor) -> Tensor:
        """What the decoder keeps of the steps, before its linear layer."""
        mode = self.plan.mode
        if not self.pooled:
            return x.cumsum(dim=1) if mode == "sum" else x
        if mode in ("last", "first"):
            return x[:, -1 if mode == "last" else 0]
        return x.mean(dim=1) if mode == "pool" else x.sum(dim=1)


_MODEL = (("model",),)
_IN, _OUT = "encoder.0.weight", "decoder.0.output_transform.weight"
_RESIDUAL, _NO_RESIDUAL = ("r", "residual"), ("none", "f", "n", "ff", "feedforward")
#: The tensors by which a norm is known.
_NORMS = {
    "layer": {"weight", "bias"},
    "scalar": {"m", "s"},
    "batch": {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"},
    "none": set[str](),
}


def _trainer_net(
    blocks: list[nn.Module], tensors: Tensors, hyper: Hyperparameters
) -> SequenceNet | str:
    """SequenceModel with its encoder and decoder, or why it is not known."""
    cores = cores_of(blocks, _TRAINER)
    hidden = cores[f"{_TRAINER}.0"].width
    plan = _plan(tensors, hyper)
    if isinstance(plan, str):
        return plan
    encoder = _encoder(tensors, hyper, hidden)
    if isinstance(encoder, str):
        return encoder
    outputs = shape_of(tensors, _OUT, 2)[0] if _OUT in tensors else None
    for name, core in cores.items():
        if core.width != hidden:
            raise weights_error(f"{name} has {core.width} features, and model.layers.0 {hidden}")
    sizes = {"d_model": (hidden, "the features of the layers are")}
    if not isinstance(hyper.section("model").get("layer"), list):
        again = hyper.section("model").get("n_repeat") or 1
        count = len(blocks) // again if isinstance(again, int) and len(blocks) % again == 0 else -1
        sizes["n_layers"] = (count, f"{len(blocks)} layers in the file are")
    hyper.require_sizes(sizes, places=_MODEL)
    data = {"d_output": (outputs or 0, f"the outputs of {_OUT} are")}
    if isinstance(encoder, nn.Linear):
        data["d_input"] = (encoder.in_features, f"the inputs of {_IN} are")
    hyper.require_sizes(data, places=(("dataset",),))
    return TrainerNet(blocks, plan, hidden=hidden, encoder=encoder, outputs=outputs)


def _plan(tensors: Tensors, hyper: Hyperparameters) -> TrainerPlan | str:
    model = hyper.section("model")
    kind, pool = model.get("_name_"), model.get("pool")
    if kind not in (None, "model"):
        return f"the backbone is {clean(kind)}, not the stack of blocks that is known here"
    if model.get("bidirectional"):
        return "the settings say bidirectional, which is not known here"
    if model.get("transposed") and "model.layers.0.norm.weight" in tensors:
        return "the settings say transposed, and its norms have other tensors"
    if isinstance(pool, Mapping) and (pool.get("stride", 1), pool.get("expand") or 1) != (1, 1):
        return "the blocks pool the sequence"
    residual = _residual(hyper, model.get("residual"))
    norm = _norm(tensors, hyper, model.get("norm"))
    for name, value in (("residual", residual), ("norm", norm)):
        if value is None:
            return f"the {name} {clean(model.get(name))} is not known here"
    decoding = _decoding(hyper)
    if isinstance(decoding, str):
        return decoding
    prenorm = hyper.flag("prenorm", default=True, places=_MODEL)
    return TrainerPlan(prenorm, bool(residual), str(norm), *decoding)


def _residual(hyper: Hyperparameters, stated: Any) -> bool | None:
    """Whether the input of a block is added to its output; None for other residuals."""
    if isinstance(stated, Mapping) and not hyper.given("residual"):
        return True if stated in ({"_name_": "R"}, {"_name_": "residual"}) else None
    every = (*_RESIDUAL, *_NO_RESIDUAL, "d", "decay", "a", "affine", "h", "highway")
    # The code's own default is none; without a config the question shows r, which configs say.
    default = "none" if hyper.has_config else "r"
    word = hyper.choice("residual", every, default=default, places=_MODEL)
    return word in _RESIDUAL if word in (*_RESIDUAL, *_NO_RESIDUAL) else None


def _norm(tensors: Tensors, hyper: Hyperparameters, stated: Any) -> str | None:
    """The kind of norm: by its tensors, and by its name where they leave it open."""
    start = "model.layers.0.norm."
    inside = {name.rpartition(".")[2] for name in tensors if name.startswith(start)}
    fitting = next((kind for kind, names in _NORMS.items() if inside == names), None)
    # The trainer calls the scalar norm a layer norm as well.
    named = "layer" if fitting == "scalar" else fitting
    if isinstance(stated, Mapping) and not hyper.given("norm"):
        word = str(stated.get("_name_", named)) if set(stated) <= {"_name_"} else "other"
    elif not hyper.has_config and not hyper.given("norm") and fitting in ("batch", "scalar"):
        # No other norm has such tensors.
        return fitting
    else:
        words = ("layer", "batch", "group", "instance", "none")
        default = "none" if hyper.has_config else "layer"
        word = hyper.choice("norm", words, default=default, places=_MODEL)
    if word not in _NORMS:
        return None
    if inside and inside < _NORMS[word]:
        lost = ", ".join(sorted(f"{start}norm.{name}" for name in _NORMS[word] - inside))
        raise weights_error(f"{lost} of a {word} norm is not there")
    if word != named and (hyper.has_config or hyper.given("norm")):
        raise config_error(f"norm is {word}, and the tensors of a norm are {sorted(inside)}")
    return fitting


def _decoding(hyper: Hyperparameters) -> tuple[str, bool] | str:
    """What the decoder keeps of the steps, and whether that is one of them; or why not known."""
    decoder = _part(hyper, "decoder")
    name = "?" if decoder is None else decoder.get("_name_", "sequence")
    if decoder is None or name not in ("sequence", "nd"):
        return f"the decoder {clean(name)} is not known here"
    if name == "nd":
        kept = {"pool": ("pool", True), "full": ("last", False)}
        word = clean(decoder.get("mode", "pool"))
        return kept.get(word, f"the mode {word} of the decoder is not known here")
    mode = str(decoder.get("mode", "last"))
    dataset = hyper.section("dataset")
    if hyper.given("pool") or "l_output" not in dataset:
        word = pool_word(hyper, default="none", places=())
        pooled = word not in ("none", "false")
        # Only true leaves it to the decoder what it keeps.
        mode = {"mean": "pool", "pool": "pool", "last": "last"}.get(word, mode)
    else:
        length = dataset["l_output"]
        if isinstance(length, bool) or not isinstance(length, int | None):
            return f"the dataset's l_output, {clean(length)}, is no number"
        pooled = length in (0, 1)
    if mode not in ("last", "first", "pool", "sum"):
        return f"the decoder's mode {clean(mode)} is not known here"
    if mode == "pool" and not pooled:
        return "a decoder that averages to every step is not run by the public code"
    return mode, pooled


def _encoder(
    tensors: Tensors, hyper: Hyperparameters, hidden: int
) -> nn.Linear | nn.Embedding | str | None:
    """The layer in front: with a bias it is linear, without one an embedding."""
    bias = "encoder.0.bias"
    encoder = _part(hyper, "encoder")
    stated = "?" if encoder is None else encoder.get("_name_")
    unknown = f"the encoder {clean(stated)} is not known here"
    if _IN not in tensors:
        alone = not any(name.startswith("encoder.") for name in tensors)
        return None if alone and stated in (None, "id", "stop") else unknown
    rows, columns = shape_of(tensors, _IN, 2)
    kind = "linear" if bias in tensors else "embedding"
    if stated == "linear" and bias not in tensors:
        raise weights_error(f"{bias} is not there, and the encoder is linear")
    if stated not in (None, kind):
        return unknown
    if hidden != (rows if kind == "linear" else columns):
        raise weights_error(f"{_IN} {(rows, columns)} does not fit {hidden} features")
    if stated is None:
        hyper.assumed["encoder"] = f"{kind} (by whether {bias} is there)"
    return nn.Linear(columns, rows) if kind == "linear" else nn.Embedding(rows, columns)


def _part(hyper: Hyperparameters, name: str) -> Mapping[str, Any] | None:
    """The settings of the encoder or decoder; None when there are several, or further ones."""
    if hyper.section("model").get(name) is not None:
        return None
    stated = hyper.section().get(name)
    if isinstance(stated, list) and len(stated) == 1:
        stated = stated[0]
    if stated is None or isinstance(stated, str):
        return {} if stated is None else {"_name_": stated}
    return stated if isinstance(stated, Mapping) else None
