"""A wrapped module that can be stepped by hand, as a recurrence."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch import nn

from memaudit.dynamics import AbstractDynamics, StateBlock
from memaudit.errors import ArgumentError, clean


class SteppedModule(AbstractDynamics):
    """The methods `initial_state()` and `step(state, u)` of a module as one block of state."""

    def __init__(
        self,
        module: Any,
        *,
        width: int,
        device: torch.device,
        dtype: torch.dtype,
        calm: Callable[[Any], AbstractContextManager[None]],
    ) -> None:
        self.width = width
        self._module, self._calm = module, calm
        with calm(module), torch.no_grad():
            self._first = module.initial_state().detach().to(device, dtype)
        kind, form = type(module).__name__, getattr(module, "parameterization", "direct")
        form = form if isinstance(form, str) else "direct"
        block = StateBlock(0, len(self._first), clean(kind), clean(form))
        self.blocks: Mapping[str, StateBlock] = {clean(kind): block}

    def initial(self) -> torch.Tensor:
        """What `initial_state` gave."""
        return self._first.clone()

    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """What the module's own `step` gives, in evaluation mode."""
        with self._calm(self._module):
            after = self._module.step(state, u)
        if not isinstance(after, torch.Tensor) or after.shape != state.shape:
            got = tuple(after.shape) if isinstance(after, torch.Tensor) else type(after).__name__
            raise ArgumentError(
                f"step() of {type(self._module).__name__} answers states "
                f"{tuple(state.shape)} by {got}",
                hint="it takes states (B, n) and inputs (B, D), and gives the next states (B, n)",
            )
        return after


def stepped_dynamics(
    module: Any,
    *,
    width: int,
    device: torch.device,
    dtype: torch.dtype,
    calm: Callable[[Any], AbstractContextManager[None]],
    widen: Callable[[Any, torch.dtype], Any],
) -> dict[str, AbstractDynamics]:
    """The recurrence of a module that has both methods, by its class name; else nothing.

    Other libraries have methods of these names that take or give something else, such as tuples of
    states: such a module is none of ours. `widen` makes a copy in float64, because distances to the
    boundary are lost in fewer digits; `calm` is held while the module runs.
    """
    if not _asked_for(module):
        return {}
    with calm(module), torch.no_grad():
        first = module.initial_state()
    if not isinstance(first, torch.Tensor) or first.ndim != 1 or not first.is_floating_point():
        return {}
    if isinstance(module, nn.Module) and dtype != torch.float64 and not _complex(module):
        with suppress(RuntimeError):  # tensors in the middle of a graph cannot be copied
            module, dtype = widen(module, torch.float64), torch.float64
    made = SteppedModule(module, width=width, device=device, dtype=dtype, calm=calm)
    return {type(module).__name__: made}


def _asked_for(module: Any) -> bool:
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


def _complex(module: nn.Module) -> bool:
    """Whether a weight is complex: a cast to float64 would drop its imaginary part."""
    return any(tensor.is_complex() for tensor in module.state_dict().values())
