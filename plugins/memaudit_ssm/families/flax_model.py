"""The classifier of minimal-LRU and S5 rebuilt from the names and shapes of a flax tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.errors import SourceError, clean
from memaudit_ssm.families.agreement import MODEL_PLACES, require_stated, said_in
from memaudit_ssm.families.family import Group, Whole, shape_of
from memaudit_ssm.families.flax_filling import require_filled
from memaudit_ssm.families.flax_names import Translated, of_optimizer, torch_name, translated
from memaudit_ssm.families.pooled import read_pooling
from memaudit_ssm.models.flax_stack import FlaxBlock, FlaxStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts
    from memaudit_ssm.layers.core import Core

    Build = Callable[[Group], Core]

_ENDS = ("encoder.encoder.weight", "decoder.weight")


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
    groups: list[Group],
    tensors: Mapping[str, Tensor],
    facts: Facts,
    *,
    build: Build,
    code: Convention,
) -> Whole | str:
    """The whole classifier on the meta device, or why it is none."""
    if any(of_optimizer(name) for name in tensors):
        return "the file holds the state of an optimizer as well"
    tree = translated(tensors)
    if not set(_ENDS) <= set(tree.tensors):
        return "encoder/encoder or decoder is missing"
    ordered = _ordered(groups)
    if ordered is None:
        return "the layers are not named encoder/layers_N/seq"
    norm = _norm(tree, facts, len(groups), code)
    if norm is None:
        return "the running statistics of the batch norms are not in the file"
    prenorm = facts.flag("prenorm", default=False)
    activation = _activation(tree, facts) if code.gated is None else code.gated
    blocks = [
        FlaxBlock(build(group), activation=activation, norm=norm, called=code.norm, prenorm=prenorm)
        for group in ordered
    ]
    inputs, outputs = _ends(tree)
    groups_of = _groups(facts, outputs)
    net = FlaxStack(
        blocks,
        inputs=inputs,
        outputs=outputs,
        pooling=read_pooling(facts, default="mean", also=code.pooling),
        groups=groups_of,
    )
    require_filled(net, tree)
    _require_sizes(tree, facts, net, outputs // groups_of)
    turned = {name: t for name, t in tree.tensors.items() if name.endswith(".weight")}
    return Whole(net, names=tree.names, reshaped=turned)


def _ends(tree: Translated) -> tuple[int, int]:
    """Inputs and outputs of the model; kernels that are none are told by their own names."""
    in_file = {short: name for name, short in tree.names.items()}
    given = {in_file[name]: tree.tensors[name] for name in _ENDS}
    first, last = (shape_of(given, in_file[name], 2) for name in _ENDS)
    return first[1], last[0]


def _require_sizes(tree: Translated, facts: Facts, net: FlaxStack, outputs: int) -> None:
    """What the config says of sizes is what the tensors show."""
    hidden = net.decoder.in_features
    in_file = {short: clean(name) for name, short in tree.names.items()}
    first, last = (in_file[name] for name in _ENDS)
    require_stated(facts, MODEL_PLACES, "d_input", net.width, f"the inputs of {first} are")
    require_stated(facts, MODEL_PLACES, "d_output", outputs, f"the outputs of {last} are")
    require_stated(facts, MODEL_PLACES, "d_model", hidden, f"the inputs of {last} are")
    require_stated(facts, MODEL_PLACES, "n_layers", len(net.blocks()), "the layers in the file are")


def _ordered(groups: list[Group]) -> list[Group] | None:
    """The layers by their numbers."""
    first = {torch_name(next(iter(group.keys.values()))): group for group in groups}
    by_prefix = {name.rpartition(".")[0]: group for name, group in first.items()}
    wanted = [f"encoder.layers.{i}.seq" for i in range(len(groups))]
    return [by_prefix[name] for name in wanted] if set(wanted) == set(by_prefix) else None


def _norm(tree: Translated, facts: Facts, layers: int, code: Convention) -> str | None:
    """Batch where its statistics are stored; else layer, unless somebody says batch: None."""
    ends = ("running_mean", "running_var")
    names = [f"encoder.layers.{i}.{code.norm}.{end}" for i in range(layers) for end in ends]
    if set(names) <= set(tree.tensors):
        _require_batch(facts, code)
        return "batch"
    if code.batch == "norm":
        said = facts.choice("norm", ("layer", "batch"), default="layer")
        batch = said == "batch"
    else:
        batch = facts.flag("batchnorm", default=False)
    if code.batch in facts.assumed:
        word = "layer" if code.batch == "norm" else "false"
        facts.assumed[code.batch] = f"{word} (the file has no running statistics)"
    return None if batch else "layer"


def _require_batch(facts: Facts, code: Convention) -> None:
    """Refuse a config that says another norm than the one whose statistics are stored."""
    for path in MODEL_PLACES:
        said = facts.section(*path).get(code.batch)
        if said is not None and said not in ("batch", True):
            raise SourceError(
                "E_CONFIG",
                f"the config says {code.batch} = {clean(said)}, and the file has the running "
                "statistics of batch norms",
                hint="put the config of this model beside the weights",
                stage="config",
            )


def _activation(tree: Translated, facts: Facts) -> str:
    """The two linear layers tell all but one thing: what the half gate multiplies."""
    first, second = (f"encoder.layers.0.{name}.weight" in tree.tensors for name in ("out1", "out2"))
    shown = "full_glu" if first else "half_glu" if second else "gelu"
    said = said_in(facts, MODEL_PLACES, "activation", "activation_fn")
    if said is not None and not str(said).startswith(shown):
        raise SourceError(
            "E_CONFIG",
            f"the config says the activation {clean(said)}, the tensors are those of {shown}",
            hint="the config or the weights belong to another model, or the file is damaged",
            stage="config",
        )
    if shown != "half_glu":
        return shown
    return facts.choice("activation", ("half_glu1", "half_glu2"), also=("activation_fn",))


def _groups(facts: Facts, outputs: int) -> int:
    """minimal-LRU's multidim: how many classes every one of several outputs has."""
    stated = facts.number("multidim") or 1.0
    if stated not in range(1, outputs + 1) or outputs % int(stated):
        raise SourceError(
            "E_CONFIG",
            f"the config says that multidim is {stated:g}, and the decoder has {outputs} outputs",
            hint="put the config of this model beside the weights",
            stage="config",
        )
    return int(stated)
