"""Moves of weights: their size, random and steepest ones, and how much the answers change.

Moves are batched, (K,…) for K copies of a weight (…), and every function acts on each by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.errors import ArgumentError, nearest
from memaudit.interfaces import BALLS, NORMS
from memaudit.numerics.chunking import shares, side_by_side, spans
from memaudit.numerics.signals import pulse, seeded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.interfaces import AbstractSubject, Setting


def size(delta: torch.Tensor, form: str, ball: str) -> torch.Tensor:
    """The sizes (K,) of moves (K,…) of a weight that acts as `form` says."""
    geometry = _geometry(delta.shape[1:], form, ball)
    flat = _wide(delta).flatten(1)
    if geometry == "operator":
        return _largest_singular(_matrices(_wide(delta)))
    return _size_of_flat(flat, geometry)


def draw(
    shape: Sequence[int],
    form: str,
    ball: str,
    count: int,
    generator: torch.Generator,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """`count` random moves (K,…) of size 1: the sphere of the ball, its corners among them."""
    geometry = _geometry(shape, form, ball)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    options = {"generator": generator, "dtype": wide, "device": generator.device}
    numbers = torch.Size(shape).numel()
    if geometry == "box":
        found = 2.0 * torch.rand(count, numbers, **options) - 1.0
        # The worst move of a box is often a corner, which uniform draws never come near.
        found[::2] = torch.where(found[::2] < 0, -1.0, 1.0).to(wide)
        found = found / _size_of_flat(found, geometry)[:, None]
    elif geometry == "discs":
        found = torch.randn(count, numbers, **options)
        # Every second move has all its numbers on the rims, as the corners of a box.
        found[::2] = _on_rims(found[::2])
        found = found / _size_of_flat(found, geometry)[:, None]
    elif geometry == "sphere":
        found = torch.randn(count, numbers, **options)
        found = found / _size_of_flat(found, geometry)[:, None]
    else:
        rows = shape[0] if len(shape) else 1
        found = _operators(torch.randn(count, rows, numbers // max(rows, 1), **options), generator)
    return found.reshape(count, *shape).to(device=device, dtype=dtype)


def steepest(gradient: torch.Tensor, form: str, ball: str) -> torch.Tensor:
    """The moves of size 1 with the largest inner product with `gradient`.

    Where the gradient is zero, so is the move. Of a matrix U S V^T in the spectral ball it is
    U V^T, in a box the signs, else g / |g|.
    """
    geometry = _geometry(gradient.shape[1:], form, ball)
    wide = _wide(gradient)
    flat = wide.flatten(1)
    # Gradients of an exploding error are huge: their squares must not overflow.
    largest = flat.abs().amax(1, keepdim=True) if flat.shape[1] else flat.sum(1, keepdim=True)
    flat = flat / torch.where(largest > 0, largest, 1.0)
    if geometry == "operator":
        left, values, right = torch.linalg.svd(
            _matrices(flat.reshape(wide.shape)), full_matrices=False
        )
        # Directions that the gradient does not have are rounding: they are left alone.
        rounding = torch.finfo(wide.dtype).eps * max(left.shape[1], right.shape[2])
        kept = (values > rounding * values[:, :1]).to(wide.dtype)
        found = (left * kept.unsqueeze(1)) @ right
    elif geometry == "box":
        found = flat.sign()
    elif geometry == "discs":
        found = _on_rims(flat)
    else:
        length = _size_of_flat(flat, geometry)[:, None]
        found = flat / torch.where(length > 0, length, 1.0)
    return found.reshape(gradient.shape).to(gradient.dtype)


def _geometry(shape: Sequence[int], form: str, ball: str) -> str:
    """What the ball is to a weight of this form: "operator", "sphere", "box" or "discs"."""
    if ball not in BALLS:
        raise ArgumentError(f"there is no ball {ball!r}", hint=nearest(ball, BALLS))
    if ball == "frobenius":
        return "sphere"
    if form == "pairs":
        return "discs"
    if ball == "max-abs" or form == "diagonal":
        return "box"
    return "operator" if form == "matrix" and len(shape) > 1 else "sphere"


def _size_of_flat(flat: torch.Tensor, geometry: str) -> torch.Tensor:
    if geometry == "box":
        return flat.abs().amax(1)
    if geometry == "discs":
        return torch.linalg.vector_norm(_pairs(flat), dim=2).amax(1)
    return torch.linalg.vector_norm(flat, dim=1)


def _pairs(flat: torch.Tensor) -> torch.Tensor:
    """Real and imaginary parts (K,n,2) side by side."""
    return flat.unflatten(1, (-1, 2))


def _on_rims(flat: torch.Tensor) -> torch.Tensor:
    """Complex numbers of modulus one in the same directions; zero stays zero."""
    pairs = _pairs(flat)
    far = torch.linalg.vector_norm(pairs, dim=2, keepdim=True)
    return (pairs / torch.where(far > 0, far, 1.0)).flatten(1)


def _operators(gaussian: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Matrices (K,r,c) of largest singular value 1: all of them 1, as they come, of rank one."""
    found = torch.empty_like(gaussian)
    tall = gaussian.shape[1] >= gaussian.shape[2]
    upright = gaussian[0::3] if tall else gaussian[0::3].mT
    # The sign of R's diagonal is LAPACK's choice; without it Q is uniformly distributed.
    q, r = torch.linalg.qr(upright)
    q = q * torch.where(r.diagonal(dim1=1, dim2=2) < 0, -1.0, 1.0).to(q.dtype).unsqueeze(1)
    found[0::3] = q if tall else q.mT
    found[1::3] = gaussian[1::3] / _largest_singular(gaussian[1::3])[:, None, None]
    left = gaussian[2::3, :, 0]
    right = torch.randn(
        len(left),
        gaussian.shape[2],
        generator=generator,
        dtype=gaussian.dtype,
        device=gaussian.device,
    )
    left, right = (v / torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (left, right))
    found[2::3] = left.unsqueeze(2) * right.unsqueeze(1)
    return found


def _largest_singular(matrices: torch.Tensor) -> torch.Tensor:
    """The largest singular values (K,), from the products with the transpose: far fewer numbers.

    Squares lose the digits of small singular values, not those of the largest.
    """
    scale = matrices.abs().amax((1, 2)).clamp_min(torch.finfo(matrices.dtype).tiny)
    wide = (matrices / scale[:, None, None]).double()
    product = wide.mT @ wide if wide.shape[1] >= wide.shape[2] else wide @ wide.mT
    root = torch.linalg.eigvalsh(product)[:, -1].clamp_min(0.0).sqrt()
    return root.to(matrices.dtype) * scale


def _matrices(delta: torch.Tensor) -> torch.Tensor:
    """Moves (K,r,…) as matrices (K,r,c)."""
    return delta.flatten(2)


def _wide(delta: torch.Tensor) -> torch.Tensor:
    """In float32 at least: there is no decomposition in half precision."""
    return delta if delta.dtype == torch.float64 else delta.float()


def error_norm(difference: torch.Tensor, norm: str, *, pooled: bool) -> torch.Tensor:
    """The errors (K,) of differences d (K,B,T,M), or (K,B,M) of pooled answers, in float64.

    With |.|_inf over the outputs, d(-1) = 0, and the largest over the rows B:

    sobolev: sup_t |d(t)|_inf + |d(t) - d(t-1)|_inf; sup: sup_t |d(t)|_inf; l1: sum_t |d(t)|_inf.

    mse is the mean of all squares. A pooled answer has no derivative. What is not finite is
    infinite; elsewhere the error can be differentiated.
    """
    if norm not in NORMS:
        raise ArgumentError(f"there is no norm {norm!r}", hint=nearest(norm, NORMS))
    d = difference.double()
    d = d.unsqueeze(2) if pooled else d
    if norm == "mse":
        found = d.square().flatten(1).mean(1)
    else:
        sizes = _largest_output(d)
        if norm == "sobolev" and not pooled:
            sizes = sizes + torch.cat([sizes[:, :, :1], _largest_output(d.diff(dim=2))], 2)
        found = (sizes.sum(2) if norm == "l1" else sizes.amax(2)).amax(1)
    return torch.where(torch.isfinite(found), found, torch.inf)


def _largest_output(d: torch.Tensor) -> torch.Tensor:
    """|d|_inf over the outputs: (K,B,T) of (K,B,T,M)."""
    return d.flatten(3).abs().amax(3)


#: Numbers of a difference that are worked on at a time: they stay in the processor's cache.
AT_A_TIME = 2**17


def error_norms(
    answers: torch.Tensor, reference: torch.Tensor, norm: str, *, pooled: bool
) -> torch.Tensor:
    """The errors (S,K) of answers (S,K,B,…) against the reference (B,…), in float64.

    Differences in double precision are larger than the answers; so they are made in pieces.
    """
    found = torch.empty(answers.shape[:2], dtype=torch.float64, device=answers.device)
    on_processor = answers.device.type == "cpu"
    pieces = -(-len(answers) * reference.numel() // AT_A_TIME) if on_processor else 1
    count = max(1, -(-len(answers) // max(1, pieces)))

    def work(part: slice) -> None:
        for k in range(part.start, part.stop):
            for span in spans(len(answers), count):
                difference = answers[span, k].double() - reference
                found[span, k] = error_norm(difference, norm, pooled=pooled)

    with torch.no_grad():
        side_by_side(work, shares(answers.shape[1], on_processor=on_processor))
    return found


#: Real input vectors of which the natural sequences are made.
NATURAL = 64


def perturbing_inputs(
    subject: AbstractSubject, setting: Setting, *, steps: int = 100, rows: int = 8
) -> torch.Tensor:
    """Sequences (rows, steps, D) with |u(t)|_inf <= 1, in the dtype of the subject.

    The constants 1 and -1, an impulse, random signs and uniform noise; then sequences of natural
    inputs where there are some, else more signs and noise. The same seed gives the same numbers.
    A model that takes fewer steps is fed fewer.
    """
    generator = seeded(setting.seed)
    width = subject.input_size or 1
    steps = steps if subject.longest is None else min(steps, subject.longest)
    ones = torch.ones(1, width, dtype=torch.float64)
    fixed = [pulse(x, on=on, length=steps) for x, on in ((ones, steps), (-ones, steps), (ones, 1))]
    noise = _noise(max(rows - len(fixed), 2), steps, width, generator)
    natural = subject.natural_inputs(NATURAL, generator)
    if natural is not None and len(natural):
        at = torch.randint(len(natural), (len(noise) - 2, steps), generator=generator)
        real = natural.detach().to("cpu", torch.float64)
        noise[2:] = (real / real.abs().max().clamp(min=1.0))[at]
    return torch.cat([*fixed, noise])[:rows].to(subject.device, subject.dtype)


def _noise(rows: int, steps: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """Random signs and uniform noise, in turns."""
    noise = 2 * torch.rand(rows, steps, width, generator=generator, dtype=torch.float64) - 1
    noise[::2] = noise[::2].sign()
    return noise
