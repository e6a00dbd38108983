"""Mixers of Mamba-1 and Mamba-2 as modules; of Mamba-1 also the bare scan inside one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.interfaces import DiagonalDecay
from memaudit.numerics.scans import chunk_scan, selective_scan
from memaudit.reparams import Exp

#: The epsilon of the norm in Mamba-2 mixers, which no file stores.
EPSILON = 1e-5
#: The longest chunk in which Mamba-2 is scanned; it changes no answer.
_CHUNK = 256

#: Tensors that a whole mixer may be without.
OPTIONAL = ("x_bias", "in_bias", "conv_bias", "norm_weight", "out_bias")


@dataclass(frozen=True, slots=True)
class SelectiveShape:
    """Sizes of a mixer of Mamba-1: channels d, states N per channel, rank R of dt, directions K.

    `around` are the inputs, the outputs and the length of the convolution; None for a bare scan.
    """

    cell: ClassVar[str] = "mamba1"
    channels: int
    states: int
    rank: int
    directions: int = 1
    around: tuple[int, int, int] | None = None

    @property
    def modes(self) -> int:
        """Eigenvalues of one step."""
        return self.channels * self.states

    @property
    def title(self) -> str:
        """What it is, in the singular."""
        return "selective scan" if self.around is None else "Mamba-1 mixer"

    @property
    def sizes(self) -> str:
        """Its sizes in a few words."""
        width = "" if self.around is None else f"width {self.around[0]}, "
        return f"{width}{self.channels} channels of {self.states} states"

    def single(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor of one direction, by role."""
        d, n, rank = self.channels, self.states, self.rank
        shapes: dict[str, tuple[int, ...]] = {
            "A_log": (d, n),
            "D": (d,),
            "dt_weight": (d, rank),
            "dt_bias": (d,),
            "x_weight": (rank + 2 * n, d),
            "x_bias": (rank + 2 * n,),
        }
        return shapes if self.around is None else shapes | _around(2 * d, d, d, *self.around)

    def stored(self, role: str, *, merged: bool) -> list[tuple[int, ...]]:
        """The shapes that a file may keep a tensor in; A and D may hold directions as rows."""
        one = self.single()[role]
        if not merged:
            return [one]
        stacked = (self.directions, *one)
        rows = (self.directions * one[0], *one[1:])
        return [rows, stacked] if role in ("A_log", "D") else [stacked]


@dataclass(frozen=True, slots=True)
class DualShape:
    """Sizes of a mixer of Mamba-2: H heads share `inner` channels, `mixed` are those of x, B and C.

    `around` are the inputs, the outputs and the length of the convolution. How many groups of
    heads have a B and a C of their own, and whether the norm comes before the gate, no tensor says.
    """

    cell: ClassVar[str] = "mamba2"
    title: ClassVar[str] = "Mamba-2 mixer"
    directions: ClassVar[int] = 1
    heads: int
    inner: int
    mixed: int
    around: tuple[int, int, int]
    groups: int = 1
    norm_before_gate: bool = False

    @property
    def modes(self) -> int:
        """Eigenvalues of one step."""
        return self.heads

    @property
    def keys(self) -> int:
        """Channels of B, and of C, in all groups together."""
        return (self.mixed - self.inner) // 2

    @property
    def sizes(self) -> str:
        """Its sizes in a few words."""
        per_head, states = self.inner // self.heads, self.keys // self.groups
        return f"width {self.around[0]}, {self.heads} heads of {per_head} x {states} states"

    def single(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by role."""
        rows = self.inner + self.mixed + self.heads  # z, then x with B and C, then dt
        heads = dict.fromkeys(("A_log", "dt_bias", "D"), (self.heads,))
        around = _around(rows, self.mixed, self.inner, *self.around)
        return {**heads, **around, "norm_weight": (self.inner,)}

    def stored(self, role: str, *, merged: bool) -> list[tuple[int, ...]]:
        """The shapes that a file may keep a tensor in; D may have a number for every channel."""
        del merged  # no file keeps several in one tensor
        one = self.single()[role]
        return [one, (self.inner,)] if role == "D" else [one]


def _around(
    rows: int, convolved: int, inner: int, inputs: int, outputs: int, taps: int
) -> dict[str, tuple[int, ...]]:
    """The shapes of what stands around a scan."""
    return {
        "in_weight": (rows, inputs),
        "in_bias": (rows,),
        "conv_weight": (convolved, 1, taps),
        "conv_bias": (convolved,),
        "out_weight": (outputs, inner),
        "out_bias": (outputs,),
    }


class AbstractMixer(nn.Module, ABC):
    """A mixer with its projections, (B,T,width) → (B,T,M), from a state of zeros.

    Laws: `stepped` answers as `forward` does, step by step and with nothing written in place, for
    copies at once and gradients. The eigenvalues of a step are exp(dt·A) with A from `rates` and dt
    from `steps`, one for every row of A; `rest` is dt at its bias.
    """

    cell: ClassVar[str]
    width: int
    A_log: Tensor
    D: Tensor
    dt_bias: Tensor
    in_weight: Tensor
    in_bias: Tensor | None
    conv_weight: Tensor
    conv_bias: Tensor | None
    out_weight: Tensor
    out_bias: Tensor | None

    def __init__(self, tensors: Mapping[str, Tensor], *, dtype: torch.dtype) -> None:
        super().__init__()
        for role, tensor in tensors.items():
            empty = torch.empty(tensor.shape, device="meta", dtype=dtype)
            self.register_parameter(role, nn.Parameter(empty, requires_grad=False))
        for role in OPTIONAL:
            if role not in tensors:
                self.register_parameter(role, None)

    def rates(self) -> Tensor:
        """A, the rates of the states in continuous time, (d,N) or (H,1): all negative."""
        rates = -self.A_log.exp()
        return rates if rates.ndim == 2 else rates.unsqueeze(-1)

    def decay(self) -> DiagonalDecay:
        """The weight that makes the modes."""
        return DiagonalDecay(self, "A_log", Exp())

    @abstractmethod
    def rest(self) -> Tensor:
        """The step sizes dt (d,) or (H,) at their bias."""

    @abstractmethod
    def steps(self, inputs: Tensor) -> Tensor:
        """The step sizes dt (B,T,d) or (B,T,H) that the inputs (B,T,width) set."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """The answers (B,T,M) to (B,T,width)."""

    @abstractmethod
    def stepped(self, inputs: Tensor) -> Tensor:
        """The same for copies at once and gradients."""

    def _convolved(self, x: Tensor) -> Tensor:
        """SiLU of the causal convolution of every channel by itself."""
        pad, channels = self.conv_weight.shape[-1] - 1, x.shape[-1]
        taps = functional.conv1d(
            x.mT, self.conv_weight, self.conv_bias, padding=pad, groups=channels
        )
        return functional.silu(taps[..., : x.shape[1]].mT)


class SelectiveMixer(AbstractMixer):
    """Mamba-1: dt, B and C are linear in what the scan reads.

    u = silu(conv(x)) with (x, z) = in_proj(input),    dt = softplus(W·x_proj(u) + bias),
    h_t = exp(dt·A) h_{t-1} + dt·B_t u_t,    y_t = (C_t·h_t + D u_t) silu(z_t)

    and out_proj(y) is the answer. Of a bare scan u is the input and y without the gate the answer.
    """

    cell = SelectiveShape.cell
    dt_weight: Tensor
    x_weight: Tensor
    x_bias: Tensor | None

    def __init__(
        self, shape: SelectiveShape, tensors: Mapping[str, Tensor], *, dtype: torch.dtype
    ) -> None:
        super().__init__(tensors, dtype=dtype)
        self.bare = shape.around is None
        self.width = shape.channels if shape.around is None else shape.around[0]
        self.sizes = (shape.rank, shape.states, shape.states)

    def rest(self) -> Tensor:
        return self._sizes(self._projected(self.D.new_zeros(len(self.D)))[0])

    def steps(self, inputs: Tensor) -> Tensor:
        return self._sizes(self._projected(self._entered(inputs)[0])[0])

    def forward(self, inputs: Tensor) -> Tensor:
        u, gate = self._entered(inputs)
        low, b, c = self._projected(u)
        answer = selective_scan(
            u.mT,
            functional.linear(low, self.dt_weight).mT,
            self.rates(),
            b.mT,
            c.mT,
            D=self.D,
            z=None if gate is None else gate.mT,
            delta_bias=self.dt_bias,
            delta_softplus=True,
        )
        assert isinstance(answer, Tensor)  # the last state was not asked for
        return self._left(answer.mT)

    def stepped(self, inputs: Tensor) -> Tensor:
        u, gate = self._entered(inputs)
        low, b, c = self._projected(u)
        dt = self._sizes(low)
        decays = torch.exp(dt.unsqueeze(-1) * self.rates())  # (B,T,d,N)
        y = _stepped(decays, dt * u, b.unsqueeze(2), c.unsqueeze(2)) + self.D * u
        return self._left(y if gate is None else y * functional.silu(gate))

    def _entered(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.bare:
            return inputs, None
        x, gate = functional.linear(inputs, self.in_weight, self.in_bias).chunk(2, dim=-1)
        return self._convolved(x), gate

    def _left(self, y: Tensor) -> Tensor:
        return y if self.bare else functional.linear(y, self.out_weight, self.out_bias)

    def _projected(self, u: Tensor) -> tuple[Tensor, ...]:
        return functional.linear(u, self.x_weight, self.x_bias).split(self.sizes, dim=-1)

    def _sizes(self, low: Tensor) -> Tensor:
        return functional.softplus(functional.linear(low, self.dt_weight, self.dt_bias))


class DualMixer(AbstractMixer):
    """Mamba-2: one dt and one A per head, B and C shared by the heads of a group.

    (x, B, C) = silu(conv(·)) and (z, ·, dt) = in_proj(input),    dt = softplus(dt + dt_bias),
    h_t = exp(dt·A) h_{t-1} + dt x_t B_t,    y_t = h_t C_t + D x_t

    and out_proj(norm(y silu(z))) is the answer, or out_proj(norm(y) silu(z)). The norm is taken
    group by group; there may be none.
    """

    cell = DualShape.cell
    norm_weight: Tensor | None

    def __init__(
        self, shape: DualShape, tensors: Mapping[str, Tensor], *, dtype: torch.dtype
    ) -> None:
        super().__init__(tensors, dtype=dtype)
        self.width = shape.around[0]
        self.shape = shape

    def rest(self) -> Tensor:
        bias = self.dt_bias if self.in_bias is None else self.dt_bias + self._parts(self.in_bias)[2]
        return functional.softplus(bias)

    def steps(self, inputs: Tensor) -> Tensor:
        return functional.softplus(self._entered(inputs)[-1] + self.dt_bias)

    def forward(self, inputs: Tensor) -> Tensor:
        gate, x, b, c, dt = self._entered(inputs)
        answer = chunk_scan(
            x,
            dt,
            self.rates().squeeze(-1),
            b,
            c,
            chunk_size=_CHUNK,
            D=self.D,
            dt_bias=self.dt_bias,
            dt_softplus=True,
        )
        assert isinstance(answer, Tensor)  # the last state was not asked for
        return self._left(answer, gate)

    def stepped(self, inputs: Tensor) -> Tensor:
        gate, x, b, c, dt = self._entered(inputs)
        dt = functional.softplus(dt + self.dt_bias).unsqueeze(-1)  # (B,T,H,1)
        groups = (self.shape.groups, -1)
        decays = torch.exp(dt * self.rates()).unflatten(2, groups).unsqueeze(-1)
        fed = (dt * x).unflatten(2, groups)
        y = _stepped(decays, fed, b[:, :, :, None, None], c[:, :, :, None, None]).flatten(2, 3)
        return self._left(y + self.D.reshape(self.shape.heads, -1) * x, gate)

    def _entered(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The gate (B,T,inner), x (B,T,H,P), B and C (B,T,G,N), and dt (B,T,H) before its bias."""
        gate, mixed, dt = self._parts(functional.linear(inputs, self.in_weight, self.in_bias))
        shape = self.shape
        x, b, c = self._convolved(mixed).split((shape.inner, shape.keys, shape.keys), dim=-1)
        b, c = (part.unflatten(-1, (shape.groups, -1)) for part in (b, c))
        return gate, x.unflatten(-1, (shape.heads, -1)), b, c, dt

    def _parts(self, projected: Tensor) -> tuple[Tensor, ...]:
        shape = self.shape
        return projected.split((shape.inner, shape.mixed, shape.heads), dim=-1)

    def _left(self, y: Tensor, gate: Tensor) -> Tensor:
        y, gate = y.flatten(2), functional.silu(gate)
        late = self.shape.norm_before_gate
        y = y if late else y * gate
        if self.norm_weight is not None:
            grouped = y.unflatten(-1, (self.shape.groups, -1))
            scale = torch.rsqrt(grouped.square().mean(-1, keepdim=True) + EPSILON)
            y = (grouped * scale).flatten(-2) * self.norm_weight
        return functional.linear(y * gate if late else y, self.out_weight, self.out_bias)


def _stepped(decays: Tensor, values: Tensor, keys: Tensor, queries: Tensor) -> Tensor:
    """y_t = h_t·q_t with h_t = a_t h_{t-1} + v_t k_t, time on the second axis of all.

    Decays a are (B,T,…,N) or (B,T,…,1), values v (B,T,…), keys k and queries q (B,T,…,N).
    """
    state, answers = None, []
    each = (part.unbind(1) for part in (decays, values.unsqueeze(-1), keys, queries))
    for decay, value, key, query in zip(*each, strict=True):
        fed = value * key
        state = fed if state is None else torch.addcmul(fed, decay, state)
        answers.append((state * query).sum(-1))
    return torch.stack(answers, dim=1)
