"""Options of probes: told apart, checked, and refused as what they are, a wrong argument."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import memaudit
from memaudit.cli.app import main
from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractProbe
from memaudit.options import build_probes, given_options, probe_options
from memaudit.registry import BUILT_IN

#: Values that no option of a number or a name takes, whatever it is called.
NONSENSE = ("abc", math.nan, -1, 33.5, {"a": 1}, object(), ["abc"], torch.ones(2))
#: Probe → the options that take numbers or names, not functions or tensors.
PLAIN = {
    "spectrum": ("trajectory",),
    "precision": ("weights", "formats", "norm"),
    "stability": ("ball", "norm", "group", "draws", "ascent", "steps"),
    "gradient": ("steps",),
    "recall": ("lags", "rounding", "components"),
}


@dataclass(frozen=True, slots=True)
class Careless(AbstractProbe):
    """A probe that looks at its option without a check."""

    name = "careless"
    summary = "nothing"
    fills = "spectrum"

    depth: int = 1

    def __post_init__(self) -> None:
        if self.depth == 0:
            raise RuntimeError("broken")
        _ = self.depth > 1

    def measure(self, subject, setting):
        return ()


class Last(nn.Module):
    def forward(self, u):
        return u


@pytest.fixture
def careless(monkeypatch):
    """The careless probe, registered as a built-in under a name with an underscore."""
    target = f"{__name__}:Careless"
    monkeypatch.setitem(BUILT_IN, "probes", {**BUILT_IN["probes"], "care_less": target})


def test_an_option_reaches_its_probe_and_no_other():
    _, spectrum, precision = build_probes(
        ["spectrum", "precision"], {"spectrum": {"trajectory": 77}, "precision": {"norm": "sup"}}
    )
    assert getattr(spectrum, "trajectory", None) == 77
    assert getattr(precision, "norm", None) == "sup"


@pytest.mark.parametrize(
    ("probe", "option", "hint"),
    [
        ("spectrum", "trajektory", "did you mean trajectory"),
        ("spectrum", "", "known are: trajectory"),
        ("closed-form", "depth", "known are: none"),
        ("spectrum", "name", "known are: trajectory"),
    ],
)
def test_an_unknown_option_names_the_known_ones(probe, option, hint):
    with pytest.raises(ArgumentError, match=f"the probe {probe} has no option '{option}'; {hint}"):
        build_probes([probe], {probe: {option: 1}})


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("probe", "option"), [(probe, option) for probe, names in PLAIN.items() for option in names]
)
def test_nonsense_is_an_argument_error_that_names_the_option(probe, option, value):
    with pytest.raises(ArgumentError, match=rf"{probe}\.{option}"):
        build_probes([probe], {probe: {option: value}})


@pytest.mark.parametrize("probe", [name for name in BUILT_IN["probes"] if name != "memory"])
def test_every_option_of_every_probe_is_known(probe):
    rest = {
        "stability": {"betas", "tol", "atol", "target"},
        "gradient": {"loss", "batch", "loss_fn"},
        "recall": {"scale"},
    }
    assert set(probe_options(probe)) == {*PLAIN.get(probe, ()), *rest.get(probe, ())}


@pytest.mark.usefixtures("careless")
def test_a_value_that_a_probe_stumbles_over_is_a_wrong_argument():
    with pytest.raises(ArgumentError, match=r"care_less\.depth='abc' is refused: TypeError"):
        build_probes(["care_less"], {"care-less": {"depth": "abc"}})
    (made,) = build_probes(["care_less"], {"care-less": {"depth": 3}}, queries=())
    assert made == Careless(depth=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spectrum.trajectory": "abc"}, "spectrum.trajectory is 'abc'; give a whole number"),
        ({"spectrum.trajectory": math.nan}, "spectrum.trajectory is 'nan'"),
        ({"spectrum.length": 64}, "the probe spectrum has no option 'length'"),
        ({"precision.formats": 3}, "precision.formats .* that is not asked for"),
    ],
)
def test_a_scan_refuses_an_option_before_it_measures(options, said):
    subject = memaudit.wrap(Last(), input_size=1)
    subject.respond = lambda inputs: pytest.fail("the model was run")  # type: ignore[method-assign]
    with pytest.raises(ArgumentError, match=said):
        memaudit.scan(subject, probes=["spectrum"], **options)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("spectrum.trajectory=abc", "spectrum.trajectory is 'abc'; give a whole number of steps"),
        ("spectrum.trajectory=33.5", "spectrum.trajectory is '33.5'; give a whole number"),
        ("spectrum.trajectory=NaN", "spectrum.trajectory is 'NaN'; give a whole number"),
        ("spectrum.trajectory=null", "spectrum.trajectory is 'None'; give a whole number"),
        ("spectrum.length=64", "the probe spectrum has no option 'length'"),
        ("precision.formats=3", "precision.formats is '3'; known are: bf16, "),
        ("precision.formats=bf16,fp9", "precision.formats is 'fp9'; did you mean "),
        ("precision.weights=x", "precision.weights is 'x'; known are: all, recurrent"),
        ("precision.norm=y", "precision.norm is 'y'; known are: l1, mse, sobolev, sup"),
        ("closed-form.depth=3", "closed-form.depth is an option of a probe that is not asked for"),
        ("closed_form.depth=3", "closed-form.depth is an option of a probe that is not asked for"),
    ],
)
def test_the_command_line_says_which_option_is_wrong(setting, said, capsys):
    probes = ["--probe", "spectrum", "--probe", "precision"]
    assert main(["scan", "demo:gru", "--quick", *probes, "--set", setting]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("memaudit: error[E_ARGUMENT] ")
    assert said in err
    assert err.count("\n") == 1


def test_options_that_are_not_the_usual_ones_are_given_as_json():
    of_probes = {
        "recall": {"lags": 16, "components": [4, 8, 16, 32, 64]},
        "stability": {"target": lambda u: u, "betas": (0.1, 0.2)},
        "gradient": {"batch": (torch.ones(1, 2, 1), torch.ones(1, 2, 1))},
    }
    found = given_options(build_probes(["spectrum", *of_probes], of_probes))
    assert found == {
        "recall.lags": 16,
        "stability.betas": [0.1, 0.2],
        "stability.target": "<function>",
        "gradient.batch": ["<Tensor>", "<Tensor>"],
    }
    assert given_options([]) == {}


def test_a_report_keeps_the_options_of_its_probes_and_an_older_one_has_none(tmp_path):
    module = nn.GRU(1, 2, batch_first=True)
    asked: dict[str, Any] = {"horizon": 8, "level": "quick", "queries": ["impulse"]}
    made = memaudit.scan(module, probes=["spectrum"], **asked, **{"spectrum.trajectory": 64})
    made.save(tmp_path / "x.json")
    kept = memaudit.Report.load(tmp_path / "x.json")
    assert kept.settings["probe_options"] == {"spectrum.trajectory": 64}
    plain = memaudit.scan(module, probes=["spectrum"], **asked)
    assert "probe_options" not in plain.settings
