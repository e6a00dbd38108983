"""Tensors, config and each other: sizes that must agree, or the file is not what it seems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit_ssm.families.family import shape_of, weights_error
from memaudit_ssm.models.stable import ACTIVATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from memaudit_ssm.facts import Facts


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


#: Where configs without nesting, or with a model, say the sizes of the whole.
MODEL_PLACES: Sequence[tuple[str, ...]] = ((), ("model",))


def said_in(facts: Facts, places: Sequence[tuple[str, ...]], *names: str) -> Any:
    """The first thing that the config says under one of the names, null apart; or None."""
    found = (facts.section(*path).get(name) for path in places for name in names)
    return next((value for value in found if value is not None), None)


def require_stated(
    facts: Facts, places: Sequence[tuple[str, ...]], name: str, found: int, what: str
) -> None:
    """What the config says under a name is what was found; or E_CONFIG."""
    for path in places:
        stated = facts.section(*path).get(name)
        if stated is not None and not isinstance(stated, Mapping | list) and not _is(stated, found):
            raise SourceError(
                "E_CONFIG",
                f"the config says {name} = {clean(stated)}, but {what} {found}",
                hint="the config or the weights belong to another model, or the file is damaged",
                stage="config",
            )


def _is(stated: Any, found: int) -> bool:
    """Whether a number of a config, which may be text there, is the one that was found."""
    try:
        return not isinstance(stated, bool) and float(stated) == found
    except (TypeError, ValueError):
        return False


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
        if str(word) not in ACTIVATIONS:
            raise SourceError(
                "E_CONFIG",
                f"the config says that the activation of the {where} is {clean(word)}, "
                f"not one of {', '.join(ACTIVATIONS)}",
                hint="build the model in Python and pass the module to memaudit.scan",
                stage="config",
            )
        return str(word)
    facts.assumed[f"{where} activation"] = "linear (the code's own default; a config may say more)"
    return "linear"
