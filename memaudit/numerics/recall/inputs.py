"""Independent inputs, and the independent channels of which they are made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Directions of real inputs with less than this share of the largest variance are not counted.
_THIN = 1e-6


@dataclass(frozen=True, slots=True)
class Whitened:
    """Inputs (…,D) to feed, and their channels (…,C): uncorrelated, of mean 0 and variance 1."""

    inputs: Tensor
    channels: Tensor


def gaussian(shape: tuple[int, ...], *, scale: float, generator: torch.Generator) -> Whitened:
    """Gaussian inputs of standard deviation `scale`, each entry a channel of its own."""
    channels = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Whitened(scale * channels, channels)


def whitened(
    natural: Tensor, shape: tuple[int, ...], *, scale: float, generator: torch.Generator
) -> Whitened:
    """Draws of the given vectors (n,D), each as likely as any other; `shape` ends with D.

    The channels are the principal components of the vectors; `scale` stretches around the mean.
    """
    vectors = natural.detach().to("cpu", torch.float64)
    mean = vectors.mean(0)
    left, values, _ = torch.linalg.svd(vectors - mean, full_matrices=False)
    kept = values.square() > _THIN * values[:1].square().clamp(min=torch.finfo(values.dtype).tiny)
    at = torch.randint(len(vectors), shape[:-1], generator=generator)
    channels = left[:, kept] * len(vectors) ** 0.5
    return Whitened((mean + scale * (vectors - mean))[at], channels[at])
