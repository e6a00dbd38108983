"""What S4 needs to know and the tensors do not say, and where config and tensors disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean
from memaudit.numerics.linear import DISCRETIZATIONS
from memaudit_ssm.families.family import weights_error
from memaudit_ssm.layers.s4_block import ACTIVATIONS, Pointwise
from memaudit_ssm.layers.s4_kernel import S4Recipe
from memaudit_ssm.layers.transforms import POSITIVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from memaudit_ssm.facts import Facts
    from memaudit_ssm.layers.s4 import S4Layer

_DIAGONAL, _LOW_RANK = ("diag", "s4d"), ("dplr", "nplr", "s4")
#: The settings that change what the weights mean.
_RECIPE = ("real_transform", "imag_transform", "dt_transform", "disc", "dt_fast")
#: A discretization whose kernel is another one for every length of the sequence.
_DSS = "dss"


def read_recipe(facts: Facts, *, low_rank: bool, real: bool, disc: str = "zoh") -> S4Recipe:
    """The recipe of version 4; `disc` is the default of the code."""
    require_one_layer(facts, _RECIPE)
    names = tuple(POSITIVE)
    recipe = S4Recipe(
        real_transform=facts.choice("real_transform", names, default="exp"),
        imag_transform="none" if real else facts.choice("imag_transform", names, default="none"),
        dt_transform=facts.choice("dt_transform", names, default="exp"),
        disc="bilinear" if low_rank else read_disc(facts, default=disc),
        dt_fast=facts.flag("dt_fast", default=False),
        bandlimit=facts.number("bandlimit"),
    )
    if real and recipe.bandlimit is not None:
        raise config_error("it says a bandlimit, and real modes have no frequency")
    return recipe


def read_disc(facts: Facts, *, default: str) -> str:
    """The discretization of a diagonal system; dss is refused with its reason."""
    disc = facts.choice("disc", (*DISCRETIZATIONS, _DSS), default=default)
    if disc == _DSS:
        raise SourceError(
            "E_UNSUPPORTED",
            "the discretization dss divides by a sum over the whole sequence: its kernel is "
            "another one for every length, and so no recurrence",
            hint="audit a model that was trained with zoh or bilinear",
            stage="config",
        )
    return disc


def read_pointwise(facts: Facts, *, mixed: bool) -> Pointwise:
    """The activations of a block of version 4; `mixed` when a mixing layer follows."""
    names = tuple(ACTIVATIONS)
    final = "none"
    if mixed:
        final = facts.choice("final_act", names, default="glu", also=("postact",))
    return Pointwise(
        activation=facts.choice("activation", names, default="gelu"),
        mult_act=facts.choice("mult_act", names, default="none"),
        final_act=final,
        swap_channels=bool(stated(facts, "swap_channels") or False),
    )


def require_one_layer(facts: Facts, names: Sequence[str]) -> None:
    """Raise E_CONFIG when the config lists several kinds of layers, unless all names are given."""
    several = [facts.section("model").get("layer"), facts.section().get("layer")]
    asked = [name for name in names if not facts.given(name)]
    if asked and any(isinstance(layer, list) for layer in several):
        raise SourceError(
            "E_CONFIG",
            "the config lists several layers, and which of them is meant is not known",
            hint="say it: " + " ".join(f"--set {name}=VALUE" for name in asked),
            stage="config",
        )


def require_agreement(
    facts: Facts, found: Mapping[str, tuple[Any, str]], *, low_rank: bool
) -> None:
    """Raise E_CONFIG where the config says another layer than the tensors show.

    `found` has what every setting is, and the name of the tensor that shows it.
    """
    mode = stated(facts, "mode") or stated(facts, "kernel")
    known = _LOW_RANK if low_rank else _DIAGONAL
    if isinstance(mode, str) and mode in (*_DIAGONAL, *_LOW_RANK) and mode not in known:
        shown = "a low-rank part P" if low_rank else "no low-rank part P"
        raise config_error(f"it says mode {clean(mode)}, and the tensors have {shown}")
    for name, (value, key) in found.items():
        said = stated(facts, name)
        if said is not None and said != value:
            raise config_error(f"it says {name} = {clean(said)}, and {clean(key)} shows {value}")


def require_rank(facts: Facts, rank: int, *, key: str) -> None:
    """Refuse another rank than the config says; where it is silent, the code's own is 1."""
    said = stated(facts, "rank")
    if facts.stated and rank != (1 if said is None else said):
        told = "the config does not say so" if said is None else f"the config says {clean(said)}"
        raise weights_error(f"{clean(key)} has rank {rank}, and {told}")


def require_length(tensor: Tensor, *, key: str) -> None:
    """Refuse a length in few bits: the code stores 64, so it may be what is left of another."""
    if tensor.dtype not in (torch.int32, torch.int64):
        raise weights_error(f"{clean(key)} is no whole number of 64 bits")


def require_directions(facts: Facts, *, both: bool, key: str) -> None:
    """Refuse twice as many kernels as channels where a config says nothing of two directions."""
    if not both or stated(facts, "bidirectional") is not None:
        return
    shown = f"{clean(key)} has two kernels for every channel of D"
    if facts.stated:
        # The code's own default is one direction.
        raise weights_error(f"{shown}, and the config does not say bidirectional: true")
    facts.assumed["bidirectional"] = f"true ({shown})"


def require_width(
    pointwise: Pointwise, layer: S4Layer, *, takes: int, gives: int, key: str
) -> None:
    """Raise E_CONFIG unless the activations fit the mixing layer `key`, which takes and gives."""
    halved = [name for name in (pointwise.activation, pointwise.mult_act) if _halves(name)]
    share = 2 ** (len(halved) + (pointwise.hyper_act is not None))
    if layer.D.numel() != takes * share:
        said = f"activation {pointwise.activation} leaves 1/{share} of {layer.D.numel()} features"
        raise config_error(f"{said}, and {clean(key)} takes {takes}")
    if gives != layer.width * (2 if _halves(pointwise.final_act) else 1):
        said = f"final_act {pointwise.final_act} follows {gives} features of {clean(key)}"
        raise config_error(f"{said}, and the layer has {layer.width}")


def _halves(activation: str) -> bool:
    return activation.startswith("glu")


def notes_of(facts: Facts) -> tuple[str, ...]:
    """What the original does otherwise."""
    cut = stated(facts, "l_max")
    if not isinstance(cut, int) or cut <= 0:
        return ()
    return (
        f"the original cuts its kernels after l_max = {cut} steps when it convolves; "
        "here they are run without the cut, as when it steps",
    )


def stated(facts: Facts, name: str) -> Any:
    """What the config says of the layer, and not of the model around it; or None."""
    inner = facts.section("model", "layer") or facts.section("layer")
    return (inner or facts.section()).get(name)


def config_error(fact: str) -> SourceError:
    """A config that belongs to another model."""
    return SourceError(
        "E_CONFIG",
        f"the config and the tensors disagree: {fact}",
        hint="look whether the config belongs to the weights",
        stage="config",
    )
