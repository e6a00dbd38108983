"""Any callable or module as a subject: given its input width, or with the width found by trial."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import type_before_parametrizations

from memaudit.devices import resolve_device, resolve_dtype
from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.interfaces import AbstractDynamics, AbstractPerturbable, AbstractSubject, StateBlock
from memaudit.loading.filling import digest_tensors
from memaudit.modes import UNKNOWN, spectrum
from memaudit.modes import LayerSpectrum as Spectrum
from memaudit.numerics.signals import seeded
from memaudit.report import Identity
from memaudit.subjects.copies import Copies, mode_sources, roles_of

#: What a module raises when it cannot take the input of a trial.
TRIAL_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    NotImplementedError,
)
#: Attributes by which modules commonly say how wide their input is.
WIDTH_NAMES = ("input_size", "in_features", "d_input", "input_dim", "in_channels", "d_model")
MOST_TRIALS = 24


class CallableSubject(AbstractSubject):
    """A function or module (B,T,D) → (B,T,M), or (B,M) when pooled."""

    def __init__(
        self,
        function: Callable[[torch.Tensor], Any],
        *,
        input_size: int,
        pooled: bool,
        dtype: torch.dtype,
        device: torch.device,
        identity: Identity,
    ) -> None:
        self.function = function
        self.input_size = input_size
        self.pooled = pooled
        self.dtype = dtype
        self.device = device
        self.identity = identity

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        """Call the function without gradients, a module in evaluation mode."""
        if (
            not inputs.is_floating_point()
            or inputs.ndim != 3
            or inputs.shape[-1] != self.input_size
        ):
            raise ArgumentError(
                f"the input is {tuple(inputs.shape)} of {inputs.dtype}",
                hint=f"feed floats of shape (B, T, {self.input_size})",
            )
        with torch.no_grad(), _evaluation(self.function):
            return self._answer(self.function, inputs)

    def perturbable(self) -> AbstractPerturbable | None:
        """The weights of a module as an argument; those of a function nobody knows."""
        if not isinstance(self.function, nn.Module):
            return None
        roles = roles_of(self.function)
        if not roles:
            return None
        sources = mode_sources(self.function)
        return Copies(self.function, roles, call=self._answer, modes=sources)

    def spectra(self, inputs: torch.Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues that parts of a module give by a method `modes`."""
        del inputs
        if not isinstance(self.function, nn.Module):
            return ()
        sources = mode_sources(self.function)
        modes = Copies(self.function, {}, call=self._answer, modes=sources).modes({})
        return tuple(
            spectrum(
                layer=layer,
                cell=type_before_parametrizations(sources[layer].part).__name__,
                parameterization=_parameterization(sources[layer].part),
                at="every step",
                eigenvalues=eigenvalues[0],
            )
            for layer, eigenvalues in modes.items()
        )

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The module itself."""
        return {"": self.function} if isinstance(self.function, nn.Module) else {}

    def dynamics(self) -> Mapping[str, AbstractDynamics]:
        """The recurrence of a module with the methods `initial_state` and `step`."""
        return _stepped_dynamics(self.function, self.input_size or 1, self.device, self.dtype)

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Parameters and buffers of a module; a function keeps its own to itself."""
        if not isinstance(self.function, nn.Module):
            return {}
        state = self.function.state_dict()
        return {name: t for name, t in state.items() if isinstance(t, torch.Tensor)}

    def _answer(
        self, function: Callable[[torch.Tensor], Any], inputs: torch.Tensor
    ) -> torch.Tensor:
        answer = function(inputs.to(self.device, self.dtype))
        while isinstance(answer, tuple | list) and answer:
            answer = answer[0]
        if not isinstance(answer, torch.Tensor):
            raise _unusable(
                f"the model answered with {type(answer).__name__}, not with a tensor",
                hint="it is fed a torch tensor and must return one; torch.from_numpy makes one",
            )
        _check_shape(answer, inputs, pooled=self.pooled)
        return answer


def wrap(
    function: Callable[[torch.Tensor], Any],
    *,
    input_size: int,
    pooled: bool = False,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
) -> AbstractSubject:
    """A subject from anything that maps (B,T,D) to (B,T,M), or to (B,M) when pooled.

    Works in float64 on the CPU unless the module's weights, `dtype` or `device` say otherwise. A
    module is never changed: another dtype or device is taken by a copy of it.

    A module that is a recurrence may say so by two methods, and is then looked at by the spectrum
    probe too: `initial_state()` gives the state (n,) before the first input, and `step(state, u)`
    the states (B,n) after the inputs u (B,D), row by row and differentiable. An attribute
    `parameterization` names how its recurrent weight is stored, "unknown" without it.

    What a module's structure does not show, it may say itself, as may its parts. An attribute
    `memaudit_roles` maps names of its parameters to what they do, such as {"a": "recurrent"}: one
    of "recurrent", "input", "readout" and "other", perhaps with a form behind it, as in
    "recurrent/diagonal" (or matrix, vector). A method `modes()` returns the eigenvalues of one
    step, computed from its parameters alone: a tensor, or a mapping from layers to tensors.
    """
    _check_arguments(function, input_size)
    tensors = dict(function.state_dict()) if isinstance(function, nn.Module) else {}
    weights = [t for t in tensors.values() if isinstance(t, torch.Tensor)]
    floating = [t for t in weights if t.is_floating_point() or t.is_complex()]
    own = _real_dtype(floating[0].dtype) if floating else torch.float64
    wanted = (None if dtype is None else resolve_dtype(dtype)) or own
    here = floating[0].device if floating else torch.device("cpu")
    where = here if device is None else resolve_device(device)
    if floating and (wanted, where) != (own, here):
        function = _converted(function, wanted, where)
    return CallableSubject(
        function,
        input_size=input_size,
        pooled=pooled,
        dtype=wanted,
        device=where,
        identity=_identity(function, tensors, wanted, where, sum(t.numel() for t in floating)),
    )


def _check_arguments(function: Any, input_size: Any) -> None:
    if not callable(function):
        raise ArgumentError(f"{type(function).__name__} cannot be called")
    if isinstance(input_size, bool) or not isinstance(input_size, int) or input_size < 1:
        raise ArgumentError(f"input_size is {input_size!r}", hint="give the width D of (B, T, D)")
    if isinstance(function, nn.Module) and any(map(is_lazy, function.parameters())):
        raise ArgumentError("the module has parameters without a shape", hint="run it once first")


def _check_shape(answer: torch.Tensor, inputs: torch.Tensor, *, pooled: bool) -> None:
    batch, length = inputs.shape[:2]
    lead, form = ((batch,), "(B, M)") if pooled else ((batch, length), "(B, T, M)")
    if answer.ndim != len(lead) + 1 or tuple(answer.shape[:-1]) != lead or answer.shape[-1] < 1:
        other = "pooled=True" if answer.ndim == 2 and not pooled else "a function of that form"
        raise _unusable(
            f"the model answered {tuple(inputs.shape)} by {tuple(answer.shape)}, not by {form}",
            hint=f"wrap {other}",
        )
    if not answer.is_floating_point():
        hint = "wrap its real view" if answer.is_complex() else "wrap what it decides from"
        raise _unusable(f"the model answered with numbers of {answer.dtype}", hint=hint)


def _parameterization(part: nn.Module) -> str:
    """The form of a retrofitted weight of the part, else what the part says itself."""
    forms = (getattr(inner, "form_name", None) for inner in part.modules())
    found = next((text for text in forms if isinstance(text, str)), None)
    return found or str(getattr(part, "parameterization", UNKNOWN))


def _unusable(fact: str, *, hint: str = "") -> SourceError:
    return SourceError("E_UNSUPPORTED", fact, hint=hint, stage="respond")


@contextmanager
def _evaluation(function: Any) -> Iterator[None]:
    """Evaluation mode for the time of a call; flags and buffers are put back afterwards."""
    if not isinstance(function, nn.Module):
        yield
        return
    training = [m for m in function.modules() if m.training]
    before = [(buffer, buffer.clone()) for buffer in function.buffers()]
    for m in training:
        m.training = False
    try:
        yield
    finally:
        for m in training:
            m.training = True
        for buffer, value in before:  # a model that keeps state starts every answer afresh
            if not torch.equal(buffer, value):
                buffer.copy_(value)


def _converted(function: Any, dtype: torch.dtype, device: torch.device) -> Any:
    return copy.deepcopy(function).to(device, dtype)


def _real_dtype(dtype: torch.dtype) -> torch.dtype:
    return {torch.complex128: torch.float64, torch.complex64: torch.float32}.get(dtype, dtype)


def _identity(
    function: Any,
    tensors: dict[str, Any],
    dtype: torch.dtype,
    device: torch.device,
    parameters: int,
) -> Identity:
    name = getattr(function, "__name__", None) or type(function).__name__
    return Identity(
        source=name,
        adapter="wrap",
        family="module" if isinstance(function, nn.Module) else "callable",
        parameters=parameters,
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        sha256=digest_tensors(tensors) if tensors else "",
        description=name,
    )


# A module that can be stepped by hand, as a recurrence


class SteppedModule(AbstractDynamics):
    """The methods `initial_state()` and `step(state, u)` of a module as one block of state."""

    def __init__(
        self,
        module: Any,
        *,
        width: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.width = width
        self._module = module
        with torch.no_grad(), _evaluation(module):
            self._first = module.initial_state().detach().to(device, dtype)
        kind, form = type(module).__name__, getattr(module, "parameterization", UNKNOWN)
        form = form if isinstance(form, str) else UNKNOWN
        block = StateBlock(0, len(self._first), clean(kind), clean(form))
        self.blocks: Mapping[str, StateBlock] = {clean(kind): block}

    def initial(self) -> torch.Tensor:
        """What `initial_state` gave."""
        return self._first.clone()

    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """What the module's own `step` gives, in evaluation mode."""
        with _evaluation(self._module):
            after = self._module.step(state, u)
        if not isinstance(after, torch.Tensor) or after.shape != state.shape:
            got = tuple(after.shape) if isinstance(after, torch.Tensor) else type(after).__name__
            raise ArgumentError(
                f"step() of {type(self._module).__name__} answers states "
                f"{tuple(state.shape)} by {got}",
                hint="it takes states (B, n) and inputs (B, D), and gives the next states (B, n)",
            )
        return after


def _stepped_dynamics(
    module: Any, width: int, device: torch.device, dtype: torch.dtype
) -> dict[str, AbstractDynamics]:
    """The recurrence of a module that has both methods, by its class name; else nothing.

    Other libraries have methods of these names that take or give something else, such as tuples of
    states: such a module is none of ours. It is stepped in float64, in a copy, because distances to
    the boundary are lost in fewer digits.
    """
    if not _can_be_stepped(module):
        return {}
    with torch.no_grad(), _evaluation(module):
        first = module.initial_state()
    if not isinstance(first, torch.Tensor) or first.ndim != 1 or not first.is_floating_point():
        return {}
    if (
        isinstance(module, nn.Module)
        and dtype != torch.float64
        and not _has_complex_weights(module)
    ):
        # Tensors in the middle of a graph cannot be copied, and MPS has no float64.
        with suppress(RuntimeError, TypeError):
            module, dtype = _converted(module, torch.float64, device), torch.float64
    made = SteppedModule(module, width=width, device=device, dtype=dtype)
    return {type(module).__name__: made}


def _can_be_stepped(module: Any) -> bool:
    """Whether `initial_state()` and `step(state, u)` can be called so."""
    for name, count in (("initial_state", 0), ("step", 2)):
        method = getattr(module, name, None)
        if not callable(method):
            return False
        try:
            inspect.signature(method).bind(*range(count))
        except (TypeError, ValueError):  # other arguments, or built in and without a signature
            return False
    return True


def _has_complex_weights(module: nn.Module) -> bool:
    """Whether a weight is complex: a cast to float64 would drop its imaginary part."""
    return any(tensor.is_complex() for tensor in module.state_dict().values())


# The search for the input width of a module that does not say it


def discover(module: nn.Module, *, dtype: torch.dtype | None) -> AbstractSubject | None:
    """The module as a whole, with its input width found by trial; None when nothing fits.

    Two lengths must be answered in shape, and a row must not depend on its neighbour: a module
    that takes time first would pass by shape alone.
    """
    for width in width_candidates(module):
        for pooled in (False, True):
            subject = wrap(module, input_size=width, pooled=pooled, dtype=dtype)
            if _plausible(subject, width):
                return subject
    return None


def _plausible(subject: AbstractSubject, width: int) -> bool:
    generator = seeded(0)
    try:
        for length in (7, 11):
            inputs = torch.randn(2, length, width, generator=generator, dtype=torch.float64)
            changed = inputs.clone()
            changed[0] += 1.0
            # The later row: where rows are really steps, it depends on the earlier one.
            one, two = subject.respond(inputs)[1], subject.respond(changed)[1]
            if not torch.allclose(one, two, rtol=1e-4, atol=1e-6):
                return False
    except (*TRIAL_ERRORS, SourceError):
        return False
    return True


def width_candidates(module: nn.Module) -> list[int]:
    """Widths worth a trial: named attributes first, then the sizes of the parameters, then 1."""
    named = [getattr(m, name, None) for m in module.modules() for name in WIDTH_NAMES]
    sizes = [size for p in module.parameters() for size in reversed(p.shape)]
    widths = [w for w in (*named, *sizes, 1) if isinstance(w, int) and 0 < w <= 65536]
    return list(dict.fromkeys(widths))[:MOST_TRIALS]
