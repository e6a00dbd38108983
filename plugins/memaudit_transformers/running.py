"""One call of a model of the library: quiet, without gradients, leaving nothing behind."""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit.numerics.wide_floats import really_float64
from memaudit_transformers.calm import audited, undisturbed
from memaudit_transformers.library import hushed
from memaudit_transformers.recurrent import fast_scans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from torch import nn

    from memaudit_transformers.readout import Readout

#: Where the library's answers have what a head says, and what the model proper says.
_LOGITS = ("logits", "prediction_logits")
_HIDDEN = ("last_hidden_state",)


@dataclass(frozen=True, slots=True)
class Machine:
    """A model ready to be run: the whole of it, its core, what is read, and its dtype.

    Without recurrent layers there is no scan to be replaced.
    """

    model: nn.Module
    core: nn.Module
    readout: Readout
    dtype: torch.dtype
    recurrent: bool = True

    def run(self, inputs: Tensor, *around: AbstractContextManager[Any]) -> Tensor | None:
        """The answer to (B,T,D) embeddings or (B,T) ids; None when nothing can be read.

        `around` is opened last, with the model in the state in which it runs.
        """
        with torch.no_grad(), self.ready(*around):
            return self.speak(inputs)

    @contextmanager
    def ready(self, *around: AbstractContextManager[Any]) -> Iterator[None]:
        """The state in which the model runs; with gradients on, the library's scans are kept."""
        quick = self.recurrent and not torch.is_grad_enabled()
        with ExitStack() as stack:
            for context in (
                hushed(),
                undisturbed(self.model),
                audited(self.model, self.dtype, pooled=self.readout.logits),
                fast_scans(self.core) if quick else nullcontext(),
                really_float64(self.dtype),
                *around,
            ):
                stack.enter_context(context)
            yield

    def speak(self, inputs: Tensor) -> Tensor | None:
        """The answer of a model that is `ready`."""
        output = self.readout.speaker(**self._call(inputs))
        return _read(output, _LOGITS if self.readout.logits else _HIDDEN)

    def _call(self, inputs: Tensor) -> dict[str, Any]:
        """The arguments, as far as the forward knows them."""
        name = "inputs_embeds" if inputs.is_floating_point() else "input_ids"
        known = inspect.signature(self.readout.speaker.forward).parameters
        every = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
        # Some models scale their input in place: the caller's stays as it is.
        wanted: dict[str, Any] = {name: inputs.clone()}
        if "use_cache" in known:
            wanted["use_cache"] = False
        if "return_dict" in known or every:
            wanted["return_dict"] = True
        return wanted


def _read(output: Any, names: tuple[str, ...]) -> Tensor | None:
    found = next((getattr(output, n) for n in names if hasattr(output, n)), None)
    if found is None and isinstance(output, tuple) and output:
        found = output[0]
    return found if isinstance(found, Tensor) else None
