"""The models that example and trainer of state-spaces/s4 build around layers of any version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from memaudit.errors import clean
from memaudit_ssm.core import Core
from memaudit_ssm.family import (
    Group,
    Hear,
    SequenceNet,
    indexed,
    require_alike,
    shape_of,
    weights_error,
)
from memaudit_ssm.s4d import ExampleStack
from memaudit_ssm.settings import (
    MODEL_PLACES,
    Facts,
    config_error,
    every_step_unless_said,
    note_every_step,
    pool_word,
    require_stated,
)

#: What the decoder keeps of the steps.
MODES = ("last", "first", "pool", "sum")


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
        made = {
            "layer": lambda: nn.LayerNorm(width),
            "batch": lambda: StepNorm(width),
            "scalar": ScalarNorm,
            "none": nn.Identity,
        }
        self.norm = made[kind]()

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

    def blocks(self) -> tuple[str, ...]:
        return tuple(f"model.layers.{i}" for i in range(len(self.model.layers)))

    def cores(self) -> Mapping[str, Core]:
        return cores_of(self.blocks(), self.model.layers)

    @property
    def table(self) -> nn.Embedding | None:
        first = next(iter(self.encoder), None)
        return first if isinstance(first, nn.Embedding) else None

    def forward(self, inputs: Tensor, hear: Hear | None = None) -> Tensor:
        linear = len(self.encoder) > 0 and self.table is None
        x = self.encoder[0](inputs) if linear else inputs
        for name, block in zip(self.blocks(), self.model.layers, strict=True):
            x = block(x)
            if hear is not None:
                hear(name, x)
        x = self._kept(self.model.norm(x))
        for decoder in self.decoder:
            x = decoder.output_transform(x)  # type: ignore[operator]
        return x

    def describe(self) -> str:
        blocks = len(self.model.layers)
        what = f"{blocks} residual block{'s' * (blocks != 1)} of width {self.hidden}"
        return what + restored(self.cores().values())

    def _kept(self, x: Tensor) -> Tensor:
        """What the decoder keeps of the steps, before its linear layer."""
        if not self.pooled:
            return x.cumsum(dim=1) if self.plan.mode == "sum" else x
        if self.plan.mode in ("last", "first"):
            return x[:, -1 if self.plan.mode == "last" else 0]
        return x.mean(dim=1) if self.plan.mode == "pool" else x.sum(dim=1)


_MODEL = (("model",),)

_PLAIN = ("r", "residual")

_WITHOUT = ("none", "f", "n", "ff", "feedforward")

#: The tensors by which a norm is known.
_NORMS = {
    "layer": {"weight", "bias"},
    "scalar": {"m", "s"},
    "batch": {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"},
    "none": set[str](),
}

_DATA = (("dataset",),)

_IN, _OUT = "encoder.0.weight", "decoder.0.output_transform.weight"


def trainer_of(
    blocks: list[nn.Module], tensors: Mapping[str, Tensor], facts: Facts
) -> SequenceNet | str:
    """SequenceModel with its encoder and decoder, or why it is not known."""
    plan, hidden = _plan(tensors, facts), _hidden(blocks)
    if isinstance(plan, str):
        return plan
    encoder = _encoder(tensors, facts, hidden)
    if isinstance(encoder, str):
        return encoder
    outputs = shape_of(tensors, _OUT, 2)[0] if _OUT in tensors else None
    _require_sizes(blocks, facts, hidden=hidden, encoder=encoder, outputs=outputs)
    return TrainerNet(blocks, plan, hidden=hidden, encoder=encoder, outputs=outputs)


def _hidden(blocks: list[nn.Module]) -> int:
    return next(iter(cores_of([""], blocks[:1]).values())).width


def _require_sizes(
    blocks: list[nn.Module],
    facts: Facts,
    *,
    hidden: int,
    encoder: nn.Module | None,
    outputs: int | None,
) -> None:
    """The sizes that the settings state are those of the tensors."""
    names = (f"model.layers.{i}" for i in range(len(blocks)))
    for name, core in cores_of(names, blocks).items():
        if core.width != hidden:
            raise weights_error(f"{name} has {core.width} features, and model.layers.0 {hidden}")
    require_stated(facts, _MODEL, "d_model", hidden, "the features of the layers are")
    if not isinstance(facts.section("model").get("layer"), list):
        again = facts.section("model").get("n_repeat") or 1
        count = len(blocks) // again if isinstance(again, int) and len(blocks) % again == 0 else -1
        require_stated(facts, _MODEL, "n_layers", count, f"{len(blocks)} layers in the file are")
    if isinstance(encoder, nn.Linear):
        what = f"the inputs of {_IN} are"
        require_stated(facts, _DATA, "d_input", encoder.in_features, what)
    found = 0 if outputs is None else outputs
    require_stated(facts, _DATA, "d_output", found, f"the outputs of {_OUT} are")


def _plan(tensors: Mapping[str, Tensor], facts: Facts) -> TrainerPlan | str:
    model = facts.section("model")
    odd = _odd(model, tensors)
    if odd is not None:
        return odd
    pool = model.get("pool")
    if isinstance(pool, Mapping) and (pool.get("stride", 1), pool.get("expand")) not in (
        (1, None),
        (1, 1),
    ):
        return "the blocks pool the sequence"
    residual = _residual(facts, model.get("residual"))
    norm = _norm(tensors, facts, model.get("norm"))
    for name, value in (("residual", residual), ("norm", norm)):
        if value is None:
            return f"the {name} {clean(model.get(name))} is not known here"
    decoding = _decoding(facts)
    if isinstance(decoding, str):
        return decoding
    mode, pooled = decoding
    prenorm = facts.flag("prenorm", default=True, places=_MODEL)
    return TrainerPlan(prenorm, bool(residual), str(norm), mode, pooled)


def _odd(model: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
    """What the settings say and these tensors cannot be."""
    kind = model.get("_name_")
    if kind not in (None, "model"):
        return f"the backbone is {clean(kind)}, not the stack of blocks that is known here"
    if model.get("bidirectional"):
        return "the settings say bidirectional, which is not known here"
    if model.get("transposed") and "model.layers.0.norm.weight" in tensors:
        return "the settings say transposed, and its norms have other tensors"
    return None


def _residual(facts: Facts, said: Any) -> bool | None:
    """Whether the input of a block is added to its output; None for other residuals."""
    if facts.given("residual") or not isinstance(said, Mapping):
        every = (*_PLAIN, *_WITHOUT, "d", "decay", "a", "affine", "h", "highway")
        # The code's own default is none; without a config the question shows r, which configs say.
        default = "none" if facts.stated else "r"
        word = facts.choice("residual", every, default=default, places=_MODEL)
        return True if word in _PLAIN else False if word in _WITHOUT else None
    return True if said in ({"_name_": "R"}, {"_name_": "residual"}) else None


def _norm(tensors: Mapping[str, Tensor], facts: Facts, said: Any) -> str | None:
    """The kind of norm: by its tensors, and by its name where they leave it open."""
    start = "model.layers.0.norm."
    inside = {name.rpartition(".")[2] for name in tensors if name.startswith(start)}
    fitting = next((kind for kind, names in _NORMS.items() if inside == names), None)
    if isinstance(said, Mapping) and not facts.given("norm"):
        named = "layer" if fitting == "scalar" else fitting
        word = str(said.get("_name_", named)) if set(said) <= {"_name_"} else "other"
    elif not facts.stated and not facts.given("norm") and fitting in ("batch", "scalar"):
        # No other norm has such tensors.
        return fitting
    else:
        words = ("layer", "batch", "group", "instance", "none")
        default = "none" if facts.stated else "layer"
        word = facts.choice("norm", words, default=default, places=_MODEL)
    if word not in _NORMS:
        return None
    if inside and inside < _NORMS[word]:
        lost = ", ".join(sorted(f"{start}norm.{name}" for name in _NORMS[word] - inside))
        raise weights_error(f"{lost} of a {word} norm is not there")
    named = "layer" if fitting == "scalar" else fitting
    if word != named and (facts.stated or facts.given("norm")):
        raise config_error(f"norm is {word}, and the tensors of a norm are {sorted(inside)}")
    return fitting


def _decoding(facts: Facts) -> tuple[str, bool] | str:
    """What the decoder keeps of the steps, and whether that is one of them; or why not known."""
    decoder = _part(facts, "decoder")
    name = "?" if decoder is None else decoder.get("_name_", "sequence")
    if decoder is None or name not in ("sequence", "nd"):
        return f"the decoder {clean(name)} is not known here"
    if name == "nd":
        kept = {"pool": ("pool", True), "full": ("last", False)}
        word = clean(decoder.get("mode", "pool"))
        return kept.get(word, f"the mode {word} of the decoder is not known here")
    mode = str(decoder.get("mode", "last"))
    dataset = facts.section("dataset")
    if facts.given("pool") or "l_output" not in dataset:
        word = pool_word(facts, default="none", places=())
        note_every_step(facts)
        pooled = word not in ("none", "false")
        # Only true leaves it to the decoder what it keeps.
        mode = {"mean": "pool", "pool": "pool", "last": "last"}.get(word, mode)
    else:
        length = dataset["l_output"]
        if isinstance(length, bool) or not isinstance(length, int | None):
            return f"the dataset's l_output, {clean(length)}, is no number"
        pooled = length in (0, 1)
    if mode not in MODES:
        return f"the decoder's mode {clean(mode)} is not known here"
    if mode == "pool" and not pooled:
        return "a decoder that averages to every step is not run by the public code"
    return mode, pooled


def _encoder(
    tensors: Mapping[str, Tensor], facts: Facts, hidden: int
) -> nn.Linear | nn.Embedding | str | None:
    """The layer in front: with a bias it is linear, without one an embedding."""
    key, bias = _IN, "encoder.0.bias"
    encoder = _part(facts, "encoder")
    said = "?" if encoder is None else encoder.get("_name_")
    if key not in tensors:
        alone = not any(name.startswith("encoder.") for name in tensors)
        known = said in (None, "id", "stop") and alone
        return None if known else f"the encoder {clean(said)} is not known here"
    rows, columns = shape_of(tensors, key, 2)
    kind = "linear" if bias in tensors else "embedding"
    if said == "linear" and bias not in tensors:
        raise weights_error(f"{bias} is not there, and the encoder is linear")
    if said not in (None, kind):
        return f"the encoder {clean(said)} is not known here"
    if hidden != (rows if kind == "linear" else columns):
        raise weights_error(f"{key} {(rows, columns)} does not fit {hidden} features")
    if said is None:
        facts.assumed["encoder"] = f"{kind} (by whether {bias} is there)"
    return nn.Linear(columns, rows) if kind == "linear" else nn.Embedding(rows, columns)


def _part(facts: Facts, name: str) -> Mapping[str, Any] | None:
    """The settings of the encoder or decoder; None when there are several, or further ones."""
    said = facts.section().get(name)
    if facts.section("model").get(name) is not None:
        return None
    if isinstance(said, list) and len(said) == 1:
        said = said[0]
    if isinstance(said, str):
        return {"_name_": said}
    return {} if said is None else said if isinstance(said, Mapping) else None


class S4ExampleStack(ExampleStack):
    """The example's stack; the recurrence of a block of version 4 is one level deeper."""

    def cores(self) -> Mapping[str, Core]:
        return cores_of(self.blocks(), self.s4_layers)

    def describe(self) -> str:
        return super().describe() + restored(self.cores().values())


def cores_of(names: Iterable[str], blocks: Iterable[nn.Module]) -> dict[str, Core]:
    """The recurrences of blocks of any version, by the names of their blocks."""
    found: dict[str, Core] = {}
    for name, block in zip(names, blocks, strict=True):
        parts = [part for part in block.modules() if isinstance(part, Core)]
        found[name] = parts[0]
    return found


def restored(cores: Iterable[Core]) -> str:
    """How well the readouts were restored that the files hold in another form; or nothing."""
    worst = max((core.condition for core in cores), default=1.0)
    return "" if worst <= 1.0 else f"; readouts restored, condition number {worst:.1e}"


MakeBlock = Callable[[Group], nn.Module | str]


_EXAMPLE, _TRAINER = "s4_layers.", "model.layers."


def stack_of(
    groups: list[Group],
    tensors: Mapping[str, Tensor],
    facts: Facts,
    block: MakeBlock,
    *,
    end: str,
) -> SequenceNet | str:
    """The whole model, or why it is not known; `end` follows the number of a layer."""
    if indexed(groups, _EXAMPLE, end):
        start, tail, join = _EXAMPLE, end, _example
    elif indexed(groups, _TRAINER, f".layer{end}"):
        start, tail, join = _TRAINER, f".layer{end}", trainer_of
    else:
        return f"the layers are named neither {_EXAMPLE}N{end} nor {_TRAINER}N.layer{end}"
    by_prefix = {group.prefix: group for group in groups}
    made = [block(by_prefix[f"{start}{i}{tail}"]) for i in range(len(groups))]
    why = [found for found in made if isinstance(found, str)]
    if why:
        return why[0]
    return join([found for found in made if isinstance(found, nn.Module)], tensors, facts)


def _example(
    blocks: list[nn.Module], tensors: Mapping[str, Tensor], facts: Facts
) -> SequenceNet | str:
    if not {"encoder.weight", "decoder.weight"} <= set(tensors):
        return "encoder or decoder is missing"
    outputs, hidden = shape_of(tensors, "decoder.weight", 2)
    inputs = shape_of(tensors, "encoder.weight", 2)[1]
    require_alike(tensors, ("decoder.weight", 1), ("encoder.weight", 0))
    for name, core in cores_of((f"{_EXAMPLE}{i}" for i in range(len(blocks))), blocks).items():
        if core.width != hidden:
            raise weights_error(f"{name} has {core.width} features, and decoder.weight {hidden}")
    require_stated(facts, MODEL_PLACES, "d_input", inputs, "the inputs of encoder.weight are")
    require_stated(facts, MODEL_PLACES, "d_output", outputs, "the outputs of decoder.weight are")
    require_stated(facts, MODEL_PLACES, "d_model", hidden, "the inputs of decoder.weight are")
    require_stated(facts, MODEL_PLACES, "n_layers", len(blocks), "the layers in the file are")
    pooling = every_step_unless_said(facts, also=("pooled",))
    return S4ExampleStack(
        blocks,  # type: ignore[arg-type]
        inputs=inputs,
        outputs=outputs,
        hidden=hidden,
        prenorm=facts.flag("prenorm", default=False),
        pooled=pooling != "none",
        pooling=pooling,
    )
