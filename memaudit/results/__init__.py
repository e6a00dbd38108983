"""The frozen records that an audit produces, and their strict JSON form."""

from memaudit.results.closed_form import ClosedForm
from memaudit.results.curve import KINDS, Curve, Decay, Status
from memaudit.results.family import FamilyReport
from memaudit.results.gate import GateResult
from memaudit.results.gradient import Gradient, ReparamGradient
from memaudit.results.identity import Identity, Recurrence
from memaudit.results.judgement import SEVERITIES, Assumption, Finding
from memaudit.results.precision import Precision, RoundedLayer, RoundedMemory, Rounding
from memaudit.results.recall import Decoding, LinearRecall, Recall, StateRecall, StationaryRecall
from memaudit.results.report import SCHEMA, Report
from memaudit.results.retrofit import RefusedLayer, Retrofit, RetrofittedLayer
from memaudit.results.spectrum import Spectrum, SpectrumPoint
from memaudit.results.stability import PerturbationCurve, Radius, Stability

__all__ = [
    "KINDS",
    "SCHEMA",
    "SEVERITIES",
    "Assumption",
    "ClosedForm",
    "Curve",
    "Decay",
    "Decoding",
    "FamilyReport",
    "Finding",
    "GateResult",
    "Gradient",
    "Identity",
    "LinearRecall",
    "PerturbationCurve",
    "Precision",
    "Radius",
    "Recall",
    "Recurrence",
    "RefusedLayer",
    "ReparamGradient",
    "Report",
    "Retrofit",
    "RetrofittedLayer",
    "RoundedLayer",
    "RoundedMemory",
    "Rounding",
    "Spectrum",
    "SpectrumPoint",
    "Stability",
    "StateRecall",
    "StationaryRecall",
    "Status",
]
