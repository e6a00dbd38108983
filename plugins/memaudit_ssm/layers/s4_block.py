"""What S4 puts around its recurrence: activations, gates and the layer that mixes features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit_ssm.layers.s4 import S4Layer

_PLAIN: Mapping[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("none", "id", "identity", "linear"), lambda x: x),
    "tanh": torch.tanh,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "elu": functional.elu,
    "swish": functional.silu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "sqrelu": lambda x: functional.relu(x).square(),
    "relu2": lambda x: functional.relu(x).square(),
    # The Gaussian distribution function with which Mega imitates the squared relu.
    "laplace": lambda x: 0.5 * (1.0 + torch.erf((x - 0.707107) / (0.282095 * 2.0**0.5))),
}
#: The activations of S4 by name, along the last axis; glu multiplies halves.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    **_PLAIN,
    "glu": functional.glu,
    **{f"glu-{name}": (lambda x, gate=gate: _gated(x, gate)) for name, gate in _PLAIN.items()},
}


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The activations of a block by name.

    `hyper_act` None has no product of channels, whatever an activation called none does.
    """

    activation: str = "gelu"
    mult_act: str = "none"
    final_act: str = "glu"
    hyper_act: str | None = None
    swap_channels: bool = False

    def before(self, y: Tensor) -> Tensor:
        """Channels (B,T,C,H) as the features that the mixing layer takes."""
        if self.hyper_act is not None:
            y, gate = y.chunk(2, dim=2)
            y = ACTIVATIONS[self.hyper_act](gate) * y
        flat = (y.mT if self.swap_channels else y).flatten(2)
        return ACTIVATIONS[self.mult_act](ACTIVATIONS[self.activation](flat))

    def after(self, y: Tensor) -> Tensor:
        """What follows the mixing layer."""
        return ACTIVATIONS[self.final_act](y)


class Mix(nn.Module):
    """A linear layer over features, whose stored tensors may have further axes of length 1.

    Convolutions of one step have a weight with three axes, the transposed layers of the versions
    1 and 2 a bias with two.
    """

    def __init__(self, weight: tuple[int, ...], bias: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(weight))
        self.bias = nn.Parameter(torch.zeros(bias or weight[:1]))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.flatten(1), self.bias.flatten())


class S4Block(nn.Module):
    """S4Block of version 4: the recurrence is its part called `layer`."""

    def __init__(
        self,
        layer: S4Layer,
        pointwise: Pointwise,
        *,
        output_linear: nn.Module | None,
        input_linear: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.input_linear = input_linear
        self.layer = layer
        self.output_linear = output_linear
        self.pointwise = pointwise

    def forward(self, u: Tensor) -> Tensor:
        u = u if self.input_linear is None else self.input_linear(u)
        y = self.pointwise.before(self.layer.channels(u))
        return y if self.output_linear is None else self.pointwise.after(self.output_linear(y))


class S4OldBlock(S4Layer):
    """S4 of versions 1 to 3: recurrence and mixing layer in one module."""

    def __init__(
        self,
        kernel: nn.Module,
        direct: Tensor,
        pointwise: Pointwise,
        *,
        bidirectional: bool = False,
        output_linear: nn.Module,
    ) -> None:
        super().__init__(kernel, direct, bidirectional=bidirectional)
        self.pointwise = pointwise
        self.output_linear = output_linear

    def forward(self, u: Tensor) -> Tensor:
        y = self.pointwise.before(self.channels(u))
        return self.pointwise.after(self.output_linear(y))


def _gated(x: Tensor, gate: Callable[[Tensor], Tensor]) -> Tensor:
    value, raw = x.chunk(2, dim=-1)
    return value * gate(raw)
