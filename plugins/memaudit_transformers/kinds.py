"""The kinds of recurrent layers in transformers: finding them, their decays and their spectra."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus
from torch.nn.utils import parametrize

from memaudit.errors import clean
from memaudit.interfaces import DiagonalDecay, NoDecay, plain_name
from memaudit.modes import point, spectrum
from memaudit.reparams import Exp, Softplus
from memaudit.report import Recurrence
from memaudit.subjects.jacobian import Exponent, exponent_of
from memaudit_transformers.scans import (
    CHUNK_SCAN,
    DELTA_RULE,
    RNN_SCAN,
    SELECTIVE_SCAN,
    WKV,
    Kernel,
    Steps,
    steps_of,
)

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from memaudit.interfaces import AbstractReparam, StoredDecay
    from memaudit.modes import LayerSpectrum as Spectrum

Record = Callable[[Steps], None]
#: The constant c of the Griffin paper, in log a = -c·gate·softplus(recurrent_param).
SHARPNESS = 8.0
#: What the law of a gate beside the delta rule leaves out.
ERASES = "the delta rule erases old values beside the gate; only the gate has this law"
#: Shares of the tokens: a channel's step sizes are at most that large on as many of them.
QUANTILES = (0.05, 0.5, 0.95)
#: Parameters and buffers that only recurrent layers have, of the kinds here and of others.
LOOKALIKE = re.compile(
    r"(?:^|[._])(?:A_logs?|A_real|log_A\w*|nu_log|theta_log|Lambda\w*|inv_dt|log_dt|log_step"
    r"|dt_bias|dt_projs?_bias|time_decay\w*|recurrent_(?:param|kernel)|slope_rate|\w*fgate\w*"
    r"|forget_gate|weight_hh\w*)(?:\.|$)"
)


def tensor_of(module: nn.Module, name: str) -> Tensor | None:
    """The parameter or buffer of the module itself, None when it has none of that name.

    Behind a parametrization it is what the parametrization makes.
    """
    if parametrize.is_parametrized(module, name):
        return getattr(module, name)
    found = module._parameters.get(name)
    return module._buffers.get(name) if found is None else found


def raw(module: nn.Module, name: str) -> Tensor:
    """The tensor of a module that matches, in float64, which not all devices can do."""
    found = tensor_of(module, name)
    assert found is not None
    return found.cpu().double()


def unwrapped(module: nn.Module | None) -> nn.Module | None:
    """The projection that adapters of low rank were put around; most have none around them."""
    inner = None if module is None else module._modules.get("base_layer")
    return module if inner is None else inner


class AbstractKind(ABC):
    """A kind of recurrent layer, known by the names and shapes of its parameters alone.

    Laws: the steps at rest and those recorded while the layer runs are the same modes in the same
    order; a layer of another kind does not match; log λ of every mode is a rate that the law of
    the `stored` tensor gives, times a positive number that the tensor has no part in.
    """

    cell: ClassVar[str]
    #: What the step sizes are called in a report, and what they are at rest.
    quantity: ClassVar[str] = "forgetting"
    at_rest: ClassVar[str] = "rest, gate at its bias"
    #: False when the decay is the same for every input.
    selective: ClassVar[bool] = True
    #: The scan that the layer hands its decays to; None: `hooks` record them.
    kernel: ClassVar[Kernel | None] = None
    #: How the names of the weights end that make the decay; the first is the stored one.
    decays: ClassVar[tuple[str, ...]] = ()
    #: Those of them that make the steps at rest; none: all of them.
    resting: ClassVar[tuple[str, ...]] = ()
    #: How the decay is made from the stored weight, and a sentence on what that leaves out.
    law: ClassVar[AbstractReparam] = Exp()
    note: ClassVar[str] = ""

    @abstractmethod
    def matches(self, module: nn.Module) -> bool:
        """Whether the module is a layer of this kind."""

    @abstractmethod
    def rest(self, module: nn.Module) -> Steps:
        """The steps in float64 with what depends on the data at its bias."""

    def parameterization(self, module: nn.Module) -> str:
        """How the decay is made from the raw weight: exp, softplus, sigmoid, fixed."""
        del module
        return self.law.name

    def stored(self, module: nn.Module) -> DiagonalDecay | NoDecay:
        """What makes the modes of the layer decay, or why no tensor alone does."""
        return DiagonalDecay(module, self.decays[0], self.law, note=self.note)

    def hooks(self, module: nn.Module, record: Record) -> Iterable[RemovableHandle]:
        """Hooks that record the steps while the module runs, where no scan is handed them."""
        del module, record
        return ()


class Selective(AbstractKind):
    """Mamba-1, N real modes per channel: λ = exp(-exp(A_log)·dt).

    A_log is (d,N), or (heads,d,N), beside the bias of the step size of the channel.
    """

    cell = "mamba1"
    quantity = "dt"
    at_rest = "rest, dt at its bias"
    kernel = SELECTIVE_SCAN
    decays = ("A_log", "dt_proj_bias", "dt_proj.bias", "dt_proj.base_layer.bias")

    def matches(self, module: nn.Module) -> bool:
        rates = tensor_of(module, "A_log")
        if rates is None or rates.ndim not in (2, 3):
            return False
        bias = self._bias(module)
        return bias is None or bias.shape == rates.shape[:-1]

    def rest(self, module: nn.Module) -> Steps:
        rates = torch.exp(raw(module, "A_log"))
        bias = self._bias(module)
        bias = rates.new_zeros(rates.shape[:-1]) if bias is None else bias.to(rates)
        return Steps(softplus(bias).flatten(), rates.flatten(0, -2))

    def _bias(self, module: nn.Module) -> Tensor | None:
        """The bias of the step size, of a projection or of the layer itself (one per head)."""
        own = tensor_of(module, "dt_proj_bias")
        projection = unwrapped(module._modules.get("dt_proj"))
        return own if own is not None or projection is None else tensor_of(projection, "bias")


class Dual(AbstractKind):
    """Mamba-2, one real mode per head: λ = exp(-exp(A_log)·dt).

    A_log, dt_bias and the skip D have one number per head. The layer holds its step sizes inside
    `time_step_limit`, at rest as over data.
    """

    cell = "mamba2"
    quantity = "dt"
    at_rest = "rest, dt at its bias"
    kernel = CHUNK_SCAN
    decays = ("A_log", "dt_bias")

    def matches(self, module: nn.Module) -> bool:
        rates, bias, skip = (tensor_of(module, name) for name in ("A_log", "dt_bias", "D"))
        if rates is None or bias is None or skip is None:
            return False
        return rates.ndim == 1 and rates.shape == bias.shape and len(skip) == len(rates)

    def rest(self, module: nn.Module) -> Steps:
        sizes = softplus(raw(module, "dt_bias"))
        lowest, highest = getattr(module, "time_step_limit", None) or (0.0, torch.inf)
        return Steps(sizes.clamp(lowest, highest), torch.exp(raw(module, "A_log")))


class GatedDelta(AbstractKind):
    """The gated delta rule, one decay per head: λ = exp(-exp(A_log)·softplus(dt)).

    A_log and dt_bias have one number per head, and there is no skip. The state is multiplied by
    λ·(I - β k kᵀ). The eigenvalues are those of the gate λ, with which the state decays in every
    direction that no key k writes over.
    """

    cell = "gated-delta"
    quantity = "dt"
    at_rest = "rest, dt at its bias"
    kernel = DELTA_RULE
    decays = ("A_log", "dt_bias")
    note = ERASES

    def matches(self, module: nn.Module) -> bool:
        rates, bias = tensor_of(module, "A_log"), tensor_of(module, "dt_bias")
        if rates is None or bias is None or tensor_of(module, "D") is not None:
            return False
        return rates.ndim == 1 and rates.shape == bias.shape

    def rest(self, module: nn.Module) -> Steps:
        return Steps(softplus(raw(module, "dt_bias")), torch.exp(raw(module, "A_log")))


class KimiDelta(AbstractKind):
    """Delta attention whose gate holds A_log per head and dt_bias per channel.

    The gate is exp(-exp(A_log)·softplus(dt)), or exp(bound·sigmoid(exp(A_log)·dt)) where
    the layer bounds the log decay from below. As in `GatedDelta` it stands beside the delta rule.
    """

    cell = "kimi-delta"
    kernel = DELTA_RULE
    decays = ("A_log", "dt_bias")
    note = ERASES

    def matches(self, module: nn.Module) -> bool:
        return any(True for _ in self._gates(module))

    def rest(self, module: nn.Module) -> Steps:
        gate = next(self._gates(module))
        rates = torch.exp(raw(gate, "A_log")).reshape(-1, 1)
        bias = raw(gate, "dt_bias").reshape(len(rates), -1)
        bound = self._bound(gate)
        if bound is not None:
            return Steps(-bound * torch.sigmoid(rates * bias))
        return Steps(rates * softplus(bias))

    def parameterization(self, module: nn.Module) -> str:
        return "exp" if self._bound(next(self._gates(module))) is None else "sigmoid"

    def stored(self, module: nn.Module) -> DiagonalDecay | NoDecay:
        gate = next(self._gates(module))
        if self._bound(gate) is not None:
            return NoDecay("the layer bounds its log decay by a sigmoid, in which A_log is no rate")
        return super().stored(gate)

    def _gates(self, module: nn.Module) -> Iterator[nn.Module]:
        """Children that have more biases than rates: a whole layer has as many, or a skip."""
        for child in module.children():
            rates, bias = tensor_of(child, "A_log"), tensor_of(child, "dt_bias")
            if rates is None or bias is None or tensor_of(child, "D") is not None:
                continue
            channels, heads = bias.numel(), rates.numel()
            if channels > heads == max(rates.shape) and channels % heads == 0:
                yield child

    def _bound(self, gate: nn.Module) -> float | None:
        """The lower bound of the log decay, None when the gate is not bounded."""
        if getattr(gate, "safe_gate", True) is False:
            return None
        bound = getattr(gate, "safe_gate_lower_bound", getattr(gate, "lower_bound", None))
        return None if bound is None else float(bound)


class RgLru(AbstractKind):
    """The gated unit of Griffin: log a = -8·sigmoid(gate)·softplus(recurrent_param)."""

    cell = "rg-lru"
    kernel = RNN_SCAN
    decays = ("recurrent_param", "recurrent_gate_bias", "recurrent_gate_weight")
    resting = decays[:2]
    law = Softplus()

    def matches(self, module: nn.Module) -> bool:
        rates, bias = (tensor_of(module, n) for n in ("recurrent_param", "recurrent_gate_bias"))
        return rates is not None and bias is not None and rates.numel() == bias.numel()

    def rest(self, module: nn.Module) -> Steps:
        gate = torch.sigmoid(raw(module, "recurrent_gate_bias").flatten())
        return Steps(SHARPNESS * gate * softplus(raw(module, "recurrent_param")))


class MLstm(AbstractKind):
    """The matrix memory of xLSTM, one forget gate per head: λ = sigmoid(cap(gate)).

    The gates are a projection of the input, alone or fused with that of the input gates.
    """

    cell = "mlstm"
    decays = tuple(
        f"fgate_preact.{inner}{name}"
        for inner in ("", "base_layer.")
        for name in ("weight", "bias")
    )
    resting = tuple(
        f"{gate}_preact.{inner}bias"
        for gate in ("fgate", "ifgate")
        for inner in ("", "base_layer.")
    )

    def matches(self, module: nn.Module) -> bool:
        return isinstance(unwrapped(self._projection(module)), nn.Linear)

    def rest(self, module: nn.Module) -> Steps:
        gate = unwrapped(self._projection(module))
        assert isinstance(gate, nn.Linear)
        if tensor_of(gate, "bias") is None:
            return self._steps(module, torch.zeros(gate.out_features, dtype=torch.float64))
        return self._steps(module, raw(gate, "bias"))

    def parameterization(self, module: nn.Module) -> str:
        return "sigmoid"

    def stored(self, module: nn.Module) -> DiagonalDecay | NoDecay:
        return NoDecay("its forget gate is a projection of the input: no weight stands for a mode")

    def hooks(self, module: nn.Module, record: Record) -> Iterable[RemovableHandle]:
        def after(_: nn.Module, __: tuple[Tensor, ...], gates: Tensor) -> None:
            record(self._steps(module, gates.detach()))

        projection = self._projection(module)
        assert projection is not None
        return (projection.register_forward_hook(after),)

    def _projection(self, module: nn.Module) -> nn.Module | None:
        """What gives the gates, with the adapter of low rank that may be around it."""
        own = module._modules
        return own.get("fgate_preact") or own.get("ifgate_preact")

    def _steps(self, module: nn.Module, gates: Tensor) -> Steps:
        if "fgate_preact" not in module._modules:  # input gates first, forget gates behind them
            gates = gates.chunk(2, -1)[1]
        cap = getattr(getattr(module, "config", None), "gate_soft_cap", None)
        if cap is not None:
            gates = cap * torch.tanh(gates / cap)
        return Steps(-logsigmoid(gates))


class AbstractConstant(AbstractKind):
    """A kind whose steps over data are those at rest, once per token."""

    at_rest = "every input"
    selective = False

    def hooks(self, module: nn.Module, record: Record) -> Iterable[RemovableHandle]:
        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
            hidden = next(x for x in given if x.ndim == 3)
            sizes = self.rest(module).sizes.detach().to(hidden)
            record(Steps(sizes.expand(*hidden.shape[:2], len(sizes))))

        return (module.register_forward_pre_hook(before, with_kwargs=True),)


class Rwkv(AbstractConstant):
    """The linear attention of RWKV, one trained decay per channel: λ = exp(-exp(time_decay))."""

    cell = "rwkv"
    kernel = WKV
    decays = ("time_decay",)

    def matches(self, module: nn.Module) -> bool:
        decay, first = tensor_of(module, "time_decay"), tensor_of(module, "time_first")
        if decay is None or first is None:
            return False
        return decay.ndim == 1 and decay.shape == first.shape

    def rest(self, module: nn.Module) -> Steps:
        return Steps(torch.exp(raw(module, "time_decay")))


class Lightning(AbstractConstant):
    """Lightning attention, a fixed slope for every head: λ = exp(-slope_rate)."""

    cell = "lightning"
    resting = ("slope_rate",)

    def matches(self, module: nn.Module) -> bool:
        return tensor_of(module, "slope_rate") is not None

    def rest(self, module: nn.Module) -> Steps:
        return Steps(raw(module, "slope_rate").flatten())

    def parameterization(self, module: nn.Module) -> str:
        return "fixed"

    def stored(self, module: nn.Module) -> DiagonalDecay | NoDecay:
        return NoDecay("its decays are chosen and not trained")


#: The first kind that matches a module names it.
KINDS: tuple[AbstractKind, ...] = (
    *(Selective(), Dual(), GatedDelta(), KimiDelta()),
    *(RgLru(), Rwkv(), MLstm(), Lightning()),
)


@dataclass(frozen=True, slots=True, eq=False)
class Recurrent:
    """One recurrent layer: where it stands in the model, the module itself, and its kind."""

    layer: str
    module: nn.Module
    kind: AbstractKind

    @property
    def cell(self) -> str:
        """What kind of recurrence it is, such as mamba1."""
        return self.kind.cell

    @property
    def parameterization(self) -> str:
        """How the decay is made from the raw weight: exp, softplus, sigmoid, fixed.

        A weight behind a parametrization that describes its form has that form.
        """
        stored = self.kind.stored(self.module)
        described = ""
        if isinstance(stored, DiagonalDecay) and parametrize.is_parametrized(
            stored.owner, stored.name
        ):
            forms: Any = stored.owner.parametrizations
            words = [getattr(form, "form_name", "") for form in forms[stored.name]]
            described = clean(next((word for word in reversed(words) if word), ""))
        return described or self.kind.parameterization(self.module)

    @property
    def size(self) -> int:
        """The number of modes, that is of different decays at one step."""
        return self.at_rest().numel()

    @property
    def parameters(self) -> int:
        """The number of parameters of the layer, projections included."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    def at_rest(self) -> Tensor:
        """Eigenvalues of one step, in float64, with what depends on the data at its bias."""
        return self.modes_of(self.module).detach()

    def modes_of(self, module: nn.Module) -> Tensor:
        """The same of the module with other weights in it, with gradients if they ask for some."""
        return self.kind.rest(module).decays().flatten()

    def record(self) -> Recurrence:
        """The entry of the identity."""
        return Recurrence(clean(self.layer), self.cell, self.size, self.parameters)


def find_recurrences(model: nn.Module) -> tuple[Recurrent, ...]:
    """Every recurrent layer by its structure, in the order of the model.

    A layer that stands in the model under several names is listed once, under the first.
    """
    found = []
    for layer, module in model.named_modules():
        kind = next((kind for kind in KINDS if kind.matches(module)), None)
        if kind is not None:
            found.append(Recurrent(layer, module, kind))
    return tuple(found)


def unmatched(model: nn.Module, recurrents: Sequence[Recurrent]) -> tuple[str, ...]:
    """Names of recurrent-looking tensors in modules that no kind matched."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    known = {id(t) for r in recurrents for t in (*r.module.parameters(), *r.module.buffers())}
    names = [plain_name(name) for name, t in tensors if id(t) not in known]
    # What is left of a parametrization are numbers of its own, not those of the module behind it.
    own = [name for name in names if "parametrizations" not in name.split(".")]
    return tuple(dict.fromkeys(name for name in own if LOOKALIKE.search(name)))


def stored_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """For every recurrent layer: the weight that a retrofit may change, or why there is none."""
    found = [(r, r.kind.stored(r.module)) for r in find_recurrences(module)]
    users = Counter(id(_parameter(d)) for _, d in found if isinstance(d, DiagonalDecay))
    for recurrent, decay in found:
        if isinstance(decay, DiagonalDecay):
            reason = _why_unchangeable(decay, users=users[id(_parameter(decay))])
            decay = NoDecay(reason) if reason else decay
        yield replace(decay, layer=clean(recurrent.layer), cell=recurrent.cell)


def _parameter(decay: DiagonalDecay) -> nn.Parameter | DiagonalDecay:
    """The parameter itself; what is made by a parametrization belongs to nobody else."""
    found = decay.owner._parameters.get(decay.name)
    return decay if found is None else found


def _why_unchangeable(stored: DiagonalDecay, *, users: int) -> str:
    """Why the tensor cannot be put into another form; empty when it can."""
    tensor = tensor_of(stored.owner, stored.name)
    assert tensor is not None
    behind = parametrize.is_parametrized(stored.owner, stored.name)
    if not behind and stored.name not in stored.owner._parameters:
        return f"its {stored.name} is a buffer, which no training moves"
    # One byte holds no number that a law could be applied to: those are quantised weights.
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        return f"its {stored.name} is stored as {str(tensor.dtype).removeprefix('torch.')}"
    if users > 1:
        return f"its {stored.name} is one tensor for {users} layers; only all at once could change"
    return ""


def spectra_of(
    recurrents: Sequence[Recurrent],
    run: Callable[[Tensor], Any],
    inputs: Tensor | None,
) -> tuple[Spectrum, ...]:
    """The spectrum of every layer at rest, with points over the inputs where it follows them.

    At a point every channel has the step size, or the forgetting -log λ, that it stays at or
    below on that share of the tokens: at 5 % the memory is long, at 95 % it is short.
    """
    recorded: dict[str, Steps] = {}
    selective = [recurrent for recurrent in recurrents if recurrent.kind.selective]
    if selective and inputs is not None:
        recorded = steps_of(selective, run, inputs)
    return tuple(_spectrum(recurrent, recorded.get(recurrent.layer)) for recurrent in recurrents)


def _spectrum(recurrent: Recurrent, steps: Steps | None) -> Spectrum:
    points = (
        ()
        if steps is None
        else tuple(
            point(
                f"{recurrent.kind.quantity} {share:.0%}".replace("%", " %"),
                steps.quantile(share).decays(),
            )
            for share in QUANTILES
        )
    )
    made = spectrum(
        layer=clean(recurrent.layer),
        cell=recurrent.cell,
        parameterization=recurrent.parameterization,
        at=recurrent.kind.at_rest,
        eigenvalues=recurrent.at_rest(),
        points=points,
    )
    exponent = largest_exponent(recurrent, steps)
    if exponent is None:
        return made
    return replace(made, lyapunov=exponent.value, lyapunov_interval=exponent.interval)


def largest_exponent(recurrent: Recurrent, steps: Steps | None) -> Exponent | None:
    """The largest mean of log decay over the tokens, exact where modes keep apart.

    A delta rule erases beside its gate, so that its modes mix: it has none here. Neither has a
    layer that follows its input and had none, or that forgets everything at once.
    """
    if recurrent.kind.kernel is DELTA_RULE:
        return None
    if not recurrent.kind.selective:
        largest = float(recurrent.at_rest().max())
        value = float(np.log(largest)) if largest > 0.0 else None
        return None if value is None else Exponent(value, (value, value))
    if steps is None:
        return None
    sizes = steps.sizes.detach().flatten(0, 1).cpu().double().numpy()
    sizes = sizes.reshape(len(sizes), -1)
    rates = np.ones((sizes.shape[1], 1))
    if steps.rates is not None:
        rates = steps.rates.detach().cpu().double().numpy().reshape(sizes.shape[1], -1)
    forgotten = sizes.mean(0)[:, None] * rates
    if not len(sizes) or not np.isfinite(forgotten).any():
        return None
    channel, mode = np.unravel_index(int(np.nanargmin(forgotten)), forgotten.shape)
    return exponent_of(-sizes[:, channel] * rates[channel, mode])
