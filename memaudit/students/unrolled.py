"""The states of a recurrence over time, with the gradient through time written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memaudit.students.activations import IN_PLACE, slope


class Unrolled(torch.autograd.Function):
    """h_{t+1} = h_t + step · act(W h_t + fed_t) from h_0 = 0: the states (T,B,m) after each input.

    Law: values and gradients are those of the plain loop, up to rounding. A recorded loop costs
    ten small operations for every step; here it is three each way, and one product for W.
    """

    @staticmethod
    def forward(ctx: Any, fed: Tensor, weight: Tensor, step: float, activation: str) -> Tensor:
        """`fed` is (T,B,m), what the inputs and the bias add."""
        turned, act = weight.mT.contiguous(), IN_PLACE[activation]
        acts = fed.detach().clone(memory_format=torch.contiguous_format)
        states = fed.new_empty(len(fed) + 1, *fed.shape[1:])
        states[0] = 0.0
        steps = states.unbind(0)
        for now, a, after in zip(steps, acts.unbind(0), steps[1:], strict=False):
            act(a.addmm_(now, turned))
            torch.add(now, a, alpha=step, out=after)
        ctx.save_for_backward(acts, states, weight)
        ctx.step, ctx.activation = step, activation
        return states[1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        """The adjoint state runs backwards: p_t = p_{t+1} + grad_t + Wᵀ (slope_t p_{t+1})."""
        acts, states, weight = ctx.saved_tensors
        steep = slope(acts, ctx.activation).mul_(ctx.step)
        carried = torch.zeros_like(states[0])
        columns = zip(grads[0].unbind(0), steep.unbind(0), strict=True)
        for grad, s in reversed(list(columns)):
            carried += grad
            s.mul_(carried)
            carried.addmm_(s, weight)
        inner = steep.flatten(0, 1).mT @ states[:-1].flatten(0, 1)
        return steep, inner, None, None
