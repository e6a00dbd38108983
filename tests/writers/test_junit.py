"""JUnit's XML: a case for the audit, each gate and each rule; what fails is a warning or worse."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from memaudit.rules import all_rules
from memaudit.testing import sample_reports
from memaudit.testing.laws import HOSTILE, NAMES, everywhere
from memaudit.writers.junit import Junit
from tests.handmade import curve, report
from tests.writers.samples import cut_short, told

HEAD = """\
<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="memaudit" tests="{tests}" failures="2" errors="0" skipped="{skipped}" \
time="1.250">
  <testsuite name="memaudit demo:lstm" tests="{tests}" failures="2" errors="0" skipped="{skipped}" \
time="1.250">
    <properties>
      <property name="source" value="demo:lstm" />
      <property name="family" value="lstm" />
      <property name="sha256" value="ab12" />
      <property name="horizon" value="512" />
      <property name="seed" value="0" />
      <property name="level" value="standard" />
    </properties>
    <testcase classname="memaudit.audit" name="complete" time="0.000" />
    <testcase classname="memaudit.gate" name="horizon&lt;200" time="0.000">
      <failure message="hit by horizon = 139 at heaviside" type="gate">hit by horizon = 139 at \
heaviside</failure>
    </testcase>
    <testcase classname="memaudit.gate" name="MA301" time="0.000" />
    <testcase classname="memaudit.gate" name="impulse.horizon&lt;1024" time="0.000">
      <skipped message="impulse.horizon is beyond 512" />
    </testcase>
    <testcase classname="memaudit.finding" name="MA001 partial-audit" time="0.000" />
"""
FAILED = """\
    <testcase classname="memaudit.finding" name="MA201 near-boundary" time="0.000">
      <failure message="100% of it, at a: b (and 1 more)" type="warning">cell.0: 100% of it, at a: \
b -&gt; train it, then
cell.1: less of it -&gt; train it, then</failure>
    </testcase>
"""
NOTED = """\
    <testcase classname="memaudit.finding" name="MA105 supremum-at-edge" time="0.000">
      <system-out>still rising -&gt; try others</system-out>
    </testcase>
"""
FOOT = """\
    <system-out>Remembers 139 steps (query heaviside, the shortest; under impulse more than 512 \
steps); heaviside exponential, horizon 139; impulse polynomial, horizon &gt; 512; \
2 warnings, 1 note</system-out>
  </testsuite>
</testsuites>
"""


def cases(text: str) -> dict[str, ElementTree.Element]:
    found = ElementTree.fromstring(text).iter("testcase")
    return {f"{case.get('classname')} {case.get('name')}": case for case in found}


def test_a_report_as_a_suite():
    text = Junit().render(told())
    tests = 4 + len(all_rules())
    assert text.startswith(HEAD.format(tests=tests, skipped=text.count("<skipped ")))
    assert FAILED in text
    assert NOTED in text
    assert text.endswith(FOOT)


def test_there_is_a_case_for_every_rule():
    found = cases(Junit().render(report(curve())))
    for code, rule in all_rules().items():
        assert f"memaudit.finding {code} {rule.name}" in found
    assert len(found) == 1 + len(all_rules())


def skipped(made) -> dict[str, str]:
    found = cases(Junit().render(made)).items()
    parts = {name.split()[1]: case.find("skipped") for name, case in found}
    return {code: part.get("message", "") for code, part in parts.items() if part is not None}


def test_a_rule_that_was_never_checked_is_skipped():
    settings = {"queries": ["heaviside"], "probes": ["assumptions", "spectrum"]}
    found = skipped(report(curve(), settings=settings))
    assert (
        found.items()
        >= {
            "MA107": "impulse was not asked for",
            "MA114": "impulse was not asked for",
            "MA115": "driven was not asked for",
            "MA116": "closed-form was not asked for",
            "MA205": "precision was not asked for",
            "MA206": "gradient was not asked for",
            "MA208": "this is found on a family of models, by memaudit family",
            "MA209": "this is found on a family of models, by memaudit family",
        }.items()
    )


def test_what_was_asked_for_and_not_measured_is_skipped():
    settings = {"queries": ["heaviside"], "probes": ["precision"]}
    cut = report(curve(), settings=settings, complete=False)
    assert skipped(cut)["MA205"] == "precision was not measured"


def test_a_rule_that_only_the_report_knows_has_a_case():
    strange = replace(told().findings[0], code="XX1", name="strange")
    found = cases(Junit().render(report(findings=(strange,))))
    assert found["memaudit.finding XX1 strange"].find("failure") is not None


def test_what_went_wrong_is_an_error_of_the_audit():
    suite = ElementTree.fromstring(Junit().render(cut_short())).find("testsuite")
    assert suite is not None
    assert (suite.get("errors"), suite.get("failures")) == ("1", "1")
    (error,) = suite.iter("error")
    assert (error.get("type"), error.get("message")) == ("E_MEMORY", "no room; --quick")


def test_an_audit_that_was_cut_short_by_hand_is_an_error_too():
    (error,) = ElementTree.fromstring(Junit().render(report(complete=False))).iter("error")
    assert "PARTIAL REPORT" in (error.text or "")


#: Elements and attributes of the schema that Jenkins and others share, and what may stand in what.
SCHEMA = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped", "time"}, ["testsuite"]),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time"},
        ["properties", "testcase", "system-out", "system-err"],
    ),
    "properties": (set(), ["property"]),
    "property": ({"name", "value"}, []),
    "testcase": ({"classname", "name", "time"}, ["skipped", "error", "failure", "system-out"]),
    "failure": ({"message", "type"}, []),
    "error": ({"message", "type"}, []),
    "skipped": ({"message"}, []),
    "system-out": (set(), []),
}


def check(element: ElementTree.Element) -> None:
    attributes, children = SCHEMA[element.tag]
    assert set(element.attrib) == attributes
    order = [children.index(child.tag) for child in element]
    assert order == sorted(order)
    for child in element:
        check(child)


@pytest.mark.parametrize("name", ["full", "layered", "deep", "moved", "partial", "empty"])
def test_every_sample_fits_the_schema(name):
    check(ElementTree.fromstring(Junit().render(sample_reports()[name])))


@pytest.mark.parametrize("what", ["control characters", *NAMES])
def test_a_hostile_name_is_parsed_as_text(what):
    name = {"control characters": HOSTILE, **NAMES}[what]
    text = Junit().render(everywhere(sample_reports()["deep"], name))
    check(ElementTree.fromstring(text.encode("utf-8")))
