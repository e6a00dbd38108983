"""A model of the library as it is run: quiet, in evaluation mode, leaving nothing behind."""

from __future__ import annotations

import copy
import inspect
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.numerics.wide_floats import really_float64
from memaudit_transformers.kinds import find_recurrences
from memaudit_transformers.library import LIBRARY_ERRORS, quiet, text_config
from memaudit_transformers.scans import fast_scans
from memaudit_transformers.structure import (
    advertised_length,
    find_core,
    find_embedding,
    layers_found,
    possible_limits,
    takes_embeddings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

#: Rows and steps of the trial: different numbers, so that no axis is taken for another.
ROWS, STEPS = 2, 5
#: Where a module keeps its tensors and children; their own contents are looked at instead.
_STRUCTURE = ("_parameters", "_modules", "_buffers")


class RunnableModel:
    """A model ready to be run, and what one look and one trial run show about it.

    `core` turns embeddings into hidden states; `readout` is the module that is run: the core, or
    the whole model where its logits are read. `layers` are the paths of the layers by their calls.
    """

    def __init__(self, model: Any, dtype: torch.dtype, *, output: str) -> None:
        core = find_core(model)
        self.model: Any = model
        self.core: Any = core.module
        self.note, self.part = core.note, core.part
        self.dtype = dtype
        self.device: torch.device = next(core.module.parameters()).device
        self.readout, self.logits, self.assumed = self._read_out(output)
        self.recurrents = find_recurrences(self.core)
        self.embedding = find_embedding(model, self.core)
        self.width = self._embedding_width()
        self.advertised = advertised_length(model.config)
        self.limits = possible_limits(self.core, self.advertised)
        self.layers, self.pooled = self._trial()

    def run(self, inputs: Tensor, *around: AbstractContextManager[Any]) -> Tensor | None:
        """The answer to (B,T,D) embeddings or (B,T) ids; None when nothing can be read.

        `around` is opened last, with the model in the state in which it runs.
        """
        with torch.no_grad(), self.ready(*around):
            return self.forward(inputs)

    @contextmanager
    def ready(self, *around: AbstractContextManager[Any]) -> Iterator[None]:
        """The state in which the model runs; with gradients on, the library's scans are kept."""
        fast = bool(self.recurrents) and not torch.is_grad_enabled()
        with ExitStack() as stack:
            for context in (
                quiet(),
                _unchanged(self.model),
                _audit_settings(self.model, self.dtype, pooled=self.logits),
                fast_scans(self.recurrents) if fast else nullcontext(),
                really_float64(self.dtype),
                *around,
            ):
                stack.enter_context(context)
            yield

    def forward(self, inputs: Tensor) -> Tensor | None:
        """The answer of a model that is `ready`."""
        known = inspect.signature(self.readout.forward).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
        name = "inputs_embeds" if inputs.is_floating_point() else "input_ids"
        # Some models scale their input in place: the caller's stays as it is.
        arguments: dict[str, Any] = {name: inputs.clone()}
        if "use_cache" in known:
            arguments["use_cache"] = False
        if "return_dict" in known or takes_any:
            arguments["return_dict"] = True
        output = self.readout(**arguments)
        names = ("logits", "prediction_logits") if self.logits else ("last_hidden_state",)
        found = next((getattr(output, n) for n in names if hasattr(output, n)), None)
        if found is None and isinstance(output, tuple) and output:
            found = output[0]
        return found if isinstance(found, Tensor) else None

    def runs(self, steps: int) -> bool:
        """Whether the model can be run on a sequence of that many steps."""
        zeros = torch.zeros(1, steps, self.width, dtype=self.dtype, device=self.device)
        try:
            return self.run(zeros) is not None
        except (IndexError, RuntimeError, ValueError):
            return False

    def _read_out(self, output: str) -> tuple[nn.Module, bool, dict[str, str]]:
        """What is run, whether its logits are read, and what that rests on."""
        title = type(self.model).__name__
        headed = self.model is not self.core and not self.note and takes_embeddings(self.model)
        if output == "logits" and not headed:
            fact = self.note or f"{title} has no head that answers embeddings"
            hint = "leave output alone, or give output=hidden"
            raise ArgumentError(f"output=logits is not possible: {fact}", hint=hint)
        if output == "logits":
            return self.model, True, {}
        if output == "hidden" or not headed:
            return self.core, False, {}
        if "ForSequenceClassification" in title:
            reason = f"the scores of {title}; --set output=hidden to change"
            return self.model, True, {"output": f"logits ({reason})"}
        return self.core, False, {"output": f"hidden (of {title}; --set output=logits to change)"}

    def _embedding_width(self) -> int:
        """How wide an embedding is: by its table, else by the config."""
        if self.embedding is not None:
            return int(self.embedding.get_parameter("weight").shape[1])
        config = text_config(self.model.config)
        for name in ("embedding_size", "hidden_size", "d_model", "n_embd"):
            width = getattr(config, name, None)
            if isinstance(width, int) and width > 0:
                return width
        raise self._unsupported("it has no embedding table, and its config states no width")

    def _trial(self) -> tuple[tuple[str, ...], bool]:
        """The layers that a short run shows, and whether the answer is one per sequence."""
        inputs = torch.linspace(-1, 1, ROWS * STEPS * self.width, dtype=torch.float64)
        inputs = inputs.reshape(ROWS, STEPS, self.width).to(self.device, self.dtype)
        try:
            with layers_found(self.core, (ROWS, STEPS)) as layers:
                answer = self.run(inputs)
        except LIBRARY_ERRORS as error:
            raise self._unsupported(f"a trial failed: {error}") from None
        if answer is None and self.logits:
            fact = f"{type(self.model).__name__} answers no logits"
            raise ArgumentError(f"output=logits is not possible: {fact}", hint="output=hidden")
        if answer is None:
            raise self._unsupported("its answer holds no hidden state")
        shape = tuple(answer.shape)
        pooled = self.logits and len(shape) == 2 and shape[0] == ROWS
        if not pooled and (len(shape) != 3 or shape[:2] != (ROWS, STEPS)):
            fact = f"it answers {ROWS} sequences of {STEPS} steps by the shape {shape}"
            raise self._unsupported(fact)
        return layers(), pooled

    def _unsupported(self, fact: str) -> SourceError:
        return SourceError(
            "E_UNSUPPORTED",
            f"{type(self.model).__name__} cannot be audited: {clean(fact, limit=500)}",
            hint="wrap what turns a sequence into answers: memaudit.wrap(function, input_size=...)",
            stage="build",
        )


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """While open, the model may keep state on its modules; afterwards it is as it was.

    RecurrentGemma leaves its state behind, rotary embeddings grow with the longest sequence seen,
    and `eval` changes flags: none of it may reach the next call, or the caller.
    """
    before = [(m, dict(vars(m)), dict(m._buffers)) for m in model.modules()]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            _restore(vars(module), attributes, skip=_STRUCTURE)
            _restore(module._buffers, buffers)


@contextmanager
def _audit_settings(model: nn.Module, dtype: torch.dtype, *, pooled: bool) -> Iterator[None]:
    """While open, the model is in evaluation mode and its configs are as an audit needs them."""
    parts = [vars(module).get("config") for module in model.modules()]
    configs = {id(config): vars(config) for config in parts if hasattr(config, "model_type")}
    before = [(values, dict(values)) for values in configs.values()]
    rescaling = not getattr(_rescaled_part(model), "layers_are_rescaled", True)
    try:
        for values in configs.values():
            if dtype == torch.float64 and "_experts_implementation_internal" in values:
                values["_experts_implementation_internal"] = "eager"  # the fused has no float64
            if values.get("rescale_every") and rescaling:
                values["rescale_every"] = 0  # RWKV would divide its weights, for half precision
            if pooled and values.get("pad_token_id", 0) is None:
                values["pad_token_id"] = -1  # nothing is padded: the last position is read
        model.eval()
        yield
    finally:
        for values, old in before:
            _restore(values, old)


def _restore(now: dict[str, Any], before: dict[str, Any], *, skip: tuple[str, ...] = ()) -> None:
    if list(now) != list(before):
        for name in [name for name in now if name not in before]:
            del now[name]
    for name, value in before.items():
        if name not in skip and now.get(name, before) is not value:
            now[name] = value


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model, without states that a call with gradients may have left on it."""
    kept = [
        (vars(module), name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and value.grad_fn is not None
    ]
    try:
        for attributes, name, _ in kept:
            attributes[name] = None
        return copy.deepcopy(model)
    finally:
        for attributes, name, value in kept:
            attributes[name] = value


def is_rescaled(model: nn.Module) -> bool:
    """Whether RWKV has divided its weights for half precision, as it does when it is run."""
    return bool(getattr(_rescaled_part(model), "layers_are_rescaled", False))


def undo_rescaling(model: nn.Module) -> None:
    """Give RWKV the weights back that it was trained with."""
    part: Any = _rescaled_part(model)
    training = part.training
    part.training = True  # the library multiplies in training and divides otherwise
    part._rescale_layers()
    part.training = training


def _rescaled_part(model: nn.Module) -> nn.Module:
    """The module that knows whether RWKV's layers are rescaled."""
    return next((m for m in model.modules() if hasattr(m, "layers_are_rescaled")), model)
