"""What a config beside the weights states about a recurrent model, checked against the tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memaudit_rnn.stack import Stack

HYPER_PARAMETERS = ("hparams", "config", "hyper_parameters")
KIND = ("kind", "cell", "cell_type", "rnn_type")
HIDDEN = ("hidden", "hidden_size", "hidden_dim")
LAYERS = ("layers", "num_layers", "n_layers")
NONLINEARITIES = ("tanh", "relu")
#: Digits of a number that is written as text; no size has more.
LONGEST_NUMBER = 18
CLASSES = ("classes", "num_classes", "num_labels", "n_classes")


@dataclass(frozen=True, slots=True)
class Facts:
    """The stated facts; None where nothing, or nothing readable, is stated."""

    kind: str | None = None
    nonlinearity: str | None = None
    hidden: int | None = None
    layers: int | None = None
    bidirectional: bool | None = None
    classes: int | None = None

    def check(self, stack: Stack) -> None:
        """Refuse a config that contradicts the tensors.

        Some configs state the hidden size of both directions together: that is accepted.
        """
        if stack.cell == "RNN" and self.nonlinearity not in (None, *NONLINEARITIES):
            raise SourceError(
                "E_CONFIG",
                f"the config states the nonlinearity {clean(self.nonlinearity)!r}; "
                "an RNN of torch has tanh or relu",
                stage="config",
            )
        wide = (stack.hidden, stack.hidden * stack.directions, stack.output)
        checks = (
            ("kind", self.kind, stack.cell, (stack.cell,)),
            ("hidden", self.hidden, stack.hidden, wide),
            ("layers", self.layers, stack.layers, (stack.layers,)),
            ("bidirectional", self.bidirectional, stack.directions == 2, (stack.directions == 2,)),
        )
        for name, stated, found, possible in checks:
            if stated is not None and stated not in possible:
                raise SourceError(
                    "E_CONFIG",
                    f"the config states {name} {stated}, the tensors of {stack.name} say {found}",
                    hint="put the right config beside the weights, or remove it",
                    stage="config",
                )


def read_facts(config: Mapping[str, Any], metadata: Mapping[str, str]) -> Facts:
    """The facts in a config and in the file's own metadata; the config goes first."""
    stated = {**_hyper_parameters(metadata), **metadata, **config}
    kind_text = str(_first(stated, KIND) or "").lower()
    kind = next((cell for cell in ("LSTM", "GRU", "RNN") if cell.lower() in kind_text), None)
    return Facts(
        kind=kind,
        nonlinearity=_nonlinearity(stated, kind_text),
        hidden=_whole(_first(stated, HIDDEN)),
        layers=_whole(_first(stated, LAYERS)),
        bidirectional=_truth(stated.get("bidirectional")),
        classes=_whole(_first(stated, CLASSES)),
    )


def _hyper_parameters(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What a trainer stored beside the weights, as Lightning does; one level of nesting."""
    stated: dict[str, Any] = {}
    for key in HYPER_PARAMETERS:
        try:
            values = json.loads(metadata.get(key, "{}"))
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict):
            nested = [inner for inner in values.values() if isinstance(inner, dict)]
            for group in (*nested, values):
                stated |= {str(name): value for name, value in group.items()}
    return stated


def _nonlinearity(stated: Mapping[str, Any], kind: str) -> str | None:
    """The stated nonlinearity; an `activation` may belong to another part and goes last."""
    text = str(stated.get("nonlinearity") or "").lower()
    from_kind = next((name for name in NONLINEARITIES if kind.endswith(name)), None)
    if text and from_kind not in (None, text):
        raise SourceError(
            "E_CONFIG",
            f"the config states the kind {clean(kind)!r} and the nonlinearity {clean(text)!r}",
            hint="put the right config beside the weights, or remove it",
            stage="config",
        )
    if text:
        return text
    activation = str(stated.get("activation") or "").lower()
    return from_kind or (activation if activation in NONLINEARITIES else None)


def _first(stated: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((stated[name] for name in names if stated.get(name) is not None), None)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) <= LONGEST_NUMBER else None
    return value if isinstance(value, int) else None


def _truth(value: Any) -> bool | None:
    known = {"true": True, "false": False, "1": True, "0": False}
    return known.get(str(value).lower())
