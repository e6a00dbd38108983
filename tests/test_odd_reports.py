"""A report in which anything is odd is refused when it is read, or can be shown in every way."""

from __future__ import annotations

import json
import random

import pytest
import torch

import memaudit
from memaudit import registry
from memaudit.errors import SourceError
from memaudit.report import Report
from memaudit.stability.result import StabilityResult
from memaudit.testing import sample_reports
from memaudit.testing.samples import having
from tests.odd_reports import ODD, all_uses, escaped, places, plain
from tests.recall.handmade import sample as recall
from tests.writers.samples import told

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
    full = having(told(), recall=recall())
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
        ("results.stability.curves", [], "E(beta) has no numbers"),
        ("results.stability.curves.0.betas", [], "betas and errors differ in count"),
        ("results.stability.curves.0.betas.0", -1.0, "the betas are no rising sizes"),
        (
            "results.stability.curves.0.errors.0",
            float("inf"),
            "errors has a number that is not finite",
        ),
        ("results.stability.scale", -1, "the scale, a norm, is negative"),
        (
            "results.stability.curves.0.weights",
            "x",
            "results.stability.curves.0.weights is str, not a list",
        ),
        ("subject.coverage", None, "subject.coverage is NoneType, not a number"),
        ("subject.parameters", 10**400, "subject.parameters is int, not a whole number"),
        ("subject.whole", 1, "subject.whole is int, not true or false"),
        ("errors", ["x"], "errors.0 is str, not an object"),
        ("errors", [{"code": 1}], "errors.0.code is int, not a text"),
        (
            "results.memory.curves.impulse.floor",
            float("inf"),
            "results.memory.curves.impulse.floor is inf, which is not finite",
        ),
        (
            "results.memory.curves.impulse.floor",
            float("nan"),
            "results.memory.curves.impulse.floor is nan, which is not finite",
        ),
        (
            "results.memory.curves.impulse.horizon",
            12.0,
            "results.memory.curves.impulse.horizon is float, not a whole number",
        ),
        (
            "results.memory.curves.impulse.decay.rate",
            True,
            "results.memory.curves.impulse.decay.rate is bool, not a number",
        ),
        (
            "results.memory.curves.impulse.decay.window",
            [1],
            "results.memory.curves.impulse.decay.window is list, not a list of 2",
        ),
        (
            "results.memory.curves.impulse.values.0",
            "1",
            "results.memory.curves.impulse.values holds str",
        ),
        (
            "results.memory.curves.impulse.values",
            [[]],
            "results.memory.curves.impulse.values holds list",
        ),
        (
            "results.memory.curves.impulse.lags.0",
            0.5,
            "results.memory.curves.impulse.lags holds float",
        ),
        ("results.memory.curves.impulse.lags.0", -3, "the lags do not rise from 0 on"),
        ("results.memory.curves.impulse.lags", [], "lags, values and median differ in count"),
        ("results.memory.curves.impulse.status", "odd", "impulse.status is 'odd', not one of OK, "),
        (
            "results.spectrum.layers.0.eigenvalues.imag",
            [0.0, 0.0, 0.0],
            "1 real and 3 imaginary parts",
        ),
        (
            "settings.more",
            {"deep": [10**400]},
            "settings.more.deep.0 is a number of more than 63 bits",
        ),
        (
            "results.recall.linear.0.stationary",
            {},
            "results.recall.linear.0.stationary lacks values, ",
        ),
    ],
)
def test_the_first_thing_that_is_wrong_is_named_by_its_place(tmp_path, path, odd, fact):
    data = plain(having(told(), recall=recall()))
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


def test_fields_with_a_default_may_be_missing_in_older_files():
    full = having(told(), recall=recall())
    data = plain(full)
    results = data["results"]
    del data["gates"], results["gradient"]
    for name in ("others", "note", "where"):
        del results["stability"][name], results["precision"][name], results["recall"][name]
    del results["recall"]["linear"][0]["stationary"]
    del results["spectrum"]["layers"][0]["points"]
    del data["subject"]["notes"], data["subject"]["recurrences"]
    again = Report.from_dict(data)
    assert isinstance(again.stability, StabilityResult)
    assert again.recall.linear[0].stationary is None
    assert (again.subject.notes, again.gates, again.gradient) == ((), (), ())
    assert again.memory == full.memory
