"""Hearing the decays of every recurrent layer while a model runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from memaudit_transformers.recurrent.kernels import signature_of
from memaudit_transformers.recurrent.patching import replaced
from memaudit_transformers.recurrent.places import kernel_places
from memaudit_transformers.recurrent.recorder import Recorder
from memaudit_transformers.recurrent.steps import Steps, one_after_the_other

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memaudit_transformers.recurrent.finding import Recurrent
    from memaudit_transformers.recurrent.kernels import Kernel

#: The attribute of a tapped function under which its taps are found, the innermost first.
TAPS = "memaudit_taps"


def tapped(
    function: Callable[..., Any], kernel: Kernel, hear: Callable[[Steps], None]
) -> Callable[..., Any]:
    """The function, which tells the steps of every call before it does its work."""
    signature, steps = signature_of(function), kernel.steps
    if steps is None:
        return function

    @functools.wraps(function)
    def tap(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        with torch.no_grad():
            hear(steps(bound.arguments))
        return function(*args, **kwargs)

    setattr(tap, TAPS, (*getattr(function, TAPS, ()), (kernel, hear)))
    return tap


@contextmanager
def taps(recurrents: Sequence[Recurrent]) -> Iterator[Recorder]:
    """A recorder that hears every one of these layers while this is open."""
    recorder = Recorder()
    places = [place for place in kernel_places(recurrents) if place.kernel.steps is not None]
    changes = [(place, tapped(place.function, place.kernel, recorder.hear)) for place in places]
    with ExitStack() as stack:
        for recurrent in recurrents:
            _attend(stack, recurrent, recorder)
        stack.enter_context(replaced(changes))
        yield recorder


def steps_of(
    model: nn.Module,
    recurrents: Sequence[Recurrent],
    run: Callable[[Tensor], Any],
    inputs: Tensor,
) -> dict[str, Steps]:
    """Layer → its steps over the inputs, captured while `run(inputs)` runs the model."""
    del model  # the layers know where they stand
    with taps(recurrents) as recorder:
        run(inputs)
    return {layer: one_after_the_other(calls) for layer, calls in recorder.calls.items()}


def decays_of(
    model: nn.Module,
    recurrents: Sequence[Recurrent],
    run: Callable[[Tensor], Any],
    inputs: Tensor,
) -> dict[str, Tensor]:
    """Layer → its decays (B,T,…) over the inputs, in the dtype of the model.

    Mamba-1 has (B,T,d,N) of them; `steps_of` gives its (B,T,d) step sizes.
    """
    steps = steps_of(model, recurrents, run, inputs)
    return {layer: step.decays() for layer, step in steps.items()}


def _attend(stack: ExitStack, recurrent: Recurrent, recorder: Recorder) -> None:
    """Hooks that say which layer is running, then those of its kind."""
    layer, module = recurrent.layer, recurrent.module

    def enter(*_: Any) -> None:
        recorder.enter(layer)

    def leave(*_: Any) -> None:
        recorder.leave()

    handles = [
        module.register_forward_pre_hook(enter),
        module.register_forward_hook(leave, always_call=True),
    ]
    for handle in handles:
        stack.callback(handle.remove)
    for handle in recurrent.kind.listen(module, recorder.hear):
        stack.callback(handle.remove)
