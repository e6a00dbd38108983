"""A report with something in every part that a format tells of."""

from __future__ import annotations

from dataclasses import replace

from memaudit.report import Finding, GateResult, Report
from memaudit.testing.samples import gradients, precision, stability
from tests.handmade import assumption, curve, identity, power_law, report
from tests.spectrum.evidence import modes

FINDINGS = (
    Finding("MA201", "near-boundary", "warning", "100% of it, at a: b", "train it, then", "cell.0"),
    Finding("MA201", "near-boundary", "warning", "less of it", "train it, then", "cell.1"),
    Finding("MA105", "supremum-at-edge", "note", "still rising", "try others"),
)
GATES = (
    GateResult("horizon<200", True, "horizon = 139 at heaviside"),
    GateResult("MA301", False),
    GateResult("impulse.horizon<1024", False, "impulse.horizon is beyond 512"),
)


def told() -> Report:
    """A report that is complete."""
    who = identity(
        sha256="ab12",
        notes=("2 layers",),
        assumed={"pool": "none (not stored in the file)"},
    )
    return report(
        curve(),
        power_law("impulse"),
        subject=who,
        assumptions=(assumption("causal", True), assumption("linear", False)),
        spectrum=(replace(modes(0.9), layer="cell_0"), modes(1.0)),
        stability=stability(),
        precision=precision(),
        gradient=gradients(),
        findings=FINDINGS,
        gates=GATES,
    )


def cut_short() -> Report:
    """The same, ended by an error."""
    error = {"code": "E_MEMORY", "stage": "impulse", "message": "no room", "hint": "--quick"}
    return replace(told(), complete=False, errors=(error,), gates=())
