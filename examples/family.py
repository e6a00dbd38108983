"""Do larger models of one family stand smaller moves of their weights?

python examples/family.py [--steps 400] [--draws 10]

Sums of m exponentials are fitted to a kernel by least squares. A kernel that decays exponentially,
0.9^t, leaves room for moves of one size whatever m is; for (t+1)^-1.1 the room shrinks as m grows,
unless the modes are stored behind exp or softplus (after Figures 1 and 4 of IATN). The figures
look at 100 steps; the slowest of these modes last 300, so --steps 100 leaves the second open.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import memaudit
from examples.reproduce.students import fitted
from memaudit.families.result import FamilyReport

SIZES = (2, 4, 6, 8, 14)
#: target → the largest mode that a fit may use.
TARGETS = {"exp:0.9": 0.95, "poly:1.1": 1.0}


def audited(target: str, form: str, *, steps: int, draws: int) -> FamilyReport:
    """The audit of one family with the sizes and moves of the paper's figure."""
    members = [
        fitted(target, size, reparam=form, largest=TARGETS[target], steps=steps) for size in SIZES
    ]
    betas = [5e-4 * 2.0**k for k in range(21)]
    wrapped = [memaudit.wrap(member, input_size=1) for member in members]
    return memaudit.family(wrapped, target=target, betas=betas, draws=draws, steps=steps)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the crossings and the verdict of every family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--draws", type=int, default=10)
    chosen = parser.parse_args(arguments)
    for target, form in (
        ("exp:0.9", "direct"),
        ("poly:1.1", "direct"),
        ("poly:1.1", "exp"),
        ("poly:1.1", "softplus"),
    ):
        report = audited(target, form, steps=chosen.steps, draws=chosen.draws)
        crossings = ", ".join(f"{c.smaller}-{c.larger}: {c.beta:.3g}" for c in report.crossings)
        codes = " ".join(finding.code for finding in report.findings) or "none"
        print(f"{target}, {form}: {report.verdict}: {report.reason}")
        print(f"  crossings by m: {crossings}; findings: {codes}")


if __name__ == "__main__":
    main()
