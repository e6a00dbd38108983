"""Families built by hand: curves from closed forms, no model behind them."""

from __future__ import annotations

from typing import Any

import numpy as np

from memaudit.families.crossings import judged
from memaudit.families.result import FamilyMember, FamilyReport
from tests.handmade import identity

BETAS = 1e-3 * 2.0 ** np.arange(11)


def member(size: int, level: float, slope: float, **changes: Any) -> FamilyMember:
    """E = level + slope beta, by both seeds."""
    errors = level + slope * BETAS
    fields: dict[str, Any] = {
        "subject": identity(source=f"model{size}.pt"),
        "size": size,
        "start": level,
        "errors": errors,
        "seeds": (errors, errors),
        "weight": 1.0,
        "margin": 0.1,
        "radius": 0.128,
    }
    return FamilyMember(**{**fields, **changes})


def family_report(*members: FamilyMember, **changes: Any) -> FamilyReport:
    """The report of these members with its crossings and its verdict."""
    fields: dict[str, Any] = {
        "members": members,
        "betas": BETAS,
        "reference": "the target exp:0.9",
        "scale": 10.0,
        "counted": "states",
        "crossings": (),
        "verdict": "undetermined",
        "reason": "",
        "settings": {"ball": "spectral", "norm": "sobolev", "group": "all", "steps": 100},
    }
    return judged(FamilyReport(**{**fields, **changes}))


def stable() -> FamilyReport:
    """Larger members are better at every beta."""
    return family_report(*(member(m, 1 / m, 1.0) for m in (2, 4, 8)))


def unstable() -> FamilyReport:
    """E_m = 1/m² + m³ beta: the larger the member, the sooner it is lost."""
    return family_report(*(member(m, m**-2.0, float(m**3)) for m in (2, 4, 8)))
