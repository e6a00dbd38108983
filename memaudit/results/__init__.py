"""The frozen records that an audit produces, and their strict JSON form."""

from memaudit.results.closed_form import ClosedForm
from memaudit.results.curve import KINDS, Curve, Decay, Status
from memaudit.results.identity import Identity, Recurrence
from memaudit.results.judgement import SEVERITIES, Assumption, Finding
from memaudit.results.report import SCHEMA, Report
from memaudit.results.spectrum import Spectrum, SpectrumPoint

__all__ = [
    "KINDS",
    "SCHEMA",
    "SEVERITIES",
    "Assumption",
    "ClosedForm",
    "Curve",
    "Decay",
    "Finding",
    "Identity",
    "Recurrence",
    "Report",
    "Spectrum",
    "SpectrumPoint",
    "Status",
]
