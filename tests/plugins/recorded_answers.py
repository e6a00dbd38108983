"""The records of the reference checkpoints: what was fed, and whether a model answers the same."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from memaudit.interfaces import AbstractSubject

#: Of the largest recorded number: a thousand products of rounding 1e-7 add up in float32; the
#: double-precision record is exact to rounding.
LIMITS = {"float32": 1e-4, "float64": 1e-9}
STEPS = 512


def records(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "io.safetensors")


def fed(kind: str, width: int) -> Tensor:
    """The signal of that name: ones throughout, at the first step alone, or never."""
    signal = torch.zeros(1, STEPS, width, dtype=torch.float64)
    signal[:, : {"heaviside": STEPS, "impulse": 1, "zero": 0}[kind]] = 1.0
    return signal


def assert_close_to_record(subject: AbstractSubject, folder: Path) -> None:
    """The subject gives every recorded answer of its dtype."""
    recorded, dtype = records(folder), str(subject.dtype).removeprefix("torch.")
    wide = "64" if dtype == "float64" and "output64" in recorded else ""
    seen = []
    for kind in ("", "heaviside", "impulse", "zero"):
        wanted = recorded.get(f"{kind}_output{wide}" if kind else f"output{wide}")
        if wanted is None:
            continue
        inputs = fed(kind, subject.input_size or 0) if kind else recorded["input"]
        if inputs.is_floating_point():
            inputs = inputs.to(subject.dtype)
        answer = subject.respond(inputs)
        assert answer.dtype == subject.dtype
        assert (answer - wanted).abs().max() <= LIMITS[dtype] * wanted.abs().max(), kind
        seen.append(kind)
    assert "" in seen


def recorded_modes(folder: Path) -> Tensor:
    """The recorded eigenvalues of every layer."""
    recorded = records(folder)
    return torch.complex(recorded["eigs_real"].double(), recorded["eigs_imag"].double())
