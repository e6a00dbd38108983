"""Small models to train on targets: what is known of them, an audit must find."""

from memaudit.students.diagonal import DiagonalStudent as DiagonalStudent
from memaudit.students.fitting import Fit as Fit
from memaudit.students.fitting import fit as fit
from memaudit.students.least_squares import fitted as fitted
from memaudit.students.recurrent import RecurrentStudent as RecurrentStudent

__all__ = ["DiagonalStudent", "Fit", "RecurrentStudent", "fit", "fitted"]
