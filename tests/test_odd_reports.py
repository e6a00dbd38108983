"""A report in which anything is odd is refused when it is read, or can be shown in every way."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
import torch

import memaudit
from memaudit import registry
from memaudit.errors import SourceError
from memaudit.report import Report
from memaudit.stability.result import Stability
from memaudit.testing import sample_reports
from tests.odd_reports import ODD, all_uses, escaped, places, plain
from tests.writers.samples import told
from tests.reports.test_recall_table import sample as recall

#: Of all pairs of a place and an odd value; `python -m tests.odd_reports` tries every one.
TRIED = 90


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.RNN(2, 3, batch_first=True).double()
    probes = registry.available("probes")
    measured = memaudit.scan(module, horizon=16, level="quick", queries=("impulse",), probes=probes)
    samples = sample_reports()
    full = replace(told(), recall=recall())
    return {"measured": measured, "told": full, **{n: samples[n] for n in ("deep", "partial")}}


@pytest.mark.parametrize("name", ["measured", "told", "deep", "partial"])
def test_only_errors_of_memaudit_come_out(reports, name):
    data, uses = plain(reports[name]), all_uses()
    assert escaped(data, ("complete",), True, uses) == ""
    pairs = [(path, odd) for path in places(data) for odd in ODD]
    for path, odd in random.Random(name).sample(pairs, TRIED):
        assert escaped(data, path, odd, uses) == "", (path, odd)


@pytest.mark.parametrize(
    ("path", "odd", "fact"),
    [
        ("stability.curves", [], "E(beta) has no numbers"),
        ("stability.curves.0.betas", [], "numbers that belong together differ in count"),
        ("stability.curves.0.betas.0", -1.0, "the betas are no rising sizes"),
        ("stability.curves.0.betas.0", float("inf"), "infinity is written 'infinite', not inf"),
        ("stability.scale", -1, "the scale, a norm, is negative"),
        ("stability.curves.0.weights", "x", "a list is expected, not str"),
        ("subject.coverage", None, "subject.coverage is NoneType, not a number"),
        ("subject.parameters", 10**400, "subject.parameters is int, not a whole number"),
        ("subject.whole", 1, "subject.whole is int, not true or false"),
        ("errors", ["x"], "errors.0 is str, not an object"),
        ("errors", [{"code": 1}], "errors.0.code is int, not a text"),
        ("memory.impulse.floor", float("inf"), "memory.impulse.floor is inf, which is not finite"),
        ("memory.impulse.floor", float("nan"), "memory.impulse.floor is nan, which is not finite"),
        ("memory.impulse.horizon", 12.0, "memory.impulse.horizon is float, not a whole number"),
        ("memory.impulse.decay.rate", True, "memory.impulse.decay.rate is bool, not a number"),
        (
            "memory.impulse.decay.window",
            [1],
            "memory.impulse.decay.window is tuple, not a list of 2",
        ),
        ("memory.impulse.values.0", "1", "numbers are expected, not str"),
        ("memory.impulse.values", [[]], "numbers are expected, not list"),
        ("memory.impulse.lags.0", 0.5, "numbers are expected, not float"),
        ("memory.impulse.lags.0", -3, "the lags do not rise from 0 on"),
        ("memory.impulse.lags", [], "numbers that belong together differ in count"),
        ("memory.impulse.status", "odd", "'ODD'"),
        ("spectrum.0.eigenvalues.imag", [0.0, 0.0, 0.0], "numbers that belong together differ"),
        ("settings.horizon", "x", "settings.horizon is str, not a whole number"),
        ("settings.queries", True, "a list is expected, not bool"),
        ("settings.more", {"deep": [10**400]}, "settings.more.deep.0 is int"),
        ("recall.linear.0.stationary", {}, "'values'"),
    ],
)
def test_the_first_thing_that_is_wrong_is_told_by_its_place(tmp_path, path, odd, fact):
    data = plain(replace(told(), recall=recall()))
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    inside = data
    for step in steps:
        inside = inside[step]
    inside[last] = odd
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(data))
    with pytest.raises(SourceError) as caught:
        Report.load(file)
    assert caught.value.code == "E_CORRUPT"
    assert fact in caught.value.fact


@pytest.mark.parametrize("schema", [True, 1.0, "1", 2, [], {}])
def test_a_schema_that_is_not_the_number_one_is_unknown(schema):
    with pytest.raises(SourceError) as caught:
        Report.from_dict({**plain(told()), "schema": schema})
    assert caught.value.code == "E_UNSUPPORTED"


def test_fields_with_a_default_may_be_missing_in_older_files():
    full = replace(told(), recall=recall())
    data = plain(full)
    for name in ("closed_form", "gradient", "gates"):
        assert data.pop(name) is not None
    for name in ("others", "note", "where"):
        del data["stability"][name], data["precision"][name], data["recall"][name]
    del data["recall"]["linear"][0]["stationary"]
    del data["spectrum"][0]["points"]
    del data["subject"]["notes"], data["subject"]["recurrences"]
    again = Report.from_dict(data)
    assert isinstance(again.stability, Stability)
    assert again.recall.linear[0].stationary is None
    assert (again.subject.notes, again.gates, again.gradient) == ((), (), ())
    assert again.memory == full.memory
