"""The records of the reference checkpoints: what was fed, and whether a model answers the same."""

from __future__ import annotations

from pathlib import Path

import torch

import memaudit
from memaudit.interfaces import AbstractSubject

SIGNALS = ("", "heaviside_", "impulse_", "zero_")
#: Of the largest recorded number; the double-precision record itself is exact to rounding.
LIMITS = {"float32": 1e-4, "float64": 1e-9}

Record = dict[str, torch.Tensor]


def signal(name: str, recorded: Record) -> torch.Tensor:
    """What was fed for the record of that name."""
    if not name:
        return recorded["input"].double()
    fed = torch.zeros(1, 512, recorded["input"].shape[-1], dtype=torch.float64)
    fed[:, : {"heaviside_": 512, "impulse_": 1, "zero_": 0}[name]] = 1.0
    return fed


def assert_answers(folder: Path, recorded: Record, name: str, *, dtype: str, execution: str):
    """The model in the folder gives the recorded answers."""
    subject = memaudit.load(folder, dtype=dtype, execution=execution)
    wanted = recorded[f"{name}output" + ("64" if dtype == "float64" else "")]
    found = subject.respond(signal(name, recorded).to(subject.dtype))
    assert (found - wanted).abs().max() <= LIMITS[dtype] * wanted.abs().max()


def recorded_modes(recorded: Record) -> torch.Tensor:
    """The recorded eigenvalues of every layer."""
    return torch.complex(recorded["eigs_real"], recorded["eigs_imag"])


def found_modes(subject: AbstractSubject) -> torch.Tensor:
    """The eigenvalues that the subject reports, layer by layer."""
    return torch.stack([torch.from_numpy(item.eigenvalues) for item in subject.spectra()])
