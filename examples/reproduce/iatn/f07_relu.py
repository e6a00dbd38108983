"""I-F7: ReLU RNNs approximate (t+1)^-1.5 without stability, behind softplus with it."""

from __future__ import annotations

from examples.reproduce.iatn.softplus_families import two_families
from examples.reproduce.row import Effort, Outcome, Row


def run(effort: Effort) -> Outcome:
    """Free weights must be unstable, those behind softplus stable."""
    return two_families(
        effort,
        {
            "ReLU, direct": ("relu", "direct", "unstable"),
            "ReLU, softplus": ("relu", "softplus", "stable"),
        },
        printed={"ReLU, direct": 1e30, "ReLU, softplus": 1e4},
    )


ROW = Row(
    id="I-F7a/b",
    title="ReLU RNNs with and without a stable form",
    claim="ReLU RNNs are unstable (E up to 1e30), with softplus stable",
    run=run,
)
