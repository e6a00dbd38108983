"""Which class of the library a checkpoint belongs to, judged by the names of its tensors."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError
from memaudit_transformers.library import hushed, library, strict_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from torch import Tensor

#: Where the library lists its classes, the bare models first.
_MAPPINGS = (
    "MODEL_MAPPING",
    "MODEL_FOR_PRETRAINING_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "MODEL_FOR_TEXT_ENCODING_MAPPING",
)
#: Numbers that a class may have beyond those of the file: a head that is missing there.
_FREE_NUMBERS = 1 << 26


@dataclass(frozen=True, slots=True)
class Sketch:
    """A class built without memory: which tensors it places, and how far the file disagrees."""

    kind: type[Any]
    named: bool
    disagreement: int
    numbers: int
    placed: frozenset[str] = frozenset()
    extra: dict[str, Any] = field(default_factory=dict)


def named_class(config: Any) -> type[Any] | None:
    """The class that the config names, if the library has it and it is made for this config."""
    names = getattr(config, "architectures", None) or []
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or not name.isidentifier():
        return None
    try:
        with hushed():
            kind = getattr(library(), name, None)
    except strict_errors():
        return None
    model = library("transformers.modeling_utils").PreTrainedModel
    if not isinstance(kind, type) or not issubclass(kind, model):
        return None
    return kind if getattr(kind, "config_class", None) is type(config) else None


def sketches(
    config: Any, tensors: Mapping[str, Tensor], *, only: type[Any] | None = None
) -> list[Sketch]:
    """The classes whose names fit the tensors best, the likeliest first.

    The named class wins a tie. After it none is tried that fits worse, or that drops a tensor which
    the named one has a place for: a head of which something is missing is no head to do without.
    `only` is the class that the user asks for.
    """
    named = only or named_class(config)
    kinds = [*([named] if named else []), *([] if only else _listed(config))]
    if not kinds:
        raise SourceError(
            "E_UNSUPPORTED",
            f"transformers has no model class for {type(config).__name__}",
            hint="build the model in Python and pass the module to memaudit.scan",
            stage="build",
        )
    held = sum(tensor.numel() for tensor in tensors.values())
    found = [_sketch(kind, config, tensors, named=kind is named) for kind in dict.fromkeys(kinds)]
    small = [sketch for sketch in found if sketch.numbers <= 2 * held + _FREE_NUMBERS]
    if not small:
        least = min(sketch.numbers for sketch in found)
        raise SourceError(
            "E_WEIGHTS",
            f"config.json describes a model of {least} numbers, the file holds {held}",
            hint="put the right config beside the weights",
            stage="weights",
        )
    least = min(sketch.disagreement for sketch in small)
    stated = next((sketch for sketch in small if sketch.named), None)
    most = least if stated is None else stated.disagreement
    kept = frozenset() if stated is None else stated.placed
    fitting = [s for s in small if s.disagreement <= most and kept <= s.placed]
    return sorted(fitting, key=lambda sketch: sketch.disagreement)


def _listed(config: Any) -> list[type[Any]]:
    """Every class that the library lists for a config."""
    home = library("transformers.models.auto.modeling_auto")
    kinds: list[type[Any]] = []
    for name in _MAPPINGS:
        mapping = getattr(home, name, {})
        try:
            with hushed():
                entry = mapping.get(type(config), None)
        except strict_errors():
            continue
        kinds += [kind for kind in (entry if isinstance(entry, tuple | list) else [entry]) if kind]
    return kinds


def _sketch(kind: type[Any], config: Any, tensors: Mapping[str, Tensor], *, named: bool) -> Sketch:
    """Build a class on the meta device, where its weights take no memory."""
    extra = _extra(kind, tensors)
    try:
        with hushed(), torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = kind(copy.deepcopy(config), **extra)  # some constructors write into it
    except strict_errors() as error:
        if not named:
            return Sketch(kind, named, 1 << 60, 0)
        reason = str(error) or type(error).__name__
        raise SourceError(
            "E_CONFIG",
            f"config.json: {kind.__name__} cannot be built from it: {reason}",
            hint="put the right config beside the weights; memaudit doctor tells the versions",
            stage="config",
        ) from None
    own = model.state_dict()
    tied = set(getattr(model, "all_tied_weights_keys", {}) or {})
    pairs = pair_names(own, tensors, prefix=str(getattr(model, "base_model_prefix", "")))
    missing = set(own) - set(pairs.values()) - tied
    unknown = len(tensors) - len(pairs)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    return Sketch(kind, named, len(missing) + unknown, numbers, frozenset(pairs), extra)


def _extra(kind: type[Any], tensors: Iterable[str]) -> dict[str, Any]:
    """Arguments beside the config: a pooler that is not in the file must not be made up."""
    optional = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    if not optional or any("pooler" in name.split(".") for name in tensors):
        return {}
    return {"add_pooling_layer": False}


def pair_names(own: Collection[str], given: Iterable[str], *, prefix: str) -> dict[str, str]:
    """Names in a file → names in a model, which may differ by the prefix of the bare model."""
    pairs: dict[str, str] = {}
    taken: set[str] = set()
    for name in given:
        forms = (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}."))
        inside = next((form for form in forms if form in own and form not in taken), None)
        if inside is not None:
            pairs[name] = inside
            taken.add(inside)
    return pairs
