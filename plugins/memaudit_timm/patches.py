"""A model of timm run on patch embeddings instead of on images."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.numerics.wide_floats import really_float64

if TYPE_CHECKING:
    from collections.abc import Callable

    from memaudit_timm.stand_in import GivenPatches

    Hear = Callable[[str, Tensor], None]


class PatchModel:
    """The model's own forward_features with the output of its patch embedding given.

    Sequences shorter than the grid run on its first positions in raster order: with `cut` the
    other patches are taken out before the first block, else they are silent (zeros).
    """

    def __init__(
        self,
        model: nn.Module,
        stand_in: GivenPatches,
        image: tuple[int, int, int],
        grid: tuple[int, int],
        width: int,
        prefix: int,
    ) -> None:
        self.model = model
        self.grid = grid
        self.count = grid[0] * grid[1]
        self.width = width
        self.cut = False
        #: Tokens that stand before the patches when they enter the first block.
        self._prefix = prefix
        self._stand_in = stand_in
        self._image = image

    @property
    def blocks(self) -> dict[str, nn.Module]:
        """The blocks by the names that they have in the model."""
        found: Any = self.model.blocks
        return {f"blocks.{number}": block for number, block in enumerate(found)}

    def run(self, sequences: Tensor, hear: Hear | None = None) -> Tensor:
        """Answer (B,T,D) by the states (B,T,M) of the patches, T at most `count`."""
        steps = sequences.shape[1]
        missing = self.count - steps
        # Nothing but the number of images is looked at: they take no memory.
        images = sequences.new_zeros(()).expand(len(sequences), *self._image)
        with ExitStack() as stack:
            for name, block in self.blocks.items():
                if missing and self.cut:
                    shorten = _Shortening(self.count, self._prefix, missing)
                    hook = block.register_forward_pre_hook(shorten, with_kwargs=True)
                    stack.callback(hook.remove)
                if hear is not None:
                    told = _Telling(self, name, steps, hear)
                    stack.callback(block.register_forward_hook(told).remove)
            self._stand_in.hand(functional.pad(sequences, (0, 0, 0, missing)))
            stack.callback(self._stand_in.hand, None)
            stack.enter_context(really_float64(sequences.dtype))
            forward: Any = self.model.forward_features
            return self.states(forward(images), steps)

    def states(self, tokens: Tensor, steps: int) -> Tensor:
        """The patches among the tokens of the model, which stand behind all others."""
        run = steps if self.cut else self.count
        start = tokens.shape[1] - run
        return tokens[:, start : start + steps]

    def used_parameters(self) -> list[str]:
        """The parameters that the answer depends on, by following its graph."""
        self.model.requires_grad_(True)
        try:
            with torch.enable_grad():
                weight = next(self.model.parameters())
                answer = self.run(weight.new_zeros(1, self.count, self.width))
            reached = _leaves(answer)
            return [name for name, p in self.model.named_parameters() if id(p) in reached]
        finally:
            self.model.requires_grad_(False)


class _Shortening:
    """A hook before every block: the last patches are taken out, of rotary positions as well."""

    def __init__(self, count: int, prefix: int, missing: int) -> None:
        self._count = count
        self._whole = prefix + count
        self._missing = missing

    def __call__(self, block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        tokens, *others = args
        if tokens.shape[1] == self._whole:  # later blocks are given what the first one left
            tokens = tokens[:, : -self._missing]
        rope = kwargs.get("rope")
        if isinstance(rope, Tensor) and rope.shape[-2] == self._count:
            kwargs = {**kwargs, "rope": rope[..., : -self._missing, :]}
        return (tokens, *others), kwargs


class _Telling:
    """A hook behind a block: the states of its patches are told at once."""

    def __init__(self, patches: PatchModel, name: str, steps: int, hear: Hear) -> None:
        self._patches = patches
        self._name = name
        self._steps = steps
        self._hear = hear

    def __call__(self, block: nn.Module, inputs: Any, output: Any) -> None:
        self._hear(self._name, self._patches.states(output, self._steps))


def _leaves(answer: Tensor) -> set[int]:
    """The identities of the parameters in the graph behind an answer."""
    found, seen, fresh = set[int](), set[Any](), [answer.grad_fn]
    while fresh:
        node = fresh.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))  # pyright: ignore[reportAttributeAccessIssue]
        fresh += [inner for inner, _ in node.next_functions]
    return found
