"""Recurrent layers inside models of the library: found, sped up, heard, and their spectra."""

from memaudit_transformers.recurrent.fast import fast_scans
from memaudit_transformers.recurrent.finding import Recurrent, find_recurrences, unmatched
from memaudit_transformers.recurrent.spectra import spectra_of
from memaudit_transformers.recurrent.steps import Steps
from memaudit_transformers.recurrent.taps import decays_of, steps_of

__all__ = [
    "Recurrent",
    "Steps",
    "decays_of",
    "fast_scans",
    "find_recurrences",
    "spectra_of",
    "steps_of",
    "unmatched",
]
