"""Shared fixtures. The guard comes first: timm and transformers import torchvision."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from memaudit.loading.torchvision_guard import guard_torchvision

    guard_torchvision()

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# The same examples every time: whoever wants to search further runs python -m tests.fuzz.
# No example is timed: machines are noisy.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Small models run faster on one thread, and results repeat."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference checkpoints beside the checkout."""
    if not (SHARED / "fixtures").is_dir():
        pytest.skip(f"the reference checkpoints are missing: no {SHARED.name}/fixtures beside it")
    return SHARED


def pytest_runtest_setup(item: pytest.Item) -> None:
    """GPU tests say why they do not run."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device: torch.cuda.is_available() is False here")
