"""Nonlinear recurrences: where they settle, their Jacobians there and along a trajectory."""

from memaudit.numerics.recurrence.lyapunov import Exponent, lyapunov
from memaudit.numerics.recurrence.modes import Modes, block_jacobian, block_modes
from memaudit.numerics.recurrence.settle import Settled, settle
from memaudit.numerics.recurrence.spectra import recurrence_spectra
from memaudit.numerics.recurrence.states import trajectory

__all__ = [
    "Exponent",
    "Modes",
    "Settled",
    "block_jacobian",
    "block_modes",
    "lyapunov",
    "recurrence_spectra",
    "settle",
    "trajectory",
]
