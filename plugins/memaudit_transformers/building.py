"""A model of the library with the weights of the file, and the proof that they are the file's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean
from memaudit_transformers.classes import Sketch, named_class, sketches
from memaudit_transformers.library import TROUBLE, hushed, without_bars
from memaudit_transformers.proving import Loaded, prove

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

#: How many classes are tried when the names of the tensors leave it open.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Built:
    """A model that holds the file's weights; `unread` are the tensors that it has no place for."""

    model: Any
    unread: tuple[str, ...]
    assumed: dict[str, str]
    notes: tuple[str, ...]


def build(
    config: Any,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    *,
    only: type[Any] | None = None,
    trusted: type[Any] | None = None,
) -> Built:
    """The model of a config with these tensors, or E_WEIGHTS naming what does not fit.

    The class is the one that the config names, unless another one of the library fits the file
    better: a head that is missing in the file is not made up, one that is there is not dropped.
    `only` is a class that the user asks for, `trusted` one of code that came with the model.
    """
    if trusted is not None:
        return _built(_loaded(trusted, config, tensors, dtype), {}, ())
    named = only or named_class(config)
    refusal: SourceError | None = None
    for sketch in sketches(config, tensors, only=only)[:_TRIES]:
        try:
            loaded = _loaded(sketch.kind, config, tensors, dtype, **sketch.extra)
        except SourceError as error:
            refusal = error if refusal is None or sketch.named else refusal
            continue
        return _built(loaded, *_words(sketch, config, named))
    raise refusal or SourceError("E_WEIGHTS", "no class fits the file", stage="weights")


def _built(loaded: Loaded, assumed: dict[str, str], notes: tuple[str, ...]) -> Built:
    model = loaded.model.requires_grad_(False).eval()
    return Built(model, loaded.unread, assumed, notes)


def _loaded(
    kind: type[Any],
    config: Any,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    **extra: Any,
) -> Loaded:
    """Let the library rename and fuse the tensors, then look at what came of it.

    Without a name of a place it opens no file. Numbers for what is missing would be drawn from
    the global generator, which stays as it was.
    """
    try:
        with hushed(), without_bars(), torch.random.fork_rng(devices=[]):
            model, found = kind.from_pretrained(
                None,
                config=config,
                state_dict=dict(tensors),
                dtype=dtype,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **extra,
            )
            if dtype == torch.float64:
                model = model.to(dtype)  # buffers too: the wider dtype holds them exactly
    except TROUBLE as error:
        reason = str(error) or type(error).__name__
        raise SourceError(
            "E_WEIGHTS",
            f"{kind.__name__} does not take the weights: {clean(reason, limit=500)}",
            hint="the weights and the config do not belong together",
            stage="weights",
        ) from None
    return prove(model, found, tensors)


def _words(
    sketch: Sketch, config: Any, named: type[Any] | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What to say about the choice of the class."""
    chosen = sketch.kind.__name__
    bare = ("the file has no pooler: the model was built without one",) if sketch.extra else ()
    if named is None:
        stated = getattr(config, "architectures", None)
        said = "not stated"
        if stated:
            said = f"transformers has no {clean(stated[0], limit=60)} for this config"
        return {"architecture": f"{chosen} (by the names of the tensors; {said})"}, bare
    if sketch.kind is named:
        return {}, bare
    note = f"config.json names {named.__name__}, the tensors are those of {chosen}: that was built"
    return {}, (note, *bare)
