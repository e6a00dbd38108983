"""Families of fitted models: the figures of the papers, closed forms, and what is refused."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from examples.family import SIZES, TARGETS, main
from examples.reproduce.students import DiagonalStudent, fitted
from memaudit.errors import ArgumentError, SourceError
from memaudit.families import crossings
from memaudit.families.audit import FamilyInterrupted
from memaudit.families.crossings import judged
from tests.families.handmade import family_report, member

#: The grid of IATN Fig. 1 as far as a curve is below the size of the target.
FIGURE = [5e-4 * 2.0**k for k in range(10)]
#: One beta and few draws, where curves do not matter.
BRIEF = {"betas": [0.01, 0.1], "draws": 2, "ascent": 0, "steps": 16}


def modes(*values, form="direct", amplitudes=None):
    made = torch.tensor(values, dtype=torch.float64)
    size = torch.ones_like(made) if amplitudes is None else torch.tensor(amplitudes).double()
    student = DiagonalStudent(made, amplitudes=size, reparam=form)
    return memaudit.wrap(student, input_size=1)


def figure(target, form, *, steps=400):
    given = {"reparam": form, "largest": TARGETS[target], "steps": steps}
    members = [memaudit.wrap(fitted(target, m, **given), input_size=1) for m in SIZES]
    return memaudit.family(members, target=target, betas=FIGURE, draws=10, steps=steps)


def verdicts(report, monkeypatch):
    """The verdict, and those with leads that are smaller and larger than the one we count."""
    found = [report.verdict]
    for lead in (1.5, 3.0):
        monkeypatch.setattr(crossings, "LEAD", lead)
        found.append(judged(report).verdict)
    return found


def test_an_exponential_target_leaves_room_for_moves_of_one_size(monkeypatch):
    report = figure("exp:0.9", "direct", steps=100)
    assert [m.size for m in report.members] == list(SIZES)
    assert min(c.beta for c in report.crossings) > 0.02
    assert report.findings == ()
    assert verdicts(report, monkeypatch) == ["stable"] * 3


def test_a_polynomial_target_shifts_the_crossings_left(monkeypatch):
    report = figure("poly:1.1", "direct")
    betas = [c.beta for c in report.crossings if c.exists]
    assert len(betas) >= 3
    assert all(late < early for early, late in pairwise(betas))
    assert {finding.code for finding in report.findings} == {"MA208", "MA209"}
    assert verdicts(report, monkeypatch) == ["unstable"] * 3


@pytest.mark.parametrize("form", ["exp", "softplus"])
def test_a_reparameterization_keeps_the_crossings_in_place(form, monkeypatch):
    report = figure("poly:1.1", form)
    assert min(c.beta for c in report.crossings) > 0.1
    assert report.findings == ()
    assert report.members[-1].radius == np.inf
    assert verdicts(report, monkeypatch) == ["stable"] * 3


def test_a_hundred_steps_are_too_few_for_modes_that_last_three_hundred():
    report = figure("poly:1.1", "direct", steps=100)
    lasts = 1 / math.sin(math.pi / (4 * SIZES[-1])) ** 2  # the node of Chebyshev next to 1
    assert report.verdict == "undetermined"
    assert report.reason == (
        f"100 steps are too few to tell: the slowest mode lasts {lasts:.0f} steps; "
        f"give steps={math.ceil(lasts)} or more"
    )
    assert [finding.code for finding in report.findings] == ["MA209"]


def test_a_mode_that_never_decays_leaves_the_verdict_open():
    report = family_report(member(2, 0.1, 1.0, margin=0.0), member(4, 0.05, 1.0))
    assert (report.verdict, "never decays" in report.reason) == ("undetermined", True)


def test_the_curve_of_one_mode_is_the_sum_of_its_powers():
    """sup over |u| <= 1 of |sum_s ((0.9+b)^s - 0.9^s) u_s| is that sum, at u = 1."""
    members = [modes(0.9), modes(0.9, 0.5, amplitudes=(1.0, 0.0))]
    report = memaudit.family(
        members, target="exp:0.9", norm="sup", group="recurrent", betas=[0.01, 0.05, 0.15], steps=40
    )
    powers = np.arange(40)
    wanted = [np.sum((0.9 + b) ** powers - 0.9**powers) for b in (0.01, 0.05, 0.15)]
    for found in report.members:
        np.testing.assert_allclose(found.errors, wanted, rtol=1e-10)
        assert found.start < 1e-13
        assert found.margin == pytest.approx(0.1, rel=1e-12)
        assert found.radius == 0.15


def test_without_a_target_the_largest_member_is_the_reference():
    small, middle, large = modes(0.5), modes(0.8, 0.5), modes(0.9, 0.8, 0.5)
    report = memaudit.family([large, small, middle], **BRIEF)
    assert [m.size for m in report.members] == [1, 2]
    assert report.against is not None
    assert report.reference.startswith("the largest member")
    u = torch.ones(1, 16, 1, dtype=torch.float64)
    gap = (large.respond(u) - small.respond(u))[0, -1].abs()
    assert report.members[0].start >= float(gap)


def test_a_function_and_its_kernel_in_a_file_are_one_target(tmp_path):
    members = [modes(0.5), modes(0.8, 0.5)]
    np.save(tmp_path / "rho.npy", 0.9 ** np.arange(40.0))
    (tmp_path / "rho.csv").write_text("\n".join(repr(0.9**t) for t in range(40)))
    exact = modes(0.9)
    given = ["exp:0.9", tmp_path / "rho.npy", str(tmp_path / "rho.csv"), exact.respond]
    curves = [memaudit.family(members, target=t, **BRIEF).members[1].errors for t in given]
    for curve in curves[1:]:
        np.testing.assert_allclose(curve, curves[0], rtol=1e-12)


def test_the_same_seed_gives_the_same_report_and_no_weight_moves():
    members = [modes(0.5), modes(0.8, 0.5)]
    before = [weight.clone() for m in members for weight in m.weights().values()]
    first, second = (memaudit.family(members, target="exp:0.9", **BRIEF) for _ in range(2))
    assert first.members == second.members
    after = [weight for m in members for weight in m.weights().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_sizes_are_parameters_where_nothing_else_differs():
    class Recurrent(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.rnn = nn.RNN(1, size, batch_first=True)
            self.head = nn.Linear(size, 1)

        def forward(self, u):
            return self.head(self.rnn(u)[0])

    members = [memaudit.wrap(Recurrent(size), input_size=1) for size in (3, 2)]
    report = memaudit.family(members, target="exp:0.5", **BRIEF)
    assert report.counted == "parameters"
    sizes = [m.size for m in report.members]
    assert sizes == sorted(m.identity.parameters for m in members)
    assert [m.margin for m in report.members] == [None, None]


def test_members_that_approximate_nothing_are_not_called_stable():
    lost = [member(m, level, 1.0) for m, level in ((2, 1.08), (4, 0.63), (8, 0.5))]
    report = family_report(*lost, scale=0.132)
    assert report.verdict == "undetermined"
    assert report.reason == (
        "no member (E(0) from 0.5 on) approximates the reference, of size 0.132: nothing to compare"
    )
    near = family_report(*lost, member(16, 0.01, 1.0), scale=0.132)
    assert near.verdict == "undetermined"
    assert near.reason.startswith("only the largest member (E(0) = 0.01) approximates")


def test_models_that_are_no_fit_are_found_out_in_an_audit():
    members = [modes(0.5, amplitudes=(9.0,)), modes(0.5, 0.4, amplitudes=(4.0, 4.0))]
    report = memaudit.family(members, target="exp:0.2", **BRIEF)
    assert min(m.start for m in report.members) > report.scale
    assert (report.verdict, "no member" in report.reason) == ("undetermined", True)


def test_two_models_without_a_target_are_refused_before_anything_is_opened():
    fact = "without a target has at least 3 members, not 2"
    refused(["no/such/file.pt", "nor/this.pt"], fact, target=None)


def refused(sources, fact, **arguments):
    with pytest.raises(ArgumentError, match=fact):
        memaudit.family(sources, **{"target": "exp:0.9", **BRIEF, **arguments})


def test_members_that_make_no_family_are_refused():
    refused([modes(0.5)], "at least 2 members, not 1")
    refused("demo:lstm", "at least 2 members, not 1")
    refused([modes(0.5), modes(0.8)], "two members are of one size")
    wide = memaudit.wrap(nn.Linear(2, 1), input_size=2)
    refused([modes(0.5), wide], "no family: inputs 1 and 2")
    two = memaudit.wrap(nn.Linear(1, 2), input_size=1)
    refused([modes(0.5), two], "no family: outputs 1 and 2")


def test_a_model_whose_weights_nobody_knows_is_refused():
    function = memaudit.wrap(lambda u: u.cumsum(1), input_size=1)
    with pytest.raises(SourceError, match="cannot be moved: they are not known by name"):
        memaudit.family([modes(0.5), function], target="exp:0.9", **BRIEF)


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"ball": "sphere"}, "unknown ball"),
        ({"norm": "l2"}, "unknown norm"),
        ({"group": "other"}, "unknown group"),
        ({"draws": 0}, "draws is 0"),
        ({"ascent": -1}, "ascent is -1"),
        ({"steps": 3}, "steps is 3"),
        ({"seed": -1}, "seed is -1"),
        ({"betas": [0.0, 0.1]}, "no sizes of moves"),
        ({"target": "exponential"}, "no name and no file"),
        ({"target": "exp:2"}, "no number that fits"),
        ({"target": 7}, "the target is"),
    ],
)
def test_arguments_are_checked_before_anything_is_opened(arguments, fact):
    refused(["no/such/file.pt", "nor/this.pt"], fact, **arguments)


def test_a_reference_that_is_not_finite_is_refused():
    with pytest.raises(SourceError, match="not finite"):
        memaudit.family(
            [modes(0.5), modes(0.8, 0.5)], target=lambda u: u / 0 if u.any() else u, **BRIEF
        )


def test_an_interrupted_audit_keeps_the_members_that_were_measured():
    def progress(stage, done, total):
        if stage == "m = 2":
            raise KeyboardInterrupt

    members = [modes(0.5), modes(0.8, 0.5), modes(0.8, 0.5, 0.3)]
    with pytest.raises(FamilyInterrupted) as caught:
        memaudit.family(members, target="exp:0.9", progress=progress, **BRIEF)
    report = caught.value.report
    assert [m.size for m in report.members] == [1]
    assert not report.complete


def test_the_example_prints_a_verdict_for_every_family(capsys):
    main(["--steps", "16", "--draws", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines[::2]] == [
        *("exp:0.9, direct", "poly:1.1, direct", "poly:1.1, exp", "poly:1.1, softplus"),
    ]
