"""The library's calling conventions of its scans, answered by memaudit's scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch

from memaudit.numerics.scans import chunk_scan, linear_scan, selective_scan, wkv_scan
from memaudit_transformers.recurrent.kernels import (
    CHUNK_SCAN,
    RNN_SCAN,
    SELECTIVE_SCAN,
    WKV,
    Arguments,
    Kernel,
    chunk_steps,
    selective_steps,
)

#: In these the library rounds the step sizes before it goes on in float32, and so do we.
HALF = (torch.float16, torch.bfloat16)


def _selective(arguments: Arguments) -> Any:
    if arguments["dt"].dtype in HALF:
        sizes = selective_steps(arguments).sizes.transpose(1, 2)
        arguments = {**arguments, "dt": sizes, "delta_bias": None, "delta_softplus": False}
    given = _alike(arguments, "hidden_states", "dt", "A", "B", "C", "D", "z", "delta_bias")
    return selective_scan(
        *(given[name] for name in ("hidden_states", "dt", "A", "B", "C")),
        D=given["D"],
        z=given["z"],
        delta_bias=given["delta_bias"],
        delta_softplus=arguments["delta_softplus"],
        return_last_state=arguments["return_last_state"],
    )


def _chunked(arguments: Arguments) -> Any:
    if arguments["dt"].dtype in HALF:
        sizes = chunk_steps(arguments).sizes
        arguments = {**arguments, "dt": sizes, "dt_bias": None, "dt_softplus": False}
    names = ("hidden_states", "dt", "A", "B", "C", "D", "dt_bias", "initial_states")
    given = _alike(arguments, *names)
    return chunk_scan(
        *(given[name] for name in names[:5]),
        chunk_size=arguments["chunk_size"],
        D=given["D"],
        dt_bias=given["dt_bias"],
        initial_states=given["initial_states"],
        dt_softplus=arguments["dt_softplus"],
        dt_limit=tuple(arguments["dt_limit"]),
        return_final_states=arguments["return_final_states"],
    )


def _linear(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """The gate is closed where a document begins; the state is kept at least in `acc_dtype`."""
    hidden = arguments["hidden_states"]
    dtype = torch.promote_types(hidden.dtype, arguments["acc_dtype"])
    gate = (arguments["recurrent_gate"] * ~arguments["reset"]).to(dtype)
    initial = arguments["recurrent_states"]
    initial = None if initial is None else initial.to(gate)
    states, last = linear_scan(gate, hidden.to(dtype), initial)
    return states.to(hidden.dtype), last


def _wkv(arguments: Arguments) -> Any:
    key, state = arguments["key"], arguments["state"]
    given = _alike(arguments, "time_decay", "time_first", "key", "value")
    if state is not None:
        state = [part.to(given["key"]) for part in state]
    answer, state = wkv_scan(**given, state=state, return_state=arguments["return_state"])
    return answer.to(key.dtype), state


def _alike(arguments: Arguments, *names: str) -> dict[str, Any]:
    """These tensors in the widest dtype among them: a scan works in one, as the library's does."""
    given = {name: arguments.get(name) for name in names}
    dtypes = [tensor.dtype for tensor in given.values() if tensor is not None]
    dtype = reduce(torch.promote_types, dtypes)
    return {name: None if t is None else t.to(dtype) for name, t in given.items()}


CALLS: Mapping[Kernel, Callable[[Arguments], Any]] = {
    SELECTIVE_SCAN: _selective,
    CHUNK_SCAN: _chunked,
    RNN_SCAN: _linear,
    WKV: _wkv,
}
