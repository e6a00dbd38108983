"""Small models to train on targets: what is known of them, an audit must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from memaudit import registry
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.interfaces import AbstractKernelTarget, AbstractReparam, AbstractTarget
from memaudit.numerics.signals import seeded

# -- The nonlinearities that a student may have.

Activation = Callable[[torch.Tensor], torch.Tensor]


def linear(x: torch.Tensor) -> torch.Tensor:
    """The argument itself; a function with a name, so that students can be pickled."""
    return x


ACTIVATIONS: Mapping[str, Activation] = {
    "linear": linear,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "relu": torch.relu,
}

#: The same, written over their argument.
IN_PLACE: Mapping[str, Activation] = {
    "linear": linear,
    "tanh": torch.tanh_,
    "hardtanh": lambda x: functional.hardtanh_(x),
    "relu": torch.relu_,
}


def activation_named(name: str) -> Activation:
    """The function behind a name."""
    if name not in ACTIVATIONS:
        raise ArgumentError(f"unknown activation {name!r}", hint=nearest(name, ACTIVATIONS))
    return ACTIVATIONS[name]


def slope(value: torch.Tensor, name: str) -> torch.Tensor:
    """The slope of an activation where it has a value, as a new tensor."""
    if name == "tanh":
        return 1.0 - value.square()
    if name == "hardtanh":
        return (value.abs() < 1.0).to(value.dtype)
    if name == "relu":
        return (value > 0.0).to(value.dtype)
    return torch.ones_like(value)


# -- The states of a recurrence over time, with the gradient through time written out.


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


# -- The reparameterization of a student, by its name or as it is.


def form_of(reparam: str | AbstractReparam, *, time: str) -> AbstractReparam:
    """The form in one of the two times; one that is given as it is must be of that time."""
    if isinstance(reparam, str):
        return registry.build("reparams", reparam, time=time)
    if reparam.time != time:
        fact = f"{reparam.name} is made for {reparam.time} time, this student lives in {time} time"
        raise ArgumentError(fact, hint=f'make it with time="{time}"')
    return reparam


# -- A diagonal linear recurrence whose modes stand behind any reparameterization.

#: Powers of a growing mode stay below this, far enough from the end of float64 for sums of them.
LARGEST = 1e150


class DiagonalStudent(nn.Module):
    """x_t = lambda x_{t-1} + b u_t and y_t = c · act(x_t), with m real modes.

    In discrete time lambda = f(raw). In continuous time f(raw) is a rate, held over a `step`:
    lambda = exp(step f(raw)). The activation stands at the readout; "linear" leaves the student a
    convolution. `modes` are those that it starts with; one that the form cannot reach is refused.
    `amplitudes` a (m,) set b c = a, with |b| = |c|; else they are random with a generator, b ~
    N(0, 1) and c ~ N(0, 1/m), and zeros without one.
    """

    memaudit_roles = {"raw": "recurrent/diagonal", "b": "input/vector", "c": "readout/vector"}  # noqa: RUF012

    def __init__(
        self,
        modes: Tensor,
        *,
        reparam: str | AbstractReparam = "direct",
        time: str = "discrete",
        step: float = 1.0,
        activation: str = "linear",
        amplitudes: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.form = form_of(reparam, time=time)
        self.parameterization = self.form.name
        self.step_size = step
        self.activation = activation
        self._read = activation_named(activation)
        given: object = modes
        if not isinstance(given, Tensor) or modes.ndim != 1 or not len(modes):
            shape = tuple(modes.shape) if isinstance(given, Tensor) else clean(given)
            hint = "give the modes (m,) that it starts with, as in torch.linspace(0.1, 0.9, 8)"
            raise ArgumentError(f"the modes are {shape}", hint=hint)
        if modes.is_complex():
            raise ArgumentError("the modes are complex", hint="give real ones, or memaudit_ssm.LRU")
        wanted = modes.detach().to(torch.float64)
        lam = wanted if time == "discrete" else wanted.log() / step
        if not bool((self.form.contains(lam) & lam.isfinite()).all()):
            fact = f"{self.form.name} cannot reach all of these modes"
            raise ArgumentError(fact, hint="give others, or a form with other constants")
        # A copy: the identity would train the tensor of whoever called.
        self.raw = nn.Parameter(self.form.inverse(lam).clone())
        self.b = nn.Parameter(torch.zeros_like(wanted))
        self.c = nn.Parameter(torch.zeros_like(wanted))
        self._start(amplitudes, generator)

    def modes(self) -> Tensor:
        """The eigenvalues (m,) of one step."""
        lam = self.form.forward(self.raw)
        return lam if self.form.time == "discrete" else torch.exp(self.step_size * lam)

    def kernel(self, steps: int) -> Tensor:
        """The kernel (T,) of a student with a linear readout."""
        lags = torch.arange(steps, dtype=self.raw.dtype, device=self.raw.device)
        return ((self.b * self.c)[:, None] * self.modes()[:, None] ** lags).sum(0)

    def states(self, u: Tensor) -> Tensor:
        """The states (B,T,m) under (B,T,1)."""
        lags = torch.arange(u.shape[1], dtype=self.raw.dtype, device=self.raw.device)
        modes = self.modes()
        fed = _convolved(u.mT, modes[:, None] ** lags, modes)  # (B,m,T)
        return fed.mT * self.b

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,1) to (B,T,1)."""
        if self.activation == "linear":
            return _convolved(u.mT, self.kernel(u.shape[1])[None], self.modes()).mT
        return (self._read(self.states(u)) @ self.c)[..., None]

    @torch.no_grad()
    def _start(self, amplitudes: Tensor | None, generator: torch.Generator | None) -> None:
        if amplitudes is not None:
            size = amplitudes.to(self.b).abs().sqrt()
            self.b.copy_(size)
            self.c.copy_(size * amplitudes.sign())
        elif generator is not None:
            self.b.normal_(0.0, 1.0, generator=generator)
            self.c.normal_(0.0, len(self.c) ** -0.5, generator=generator)


def _convolved(u: Tensor, kernels: Tensor, modes: Tensor) -> Tensor:
    """(B,K,T): the signal (B,1,T) under each of the kernels (K,T), sums of powers of the modes.

    An FFT spreads the rounding of the largest answer over all times. Where modes grow, signal and
    kernels are divided by r^t and the answers multiplied by it, r being the largest mode: then
    every answer has the rounding of its own size, and nothing runs back in time.
    """
    steps = u.shape[-1]
    most = LARGEST ** (1.0 / steps)
    growth = modes.detach().abs().amax().clamp(min=1.0, max=most)
    sizes = growth ** torch.arange(steps, dtype=u.dtype, device=u.device)
    spectrum = torch.fft.rfft(u / sizes, n=2 * steps)
    spectrum = spectrum * torch.fft.rfft(kernels / sizes, n=2 * steps)
    return torch.fft.irfft(spectrum, n=2 * steps)[..., :steps] * sizes


# -- A nonlinear recurrence in small steps of continuous time, as the papers train it.

#: Rates with which the recurrent matrix of a student starts.
SLOWEST, FASTEST = 0.1, 1.0


class RecurrentStudent(nn.Module):
    """h_{t+1} = h_t + step · act(W h_t + U x_t + b) and y_t = c h_t, the state after input t.

    Behind "direct" W is a free matrix. Behind any other form W = Pᵀ diag(f(raw)) P, symmetric and,
    where f is stable, negative whatever P is. All forms start from the same W with the same
    generator: W = Qᵀ diag(-rates) Q with an orthogonal Q and rates between 0.1 and 1.
    """

    memaudit_roles = {"U": "input/matrix", "bias": "other/vector", "c": "readout/matrix"}  # noqa: RUF012

    def __init__(
        self,
        states: int,
        *,
        reparam: str | AbstractReparam = "direct",
        activation: str = "tanh",
        step: float = 0.1,
        inputs: int = 1,
        outputs: int = 1,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.form = form_of(reparam, time="continuous")
        self.parameterization = self.form.name
        self.step_size, self.activation = step, activation
        self._act = activation_named(activation)
        made = {"generator": generator, "dtype": torch.float64}
        basis = torch.linalg.qr(torch.randn(states, states, **made))[0]
        rates = SLOWEST + (FASTEST - SLOWEST) * torch.rand(states, **made)
        if self.form.name == "direct":
            self.W = nn.Parameter(-(basis.mT * rates) @ basis)
            names = {"W": "recurrent/matrix"}
        else:
            # By the ends of the range: a state dict then fits every student made alike.
            self.form = self.form.fitted(-torch.tensor([SLOWEST, FASTEST], dtype=torch.float64))
            self.raw = nn.Parameter(self.form.inverse(-rates))
            self.P = nn.Parameter(basis)
            names = {"raw": "recurrent/diagonal", "P": "recurrent/matrix"}
        self.memaudit_roles = {**type(self).memaudit_roles, **names}
        self.U = nn.Parameter(torch.randn(states, inputs, **made) / states**0.5)
        self.bias = nn.Parameter(torch.zeros(states, dtype=torch.float64))
        self.c = nn.Parameter(torch.randn(outputs, states, **made) / states**0.5)

    def weight(self) -> Tensor:
        """W (m,m)."""
        if self.form.name == "direct":
            return self.W
        return (self.P.mT * self.form.forward(self.raw)) @ self.P

    def modes(self) -> Tensor:
        """The eigenvalues of one step at rest, where the activation has the slope one."""
        weight = self.weight()
        values = torch.linalg.eigvals(weight) if self.form.name == "direct" else self._real(weight)
        return 1.0 + self.step_size * values

    def initial_state(self) -> Tensor:
        """At rest."""
        return torch.zeros_like(self.bias)

    def step(self, state: Tensor, u: Tensor) -> Tensor:
        """The states (B,m) after the inputs (B,D)."""
        return self._stepped(state, u @ self.U.mT + self.bias, self.weight())

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,M) to (B,T,D)."""
        weight, state = self.weight(), self.initial_state().expand(len(u), -1)
        states = []
        for fed in (u @ self.U.mT + self.bias).unbind(1):
            state = self._stepped(state, fed, weight)
            states.append(state)
        return torch.stack(states, dim=1) @ self.c.mT

    def unrolled(self, u: Tensor) -> Tensor:
        """What `forward` answers, faster where gradients are wanted; not for vmap."""
        fed = u.transpose(0, 1) @ self.U.mT + self.bias
        states = Unrolled.apply(fed, self.weight(), self.step_size, self.activation)
        return (states @ self.c.mT).transpose(0, 1)

    def _stepped(self, state: Tensor, fed: Tensor, weight: Tensor) -> Tensor:
        return state + self.step_size * self._act(state @ weight.mT + fed)

    @staticmethod
    def _real(weight: Tensor) -> Tensor:
        """Eigenvalues of a symmetric matrix; the product that made it is so up to rounding."""
        return torch.linalg.eigvalsh((weight + weight.mT) / 2.0)


# -- Students that fit a kernel by least squares instead of training.


def fitted(
    target: AbstractKernelTarget | str,
    size: int,
    *,
    reparam: str | AbstractReparam = "direct",
    largest: float = 1.0,
    steps: int = 400,
    ridge: float = 0.01,
) -> DiagonalStudent:
    """The sum of `size` exponentials next to the kernel of a linear target over `steps` lags.

    With rho(t) = sum_i a_i lambda_i^t this is the approximation of rho(log t) by polynomials on
    (0, 1]: the modes stand at the Chebyshev nodes of (0, `largest`), the a_i solve the least
    squares with a penalty of ridge² |a|², without which they grow beyond all bounds with the size.
    """
    from memaudit.targets import target as named

    goal = named(target) if isinstance(target, str) else target
    if not isinstance(goal, AbstractKernelTarget):
        raise ArgumentError(f"the target {goal} has no kernel", hint="train a student by `fit`")
    if size < 1 or steps < 1:
        raise ArgumentError(f"{size} modes are to fit {steps} lags", hint="take at least one each")
    angles = (2 * torch.arange(size, dtype=torch.float64) + 1) * torch.pi / (2 * size)
    modes = largest * (1 + torch.cos(angles)) / 2
    t = torch.arange(steps, dtype=torch.float64)
    table = torch.cat([modes ** t[:, None], ridge * torch.eye(size, dtype=torch.float64)])
    wanted = torch.cat([goal.kernel(steps), torch.zeros(size, dtype=torch.float64)])
    # By singular values: where columns are nearly dependent the default driver may leave more
    # than it started with.
    amplitudes = torch.linalg.lstsq(table, wanted[:, None], driver="gelsd").solution[:, 0]
    return DiagonalStudent(modes, reparam=reparam, amplitudes=amplitudes)


# -- Training a student on a target: fresh random inputs, Adam, and every loss kept.

Answer = Callable[[torch.Tensor], torch.Tensor]
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True, slots=True)
class Fit:
    """What became of a training run.

    `losses` has the mean square error of every update, before the update was made. A run whose loss
    is not finite ends there: `diverged_at` is that update, None for a run that went well.
    `reached` is the first update whose loss was at most the goal `until`, None when none was.
    """

    losses: np.ndarray
    reached: int | None
    diverged_at: int | None

    @property
    def last(self) -> float:
        """The last loss, a median over a hundredth of the run; infinite when it diverged."""
        if self.diverged_at is not None:
            return float("inf")
        return float(np.median(self.losses[-max(1, len(self.losses) // 100) :]))


def fit(
    student: nn.Module,
    target: AbstractTarget | Answer | str,
    *,
    updates: int = 300,
    length: int = 100,
    batch: int = 128,
    samples: int | None = None,
    lr: float | None = 0.01,
    optimizer: str = "adam",
    groups: list[dict[str, Any]] | None = None,
    until: float | None = None,
    seed: int = 0,
    watch: Callable[[int, float, nn.Module], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """Train a student in place on a target, on white Gaussian inputs made anew for every update.

    `target` is the text of one (poly:1.1), an AbstractTarget, or a function (B,T,D) -> (B,T,M).
    With `samples` there are that many inputs, and every epoch has them all in another order. A
    student with a method `unrolled`, a faster `forward` for training, is trained by it.
    `groups` are parameter groups, in the place of all parameters with one `lr`. `until` is a loss
    at which training ends. `watch` is told the update, the loss and the student after the gradient
    was computed, before the weights move. The same seed gives the same run.
    """
    for name, value in (("updates", updates), ("length", length), ("batch", batch)):
        _check_count(name, value)
    _check_count("samples", 1 if samples is None else samples)
    found = _found(target)
    answer = found.answer if isinstance(found, AbstractTarget) else found
    trained = groups or [p for p in student.parameters() if p.requires_grad]
    stepping = _optimizer(optimizer, trained, lr)
    like, run = next(student.parameters()), getattr(student, "unrolled", student)
    shape = batch, length, getattr(found, "inputs", 1)
    pairs = _pairs(answer, shape, samples, seeded(seed), like)
    losses: list[float] = []
    for update, (u, wanted) in zip(range(updates), pairs, strict=False):
        losses.append(_gradients(run, u, wanted, stepping))
        if not np.isfinite(losses[-1]):
            return Fit(np.array(losses[:-1]), None, update)
        if watch is not None:
            watch(update, losses[-1], student)
        if until is not None and losses[-1] <= until:
            return Fit(np.array(losses), update, None)
        stepping.step()
        if progress is not None:
            progress(update + 1, updates)
    return Fit(np.array(losses), None, None)


def _gradients(run: Answer, u: Tensor, wanted: Tensor, stepping: torch.optim.Optimizer) -> float:
    """The loss, whose gradients the weights have then."""
    with torch.enable_grad():
        answers = run(u)
        _check_answers(answers, u, wanted)
        loss = (answers - wanted).square().mean()
        stepping.zero_grad()
        loss.backward()
    return float(loss.detach())


def _check_answers(answers: Any, u: Tensor, wanted: Tensor) -> None:
    """Refuse what would be broadcast against the target, or has no shape at all."""
    if not isinstance(answers, torch.Tensor):
        fact = f"the student answers with {clean(type(answers).__name__)}, not with a tensor"
        hint = f"let it give the answers {tuple(wanted.shape)} to inputs {tuple(u.shape)} alone"
        raise ArgumentError(fact, hint=hint)
    if answers.shape != wanted.shape:
        given, asked = tuple(answers.shape), tuple(wanted.shape)
        fact = f"the student answers {given} to inputs {tuple(u.shape)}, and the target {asked}"
        raise ArgumentError(fact, hint="give a student and a target of the same shape")


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} is {clean(value)!r}", hint="take a whole number from 1 on")


def _optimizer(name: str, trained: list[Any], lr: float | None) -> torch.optim.Optimizer:
    if name not in OPTIMIZERS:
        hint = nearest(name, OPTIMIZERS)
        raise ArgumentError(f"unknown optimizer {clean(name)!r}", hint=hint)
    return OPTIMIZERS[name](trained, **({} if lr is None else {"lr": lr}))


def _pairs(
    answer: Answer,
    shape: tuple[int, int, int],
    samples: int | None,
    draw: torch.Generator,
    like: Tensor,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs with the answers that are wanted, without end."""

    def made(count: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(count, *shape[1:], generator=draw, dtype=torch.float64)
        u = noise.to(like.device, like.dtype)
        with torch.no_grad():
            return u, answer(u).to(like)

    while samples is None:
        yield made(shape[0])
    inputs, answers = made(samples)
    while True:
        for rows in torch.randperm(samples, generator=draw).split(shape[0]):
            yield inputs[rows], answers[rows]


def _found(target: AbstractTarget | Answer | str) -> AbstractTarget | Answer:
    from memaudit.targets import target as named

    return named(target) if isinstance(target, str) else target
