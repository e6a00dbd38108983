"""Every registered rule keeps the laws of its contract."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from memaudit.needs import field_of, lacking, probes_of, queries_of, unmet
from memaudit.rule import FAMILY, AbstractRule

from memaudit import registry
from memaudit.catalog import BUILT_IN, DEFAULT_PROBES, DEFAULT_QUERIES
from memaudit.memory.result import Status
from memaudit.report import Report
from memaudit.rules import judge
from memaudit.testing import check_rule, sample_reports
from tests.handmade import curve, report
from tests.spectrum.evidence import modes


@pytest.mark.parametrize("code", registry.available("findings"))
def test_the_rule_keeps_the_laws(code):
    rule = registry.build("findings", code)
    assert rule.code == code
    check_rule(rule)


def test_no_two_rules_share_a_name():
    names = [registry.build("findings", code).name for code in registry.available("findings")]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def samples() -> dict[str, Report]:
    """The sample reports, and one in which nearly everything is wrong."""
    made = sample_reports()
    assumed = tuple(replace(a, holds=False) for a in made["full"].assumptions)
    spectra = (modes(0.99999), replace(modes(1.5), parameterization="direct"))
    made["bad"] = replace(made["moved"], assumptions=assumed, spectrum=spectra)
    return made


def rule(code: str) -> type[AbstractRule]:
    return registry.load(registry.find("findings", code))


def without(made: Report, name: str) -> Report:
    """The report of an audit that did not ask for it."""
    kind = "probes" if name in BUILT_IN["probes"] else "queries"
    asked = [one for one in made.settings.get(kind, ()) if one != name]
    made = replace(made, settings={**made.settings, kind: asked})
    if kind == "probes":
        return replace(made, **{field_of(name): getattr(report(), field_of(name))})
    layers = {at: _but(curves, name) for at, curves in made.layers.items()}
    return replace(made, memory=_but(made.memory, name), layers=layers)


def _but(curves: dict, name: str) -> dict:
    return {query: found for query, found in curves.items() if query != name}


@pytest.mark.parametrize("code", [code for code in BUILT_IN["findings"] if rule(code).needs])
def test_a_rule_says_nothing_without_what_it_needs(code, samples):
    for made in samples.values():
        for name in rule(code).needs:
            poorer = made if name == FAMILY else without(made, name)
            assert not list(rule(code)().check(poorer))
            assert unmet(rule(code), poorer)


def test_a_finding_never_comes_from_a_rule_that_lacks_something(samples):
    told = {finding.code for made in samples.values() for finding in judge(made)}
    assert {"MA201", "MA202", "MA203", "MA205", "MA206", "MA301", "MA304"} <= told
    for made in samples.values():
        for finding in judge(made):
            assert unmet(rule(finding.code), made) == ""


@pytest.mark.parametrize("probe", BUILT_IN["probes"])
def test_a_rule_that_falls_silent_without_a_probe_says_that_it_needs_it(probe, samples):
    for made in samples.values():
        gone = {f.code for f in judge(made)} - {f.code for f in judge(without(made, probe))}
        assert all(probe in rule(code).needs for code in gone)


@pytest.mark.parametrize("code", BUILT_IN["findings"])
def test_needs_are_names_that_can_be_asked_for(code):
    assert {*rule(code).needs} <= {*BUILT_IN["probes"], *BUILT_IN["queries"], FAMILY}
    missing = lacking(rule(code), DEFAULT_QUERIES, DEFAULT_PROBES)
    assert missing == {"MA205": "precision", "MA206": "gradient"}.get(
        code, FAMILY if FAMILY in rule(code).needs else ""
    )


@pytest.mark.parametrize("probe", BUILT_IN["probes"])
def test_every_probe_fills_the_field_of_its_name(probe):
    assert registry.load(registry.find("probes", probe)).fills == field_of(probe)


@pytest.mark.parametrize("code", BUILT_IN["findings"])
def test_a_rule_for_families_is_one_that_checks_them(code):
    checks = rule(code).check_family is not AbstractRule.check_family
    assert checks == (FAMILY in rule(code).needs)


def test_what_ran_is_read_from_a_report():
    settings = {"queries": ["impulse"], "probes": ["precision", "stranger"]}
    whole = report(curve(), settings=settings)
    assert (queries_of(whole), probes_of(whole)) == (
        ("impulse", "heaviside"),
        ("precision", "stranger"),
    )
    cut = replace(whole, complete=False)
    assert (queries_of(cut), probes_of(cut)) == (("heaviside",), ("stranger",))
    assert unmet(rule("MA205"), cut) == "precision was not measured"
    assert unmet(rule("MA206"), cut) == "gradient was not asked for"
    odd = replace(whole, settings={"queries": 3, "probes": None})
    assert (queries_of(odd), probes_of(odd)) == (("heaviside",), ())


def test_a_query_that_could_not_be_asked_tells_no_rule_anything():
    none = curve("heaviside", values=np.zeros(0), status=Status.TOO_SHORT)
    made = report(none, curve("impulse"), settings={"queries": ["heaviside", "impulse"]})
    assert queries_of(made) == ("impulse",)
    assert unmet(rule("MA101"), made) == "heaviside was not measured"
