"""What stands around layers of S4: the stack of the example, or the model of the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from memaudit.errors import clean
from memaudit_ssm.families.agreement import MODEL_PLACES, require_alike, require_stated
from memaudit_ssm.families.family import Group, indexed, shape_of, weights_error
from memaudit_ssm.families.pooled import every_step_unless_said
from memaudit_ssm.families.s4_facts import require_width
from memaudit_ssm.families.s4_trainer import trainer_of
from memaudit_ssm.layers.s4_block import Mix
from memaudit_ssm.models.s4_example import S4ExampleStack, cores_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts
    from memaudit_ssm.layers.s4 import S4Layer
    from memaudit_ssm.layers.s4_block import Pointwise
    from memaudit_ssm.models.net import SequenceNet

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


def mixing(
    key: str,
    tensors: Mapping[str, Tensor],
    facts: Facts,
    pointwise: Pointwise,
    layer: S4Layer,
    *,
    asked: tuple[str, ...] = ("activation", "mult_act", "final_act"),
) -> nn.Module | None:
    """The mixing layer of a block, in a sequence where its name has a number; None without one.

    It is compared with the activations once they are known: `asked` are their names.
    """
    known = facts.stated or all(facts.given(name) for name in asked)
    if key not in tensors:
        if known:
            width = layer.width
            require_width(pointwise, layer, takes=width, gives=width, key="what follows the layer")
        return None
    weight = _plain(tensors, key)
    mix = Mix(weight, _shift(tensors, key, weight[0]))
    if known:
        require_width(pointwise, layer, takes=weight[1], gives=weight[0], key=key)
    return nn.Sequential(mix) if key.endswith(".0.weight") else mix


def _plain(tensors: Mapping[str, Tensor], key: str) -> tuple[int, ...]:
    """The shape of a matrix, with or without a third axis of length 1."""
    shape = shape_of(tensors, key, max(2, tensors[key].ndim))
    if shape[2:] not in ((), (1,)):
        raise weights_error(f"{clean(key)} has the shape {shape}, and is no matrix")
    return shape


def _shift(tensors: Mapping[str, Tensor], key: str, rows: int) -> tuple[int, ...]:
    """The shape of the bias, with or without a second axis of length 1; every version has one."""
    bias = key.removesuffix("weight") + "bias"
    if bias not in tensors:
        raise weights_error(f"{clean(bias)} is not there")
    shape = tuple(tensors[bias].shape)
    if shape not in ((rows,), (rows, 1)):
        raise weights_error(f"{clean(bias)} has the shape {shape}, and {clean(key)} {rows} rows")
    return shape


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
