"""The laws of a model whose weights are an argument."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor

from memaudit.contracts import AbstractPerturbable, AbstractSubject
from memaudit.errors import listed
from memaudit.numerics.signals import seeded
from memaudit.perturbable import FORMS, GROUPS
from memaudit.testing.law import draw, must
from memaudit.testing.weights import fingerprint

#: Steps of the test sequences, and how many copies answer at once.
STEPS, COPIES = 9, 3
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
        rows = draw(2 * STEPS, subject.input_size or 1).view(2, STEPS, -1)
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
