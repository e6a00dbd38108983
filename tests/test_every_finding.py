"""Every rule keeps the laws, and needs what it says that it needs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from memaudit.interfaces import Status
from memaudit.registry import BUILT_IN, DEFAULT_PROBES, DEFAULT_QUERIES
from memaudit.report import Report
from memaudit.rules import FAMILY, Rule, all_rules, judge, unmet
from memaudit.testing import check_rule, sample_reports
from memaudit.testing.samples import having
from tests.handmade import curve, identity, report
from tests.memory.test_rules import EVIDENCE
from tests.spectrum.evidence import SPECTRAL, modes

RULES = all_rules()
#: Those about one model that need something.
NEEDY = [code for code, one in RULES.items() if one.needs and one.needs != (FAMILY,)]


@pytest.mark.parametrize("code", [code for code, one in RULES.items() if one.needs != (FAMILY,)])
def test_the_rule_keeps_the_laws(code):
    assert RULES[code].code == code
    check_rule(RULES[code])


def test_no_two_rules_share_a_name():
    names = [one.name for one in RULES.values()]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def samples() -> dict[str, Report]:
    """The sample reports, and one in which nearly everything is wrong."""
    made = sample_reports()
    assumed = tuple(replace(a, holds=False) for a in made["full"].assumptions)
    spectra = (modes(0.99999), replace(modes(1.5), parameterization="direct"))
    made["bad"] = having(made["moved"], assumptions=assumed, spectrum=spectra)
    return made


#: An option, a command, or words of code.
COMMAND = re.compile(r"--[a-z]+|memaudit [a-z]+|`[^`]+`")


def test_every_advice_says_a_command_or_an_option(samples):
    reports = [*(row[2] for row in (*EVIDENCE, *SPECTRAL)), *samples.values()]
    seen = [finding for made in reports for finding in judge(made)]
    told = {finding.code for finding in seen}
    of_families = {code for code, one in RULES.items() if one.needs == (FAMILY,)}
    assert set(RULES) - told == {"MA116", *of_families}  # closed forms, and several models
    assert [(f.code, f.advice) for f in seen if not COMMAND.search(f.advice)] == []


def near_boundary(**who) -> str:
    """The advice of MA201 about a model from somewhere."""
    made = having(report(curve(), subject=identity(**who)), spectrum=(modes(0.99999),))
    return next(finding.advice for finding in judge(made) if finding.code == "MA201")


def test_an_advice_names_the_source():
    advice = near_boundary(source="runs/my model.pt", sha256="ab")
    assert advice.endswith("`memaudit retrofit 'runs/my model.pt' --reparam best --out DIR`")
    advice = near_boundary(source="GRU", sha256="ab")
    assert advice.endswith("`memaudit.retrofit(module, reparam='best')`")


def without(made: Report, name: str) -> Report:
    """The report of an audit that did not ask for it."""
    kind = "probes" if name in BUILT_IN["probes"] else "queries"
    rest = [one for one in made.settings.get(kind, ()) if one != name]
    made = replace(made, settings={**made.settings, kind: rest})
    if kind == "probes":
        return replace(made, results={k: r for k, r in made.results.items() if k != name})
    layers = {at: _but(curves, name) for at, curves in made.layers.items()}
    return having(made, memory=_but(made.memory, name), layers=layers)


def _but(curves: dict, name: str) -> dict:
    return {query: found for query, found in curves.items() if query != name}


def needed(one: Rule) -> list[str]:
    """The probes and queries whose absence alone a rule cannot bear."""
    names = [*BUILT_IN["probes"], *BUILT_IN["queries"]]
    return [name for name in names if one.lacks([other for other in names if other != name])]


@pytest.mark.parametrize("code", NEEDY)
def test_a_rule_says_nothing_without_what_it_needs(code, samples):
    assert needed(RULES[code]) or callable(RULES[code].needs)
    for made in samples.values():
        for name in needed(RULES[code]):
            poorer = without(made, name)
            assert not list(RULES[code].check(poorer))
            assert unmet(RULES[code], poorer)


def test_a_finding_never_comes_from_a_rule_that_lacks_something(samples):
    found = {finding.code for made in samples.values() for finding in judge(made)}
    assert {"MA201", "MA202", "MA203", "MA205", "MA206", "MA301", "MA304"} <= found
    for made in samples.values():
        for finding in judge(made):
            assert unmet(RULES[finding.code], made) == ""


# Rules about whatever curves there are need none of them by name.
@pytest.mark.parametrize("probe", [name for name in BUILT_IN["probes"] if name != "memory"])
def test_a_rule_that_finds_nothing_without_a_probe_says_that_it_needs_it(probe, samples):
    for made in samples.values():
        poorer = without(made, probe)
        gone = {f.code for f in judge(made)} - {f.code for f in judge(poorer)}
        assert all(unmet(RULES[code], poorer) for code in gone)


@pytest.mark.parametrize("code", RULES)
def test_a_usual_audit_lacks_only_what_takes_long(code):
    missing = RULES[code].lacks([*DEFAULT_QUERIES, *DEFAULT_PROBES, "memory"])
    family = FAMILY if RULES[code].needs == (FAMILY,) else ""
    assert missing == {"MA205": "precision", "MA206": "gradient"}.get(code, family)


def test_what_was_not_measured_is_distinguished_from_what_was_not_asked_for():
    cut = report(curve(), settings={"queries": ["impulse"], "probes": ["precision"]})
    assert unmet(RULES["MA205"], cut) == "precision was not measured"
    assert unmet(RULES["MA206"], cut) == "gradient was not asked for"
    odd = replace(cut, settings={"queries": 3, "probes": None})
    assert unmet(RULES["MA205"], odd) == "precision was not asked for"


def test_a_query_that_could_not_be_asked_triggers_no_rule():
    none = curve("heaviside", values=np.zeros(0), status=Status.TOO_SHORT)
    made = report(none, curve("impulse"), settings={"queries": ["heaviside", "impulse"]})
    assert unmet(RULES["MA101"], made) == "heaviside was not measured"
