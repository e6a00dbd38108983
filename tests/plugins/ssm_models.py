"""State dicts of selective scans made on the spot, and the recurrence written out step by step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from memaudit.interfaces import Request
from memaudit.loading import parse_source
from memaudit.subjects.hosts import Host
from memaudit_ssm import SsmAdapter

State = dict[str, Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def mixer(
    prefix: str = "", *, d: int = 3, n: int = 4, rank: int = 2, way: str = "", seed: int = 0
) -> State:
    """A mixer of Mamba-1; `way` is the letter of a second direction."""
    end = f"_{way}" if way else ""
    return {
        f"{prefix}A{end}_log": draw(d, n, seed=seed),
        f"{prefix}D{end}": draw(d, seed=seed + 1),
        f"{prefix}dt_proj{end}.weight": draw(d, rank, seed=seed + 2),
        f"{prefix}dt_proj{end}.bias": draw(d, seed=seed + 3) - 2.0,
        f"{prefix}x_proj{end}.weight": draw(rank + 2 * n, d, seed=seed + 4),
    }


def picture_scan(
    prefix: str = "", *, k: int = 4, d: int = 3, n: int = 4, rank: int = 2, seed: int = 0
) -> State:
    """A scan over a picture: k directions in one tensor."""
    return {
        f"{prefix}x_proj_weight": draw(k, rank + 2 * n, d, seed=seed + 4),
        f"{prefix}dt_projs_weight": draw(k, d, rank, seed=seed + 2),
        f"{prefix}dt_projs_bias": draw(k, d, seed=seed + 3) - 2.0,
        f"{prefix}A_logs": draw(k * d, n, seed=seed),
        f"{prefix}Ds": draw(k * d, seed=seed + 1),
    }


def one_channel(modes: list[float], *, dt: float = 0.5, skip: float = 0.0) -> State:
    """One channel with these eigenvalues, whose dt is constant and whose B and C are u."""
    rates = [-math.log(mode) / dt for mode in modes]
    n = len(modes)
    projection = torch.cat([torch.zeros(1, 1), torch.ones(2 * n, 1)]).double()
    return {
        "A_log": torch.tensor([rates], dtype=torch.float64).log(),
        "D": torch.tensor([skip], dtype=torch.float64),
        "dt_proj.weight": torch.zeros(1, 1, dtype=torch.float64),
        "dt_proj.bias": torch.tensor([math.log(math.expm1(dt))], dtype=torch.float64),
        "x_proj.weight": projection,
    }


def written(state: State, folder: Path) -> Path:
    path = folder / "model.safetensors"
    save_file({name: tensor.contiguous().clone() for name, tensor in state.items()}, path)
    return path


def opened(
    source: Any, folder: Path | None = None, *, dtype: torch.dtype | None = None, **options: Any
) -> Host:
    """The host behind a path, a module, or a state dict that is written into the folder."""
    if isinstance(source, dict):
        assert folder is not None
        source = written(source, folder)
    request = Request(torch.device("cpu"), dtype, None, options)
    host = SsmAdapter().load(parse_source(source), request)
    assert isinstance(host, Host)
    return host


def stepped(
    u: np.ndarray,
    *,
    a_log: np.ndarray,
    skip: np.ndarray,
    dt_weight: np.ndarray,
    dt_bias: np.ndarray,
    x_weight: np.ndarray,
) -> np.ndarray:
    """The recurrence of one direction for inputs (B,T,d), one step and one channel at a time."""
    rank, n = dt_weight.shape[1], a_log.shape[1]
    y = np.zeros_like(u)
    for row in range(u.shape[0]):
        h = np.zeros_like(a_log)
        for t in range(u.shape[1]):
            projected = x_weight @ u[row, t]
            b, c = projected[rank : rank + n], projected[rank + n :]
            for channel in range(u.shape[2]):
                dt = math.log1p(math.exp(dt_weight[channel] @ projected[:rank] + dt_bias[channel]))
                decay = np.exp(-dt * np.exp(a_log[channel]))
                h[channel] = decay * h[channel] + dt * b * u[row, t, channel]
                y[row, t, channel] = c @ h[channel] + skip[channel] * u[row, t, channel]
    return y
