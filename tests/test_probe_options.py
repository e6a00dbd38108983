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
from memaudit.errors import ArgumentError, MachineError
from memaudit.interfaces import AbstractProbe
from memaudit.options import build_probes, given_options, probe_options, split_probe_options
from memaudit.registry import BUILT_IN, DEFAULT_PROBES
from memaudit.spectrum.probe import Spectrum

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


def test_options_with_a_probe_before_them_are_told_apart():
    plain, of_probes = split_probe_options(
        {"level": "quick", "spectrum.trajectory": 64, "stability.ball": "x", "stability.tol": 2}
    )
    assert plain == {"level": "quick"}
    assert of_probes == {"spectrum": {"trajectory": 64}, "stability": {"ball": "x", "tol": 2}}


def test_dashes_and_underscores_are_the_same():
    _, of_probes = split_probe_options({"closed_form.a-b": 1, "closed-form.c_d": 2})
    assert of_probes == {"closed-form": {"a_b": 1, "c_d": 2}}


def test_one_option_in_two_spellings_is_given_twice():
    with pytest.raises(ArgumentError, match=r"gradient\.loss-fn is given twice"):
        split_probe_options({"gradient.loss_fn": 1, "gradient.loss-fn": 2})


def test_what_stands_behind_a_second_dot_belongs_to_the_option():
    _, of_probes = split_probe_options({"spectrum.a.b": 1})
    with pytest.raises(ArgumentError, match=r"the probe spectrum has no option 'a\.b'"):
        build_probes(["spectrum"], of_probes)


def test_an_option_reaches_its_probe_and_no_other():
    _, spectrum, precision = build_probes(
        ["spectrum", "precision"], {"spectrum": {"trajectory": 77}, "precision": {"norm": "sup"}}
    )
    assert getattr(spectrum, "trajectory", None) == 77
    assert getattr(precision, "norm", None) == "sup"


def test_without_a_wish_the_default_probes_are_built():
    names = [probe.name for probe in build_probes(None, {})]
    assert set(names) == {"memory", *DEFAULT_PROBES}
    assert [probe.name for probe in build_probes([], {})] == ["memory"]
    assert build_probes([], {}, queries=()) == []


def test_one_name_and_one_probe_stand_for_a_list_of_one():
    made = Spectrum(trajectory=40)
    assert build_probes("spectrum", {}, queries=()) == [Spectrum()]
    assert build_probes(made, {}, queries=())[0] is made


@pytest.mark.parametrize("asked", [3, [3], [None], [Spectrum], [["spectrum"]]])
def test_what_is_no_probe_is_refused(asked: Any):
    with pytest.raises(ArgumentError, match="is neither a probe nor the name of one"):
        build_probes(asked, {})


def test_an_option_of_a_probe_not_asked_for_is_refused():
    with pytest.raises(ArgumentError, match=r"precision\.norm .* not asked for; add --probe prec"):
        build_probes(["spectrum"], {"precision": {"norm": "sup"}})


def test_an_option_of_no_probe_names_the_neighbours():
    with pytest.raises(ArgumentError, match="unknown probe 'spectrun'; did you mean spectrum"):
        build_probes(["spectrum"], {"spectrun": {"trajectory": 64}})


def test_a_probe_that_is_built_already_takes_no_options():
    with pytest.raises(ArgumentError, match=r"spectrum\.trajectory .* built already; give it to"):
        build_probes([Spectrum()], {"spectrum": {"trajectory": 64}})


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


@pytest.mark.usefixtures("careless")
def test_a_probe_that_breaks_by_itself_is_still_a_broken_plugin():
    with pytest.raises(MachineError, match="cannot be built: RuntimeError: broken"):
        build_probes(["care_less"], {"care-less": {"depth": 0}})


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


def test_options_that_are_not_the_usual_ones_are_told_as_json():
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
