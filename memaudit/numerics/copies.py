"""Copies of a module that differ in some of their weights, evaluated together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

#: How copies are evaluated: all in one batch, or each by itself.
TOGETHER, APART = "vmap", "one after the other"
#: Copies in one batch: beyond it small states leave the cache, and torch splits every operation
#: among threads that wait for each other longer than they work.
_MOST = 128
#: Sums in another order may differ by so many roundings.
_ROUNDINGS = 1e4
#: What a model that cannot be batched raises: writes in place, branches on numbers, or foreign
#: kernels.
_UNBATCHED = (RuntimeError, TypeError, ValueError, AttributeError, IndexError)


class Copies:
    """A function of a module and an input, for many sets of weights at once.

    Laws: `run` gives for copy k what `call` gives when the module has entry k of the moved
    weights, and gradients flow to them where they ask for some; nothing is written to the module.
    Which way is taken is tried once, on two copies: where both ways differ by more than rounding,
    or batching fails, the copies are run one after the other; without `together` always. `around`
    is opened once for all copies of a run, with gradients off unless they are wanted.
    """

    def __init__(
        self,
        module: nn.Module,
        call: Callable[[nn.Module, Tensor], Tensor],
        *,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        together: bool = True,
    ) -> None:
        self.module = module
        self._around = around
        self._called = _Called(module, call)
        self._execution = "" if together else APART

    @property
    def execution(self) -> str:
        """TOGETHER or APART; empty before the first run decides."""
        return self._execution

    def run(self, inputs: Tensor, moved: Mapping[str, Tensor], count: int) -> Tensor:
        """The answers (K,…) of `count` copies, with (K,…) values for some of the weights."""
        with self._settled(moved):
            if moved:
                return self._run(inputs, moved, count)
            answer = self._one(inputs, {})
            return answer.expand(count, *answer.shape)

    def _run(self, inputs: Tensor, moved: Mapping[str, Tensor], count: int) -> Tensor:
        if count > 1 and not self._execution:
            self._execution = self._chosen(inputs, moved)
        if count > 1 and self._execution == TOGETHER:
            try:
                return self._together(inputs, moved)
            except _UNBATCHED:
                # Another length or other numbers took a way through the model that the trial did
                # not; an error of the model itself comes again below.
                self._execution = APART
        return self._apart(inputs, moved, count)

    def _together(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        def one(values: dict[str, Tensor]) -> Tensor:
            return self._called.answer(inputs, values)

        with unchanged(self.module), warnings.catch_warnings():
            # An operation that torch batches by a loop costs no more than the other way.
            warnings.filterwarnings("ignore", message=".*performance drop.*")
            return torch.func.vmap(one, chunk_size=_MOST)(dict(moved))

    def _apart(self, inputs: Tensor, moved: Mapping[str, Tensor], count: int) -> Tensor:
        rows = ({name: value[k] for name, value in moved.items()} for k in range(count))
        return torch.stack([self._one(inputs, row) for row in rows])

    def _one(self, inputs: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        with unchanged(self.module):
            return self._called.answer(inputs, values)

    def _chosen(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> str:
        """The way on which both agree, tried on the weights as they are and a little larger."""
        own = dict(self.module.named_parameters(remove_duplicate=False))
        base = {name: own[name].detach().to(value.dtype) for name, value in moved.items()}
        pair = {name: torch.stack([t, t * (1 + 2**-6)]) for name, t in base.items()}
        few = inputs[:2]
        with torch.no_grad():
            apart = self._apart(few, pair, 2)
            try:
                together = self._together(few, pair)
            except _UNBATCHED:
                return APART
        return TOGETHER if _agree(together, apart) else APART

    @contextmanager
    def _settled(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        wanted = torch.is_grad_enabled() and any(t.requires_grad for t in values.values())
        quiet = nullcontext() if wanted else torch.no_grad()
        devices = {t.device for t in self.module.parameters() if t.device.type == "cuda"}
        with torch.random.fork_rng([*devices]), quiet, self._around():
            yield


class _Called(nn.Module):
    """A function of a module as the `forward` of another, since weights are swapped around it."""

    def __init__(self, inner: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self._call = call

    def forward(self, inputs: Tensor) -> Tensor:
        for part in self.inner.modules():
            if isinstance(part, nn.RNNBase):
                # The fused kernels take their weights from a list that swapping does not reach.
                part._flat_weights = [getattr(part, n) for n in part._flat_weights_names]
        return self._call(self.inner, inputs)

    def answer(self, inputs: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        """The answer with these weights; of the others no gradients, of buffers a fresh copy."""
        swapped = {f"inner.{name}": value for name, value in values.items()}
        if torch.is_grad_enabled():
            for name, weight in self.named_parameters():
                if name not in swapped and weight.requires_grad:
                    swapped[name] = weight.detach()
        for name, buffer in self.named_buffers():
            swapped[name] = buffer.clone()
        return torch.func.functional_call(self, swapped, (inputs,))


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards every attribute of every part is what it was."""
    before: list[tuple[nn.Module, dict[str, Any]]] = [(m, dict(vars(m))) for m in module.modules()]
    for part, _ in before:
        part.training = False
    try:
        yield
    finally:
        for part, kept in before:
            now = vars(part)
            for name in [name for name in now if name not in kept]:
                del now[name]
            now.update(kept)


def _agree(one: Tensor, other: Tensor) -> bool:
    """Whether two answers are the same to rounding; what is not finite must be so in both."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    finite = other.isfinite()
    if not bool(torch.equal(one.isfinite(), finite)):
        return False
    scale = float(torch.where(finite, other, 0).abs().amax()) if other.numel() else 0.0
    off = torch.where(finite, one - other, 0).abs()
    return not off.numel() or float(off.amax()) <= _ROUNDINGS * torch.finfo(one.dtype).eps * scale
