"""I-F8: behind softplus hardtanh and tanh RNNs approximate (t+1)^-1.5 stably."""

from __future__ import annotations

from examples.reproduce.iatn.softplus_families import two_families
from examples.reproduce.row import Effort, Outcome, Row


def run(effort: Effort) -> Outcome:
    """Both must be stable."""
    return two_families(
        effort,
        {
            "hardtanh, softplus": ("hardtanh", "softplus", "stable"),
            "tanh, softplus": ("tanh", "softplus", "stable"),
        },
        printed={},
    )


ROW = Row(
    id="I-F8",
    title="hardtanh and tanh RNNs behind softplus",
    claim="with softplus, hardtanh and tanh RNNs approximate the polynomial target stably",
    run=run,
)
