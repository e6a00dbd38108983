"""The layout of lm-evaluation-harness: keys as they are there, numbers as they are here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from memaudit.testing import sample_reports
from memaudit.testing.samples import precision
from memaudit.writers.lm_eval import LmEval
from tests.handmade import curve, identity, power_law, report
from tests.spectrum.evidence import modes
from tests.writers.samples import told

KEYS = [
    *("results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better"),
    *("n-samples", "config", "git_hash", "date", "pretty_env_info", "task_hashes"),
    *("model_source", "model_name", "model_name_sanitized", "total_evaluation_time_seconds"),
]


def layout(made) -> dict:
    return json.loads(LmEval(date=1.5).render(made))


def test_a_small_report_word_for_word():
    found = layout(report(curve(), subject=identity(source="org/name")))
    assert list(found) == KEYS
    assert found["results"] == {
        "memaudit": {
            "alias": "memaudit",
            **plain("horizon", 139.0),
            **plain("half_life", 13.86),
            **plain("rate", 0.05),
            **plain("confidence", 0.9),
            **plain("findings/error", 0.0),
            **plain("findings/warning", 0.0),
            **plain("findings/note", 0.0),
            **plain("coverage", 1.0),
            **plain("complete", 1.0),
            **plain("parameters", 4384.0),
        },
        "memaudit_heaviside": {
            "alias": "memaudit_heaviside",
            **plain("horizon", 139.0),
            **plain("half_life", 13.86),
            **plain("rate", 0.05),
            **plain("confidence", 0.9),
        },
    }
    assert found["group_subtasks"] == {"memaudit": ["memaudit_heaviside"]}
    assert found["versions"] == {"memaudit": 2, "memaudit_heaviside": 2}
    assert found["n-shot"] == {"memaudit": 0, "memaudit_heaviside": 0}
    assert found["higher_is_better"]["memaudit_heaviside"] == {
        **{"horizon": True, "half_life": True, "rate": False, "confidence": True}
    }
    assert found["config"]["model_args"] == "pretrained=org/name"
    assert found["config"]["model_num_parameters"] == 4384
    assert (found["git_hash"], found["date"]) == (None, 1.5)
    assert (found["model_name"], found["model_name_sanitized"]) == ("org/name", "org__name")
    assert found["total_evaluation_time_seconds"] == "1.25"


def plain(name: str, value: float) -> dict:
    return {f"{name},none": value, f"{name}_stderr,none": "N/A"}


def test_the_verdict_and_the_settings_are_in_the_configs():
    configs = layout(report(power_law()))["configs"]
    assert configs["memaudit"]["metadata"] == {
        **{"version": 2, "horizon": 512, "seed": 0, "level": "standard"}
    }
    assert "polynomial" in configs["memaudit"]["description"]
    assert configs["memaudit_heaviside"]["description"] == "query heaviside"


def test_a_horizon_beyond_the_window_is_absent():
    found = layout(report(power_law()))["results"]["memaudit_heaviside"]
    assert "horizon,none" not in found
    assert found["horizon_beyond,none"] == 512.0


def test_numbers_of_layers_are_left_to_the_json_report():
    found = layout(told())["results"]["memaudit"]
    assert found["margin,none"] == 0.0
    assert not [name for name in found if name.startswith(("margin/", "gradient_over_weight/"))]


@pytest.mark.parametrize("name", ["horizon", "relative_error", "note", "rate"])
def test_a_layer_that_is_called_like_a_metric_hides_no_number(name):
    plainly = report(curve(), precision=precision())
    layers = {name: {"heaviside": curve(horizon=7)}}
    spectrum = (replace(modes(0.9), layer=name), replace(modes(0.8), layer="x", where=name))
    found = layout(report(curve(), precision=precision(), layers=layers, spectrum=spectrum))
    for task, numbers in layout(plainly)["results"].items():
        assert found["results"][task].items() >= numbers.items()
    more = set(found["results"]["memaudit"]) - set(layout(plainly)["results"]["memaudit"])
    own = {word.removesuffix(",none") for word in more if "_stderr" not in word}
    assert own == {"margin", "time_scale"}


@pytest.mark.parametrize("name", ["full", "layered", "deep", "moved", "partial", "empty"])
def test_every_metric_of_every_sample_is_a_number_of_a_known_task(name):
    found = layout(sample_reports()[name])
    for task, numbers in found["results"].items():
        assert task in found["configs"]
        assert set(found["higher_is_better"][task]) <= {
            key.removesuffix(",none") for key in numbers if key != "alias"
        }
        values = [v for k, v in numbers.items() if k != "alias" and "_stderr" not in k]
        assert all(isinstance(value, float) for value in values)


def test_the_date_is_when_the_format_was_made():
    form = LmEval()
    made = report(curve())
    assert form.render(made) == form.render(made)
    assert form.date > 1.7e9
