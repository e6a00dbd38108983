"""The numbers of a report by flat names: for trackers, for gates, for other people's tables."""

from memaudit.metrics.curves import whole_holders
from memaudit.metrics.names import METRICS, PREFIX, Metric, described, spoken
from memaudit.metrics.number import Number
from memaudit.metrics.reading import measured, metrics, named_numbers

__all__ = [
    "METRICS",
    "PREFIX",
    "Metric",
    "Number",
    "described",
    "measured",
    "metrics",
    "named_numbers",
    "spoken",
    "whole_holders",
]
