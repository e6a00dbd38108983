"""Checks for plugin authors: each raises AssertionError with a sentence where a law is broken."""

from __future__ import annotations

from memaudit.testing.adapter import check_adapter
from memaudit.testing.dynamics import check_dynamics
from memaudit.testing.linear_part import check_linear_part
from memaudit.testing.perturbable import check_perturbable
from memaudit.testing.probe import check_probe
from memaudit.testing.query import check_query
from memaudit.testing.reparam import check_reparam
from memaudit.testing.report_format import check_report_format
from memaudit.testing.rule import check_rule
from memaudit.testing.samples import sample_reports
from memaudit.testing.target import check_target
from memaudit.testing.token_query import check_token_query

__all__ = [
    "check_adapter",
    "check_dynamics",
    "check_linear_part",
    "check_perturbable",
    "check_probe",
    "check_query",
    "check_reparam",
    "check_report_format",
    "check_rule",
    "check_target",
    "check_token_query",
    "sample_reports",
]
