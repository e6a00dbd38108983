"""The numbers of a report by flat names: for trackers, for gates, for other people's tables."""

from memaudit.metrics.curves import whole_holders
from memaudit.metrics.names import METRICS, PREFIX, Metric, described, spoken
from memaudit.metrics.reading import measured, metrics

__all__ = [
    "METRICS",
    "PREFIX",
    "Metric",
    "described",
    "measured",
    "metrics",
    "spoken",
    "whole_holders",
]
