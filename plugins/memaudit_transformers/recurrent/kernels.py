"""The functions that recurrent layers call for their scans, known by their parameters.

Every model of the library has its own copy of them, or a compiled one, under a name of its own
choice; the parameters are those of the original kernels and stay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from memaudit_transformers.recurrent.steps import Steps

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function by its parameters: those that it has, and those that it must not have.

    `steps` reads the decays from the arguments of a call, None where they are constant. `method`
    says that the layer calls a method of its own.
    """

    name: str
    has: frozenset[str]
    lacks: frozenset[str] = frozenset()
    steps: Callable[[Arguments], Steps] | None = None
    method: bool = False

    def recognises(self, function: Any) -> bool:
        """Whether the function has these parameters, wrapped or not."""
        names = _parameters(function)
        return self.has <= names and not self.lacks & names


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of the innermost function, or of the forward pass of a kernel module."""
    inner = inspect.unwrap(function)
    return inspect.signature(inner.forward if isinstance(inner, nn.Module) else inner)


def _parameters(function: Any) -> set[str]:
    """Names of the parameters; a look at the code is enough for most, and quick."""
    if isinstance(function, type) or not callable(function):
        return set()
    inner = inspect.unwrap(function)
    if isinstance(inner, nn.Module):
        return set(signature_of(inner).parameters)
    code = getattr(inner, "__code__", None)
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) if code else set()


def selective_steps(arguments: Arguments) -> Steps:
    """The steps that a selective scan makes of dt (B,d,T) and A (d,N)."""
    sizes = _sizes(arguments["dt"].transpose(1, 2), arguments, "delta_bias", "delta_softplus")
    return Steps(sizes, -arguments["A"])


def chunk_steps(arguments: Arguments) -> Steps:
    """The steps that a chunk scan makes of dt (B,T,heads) and A (heads,)."""
    sizes = _sizes(arguments["dt"], arguments, "dt_bias", "dt_softplus")
    return Steps(sizes.clamp(*arguments["dt_limit"]), -arguments["A"])


def _sizes(sizes: torch.Tensor, arguments: Arguments, bias: str, soft: str) -> torch.Tensor:
    if arguments[bias] is not None:
        sizes = sizes + arguments[bias].to(sizes.dtype)
    return softplus(sizes) if arguments[soft] else sizes


def _logarithmic(arguments: Arguments) -> Steps:
    return Steps(-arguments["g"])


def _plain(arguments: Arguments) -> Steps:
    return Steps(-torch.log(arguments["recurrent_gate"]))


_STATE_SPACE = frozenset({"dt", "A", "B", "C"})
SELECTIVE_SCAN = Kernel(
    "selective scan",
    _STATE_SPACE | {"delta_bias", "delta_softplus"},
    lacks=frozenset({"state"}),
    steps=selective_steps,
)
CHUNK_SCAN = Kernel(
    "chunk scan",
    _STATE_SPACE | {"chunk_size", "dt_bias", "dt_softplus", "dt_limit"},
    steps=chunk_steps,
)
DELTA_RULE = Kernel(
    "delta rule", frozenset({"query", "key", "value", "g", "beta"}), steps=_logarithmic
)
WKV = Kernel("wkv", frozenset({"time_decay", "time_first", "key", "value", "return_state"}))
RNN_SCAN = Kernel(
    "linear scan",
    frozenset({"hidden_states", "recurrent_gate", "reset", "recurrent_states"}),
    steps=_plain,
    method=True,
)
