"""The hub's evaluation results: what its own library reads back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from memaudit.testing import sample_reports
from memaudit.testing.laws import HOSTILE, NAMES, everywhere
from memaudit.writers.card import eval_results
from tests.handmade import curve, of_kind, power_law, report

TEXT = """\
# Written by `memaudit card`; see https://huggingface.co/docs/hub/eval-results
- dataset:
    id: org/bench
    task_id: horizon
  value: 139
  notes: memaudit 0.1.0, horizon 512, seed 0, level standard, query heaviside
- dataset:
    id: org/bench
    task_id: half_life
  value: 13.86
  notes: memaudit 0.1.0, horizon 512, seed 0, level standard, query heaviside
- dataset:
    id: org/bench
    task_id: rate
  value: 0.05
  notes: memaudit 0.1.0, horizon 512, seed 0, level standard, query heaviside
- dataset:
    id: org/bench
    task_id: heaviside_horizon
  value: 139
  notes: memaudit 0.1.0, horizon 512, seed 0, level standard
- dataset:
    id: org/bench
    task_id: heaviside_half_life
  value: 13.86
  notes: memaudit 0.1.0, horizon 512, seed 0, level standard
- dataset:
    id: org/bench
    task_id: heaviside_rate
  value: 0.05
  notes: memaudit 0.1.0, horizon 512, seed 0, level standard
"""


def test_the_numbers_of_a_report_word_for_word():
    assert eval_results(report(curve()), dataset="org/bench") == TEXT


def test_the_library_of_the_hub_reads_it_back():
    entries = parse_eval_result_entries(yaml.safe_load(eval_results(report(curve()))))
    assert [(e.dataset_id, e.task_id, e.value) for e in entries][:2] == [
        ("memaudit/memory", "horizon", 139),
        ("memaudit/memory", "half_life", 13.86),
    ]


def test_what_lies_beyond_the_window_is_no_result():
    tasks = [e["dataset"]["task_id"] for e in yaml.safe_load(eval_results(report(power_law())))]
    assert tasks == ["half_life", "exponent", "heaviside_half_life", "heaviside_exponent"]


def test_a_query_that_zero_input_shuts_is_not_the_number_of_the_model():
    shut = [of_kind("memoryless", q, horizon=0) for q in ("impulse", "reversed")]
    found = yaml.safe_load(eval_results(report(curve(), *shut)))
    assert found[0]["value"] == 139
    assert found[0]["notes"].endswith("query heaviside")


def test_a_partial_audit_says_so():
    found = yaml.safe_load(eval_results(replace(report(curve()), complete=False)))
    assert found[0]["notes"].endswith("level standard, query heaviside, partial")


def test_a_report_without_numbers_is_an_empty_list():
    assert yaml.safe_load(eval_results(report())) == []


@pytest.mark.parametrize("what", ["control characters", *NAMES])
def test_a_hostile_name_stays_a_string(what):
    name = {"control characters": HOSTILE, **NAMES}[what]
    text = eval_results(everywhere(sample_reports()["deep"], name))
    assert text.isascii()
    for entry in parse_eval_result_entries(yaml.safe_load(text)):
        assert isinstance(entry.task_id, str)
        assert isinstance(entry.value, int | float)
