"""The laws of a rule."""

from __future__ import annotations

import re

from memaudit.contracts import AbstractRule
from memaudit.report import SEVERITIES, Finding
from memaudit.testing.law import must
from memaudit.testing.samples import sample_reports


def check_rule(rule: AbstractRule) -> None:
    """The laws of `AbstractRule`: a code, a severity, an explanation, findings of its own."""
    must(isinstance(rule, AbstractRule), f"{rule!r} is no AbstractRule")
    ours = type(rule).__module__.startswith("memaudit.")
    pattern = r"MA\d{3}" if ours else r"[A-Z]{2,}\d{3}"
    must(bool(re.fullmatch(pattern, rule.code)), f"the code {rule.code!r} is not like {pattern}")
    kebab = bool(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name))
    must(kebab, f"the name {rule.name!r} is not words with hyphens")
    must(rule.severity in SEVERITIES, f"the severity {rule.severity!r} is none of {SEVERITIES}")
    must(rule.milder in ("", *SEVERITIES), f"milder is {rule.milder!r}, none of {SEVERITIES}")
    sentences = len(re.findall(r"[.!?](?=\s|$)", rule.explanation))
    must(sentences >= 3, f"the explanation has {sentences} sentences; three are the least")
    for report in sample_reports().values():
        found = list(rule.check(report))
        must(found == list(rule.check(report)), "the same report gives other findings")
        for finding in found:
            must(isinstance(finding, Finding), f"check yields {finding!r}, which is no Finding")
            own = (finding.code, finding.name)
            must(own == (rule.code, rule.name), f"check yields a finding {own}")
            grave = SEVERITIES.index(finding.severity) > SEVERITIES.index(rule.severity)
            must(not grave, f"a finding is graver ({finding.severity}) than its rule")
            told = finding.severity in (rule.severity, rule.milder) or not ours
            must(told, f"a finding is a {finding.severity}, and its rule does not say so")
            must(bool(finding.message and finding.advice), "a finding has no message or advice")
