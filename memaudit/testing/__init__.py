"""Checks for plugin authors: each raises AssertionError with a sentence where a law is broken."""

from __future__ import annotations

from memaudit.testing.laws import (
    check_adapter,
    check_linear_part,
    check_probe,
    check_query,
    check_reparam,
    check_report_format,
    check_rule,
    check_target,
    check_token_query,
    check_trial_query,
)
from memaudit.testing.samples import sample_reports

__all__ = [
    "check_adapter",
    "check_linear_part",
    "check_probe",
    "check_query",
    "check_reparam",
    "check_report_format",
    "check_rule",
    "check_target",
    "check_token_query",
    "check_trial_query",
    "sample_reports",
]
