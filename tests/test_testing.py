"""The checks for plugin authors find what is wrong, and say it in a sentence."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, replace
from pathlib import Path
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

COUNTER = itertools.count()


def changed(base: type, **members: Any) -> Any:
    """A subclass with other members."""
    return type(f"Changed{base.__name__}", (base,), members)


def scaled(self, x, horizon):
    return 2 * Impulse.inputs(self, x, horizon)


def halved(self, x, horizon):
    return Impulse.inputs(self, x, horizon).half()


def neighbourly(self, x, horizon):
    return Impulse.inputs(self, x - x.mean(0) * (len(x) > 1), horizon)


def drifting(self, x, horizon):
    drift = 1e-13 * next(COUNTER) if len(x) > 4 else 0.0  # in an audit only
    return (1 + drift) * Impulse.inputs(self, x, horizon)


def short_unless_linear(self, horizon):
    return 8 if self.linear else 2


def ever_longer(self, horizon):
    return replace(self, windows=self.windows + 1)


QUERIES = [
    (changed(Impulse, inputs=halved), "inputs gives .* of torch.float16"),
    (changed(Heaviside, inputs=Impulse.inputs), "the later moments leave the 8 steps"),
    (changed(Impulse, reference=lambda self, x, h: x), "reference is not shaped like inputs"),
    (changed(Impulse, moments=lambda self, t, h: (t / 2, None)), "one whole number for every lag"),
    (changed(Impulse, inputs=neighbourly), "depends on its neighbours"),
    (changed(Impulse, prefix=lambda self, h: h), "lag 0 is read before the prefix of 8 steps"),
    (changed(ReversedInput, lengthened=ever_longer), "lengthened never ends"),
    (changed(Impulse, inputs=scaled), r"on linear models the curve is off by .* from \|rho"),
    (
        changed(ReversedInput, prefix=short_unless_linear, lengthened=lambda self, h: None),
        "a single reading is off by",
    ),
    (changed(Impulse, first_lag=0), "set first_lag = 1"),
    (changed(Impulse, inputs=drifting), "the same seed gives other numbers"),
]


@pytest.mark.parametrize(("query", "told"), QUERIES)
def test_a_wrong_query_is_found(query, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_query(query())


def misnamed(**facts: Any) -> Any:
    """An adapter whose subject says something wrong about itself."""

    def load(self, source, request):
        subject = RnnAdapter.load(self, source, request)
        subject.identity = replace(subject.identity, **facts)
        return subject

    return changed(RnnAdapter, load=load)


def stubborn(self, source, request):
    return RnnAdapter.load(self, source, replace(request, dtype=torch.float32))


def spoiled(change: Any) -> Any:
    """An adapter whose subject answers through `change(subject, honest, inputs)`."""

    def load(self, source, request):
        subject = RnnAdapter.load(self, source, request)
        honest = subject.respond
        subject.respond = lambda inputs: change(subject, honest, inputs)
        return subject

    return changed(RnnAdapter, load=load)


def mixes_rows(subject, honest, inputs):
    return honest(inputs) + inputs.mean()


def drifts(subject, honest, inputs):
    return honest(inputs) + 1e-9 * next(COUNTER)


def transposes(subject, honest, inputs):
    return honest(inputs).transpose(0, 1)


def writes_on_its_input(subject, honest, inputs):
    answer = honest(inputs)
    inputs += 1
    return answer


def learns(subject, honest, inputs):
    answer = honest(inputs)
    if inputs.shape[1] == 64:  # during an audit only
        subject.network.stack.weight_hh_l0.data += 1e-3
    return answer


ADAPTERS = [
    (changed(RnnAdapter, claim=lambda self, source: None), "claim gives None"),
    (changed(RnnAdapter, claim=lambda self, s: Claim("a", 1) if s.path else 1), "claim gives 1"),
    (misnamed(adapter="somebody"), "identity.adapter is 'somebody'"),
    (misnamed(sha256="abc"), "identity.sha256 is 'abc'"),
    (misnamed(coverage=1.5), "coverage is 1.5"),
    (misnamed(assumed={"colour": "blue"}), "colour was assumed, but there is no such option"),
    (changed(RnnAdapter, load=stubborn), "float64 was asked for, torch.float32 was loaded"),
    (changed(RnnAdapter, options={"dtype": "mine"}), "option dtype belongs to memaudit itself"),
    (spoiled(mixes_rows), "a row alone and in a batch differ"),
    (spoiled(drifts), "two identical calls differ"),
    (spoiled(transposes), "respond answers"),
    (spoiled(writes_on_its_input), "respond changes its input"),
    (spoiled(learns), "an audit moves the weights"),
]


@pytest.mark.parametrize(("adapter", "told"), ADAPTERS)
def test_a_wrong_adapter_is_found(adapter, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_adapter(adapter(), "demo:gru")


@dataclass(frozen=True, slots=True, eq=False)
class Number(Result):
    value: float


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
    ("probe", "told"),
    [
        (Stated(float("nan")), "cannot stand in a JSON report"),
        (Stated(float("inf")), "cannot be read back from JSON: value is str, not a number"),
        (Stated(result=Result), "measure gives Number, no result"),
        (Stated(torch.zeros(2).dtype), "cannot stand in a JSON report"),
        (Stated(lambda: float(next(COUNTER))), "another result the second time"),
        (Stated(result=int), "int.* is no class of results"),
        (Stated(summary=" "), "summary is ' '"),
        (MovesWeights(), "measuring moves the weights"),
    ],
)
def test_a_wrong_probe_is_found(probe, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_probe(probe, wrap(torch.nn.Linear(2, 2).double(), input_size=2))


def test_an_honest_probe_passes():
    testing.check_probe(Stated(), wrap(torch.tanh, input_size=2))


class Written(AbstractReportFormat):
    name, summary, suffix = "written", "as it was given", ".txt"

    def __init__(self, write, **changes):
        self.write = write
        for key, value in changes.items():
            setattr(self, key, value)

    def render(self, report):
        return self.write(report)


def raw_names(report):
    return str(report.to_dict()["results"]) + "".join(report.memory)


def raw_lines(report):
    text = JsonFile().render(report)
    return text.replace("\\n", "\n") + report.subject.source.count("\n") * "\nx"


def raw_tags(report):
    return JsonFile().render(report)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (Written(lambda report: " \n"), "a full report renders as nothing"),
        (Written(lambda report: "all is well"), "the verdict exponential.* is lost"),
        (Written(lambda r: JsonFile().render(r) + str(next(COUNTER))), "gives two texts"),
        (Written(raw_names), r"foreign text puts .*x1b"),
        (Written(raw_lines), "a line break in foreign text"),
        (Written(raw_tags, suffix=".html"), "can put tags into the report"),
        (Written(raw_tags, suffix="txt"), "does not begin with a dot"),
    ],
)
def test_a_wrong_report_format_is_found(form, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_report_format(form)


@rule("AC101", "wordy-rule", "note")
def wordy(report):
    """It matters. It is measured. Do something about it."""
    yield wordy.finding("a message", "an advice")


def speechless(report):
    """It matters. It is measured. Do something about it."""
    yield wordy.finding("", "")


def borrowed(report):
    """It matters. It is measured. Do something about it."""
    yield replace(wordy.finding("a message", "an advice"), code="MA101")


def graver(report):
    """It matters. It is measured. Do something about it."""
    yield wordy.finding("a message", "an advice", severity="error")


def text(report):
    """It matters. It is measured. Do something about it."""
    return ["a text"]


def curt(report):
    """It matters. Do something."""
    return ()


def ours(report):
    """It matters. It is measured. Do something about it."""
    return ()


ours.__module__ = "memaudit.memory.rules"

RULES = [
    (replace(wordy, check=curt), "2 sentences"),
    (replace(wordy, code="A1"), "the code 'A1' is not like"),
    (replace(wordy, severity="fatal"), "'fatal' is none of"),
    (replace(wordy, milder="fatal"), "milder is 'fatal'"),
    (replace(wordy, name="wordy rule"), "'wordy rule' is not words with hyphens"),
    (replace(wordy, check=speechless), "no message or advice"),
    (replace(wordy, check=borrowed), "check yields a finding"),
    (replace(wordy, check=graver), "graver"),
    (replace(wordy, check=text), "which is no Finding"),
    (replace(wordy, check=ours), r"'AC101' is not like MA\\d\{3\}"),
    (wordy.check, "is no Rule"),
]


@pytest.mark.parametrize(("one", "told"), RULES)
def test_a_wrong_rule_is_found(one, told):
    with pytest.raises(AssertionError, match=told):
        testing.check_rule(one)


def test_an_honest_rule_of_a_stranger_passes():
    testing.check_rule(wordy)


@pytest.mark.parametrize("check", [testing.check_query, testing.check_report_format])
def test_a_class_instead_of_an_instance_is_refused(check):
    with pytest.raises(AssertionError, match="is no Abstract"):
        check(Heaviside)


def test_the_checks_use_neither_pytest_nor_statements_that_can_be_switched_off():
    for file in Path(testing.__file__).parent.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "pytest" not in text
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text)))
