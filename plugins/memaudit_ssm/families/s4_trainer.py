"""The trainer's model read from tensors and config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from memaudit.errors import clean
from memaudit_ssm.families.agreement import require_stated
from memaudit_ssm.families.family import shape_of, weights_error
from memaudit_ssm.families.pooled import pool_word, tell_every_step
from memaudit_ssm.families.s4_facts import config_error
from memaudit_ssm.models.s4_example import cores_of
from memaudit_ssm.models.trainer import MODES, TrainerNet, TrainerPlan

if TYPE_CHECKING:
    from torch import Tensor

    from memaudit_ssm.facts import Facts
    from memaudit_ssm.models.net import SequenceNet

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
        tell_every_step(facts)
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
