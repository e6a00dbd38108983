"""The scan functions that recurrent layers call: recognised, replaced by faster ones, recorded.

Every model of the library has its own copy of a scan, or a compiled one, under a name of its own
choice. The parameters are those of the original kernels and stay: a scan is known by them.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils import parametrize

from memaudit.numerics.scans import chunk_scan, linear_scan, selective_scan, wkv_scan

if TYPE_CHECKING:
    from memaudit_transformers.kinds import Recurrent

Arguments = Mapping[str, Any]
Function = Callable[..., Any]
#: In these the library rounds the step sizes before it goes on in float32, and so do we.
HALF = (torch.float16, torch.bfloat16)
#: Documents packed into one row: only the compiled kernels keep them apart.
PACKED = ("seq_idx", "cu_seqlens")
#: Marks a function of ours, which is not replaced again.
FAST = "memaudit_fast"
#: Where a recorded function keeps the function behind it and the recorder.
RECORDED = "memaudit_recorded"
_ABSENT = object()


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Step sizes and the rates that they are multiplied by; the decay is exp(-size · rate).

    `sizes` is (B,T,…) over data and (…) at rest. `rates` is None for ones, (C,) for one rate per
    channel, or (C,N) for N modes per channel: of Mamba-1 only the (B,T,C) step sizes are held,
    never (B,T,C,N).
    """

    sizes: Tensor
    rates: Tensor | None = None

    def decays(self) -> Tensor:
        """The factor on every mode at every step, N modes of a channel on an axis of their own."""
        if self.rates is None:
            return torch.exp(-self.sizes)
        sizes = self.sizes[..., None] if self.rates.ndim == 2 else self.sizes
        return torch.exp(-sizes * self.rates)

    def quantile(self, share: float) -> Steps:
        """Every channel at that share of its own step sizes over all tokens, in float64."""
        tokens = self.sizes.detach().flatten(0, 1).cpu().double().numpy()
        # A value that occurred: between a finite step and an infinite one there is no mean.
        chosen = torch.from_numpy(np.quantile(tokens, share, axis=0, method="nearest"))
        return Steps(chosen, None if self.rates is None else self.rates.detach().cpu().double())


def join_heads(parts: Sequence[Steps]) -> Steps:
    """The heads of one layer, recorded one after the other, as channels of one."""
    if len(parts) == 1:
        return parts[0]
    rates = [part.rates for part in parts if part.rates is not None]
    sizes = torch.cat([part.sizes for part in parts], -1)
    return Steps(sizes, torch.cat(rates) if rates else None)


def join_calls(calls: Sequence[Steps]) -> Steps:
    """Several calls of one layer as rows of a batch; calls of different lengths as one row."""
    if len(calls) == 1:
        return calls[0]
    sizes = [call.sizes for call in calls]
    if len({size.shape[1] for size in sizes}) > 1:
        return Steps(torch.cat([size.flatten(0, 1) for size in sizes])[None], calls[0].rates)
    return Steps(torch.cat(sizes), calls[0].rates)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A scan by its parameters: those that it has, and those that it must not have.

    `steps` reads the decays from the arguments of a call, None where they are constant. `fast` is
    memaudit's scan for the same arguments. `method` says that it is a method of the layer.
    """

    has: frozenset[str]
    lacks: frozenset[str] = frozenset()
    steps: Callable[[Arguments], Steps] | None = None
    fast: Callable[[Arguments], Any] | None = None
    method: bool = False

    def recognises(self, function: Any) -> bool:
        """Whether the function has these parameters, wrapped or not."""
        names = _parameters(function)
        return self.has <= names and not self.lacks & names


def signature_of(function: Function) -> inspect.Signature:
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


def _step_sizes(sizes: Tensor, arguments: Arguments, bias: str, soft: str) -> Tensor:
    if arguments[bias] is not None:
        sizes = sizes + arguments[bias].to(sizes.dtype)
    return softplus(sizes) if arguments[soft] else sizes


def _selective_steps(arguments: Arguments) -> Steps:
    """The steps that a selective scan makes of dt (B,d,T) and A (d,N)."""
    sizes = _step_sizes(arguments["dt"].transpose(1, 2), arguments, "delta_bias", "delta_softplus")
    return Steps(sizes, -arguments["A"])


def _chunk_steps(arguments: Arguments) -> Steps:
    """The steps that a chunk scan makes of dt (B,T,heads) and A (heads,)."""
    sizes = _step_sizes(arguments["dt"], arguments, "dt_bias", "dt_softplus")
    return Steps(sizes.clamp(*arguments["dt_limit"]), -arguments["A"])


def _one_dtype(arguments: Arguments, *names: str) -> dict[str, Any]:
    """These tensors in the widest dtype among them: a scan works in one, as the library's does."""
    given = {name: arguments.get(name) for name in names}
    dtypes = [tensor.dtype for tensor in given.values() if tensor is not None]
    dtype = functools.reduce(torch.promote_types, dtypes)
    return {name: None if t is None else t.to(dtype) for name, t in given.items()}


def _fast_selective(arguments: Arguments) -> Any:
    if arguments["dt"].dtype in HALF:
        sizes = _selective_steps(arguments).sizes.transpose(1, 2)
        arguments = {**arguments, "dt": sizes, "delta_bias": None, "delta_softplus": False}
    names = ("hidden_states", "dt", "A", "B", "C", "D", "z", "delta_bias")
    given = _one_dtype(arguments, *names)
    inputs = [given.pop(name) for name in names[:5]]
    return selective_scan(
        *inputs,
        **given,
        delta_softplus=arguments["delta_softplus"],
        return_last_state=arguments["return_last_state"],
    )


def _fast_chunked(arguments: Arguments) -> Any:
    if arguments["dt"].dtype in HALF:
        sizes = _chunk_steps(arguments).sizes
        arguments = {**arguments, "dt": sizes, "dt_bias": None, "dt_softplus": False}
    names = ("hidden_states", "dt", "A", "B", "C", "D", "dt_bias", "initial_states")
    given = _one_dtype(arguments, *names)
    inputs = [given.pop(name) for name in names[:5]]
    return chunk_scan(
        *inputs,
        **given,
        chunk_size=arguments["chunk_size"],
        dt_softplus=arguments["dt_softplus"],
        dt_limit=tuple(arguments["dt_limit"]),
        return_final_states=arguments["return_final_states"],
    )


def _fast_linear(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """The gate is closed where a document begins; the state is kept at least in `acc_dtype`."""
    hidden = arguments["hidden_states"]
    dtype = torch.promote_types(hidden.dtype, arguments["acc_dtype"])
    gate = (arguments["recurrent_gate"] * ~arguments["reset"]).to(dtype)
    initial = arguments["recurrent_states"]
    initial = None if initial is None else initial.to(gate)
    states, last = linear_scan(gate, hidden.to(dtype), initial)
    return states.to(hidden.dtype), last


def _fast_wkv(arguments: Arguments) -> Any:
    given = _one_dtype(arguments, "time_decay", "time_first", "key", "value")
    state = arguments["state"]
    if state is not None:
        state = [part.to(given["key"]) for part in state]
    answer, state = wkv_scan(**given, state=state, return_state=arguments["return_state"])
    return answer.to(arguments["key"].dtype), state


_STATE_SPACE = frozenset({"dt", "A", "B", "C"})
SELECTIVE_SCAN = Kernel(
    _STATE_SPACE | {"delta_bias", "delta_softplus"},
    lacks=frozenset({"state"}),
    steps=_selective_steps,
    fast=_fast_selective,
)
CHUNK_SCAN = Kernel(
    _STATE_SPACE | {"chunk_size", "dt_bias", "dt_softplus", "dt_limit"},
    steps=_chunk_steps,
    fast=_fast_chunked,
)
DELTA_RULE = Kernel(
    frozenset({"query", "key", "value", "g", "beta"}),
    steps=lambda arguments: Steps(-arguments["g"]),
)
WKV = Kernel(
    frozenset({"time_decay", "time_first", "key", "value", "return_state"}), fast=_fast_wkv
)
RNN_SCAN = Kernel(
    frozenset({"hidden_states", "recurrent_gate", "reset", "recurrent_states"}),
    steps=lambda arguments: Steps(-torch.log(arguments["recurrent_gate"])),
    fast=_fast_linear,
    method=True,
)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a layer looks a scan up: a name in a module's globals or in the layer itself."""

    kernel: Kernel
    namespace: dict[str, Any]
    name: str
    function: Function


def kernel_places(recurrents: Iterable[Recurrent]) -> list[Place]:
    """Where the scans of these layers are looked up; layers of one class share a place."""
    users: dict[object, tuple[nn.Module, Kernel]] = {}
    for recurrent in recurrents:
        module, kernel = recurrent.module, recurrent.kind.kernel
        if kernel is not None:
            # A parametrized layer has a class of its own, made from that of the others.
            shared = parametrize.type_before_parametrizations(module)
            users.setdefault(module if kernel.method else shared, (module, kernel))
    found: dict[tuple[int, str], Place] = {}
    for user in users.values():
        for place in _places(*user):
            found.setdefault((id(place.namespace), place.name), place)
    return list(found.values())


def _places(module: nn.Module, kernel: Kernel) -> Iterator[Place]:
    """Every place from which this layer could call the scan."""
    if kernel.method:
        for name in dir(type(module)):
            if kernel.recognises(getattr(type(module), name)):
                yield Place(kernel, vars(module), name, getattr(module, name))
        return
    homes = {cls.__module__ for cls in type(module).__mro__ if cls not in nn.Module.__mro__}
    for home in sorted(homes & sys.modules.keys()):
        namespace = vars(sys.modules[home])
        for name, value in namespace.items():
            if kernel.recognises(value):
                yield Place(kernel, namespace, name, value)


@contextmanager
def _replaced(changes: Iterable[tuple[Place, Function]]) -> Iterator[None]:
    """The functions in their places while this is open; the very same old ones afterwards."""
    before: list[tuple[Place, Any]] = []
    try:
        for place, function in changes:
            before.append((place, place.namespace.get(place.name, _ABSENT)))
            place.namespace[place.name] = function
        yield
    finally:
        for place, old in reversed(before):
            if old is _ABSENT:
                place.namespace.pop(place.name, None)
            else:
                place.namespace[place.name] = old


@contextmanager
def fast_scans(recurrents: Sequence[Recurrent]) -> Iterator[None]:
    """Selective, chunk, linear and wkv scans in chunks of time, in the dtype of the weights.

    Compiled kernels on their own device are left alone, and so is every layer whose code calls
    no scan that is known here. Afterwards everything is as before, whatever happens.
    """
    compiled = any(p.is_cuda for recurrent in recurrents for p in recurrent.module.parameters())
    changes = [
        (place, fast_version(place.function, place.kernel))
        for place in kernel_places(recurrents)
        if place.kernel.fast is not None
        and not hasattr(place.function, FAST)
        and not (compiled and is_compiled(place))
    ]
    with _replaced(changes):
        yield


def fast_version(slow: Function, kernel: Kernel) -> Function:
    """Our scan under the library's calling convention; a function that is recorded stays so."""
    if hasattr(slow, RECORDED):
        inner, record = getattr(slow, RECORDED)
        return _recorded(fast_version(inner, kernel), kernel, record)
    signature, scan = signature_of(slow), kernel.fast
    assert scan is not None

    @functools.wraps(slow)
    def quick(*args: Any, **kwargs: Any) -> Any:
        if any(kwargs.get(name) is not None for name in PACKED):
            return slow(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        # Our scans ask for no dtype: a mode that reads such requests would only slow them down.
        with torch._C.DisableTorchFunction():
            return scan(bound.arguments)

    setattr(quick, FAST, True)
    return quick


def is_compiled(place: Place) -> bool:
    """Whether the library found a compiled kernel for this function."""
    if place.namespace.get("rwkv_cuda_kernel") is not None:
        return True
    function = place.function
    if not inspect.isfunction(function) or function.__closure__ is None:
        return False
    return bool(inspect.getclosurevars(function).nonlocals.get("is_new_implementation"))


class Recorder:
    """Collects the steps of the layer that is running; what runs outside of one is not kept."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Steps]] = {}
        self._layer: str | None = None
        self._heads: list[Steps] = []

    def enter(self, layer: str) -> None:
        """A layer begins to run."""
        self._layer, self._heads = layer, []

    def record(self, steps: Steps) -> None:
        """The steps of the layer, or of one of its heads."""
        if self._layer is not None:
            self._heads.append(steps)

    def leave(self) -> None:
        """The layer has run, or failed."""
        if self._layer is not None and self._heads:
            self.calls.setdefault(self._layer, []).append(join_heads(self._heads))
        self._layer, self._heads = None, []


def _recorded(function: Function, kernel: Kernel, record: Callable[[Steps], None]) -> Function:
    """The function, which records the steps of every call before it does its work."""
    signature, steps = signature_of(function), kernel.steps
    assert steps is not None

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        with torch.no_grad():
            record(steps(bound.arguments))
        return function(*args, **kwargs)

    setattr(recorded, RECORDED, (function, record))
    return recorded


@contextmanager
def recording(recurrents: Sequence[Recurrent]) -> Iterator[Recorder]:
    """While open, the steps of every one of these layers are recorded."""
    recorder = Recorder()
    places = [place for place in kernel_places(recurrents) if place.kernel.steps is not None]
    changes = [
        (place, _recorded(place.function, place.kernel, recorder.record)) for place in places
    ]
    with ExitStack() as stack:
        for recurrent in recurrents:
            module, layer = recurrent.module, recurrent.layer
            handles = [
                module.register_forward_pre_hook(lambda *_, layer=layer: recorder.enter(layer)),
                module.register_forward_hook(lambda *_: recorder.leave(), always_call=True),
                *recurrent.kind.hooks(module, recorder.record),
            ]
            for handle in handles:
                stack.callback(handle.remove)
        stack.enter_context(_replaced(changes))
        yield recorder


def steps_of(
    recurrents: Sequence[Recurrent], run: Callable[[Tensor], Any], inputs: Tensor
) -> dict[str, Steps]:
    """Layer → its steps over the inputs, recorded while `run(inputs)` runs the model."""
    with recording(recurrents) as recorder:
        run(inputs)
    return {layer: join_calls(calls) for layer, calls in recorder.calls.items()}


def decays_of(
    recurrents: Sequence[Recurrent], run: Callable[[Tensor], Any], inputs: Tensor
) -> dict[str, Tensor]:
    """Layer → its decays (B,T,…) over the inputs, in the dtype of the model.

    Mamba-1 has (B,T,d,N) of them; `steps_of` gives its (B,T,d) step sizes.
    """
    steps = steps_of(recurrents, run, inputs)
    return {layer: step.decays() for layer, step in steps.items()}
