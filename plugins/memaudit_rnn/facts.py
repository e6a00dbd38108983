"""What a config beside the weights states about a recurrent model, checked against the tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memaudit_rnn.stack import Stack

KIND = ("kind", "cell", "cell_type", "rnn_type")
HIDDEN = ("hidden", "hidden_size", "hidden_dim")
LAYERS = ("layers", "num_layers", "n_layers")
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
    stated = {**metadata, **config}
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


def _nonlinearity(stated: Mapping[str, Any], kind: str) -> str | None:
    text = str(stated.get("nonlinearity") or "").lower()
    if text in ("tanh", "relu"):
        return text
    if text:
        raise SourceError(
            "E_CONFIG",
            f"the config states the nonlinearity {clean(text)!r}; an RNN of torch has tanh or relu",
            stage="config",
        )
    return next((name for name in ("tanh", "relu") if kind.endswith(name)), None)


def _first(stated: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((stated[name] for name in names if stated.get(name) is not None), None)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if value.isdecimal() else None
    return value if isinstance(value, int) else None


def _truth(value: Any) -> bool | None:
    known = {"true": True, "false": False, "1": True, "0": False}
    return known.get(str(value).lower())
