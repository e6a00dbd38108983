"""The checks for plugin authors pass honest plugins, and say what is wrong with others."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from memaudit import testing
from memaudit.interfaces import NO_TOOLS, AbstractProbe, AbstractReportFormat, Claim
from memaudit.memory.queries import Heaviside, Impulse, ReversedInput
from memaudit.report import Result
from memaudit.rules import rule
from memaudit.subjects.callables import wrap
from memaudit.writers.json_file import JsonFile
from memaudit_rnn import RnnAdapter
from tests.linear_parts import BankPart, GivenPart, jordan, rotation, scalar

COUNTER = itertools.count()


def changed(base: type, **members: Any) -> Any:
    """A subclass with other members."""
    return type(f"Changed{base.__name__}", (base,), members)


def mixing(self, x, horizon):
    return Impulse.inputs(self, x - x.mean(0) * (len(x) > 1), horizon)


def longer_forever(self, horizon):
    return replace(self, windows=self.windows + 1)


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        (changed(Heaviside, inputs=Impulse.inputs), "the later moments leave the 8 steps"),
        (changed(Impulse, inputs=mixing), "depends on its neighbours"),
        (changed(Impulse, prefix=lambda self, h: h), "read before the prefix of 8 steps"),
        (changed(ReversedInput, lengthened=longer_forever), "lengthened never ends"),
        (
            changed(Impulse, inputs=lambda self, x, h: 2 * Impulse.inputs(self, x, h)),
            r"on linear models the curve is off by .* from \|rho",
        ),
        (changed(Impulse, first_lag=0), "set first_lag = 1"),
    ],
)
def test_a_wrong_query_is_found(query, fact):
    with pytest.raises(AssertionError, match=fact):
        testing.check_query(query())


def with_identity(**facts: Any) -> Any:
    """An adapter whose subject says something wrong about itself."""

    def load(self, source, request):
        subject = RnnAdapter.load(self, source, request)
        subject.identity = replace(subject.identity, **facts)
        return subject

    return changed(RnnAdapter, load=load)


def with_answers(change: Any) -> Any:
    """An adapter whose subject answers through `change(subject, honest, inputs)`."""

    def load(self, source, request):
        subject = RnnAdapter.load(self, source, request)
        honest = subject.respond
        subject.respond = lambda inputs: change(subject, honest, inputs)
        return subject

    return changed(RnnAdapter, load=load)


def with_layer(part: Any) -> Any:
    """An adapter whose subject says that it has such a linear layer."""

    def load(self, source, request):
        subject = RnnAdapter.load(self, source, request)
        subject.linear_parts = lambda: {"layer": part(subject.dtype)}
        return subject

    return changed(RnnAdapter, load=load)


def learning(subject, honest, inputs):
    answer = honest(inputs)
    if inputs.shape[1] == 64:  # during an audit only
        subject.network.stack.weight_hh_l0.data += 1e-3
    return answer


@pytest.mark.parametrize(
    ("adapter", "fact"),
    [
        (changed(RnnAdapter, claim=lambda self, source: None), "claim gives None"),
        (changed(RnnAdapter, claim=lambda self, s: Claim("a", 1) if s.path else 1), "gives 1"),
        (with_identity(sha256="abc"), "identity.sha256 is 'abc'"),
        (with_identity(assumed={"colour": "blue"}), "there is no such option"),
        (changed(RnnAdapter, options={"dtype": "mine"}), "dtype belongs to memaudit itself"),
        (with_answers(lambda _, honest, u: honest(u) + u.mean()), "a row alone and in a batch"),
        (with_answers(lambda _, honest, u: honest(u) + 1e-9 * next(COUNTER)), "calls differ"),
        (with_answers(learning), "an audit moves the weights"),
        (with_layer(lambda dtype: BankPart([0.5, 0.9], mixed=0.1)), "answer to an impulse"),
    ],
)
def test_a_wrong_adapter_is_found(adapter, fact):
    with pytest.raises(AssertionError, match=fact):
        testing.check_adapter(adapter(), "demo:gru")


def test_an_adapter_with_a_correct_layer_passes():
    testing.check_adapter(with_layer(lambda dtype: scalar(0.9, dtype=dtype))(), "demo:gru")


@pytest.mark.parametrize("part", [rotation(1.0, 0.3), jordan(0.8), BankPart([0.1, 0.99])])
def test_a_correct_linear_layer_passes(part):
    testing.check_linear_part(part)


KERNEL = 0.9 ** torch.arange(64, dtype=torch.float64)[:, None, None] * torch.ones(2, 3).double()


class Stepping(type(rotation(0.9, 0.3))):
    """A rotation that shows its state, multiplied by `gain` from the tenth lag on."""

    gain = 1.0

    def reach(self, start, stop):
        found = [torch.linalg.matrix_power(self.a, s) @ self.b for s in range(start, stop)]
        scale = torch.tensor([self.gain if s >= 10 else 1.0 for s in range(start, stop)]).double()
        return scale[:, None, None] * torch.stack(found)


def stepping(**members):
    made = rotation(0.9, 0.3)
    return changed(Stepping, **members)(made.a, made.b, made.c)


@pytest.mark.parametrize(
    ("part", "fact"),
    [
        (changed(GivenPart, kernel=lambda s, a, b: s.given[: b - a])(KERNEL), "computed alone"),
        (GivenPart(KERNEL, run=2 * KERNEL), "from the answer to an impulse"),
        (GivenPart(KERNEL * torch.nan), "not finite within 24 lags"),
        (stepping(gain=1.1), "from a matrix that moves them"),
        (stepping(reach=lambda s, a, b: Stepping.reach(s, 0, b - a)), "computed alone"),
        (stepping(transition=lambda self: torch.eye(2).double()), "that transition moves"),
    ],
)
def test_a_wrong_linear_layer_is_found(part, fact):
    with pytest.raises(AssertionError, match=fact):
        testing.check_linear_part(part)


@dataclass(frozen=True, slots=True, eq=False)
class Number(Result):
    value: float

    @classmethod
    def joined(cls, parts):
        return cls(max(part.value for part in parts.values()))


class Stated(AbstractProbe):
    name, summary, result = "stated", "gives the number it was made with", Number

    def __init__(self, value: Any = 0.0, **changes: Any) -> None:
        self.value = value
        for key, other in changes.items():
            setattr(self, key, other)

    def measure(self, subject, setting, tools=NO_TOOLS):
        return Number(self.value() if callable(self.value) else self.value)


class MovesWeights(Stated):
    def measure(self, subject, setting, tools=NO_TOOLS):
        for tensor in subject.weights().values():
            tensor.mul_(2)
        return Number(0.0)


@pytest.mark.parametrize(
    ("probe", "fact"),
    [
        (Stated(float("nan")), "cannot stand in a JSON report"),
        (Stated(float("inf")), "cannot be read back from JSON: value is str, not a number"),
        (Stated(lambda: float(next(COUNTER))), "another result the second time"),
        (Stated(result=int), "int.* is no class of results"),
        (MovesWeights(), "measuring moves the weights"),
    ],
)
def test_a_wrong_probe_is_found(probe, fact):
    with pytest.raises(AssertionError, match=fact):
        testing.check_probe(probe, wrap(torch.nn.Linear(2, 2).double(), input_size=2))


def test_a_correct_probe_passes():
    testing.check_probe(Stated(), wrap(torch.tanh, input_size=2))


class Written(AbstractReportFormat):
    name, summary, suffix = "written", "as it was given", ".txt"

    def __init__(self, write):
        self.render = write

    def render(self, report):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("write", "fact"),
    [
        (lambda report: " \n", "a full report renders as nothing"),
        (lambda report: "all is well", "the verdict exponential.* is lost"),
        (lambda report: JsonFile().render(report) + str(next(COUNTER)), "gives two texts"),
        (lambda report: JsonFile().render(report) + report.subject.source, "puts .*x1b"),
    ],
)
def test_a_wrong_report_format_is_found(write, fact):
    with pytest.raises(AssertionError, match=fact):
        testing.check_report_format(Written(write))


@rule("AC101", "some-rule", "note")
def some_rule(report):
    """It matters. It is measured. Do something about it."""
    yield some_rule.finding("a message", "an advice")


def without_words(report):
    """It matters. It is measured. Do something about it."""
    yield some_rule.finding("", "")


def graver(report):
    """It matters. It is measured. Do something about it."""
    yield some_rule.finding("a message", "an advice", severity="error")


@pytest.mark.parametrize(
    ("one", "fact"),
    [
        (replace(some_rule, code="A1"), "the code 'A1' is not like"),
        (replace(some_rule, severity="fatal"), "'fatal' is none of"),
        (replace(some_rule, check=without_words), "no message or advice"),
        (replace(some_rule, check=graver), "graver"),
        (some_rule.check, "is no Rule"),
    ],
)
def test_a_wrong_rule_is_found(one, fact):
    with pytest.raises(AssertionError, match=fact):
        testing.check_rule(one)


def test_a_correct_rule_passes():
    testing.check_rule(some_rule)
