"""The laws of a recurrence and of a model whose weights are an argument, for any adapter."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor

from memaudit.errors import listed
from memaudit.interfaces import (
    FORMS,
    GROUPS,
    AbstractDynamics,
    AbstractPerturbable,
    AbstractSubject,
)
from memaudit.numerics.signals import seeded
from memaudit.testing.laws import draw, fingerprint, must

# -- The laws of a recurrence inside a model.

#: Rows of the trials, and steps that lead from the first state to others.
DYNAMICS_ROWS, DYNAMICS_STEPS = 3, 8


def check_dynamics(dynamics: AbstractDynamics) -> None:
    """The laws of `AbstractDynamics`: shapes, rows by themselves, gradients, blocks in order."""
    must(isinstance(dynamics, AbstractDynamics), f"{dynamics!r} is no AbstractDynamics")
    must(isinstance(dynamics.width, int) and dynamics.width > 0, f"width is {dynamics.width!r}")
    first = dynamics.initial()
    must(first.ndim == 1, f"the first state has the shape {tuple(first.shape)}, not (n,)")
    must(first.is_floating_point(), f"the first state is of {first.dtype}")
    must(bool(torch.isfinite(first).all()), "the first state is not finite")
    _check_cuts(dynamics, len(first))
    states, u = _somewhere(dynamics, first)
    with torch.no_grad():
        _check_rows(dynamics, states, u)
    _check_gradients(dynamics, states, u)


def _check_cuts(dynamics: AbstractDynamics, size: int) -> None:
    blocks = list(dynamics.blocks.values())
    must(bool(blocks), "there is no block")
    ends = [0, *(block.stop for block in blocks)]
    whole = [block.start for block in blocks] == ends[:-1] and ends[-1] == size
    must(whole, f"the blocks do not cut the {size} numbers of the state without gaps")
    must(all(low < high for low, high in pairwise(ends)), "a block is empty")
    for layer, block in dynamics.blocks.items():
        must(bool(block.cell and block.parameterization), f"{layer} has no cell or no form")


def _somewhere(
    dynamics: AbstractDynamics, first: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """States (B,n) a few random steps away from the first one, and inputs (B,D) for one more."""
    state = first.expand(DYNAMICS_ROWS, -1).clone()
    with torch.no_grad():
        for seed in range(DYNAMICS_STEPS):
            u = draw(DYNAMICS_ROWS, dynamics.width, seed=seed).to(first)
            after = dynamics.step(state, u)
            right = after.shape == state.shape and after.dtype == state.dtype
            must(right, f"step answers {tuple(state.shape)} by {tuple(after.shape)} {after.dtype}")
            state = after
    return state, draw(DYNAMICS_ROWS, dynamics.width, seed=DYNAMICS_STEPS).to(first)


def _check_rows(dynamics: AbstractDynamics, states: torch.Tensor, u: torch.Tensor) -> None:
    kept, fed = states.clone(), u.clone()
    after = dynamics.step(states, u)
    must(torch.equal(states, kept) and torch.equal(u, fed), "step changes what it is given")
    limit = 64 * torch.finfo(states.dtype).eps * max(1.0, float(after.abs().amax()))
    alone = torch.cat(
        [dynamics.step(states[i : i + 1], u[i : i + 1]) for i in range(DYNAMICS_ROWS)]
    )
    off = float((alone - after).abs().amax())
    must(off <= limit, f"a row alone and in a batch differ by {off:.2g}")
    again = float((dynamics.step(states, u) - after).abs().amax())
    must(again == 0.0, f"the same step twice differs by {again:.2g}")


def _check_gradients(dynamics: AbstractDynamics, states: torch.Tensor, u: torch.Tensor) -> None:
    """The gradient is that of the step, and no block reads the old state of one behind it."""
    for layer, block in dynamics.blocks.items():
        with torch.enable_grad():
            copies = states.clone().requires_grad_()
            after = dynamics.step(copies, u)
            must(after.requires_grad, "step cannot be differentiated by the state")
            own = after[:, block.start : block.stop]
            weights = draw(DYNAMICS_ROWS, own.shape[1], seed=1).to(own)
            (pulled,) = torch.autograd.grad(own, copies, weights)
        ahead = pulled[:, block.stop :].abs().sum()
        must(float(ahead) == 0.0, f"{layer} depends on the old state of a block behind it")
        _check_slope(dynamics, states, u, (block.start, block.stop), weights, pulled)


def _check_slope(
    dynamics: AbstractDynamics,
    states: torch.Tensor,
    u: torch.Tensor,
    place: tuple[int, int],
    weights: torch.Tensor,
    pulled: torch.Tensor,
) -> None:
    """Central differences along a random direction, which only a wrong gradient is far from."""
    direction = draw(*states.shape, seed=2).to(states)
    # The cube root of eps balances rounding against curvature.
    width = torch.finfo(states.dtype).eps ** (1 / 3)
    with torch.no_grad():
        higher = dynamics.step(states + width * direction, u)[:, slice(*place)]
        lower = dynamics.step(states - width * direction, u)[:, slice(*place)]
    seen = ((higher - lower) / (2 * width) * weights).sum(1)
    told = (pulled * direction).sum(1)
    size = 1.0 + float((pulled * direction).abs().sum(1).amax())
    off = float((seen - told).abs().amax()) / size
    must(off <= 100 * width, f"gradients and differences of the step are apart by {off:.2g}")


# -- The laws of a model whose weights are an argument.

#: Steps of the test sequences, and how many copies answer at once.
PERTURBED_STEPS, COPIES = 9, 3
#: How far a weight is moved, as a share of its mean size.
_MOVE = 1e-2
#: Roundings by which two ways to the same answer may differ.
_ROUNDINGS = 1e4
#: How far a gradient may be from a difference quotient, whose step is near the cube root of a
#: rounding.
_SLOPE = {torch.float64: 1e-6, torch.float32: 2e-2}


def check_perturbable(subject: AbstractSubject, *, inputs: Tensor | None = None) -> None:
    """The laws of `AbstractPerturbable` on a subject that has one, on the CPU.

    `inputs` (B,T,D) replace random ones, for a model that does not take sequences of any length.
    """
    model = subject.perturbable()
    if model is None:
        raise AssertionError("perturbable gives None: nothing can be moved")
    _check_words(model)
    if inputs is None:
        rows = draw(2 * PERTURBED_STEPS, subject.input_size or 1).view(2, PERTURBED_STEPS, -1)
        inputs = rows.to(subject.dtype)
    before = fingerprint(subject)
    _check_still(subject, model, inputs)
    groups = sorted({role.group for role in model.roles.values()})
    for names in (tuple(model.weights), *(_of(model, group) for group in groups)):
        _check_copies(subject, model, inputs, names)
    if model.differentiable:
        _check_gradient(model, inputs, subject.dtype)
    _check_modes(subject, model)
    must(fingerprint(subject) == before, "weights or buffers are not what they were")


def moves(model: AbstractPerturbable, names: tuple[str, ...], count: int) -> dict[str, Tensor]:
    """Copies of those weights, each moved at random by a small share of its size."""
    generator = seeded(1)
    found = {}
    for name in names:
        weight = model.weights[name]
        shape = (count, *weight.shape)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        size = float(weight.abs().double().mean()) or 1.0
        found[name] = weight + (_MOVE * size * noise).to(weight.dtype)
    return found


def _of(model: AbstractPerturbable, group: str) -> tuple[str, ...]:
    return tuple(name for name, role in model.roles.items() if role.group == group)


def _check_words(model: AbstractPerturbable) -> None:
    must(isinstance(model, AbstractPerturbable), f"{model!r} is no AbstractPerturbable")
    must(bool(model.weights), "no weight may be moved")
    must(model.weights.keys() == model.roles.keys(), "weights and roles have different names")
    for name, role in model.roles.items():
        known = role.group in GROUPS and role.form in FORMS
        must(known, f"{name} is {role.group} and a {role.form}, which is not known")
        must(not model.weights[name].requires_grad, f"{name} asks for gradients")


def _check_still(subject: AbstractSubject, model: AbstractPerturbable, inputs: Tensor) -> None:
    """With weights moved by nothing, every copy answers as the subject."""
    still = {name: w.expand(COPIES, *w.shape) for name, w in model.weights.items()}
    answers, wanted = model.respond(inputs, still), subject.respond(inputs)
    right = tuple(answers.shape) == (COPIES, *wanted.shape)
    must(right, f"{COPIES} copies answer by {tuple(answers.shape)}, one by {tuple(wanted.shape)}")
    for k in range(COPIES):
        _near(answers[k], wanted, f"copy {k} without a move is off")
    _near(model.respond(inputs, {})[0], wanted, "with no weight named the answer is off")


def _check_copies(
    subject: AbstractSubject,
    model: AbstractPerturbable,
    inputs: Tensor,
    names: tuple[str, ...],
) -> None:
    """Copy k answers as a deep copy whose weights were written over by entry k."""
    moved = moves(model, names, COPIES)
    answers = model.respond(inputs, moved)
    told = listed(names, most=3)
    for k in (0, COPIES - 1):
        twin = deepcopy(subject)
        weights = getattr(twin.perturbable(), "weights", {})
        for name, value in moved.items():
            weights[name].copy_(value[k])
        _near(answers[k], twin.respond(inputs), f"copy {k}, moved in {told}, is off")
    alone = model.respond(inputs, {name: value[1:2] for name, value in moved.items()})
    _near(alone[0], answers[1], f"a copy alone, moved in {told}, is off")


def _check_gradient(model: AbstractPerturbable, inputs: Tensor, dtype: torch.dtype) -> None:
    """The gradient of the sum of squares against a difference quotient along a direction."""
    base = moves(model, tuple(model.weights), 1)
    ahead = moves(model, tuple(model.weights), 2)
    way = {name: (ahead[name][1:2] - value) / _MOVE for name, value in base.items()}
    asked = {name: value.clone().requires_grad_() for name, value in base.items()}
    with torch.enable_grad():
        loss = model.respond(inputs, asked).abs().square().sum()
        slopes = torch.autograd.grad(loss, list(asked.values()), allow_unused=True)
    found = sum(
        float((slope.conj() * step).real.sum())
        for slope, step in zip(slopes, way.values(), strict=True)
        if slope is not None
    )
    h = torch.finfo(dtype).eps ** (1 / 3) / 4
    high, low = (
        float(_at(model, inputs, base, way, sign * h).double().square().sum()) for sign in (1, -1)
    )
    wanted = (high - low) / (2 * h)
    limit = _SLOPE[dtype] * max(abs(wanted), abs(high))
    must(abs(found - wanted) <= limit, f"the gradient says {found:.6g}, differences {wanted:.6g}")


def _at(
    model: AbstractPerturbable,
    inputs: Tensor,
    base: Mapping[str, Tensor],
    way: Mapping[str, Tensor],
    share: float,
) -> Tensor:
    return model.respond(inputs, {name: value + share * way[name] for name, value in base.items()})


def _check_modes(subject: AbstractSubject, model: AbstractPerturbable) -> None:
    """Moduli of the eigenvalues, as many for every copy, and at rest those of the spectrum."""
    found = model.modes(moves(model, tuple(model.weights), COPIES))
    for layer, values in found.items():
        right = values.ndim == 2 and len(values) == COPIES and values.is_complex()
        must(right, f"the modes of {layer} are {tuple(values.shape)} of {values.dtype}")
    known = {spectrum.layer: spectrum.eigenvalues for spectrum in subject.spectra()}
    for layer, values in model.modes({}).items():
        must(layer in found, f"{layer} has modes only while nothing is moved")
        if layer not in known:
            continue
        wanted = torch.as_tensor(known[layer]).abs().flatten().sort().values
        off = values[0].abs().sort().values.cpu() - wanted
        limit = _ROUNDINGS * torch.finfo(subject.dtype).eps
        must(float(off.abs().max()) <= limit, f"the modes of {layer} are not its eigenvalues")


def _near(one: Tensor, other: Tensor, sentence: str) -> None:
    scale = float(other.detach().abs().max())
    off = float((one.detach() - other.detach()).abs().max())
    limit = _ROUNDINGS * torch.finfo(other.dtype).eps * scale
    must(off <= limit, f"{sentence} by {off:.2g}, at answers up to {scale:.2g}")
