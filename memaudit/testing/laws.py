"""The laws of every kind of plugin, each a check that raises AssertionError with a sentence."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit import registry
from memaudit.audit import load, scan
from memaudit.closed_form.kernels import answer_of, size_of
from memaudit.errors import MemauditError
from memaudit.interfaces import (
    TIMES,
    AbstractAdapter,
    AbstractKernelTarget,
    AbstractLinearPart,
    AbstractProbe,
    AbstractQuery,
    AbstractReparam,
    AbstractReportFormat,
    AbstractSubject,
    AbstractTarget,
    AbstractTokenQuery,
    AbstractTrialQuery,
    Claim,
    Request,
    Setting,
    Status,
)
from memaudit.loading.access import Access
from memaudit.loading.filling import digest_tensors
from memaudit.loading.source import Source, parse_source
from memaudit.memory.result import Curve
from memaudit.numerics.linear import tolerance_of
from memaudit.numerics.reparameterization import derivative, gradient_scale, modulus
from memaudit.numerics.signals import lag_grid, seeded
from memaudit.options import OPTIONS
from memaudit.recall.linear import numbers_of
from memaudit.records import plain
from memaudit.report import SEVERITIES, Finding, Identity, Recurrence, Report, Result
from memaudit.rules import Rule
from memaudit.sections import Section
from memaudit.subjects.callables import wrap
from memaudit.testing.samples import (
    HORIZON,
    filtered,
    having,
    renamed,
    sample_reports,
    tanh_recurrence,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memaudit.testing.samples import Model

# -- Stating a law: it holds, or an AssertionError says in a sentence what is wrong.


def must(holds: bool, sentence: str) -> None:
    """Raise AssertionError with the sentence unless it holds; -O does not switch it off."""
    if not holds:
        raise AssertionError(sentence)


def check_words(plugin: Any, *names: str) -> None:
    """The attributes of that name are texts with something in them."""
    for name in names:
        words = getattr(plugin, name, None)
        must(isinstance(words, str) and bool(words.strip()), f"{name} is {words!r}, not a text")


def check_plain(value: Any, what: str) -> None:
    """The value survives strict JSON unchanged: plain types, no NaN, no infinity."""
    try:
        text = json.dumps(plain(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what} cannot stand in a JSON report: {error}") from error
    must(json.loads(text) == plain(value), f"{what} changes on its way through JSON")


def draw(rows: int, width: int, *, seed: int = 0) -> torch.Tensor:
    """Gaussian rows in float64, the same for the same seed."""
    return torch.randn(rows, width, generator=seeded(seed), dtype=torch.float64)


# -- What a subject holds, as a fingerprint.


def fingerprint(subject: AbstractSubject) -> str:
    """SHA-256 over the tensors and modules among the subject's attributes."""
    found: dict[str, object] = {}
    for name, value in getattr(subject, "__dict__", {}).items():
        held = value.state_dict() if isinstance(value, nn.Module) else {"": value}
        found |= {f"{name}.{key}": item for key, item in held.items()}
    return digest_tensors(found)


# -- The laws of a query.

#: Curves of linear models meet their formula up to rounding, which is far below this.
QUERY_CLOSE = 1e-9


def check_query(query: AbstractQuery) -> None:
    """The laws of `AbstractQuery`: shapes, moments, the closed form, the identity, repetition."""
    must(isinstance(query, AbstractQuery), f"{query!r} is no AbstractQuery")
    check_words(query, "name", "summary")
    for horizon in (8, HORIZON):
        for form in _forms(query, horizon):
            _check_form(form, draw(1, 1), horizon)
            _check_form(form, draw(3, 4).float(), horizon)
    _check_closed_form(query)
    for model in (nn.Identity(), torch.tanh):
        curve = _query_curve(query, model, 2)
        kind = curve.decay.kind
        hint = "where lag 0 reads the present input, set first_lag = 1"
        must(kind == "memoryless", f"a map without memory comes out as {kind}; {hint}")
    first, second = (_query_curve(query, tanh_recurrence, 2, seed=3) for _ in range(2))
    must(first == second, "the same seed gives other numbers the second time")


def _forms(query: AbstractQuery, horizon: int) -> Iterator[AbstractQuery]:
    """The query, its linear form, and every longer one."""
    yield query
    yield query.on_linear()
    longer = query.lengthened(horizon)
    for _ in range(64):
        if longer is None:
            return
        yield longer
        before, longer = longer.prefix(horizon), longer.lengthened(horizon)
        longer_now = longer is None or longer.prefix(horizon) > before
        must(longer_now, "lengthened gives a query whose prefix is not longer")
    must(False, "lengthened never ends; it must give None at some length")


def _check_form(form: AbstractQuery, x: torch.Tensor, horizon: int) -> None:
    kept, inputs = x.clone(), form.inputs(x, horizon)
    shape = (len(x), inputs.shape[1] if inputs.ndim == 3 else "L", x.shape[1])
    got = f"{tuple(inputs.shape)} of {inputs.dtype} for x {tuple(x.shape)} of {x.dtype}"
    must(tuple(inputs.shape) == shape and inputs.dtype == x.dtype, f"inputs gives {got}")
    must(torch.equal(x, kept), "inputs changes the probe vectors that it was given")
    alone = torch.equal(form.inputs(x[:1], horizon), inputs[:1])
    must(alone, "the sequence of a probe vector depends on its neighbours")
    against = form.reference(x, horizon)
    alike = against is None or (against.shape == inputs.shape and against.dtype == x.dtype)
    must(alike, "reference is not shaped like inputs, or of another dtype")
    length, first = inputs.shape[1], form.prefix(horizon)
    for lags in (torch.arange(horizon), lag_grid(horizon)):
        later, earlier = form.moments(lags, horizon)
        for name, times in (("later", later), ("earlier", earlier)):
            if times is None:
                continue
            one_each = times.shape == lags.shape and not times.is_floating_point()
            must(one_each, f"the {name} moments are not one whole number for every lag")
            inside = int(times.min()) >= 0 and int(times.max()) < length
            must(inside, f"the {name} moments leave the {length} steps of the sequence")
        after = 0 <= first <= int(later.min())
        must(after, f"lag 0 is read before the prefix of {first} steps is over")


def _check_closed_form(query: AbstractQuery) -> None:
    """For a kernel rho the curve is |rho(t + shift)|_1, with one shift for all kernels."""
    t = torch.arange(4 * HORIZON, dtype=torch.float64)
    short = torch.zeros(len(t), 1, dtype=torch.float64)
    short[:8] = draw(8, 1)
    swinging, flat = (0.9**t * torch.cos(t))[:, None], torch.ones(len(t), 1, dtype=torch.float64)
    kernels = [swinging, flat, short, torch.cat([swinging, flat, short], 1)]
    off = {0: 0.0, 1: 0.0}
    for kernel in kernels:
        rho, width = kernel.abs().sum(1).numpy(), kernel.shape[1]
        for pooled in (False, True):
            curve = _query_curve(query, filtered(kernel, pooled=pooled), width, pooled=pooled)
            must(len(curve.lags) > 0, "a linear model gives no lags")
            for s in off:
                off[s] = max(off[s], float(abs(curve.values - rho[curve.lags + s]).max()))
    seen = " and ".join(f"{error:.2g} from |rho(t + {s})|" for s, error in off.items())
    must(min(off.values()) <= QUERY_CLOSE, f"on linear models the curve is off by {seen}")
    shift = min(off, key=lambda s: off[s])
    x, expected = draw(3, 1), short[shift : shift + HORIZON]
    readings = _readings(query, filtered(short), x)
    signs = [float((sign * readings - x[:, None] * expected).abs().max()) for sign in (1, -1)]
    fact = f"a single reading is off by {min(signs):.2g} from plus or minus rho(t + {shift})·x"
    must(min(signs) <= QUERY_CLOSE, f"{fact}, on a linear model that settles within 8 steps")


def _readings(query: AbstractQuery, model: Model, x: torch.Tensor) -> torch.Tensor:
    inputs, against = query.inputs(x, HORIZON), query.reference(x, HORIZON)
    answers = model(inputs) - model(torch.zeros_like(inputs) if against is None else against)
    later, earlier = query.moments(torch.arange(HORIZON), HORIZON)
    return answers[:, later] - (0 if earlier is None else answers[:, earlier])


def _query_curve(
    query: AbstractQuery, model: Any, width: int, *, pooled: bool = False, seed: int = 0
) -> Curve:
    subject = wrap(model, input_size=width, pooled=pooled)
    report = scan(subject, horizon=HORIZON, queries=[query], probes=[], seed=seed)
    must(query.name in report.memory, f"the report has no curve called {query.name}")
    return report.memory[query.name]


# -- The laws of a query in token space, on a model whose answers are known in closed form.

LETTERS = "abcdefghijklmnopqrstuvwxyz "
DECAY = 0.8
#: Rates are read from a fit over a window of some dozens of lags.
RATE_TOLERANCE = 0.01


class LetterFilter(AbstractSubject):
    """y_t = sum_s decay^s e(u_{t-s}) over the letters of a text; e(k) = 1 + k / 8 for letter k.

    `decay` 0 is a model without memory. Pooled, it answers by y at the last letter.
    """

    def __init__(self, decay: float = DECAY, *, pooled: bool = False, tokens: bool = True) -> None:
        self.identity = Identity("letters", "wrap", "callable", 0, "float64", "cpu")
        self.input_size, self.pooled = 1, pooled
        self.device, self.dtype = torch.device("cpu"), torch.float64
        self.vocabulary = len(LETTERS) if tokens else None
        self.decay = decay

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        """Answer letters (B,T) or numbers (B,T,1)."""
        values = inputs.double() if inputs.ndim == 3 else (1 + inputs.double() / 8)[..., None]
        state, answers = torch.zeros_like(values[:, 0]), []
        for step in values.unbind(1):
            state = self.decay * state + step
            answers.append(state)
        return answers[-1] if self.pooled else torch.stack(answers, 1)

    def tokens_of(self, text: str) -> torch.Tensor | None:
        """One token a letter; everything else is a blank."""
        if self.vocabulary is None:
            return None
        return torch.tensor([LETTERS.find(c) % len(LETTERS) for c in text.lower()])


def check_trial_query(query: AbstractTrialQuery) -> None:
    """The laws of `AbstractTrialQuery`: the closed form, no memory, repetition."""
    must(isinstance(query, AbstractTrialQuery), f"{query!r} is no AbstractTrialQuery")
    check_words(query, "name", "summary", "joined")
    must(query.joined in ("supremum", "mean"), f"joined is {query.joined!r}")
    for pooled in (False, True):
        curve = _token_curve(query, LetterFilter(pooled=pooled))
        must(bool((curve.values >= 0).all()), "a reading is negative")
        decay, rate = curve.decay, -math.log(DECAY)
        near = decay.rate is not None and abs(decay.rate - rate) <= RATE_TOLERANCE * rate
        must(decay.kind == "exponential", f"a memory of {DECAY}^t comes out as {decay.kind}")
        must(near, f"a memory of {DECAY}^t comes out with the rate {decay.rate}, not {rate:.4g}")
        kind = _token_curve(query, LetterFilter(0.0, pooled=pooled)).decay.kind
        must(kind == "memoryless", f"a model without memory comes out as {kind}")
    first, second = (_token_curve(query, LetterFilter(), seed=3) for _ in range(2))
    must(first == second, "the same seed gives other numbers the second time")


def check_token_query(query: AbstractTokenQuery) -> None:
    """The laws of `AbstractTokenQuery`: those of every trial, and a status without tokens."""
    must(isinstance(query, AbstractTokenQuery), f"{query!r} is no AbstractTokenQuery")
    check_trial_query(query)
    without = _token_curve(query, LetterFilter(tokens=False))
    must(without.status is Status.NO_TOKENS, "a model without tokens gives no status that says so")


def _token_curve(query: AbstractTrialQuery, subject: AbstractSubject, *, seed: int = 0) -> Curve:
    report = scan(subject, horizon=HORIZON, queries=[query], probes=[], seed=seed)
    must(query.name in report.memory, f"the report has no curve called {query.name}")
    return report.memory[query.name]


# -- The laws of a probe.


def check_probe(probe: AbstractProbe, subject: AbstractSubject) -> None:
    """The laws of `AbstractProbe`: a class of results, repetition, plain JSON, no traces."""
    must(isinstance(probe, AbstractProbe), f"{probe!r} is no AbstractProbe")
    check_words(probe, "name", "summary")
    must(issubclass(probe.result, Result), f"{probe.result!r} is no class of results")
    weights, setting = fingerprint(subject), Setting(horizon=HORIZON, level="quick")
    found = [probe.measure(subject, setting) for _ in range(2)]
    must(type(found[0]) is probe.result, f"measure gives {type(found[0]).__name__}, no result")
    first, second = map(plain, found)
    check_plain(first, "the result")
    try:
        probe.result.from_dict(first)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the result cannot be read back from JSON: {error}") from error
    must(first == second, "the same setting gives another result the second time")
    must(fingerprint(subject) == weights, "measuring moves the weights")
    for result in (found[0], probe.result.joined({"one": found[0], "two": found[1]})):
        for metric in result.metrics():
            known = any(own.matches(metric.name) for own in result.declared)
            must(known, f"metrics() yields {metric.name}, which `declared` does not hold")
        for section in result.sections():
            must(isinstance(section, Section), f"sections() yields {section!r}, no Section")


# -- The laws of a rule.


def check_rule(rule: Rule) -> None:
    """The laws of `Rule`: a code, a severity, an explanation, findings of its own."""
    must(isinstance(rule, Rule), f"{rule!r} is no Rule")
    ours = rule.check.__module__.startswith("memaudit.")
    pattern = r"MA\d{3}" if ours else r"[A-Z]{2,}\d{3}"
    must(bool(re.fullmatch(pattern, rule.code)), f"the code {rule.code!r} is not like {pattern}")
    kebab = bool(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name))
    must(kebab, f"the name {rule.name!r} is not words with hyphens")
    must(rule.severity in SEVERITIES, f"the severity {rule.severity!r} is none of {SEVERITIES}")
    must(rule.milder in ("", *SEVERITIES), f"milder is {rule.milder!r}, none of {SEVERITIES}")
    sentences = len(re.findall(r"[.!?](?=\s|$)", rule.explanation))
    must(sentences >= 3, f"the explanation has {sentences} sentences; three are the least")
    for report in sample_reports().values():
        found = list(rule.check(report))
        must(found == list(rule.check(report)), "the same report gives other findings")
        for finding in found:
            must(isinstance(finding, Finding), f"check yields {finding!r}, which is no Finding")
            own = (finding.code, finding.name)
            must(own == (rule.code, rule.name), f"check yields a finding {own}")
            grave = SEVERITIES.index(finding.severity) > SEVERITIES.index(rule.severity)
            must(not grave, f"a finding is graver ({finding.severity}) than its rule")
            stated = finding.severity in (rule.severity, rule.milder) or not ours
            must(stated, f"a finding is a {finding.severity}, and its rule does not say so")
            must(bool(finding.message and finding.advice), "a finding has no message or advice")


# -- The laws of a report format.

#: What a file may call its tensors: a colour, a bell, a tag, a reversed text, a forged line.
HOSTILE = "\x1b[31mred\x07<img src=x onerror=alert(1)>\u202etxt\nforged"
#: More of that: markup of rich, HTML and Markdown, formulas, halves of letters, floods of marks.
LINES = "line breaks"
NAMES = {
    LINES: "one\ntwo\rthree\x85four\u2028five\x0bsix\tseven\x00",
    "markup": "[red]x[/red] [link=https://example.org]y[/link] [/] [bold",
    "tags": "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;b&gt;<!--",
    "a link": "[x](javascript:alert(1)) ![y](https://example.org/z.png) <https://example.org>",
    "a table": "a|b||c\\|d `e` ``f`` # g * h _ i",
    "a formula": "=cmd|' /C calc'!A0",
    "a sum": "+1+1",
    "a difference": "-2+3",
    "a call": "@SUM(A1:A9)",
    "a quotation": 'a",=1+1,"b',
    "a path": "../../../etc/passwd",
    "half a letter": "a\ud800b\udcffc",
    "marks": "a" + "\u0301" * 5000,
    "100 000 letters": "x" * 100_000,
}


def check_report_format(form: AbstractReportFormat) -> None:
    """The laws of `AbstractReportFormat`: pure, never empty, no verdict lost, no raw names.

    What a file calls its tensors arrives verbatim: a name adds neither lines nor control characters
    to a report. Markup is escaped by the rules of the format, which this does not know.
    """
    must(isinstance(form, AbstractReportFormat), f"{form!r} is no AbstractReportFormat")
    check_words(form, "name", "summary", "suffix")
    must(form.suffix.startswith("."), f"the suffix {form.suffix!r} does not begin with a dot")
    samples = sample_reports()
    for name, report in samples.items():
        text = form.render(report)
        must(isinstance(text, str) and bool(text.strip()), f"a {name} report renders as nothing")
        must(form.render(report) == text, f"rendering a {name} report twice gives two texts")
        kinds = {curve.decay.kind for curve in report.memory.values()}
        lost = kinds - set(re.findall(r"\w+", text))
        must(not lost, f"the verdict {', '.join(sorted(lost))} is lost in a {name} report")
    for what, name in {"control characters": HOSTILE, **NAMES}.items():
        text = form.render(everywhere(samples["deep"], name))
        raw = {c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\r\t"}
        must(not raw, f"{what} in a name puts {sorted(map(ascii, raw))} into the report")
        half = any(unicodedata.category(c) == "Cs" for c in text)
        must(not half, f"{what} in a name: the report is no valid text")
        if what == LINES:
            # Of the same words: a report may wrap its lines, but by no other rule than this.
            harmless = form.render(everywhere(samples["deep"], " ".join(name.split()).rstrip("\0")))
            same = len(text.splitlines()) == len(harmless.splitlines())
            must(same, "a line break in foreign text makes a line of its own in the report")


def everywhere(report: Report, name: str) -> Report:
    """The report of a source that calls everything by that name, its family and cells, too."""
    made = renamed(report, name)
    curves = {key: replace(curve, normalization=name) for key, curve in made.memory.items()}
    cell = Recurrence(layer=name, cell=name, size=1, parameters=1)
    who = replace(made.subject, family=name, adapter=name, recurrences=(cell,))
    return replace(having(made, memory=curves, layers={name: curves}), subject=who)


# -- The laws of a linear layer inside a model.

#: Steps of the test sequences, and a stretch of lags from their middle.
LINEAR_STEPS, MIDDLE = 24, (5, 11)


def check_linear_part(part: AbstractLinearPart, *, dtype: torch.dtype = torch.float64) -> None:
    """The laws of `AbstractLinearPart`: shapes, lags, and a run that is the kernel's, on the CPU.

    `dtype` is that of the inputs that the layer takes.
    """
    must(isinstance(part, AbstractLinearPart), f"{part!r} is no AbstractLinearPart")
    must(isinstance(part.width, int) and part.width > 0, f"width is {part.width!r}")
    must(isinstance(part.banked, bool), f"banked is {part.banked!r}, neither True nor False")
    with torch.no_grad():
        kernel, (start, stop) = _kernel(part), MIDDLE
        limit = tolerance_of(dtype, LINEAR_STEPS) * float(kernel.abs().amax())
        off = _apart(part.kernel(start, stop), kernel[start:stop])
        must(off <= limit, f"the lags {start} to {stop - 1} computed alone are off by {off:.2g}")
        _check_run(part, kernel, dtype)
        _check_state(part, dtype)


def _kernel(part: AbstractLinearPart) -> torch.Tensor:
    kernel = part.kernel(0, LINEAR_STEPS)
    right = kernel.ndim == 3 and (len(kernel), kernel.shape[2]) == (LINEAR_STEPS, part.width)
    must(right, f"kernel(0, {LINEAR_STEPS}) has the shape {tuple(kernel.shape)}")
    must(kernel.is_floating_point(), f"the kernel is of {kernel.dtype}")
    must(bool(torch.isfinite(kernel).all()), f"the kernel is not finite within {LINEAR_STEPS} lags")
    return kernel.to("cpu", torch.float64)


def _check_run(part: AbstractLinearPart, kernel: torch.Tensor, dtype: torch.dtype) -> None:
    """An impulse, and two sequences that are no impulses: the second tells time-variance."""
    u = draw(3 * LINEAR_STEPS, part.width).view(3, LINEAR_STEPS, part.width)
    u[0, 1:] = 0
    u = u.to(dtype)
    kept, answers = u.clone(), part.respond(u)
    must(torch.equal(u, kept), "respond changes its input")
    expected = convolved(kernel, u.double(), banked=part.banked)
    wanted = tuple(expected.shape)
    must(tuple(answers.shape) == wanted, f"respond answers by {tuple(answers.shape)}, not {wanted}")
    sizes = size_of(kernel, banked=part.banked)
    limit = tolerance_of(dtype, LINEAR_STEPS) * float(u.abs().amax())
    off = _apart(answers[0], expected[0])
    must(
        off <= limit * float(sizes.amax()),
        f"the kernel is off by {off:.2g} from the answer to an impulse",
    )
    off = _apart(answers[1:], expected[1:])
    must(
        off <= limit * float(sizes.sum()),
        f"the answer is off by {off:.2g} from what the kernel sums up to",
    )


def _check_state(part: AbstractLinearPart, dtype: torch.dtype) -> None:
    """A state, where it is shown, moves by one matrix, and one readout of it is the kernel."""
    trial = part.reach(0, 1)
    if trial is None:
        return
    right = trial.ndim == 3 and (len(trial), trial.shape[2]) == (1, part.width)
    must(right, f"reach(0, 1) has the shape {tuple(trial.shape)}")
    must(trial.dtype in (torch.float64, torch.complex128), f"the states are of {trial.dtype}")
    # More equations than numbers in the state: else some A and C fit anything.
    steps = LINEAR_STEPS + 2 * numbers_of(trial) // (1 if part.banked else part.width)
    (start, stop), whole = MIDDLE, _reached(part, 0, steps, trial)
    must(bool(torch.isfinite(whole).all()), f"the states are not finite within {steps} lags")
    limit, size = tolerance_of(dtype, steps), float(whole.abs().amax())
    off = float((_reached(part, start, stop, trial) - whole[start:stop]).abs().amax())
    must(
        off <= limit * size, f"the states {start} to {stop - 1} computed alone are off by {off:.2g}"
    )
    states = _by_lag(whole, banked=part.banked)
    off = _unfitted(states[:, :-1], states[:, 1:])
    must(off <= limit * size, f"the states are off by {off:.2g} from a matrix that moves them")
    move = part.transition()
    if move is not None:
        off = _apart_by(move, whole, banked=part.banked)
        must(
            off <= limit * size, f"the states are off by {off:.2g} from those that transition moves"
        )
    kernel = part.kernel(0, steps).to("cpu", torch.float64)
    outputs = _by_lag(kernel, banked=part.banked)
    off, size = _unfitted(states[:, 1:], outputs[:, 1:]), float(kernel.abs().amax())
    must(off <= limit * size, f"the kernel is off by {off:.2g} from any readout of the states")


def _reached(part: AbstractLinearPart, start: int, stop: int, trial: torch.Tensor) -> torch.Tensor:
    """The states of these lags, shaped like the first one."""
    found = part.reach(start, stop)
    shape = None if found is None else tuple(found.shape)
    must(shape == (stop - start, *trial.shape[1:]), f"reach({start}, {stop}) gives {shape}")
    return trial if found is None else found


def _by_lag(values: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """(H,L,n,D) of a whole layer, H = 1, or of the H inputs of a bank, D = 1; real parts first."""
    parts = [values.real, values.imag] if values.is_complex() else [values]
    real = torch.cat(parts, dim=1).detach().to("cpu", torch.float64)
    return real.permute(2, 0, 1).unsqueeze(-1) if banked else real.unsqueeze(0)


def _apart_by(move: torch.Tensor, states: torch.Tensor, *, banked: bool) -> float:
    """How far the states (L,N,D) are from A times those of the step before."""
    full = move if move.ndim == 2 + banked else torch.diag_embed(move)
    wide = torch.promote_types(full.dtype, states.dtype)
    how = "dnm,lmd->lnd" if banked else "nm,lmd->lnd"
    moved = torch.einsum(how, full.to(wide), states[:-1].to(wide))
    return float((moved - states[1:]).abs().amax())


def _unfitted(known: torch.Tensor, wanted: torch.Tensor) -> float:
    """What is left of `wanted` (H,L,m,D) beside the best matrices times `known` (H,L,n,D)."""
    rows, targets = (v.mT.flatten(1, 2) for v in (known, wanted))
    left, values, _ = torch.linalg.svd(rows, full_matrices=False)
    basis = left * (values > 1e-14 * values[:, :1]).unsqueeze(1)
    return float((targets - basis @ (basis.mT @ targets)).abs().amax())


def convolved(kernel: torch.Tensor, u: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """The sum over s of kernel(s) applied to u[:, t - s], lag by lag, for u (B,T,D)."""
    rows, steps, width = u.shape
    wide = kernel.shape[1:] if banked else kernel.shape[1:2]
    total = u.new_zeros(rows, steps, *wide)
    for lag in range(min(steps, len(kernel))):
        fed = u[:, : steps - lag].reshape(-1, width)
        answer = answer_of(kernel[lag : lag + 1], fed, banked=banked)
        total[:, lag:] += answer.view(rows, steps - lag, *wide)
    return total


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    must(one.shape == other.shape, f"{tuple(one.shape)} was given for {tuple(other.shape)}")
    return float((one.detach().to("cpu", torch.float64) - other).abs().amax())


# -- The laws of an adapter and of the subjects that it makes.

#: A row alone and in a batch may be summed in another order.
ROUNDINGS = 1e4


def check_adapter(
    adapter: AbstractAdapter, source: Any, *, options: Mapping[str, Any] | None = None
) -> None:
    """The laws of `AbstractAdapter` and its subject, on a source that it opens, on the CPU."""
    must(isinstance(adapter, AbstractAdapter), f"{adapter!r} is no AbstractAdapter")
    check_words(adapter, "name")
    _check_options(adapter, source)
    where = parse_source(source)
    claim = adapter.claim(where)
    strong = isinstance(claim, Claim) and bool(claim.family) and claim.strength > 0
    must(strong, f"claim gives {claim!r} for a source that it should open")
    away = Access(offline=True)
    for other in (Source("hub", "nobody/nothing", access=away), Source("timm", "timm:nothing")):
        try:
            wild = adapter.claim(other)
        except MemauditError:
            continue  # nobody can look into it from here
        must(wild is None or isinstance(wild, Claim), f"claim gives {wild!r}, no Claim and no None")
    for dtype in (None, torch.float64):
        request = Request(torch.device("cpu"), dtype, None, dict(options or {}))
        subject, again = adapter.load(where, request), adapter.load(parse_source(source), request)
        _check_identity(adapter, subject, in_memory=where.kind == "module")
        parts = dict(subject.parts()) or {"": subject}
        other_parts = dict(again.parts()) or {"": again}
        for name, part in parts.items():
            must(dtype in (None, part.dtype), f"{dtype} was asked for, {part.dtype} was loaded")
            _check_subject(part, other_parts[name])
        after = adapter.load(parse_source(source), request).identity
        must(after == subject.identity, "after an audit the source loads as another one")


def _check_options(adapter: AbstractAdapter, source: Any) -> None:
    for name, words in adapter.options.items():
        must(name.isidentifier(), f"the option {name!r} cannot be a keyword")
        must(bool(words.strip()), f"the option {name} has no sentence")
        must(name not in OPTIONS, f"the option {name} belongs to memaudit itself")
    if adapter.name not in registry.available("adapters"):
        return
    try:
        load(source, adapter=adapter.name, no_such_option=1)
    except MemauditError as error:
        named = "no_such_option" in error.fact
        must(named, f"an unknown option ends in another error: {error}")
        return
    must(False, "an unknown option is taken without a word")


def _check_identity(adapter: AbstractAdapter, subject: AbstractSubject, *, in_memory: bool) -> None:
    who = subject.identity
    must(who.adapter == adapter.name, f"identity.adapter is {who.adapter!r}, not {adapter.name}")
    for name in ("source", "family", "dtype", "device", "description"):
        must(bool(str(getattr(who, name)).strip()), f"identity.{name} is empty")
    digest = bool(re.fullmatch("[0-9a-f]{64}", who.sha256)) or (in_memory and not who.sha256)
    must(digest, f"identity.sha256 is {who.sha256!r}, not 64 hexadecimal digits")
    must(who.parameters >= 0, f"identity.parameters is {who.parameters}")
    must(0 <= who.coverage <= 1, f"identity.coverage is {who.coverage}, outside 0 to 1")
    for name, reason in who.assumed.items():
        known = name in (*adapter.options, *OPTIONS)
        must(known, f"{name} was assumed, but there is no such option to set it")
        must(bool(reason.strip()), f"{name} was assumed without a reason")
    check_plain(who, "the identity")


def _check_subject(subject: AbstractSubject, again: AbstractSubject) -> None:
    width = subject.input_size
    must(isinstance(width, int) and width > 0, f"input_size is {width!r} and there are no parts")
    before, weights = None, fingerprint(subject)
    for length in (1, 9):
        u = torch.stack([draw(length, width or 1), draw(length, width or 1, seed=1)])
        u = u.to(subject.dtype)
        kept, before = u.clone(), subject.respond(u)
        lead = (2,) if subject.pooled else (2, length)
        right = before.shape[:-1] == lead and before.ndim == len(lead) + 1
        must(right, f"respond answers {tuple(u.shape)} by {tuple(before.shape)}")
        must(before.dtype == subject.dtype, f"respond answers in {before.dtype}")
        must(torch.equal(u, kept), "respond changes its input")
        must(torch.equal(subject.respond(u), before), "two identical calls differ")
        must(torch.equal(again.respond(u), before), "two loads of one source answer differently")
        off = float((subject.respond(u[:1]) - before[:1]).abs().max())
        limit = ROUNDINGS * torch.finfo(subject.dtype).eps * max(1.0, float(before.abs().max()))
        must(off <= limit, f"a row alone and in a batch differ by {off:.2g}")
    for part in subject.linear_parts().values():
        check_linear_part(part, dtype=subject.dtype)
    scan(subject, horizon=8, level="quick")
    must(fingerprint(subject) == weights, "an audit moves the weights")
    must(torch.equal(subject.respond(u), before), "an audit changes what the subject answers")


# -- The laws of a reparameterization.

#: Raw weights that are tried, and moves of a weight for which the modulus is held against them.
WEIGHTS, BETAS = 512, (0.01, 0.1, 1.0)
#: A round trip loses the digits that logarithms and roots lose, far less than this.
REPARAM_CLOSE = 1e-12
#: The definition is searched on a grid.
SEARCHED = 1e-4
#: A closed form of the gradient scale and the numeric one differ by cancelled digits only.
SAME_SCALE = 1e-6
#: Between these weights float64 tells the modes of every usual form from the boundary: 1 - tanh(w)
#: is zero from 19 on. The number is even, so that zero, where a discrete form may touch the
#: boundary, is not among them.
STRICT, DENSE = 18.0, 20_000
#: Beyond, a mode may round to the boundary, and must not pass it.
FAR = (0.0, 19.0, 50.0, 300.0, 800.0, 1e4, 1e8, 1e100)
#: A trained weight takes so many steps of these sizes.
TRAINING_STEPS, RATE, WILD = 3, 0.5, 1e4


def check_reparam(reparam: AbstractReparam) -> None:
    """The laws of `AbstractReparam`: round trips, its range, its gradient, and its modulus."""
    must(isinstance(reparam, AbstractReparam), f"{reparam!r} is no AbstractReparam")
    check_words(reparam, "name", "summary", "time")
    must(set(reparam.times) <= set(TIMES), f"times holds {reparam.times}, which are not {TIMES}")
    must(reparam.time in reparam.times, f"it was made in {reparam.time} time without such a form")
    must(isinstance(reparam.stable, bool), f"stable is {reparam.stable!r}, not True or False")
    # Not so wide that e^{-e^w} is zero.
    w = 1.5 * draw(WEIGHTS, 1)[:, 0]
    lam = reparam.forward(w)
    must(lam.shape == w.shape, f"forward gives {tuple(lam.shape)} for {tuple(w.shape)}")
    must(bool(lam.isfinite().all()), "forward gives a number that is not finite")
    must(_contained(reparam, lam), "contains denies an eigenvalue that forward gives")
    must(_contained(reparam.fitted(lam), lam), "fitted to eigenvalues, it denies one of them")
    off = float((reparam.forward(reparam.inverse(lam)) - lam).abs().div(lam.abs() + 1.0).amax())
    must(off <= REPARAM_CLOSE, f"f(inverse(lambda)) is off by {off:.2g} of lambda")
    _check_range(reparam)
    _check_gradient(reparam, w)
    _check_scale(reparam, w)
    _check_modulus(reparam)
    if reparam.stable:
        must(bool(decays(reparam, lam).all()), "it is called stable, and gives an unstable mode")
        _check_far(reparam)
        _check_steps(reparam, lam)


def decays(reparam: AbstractReparam, lam: torch.Tensor) -> torch.Tensor:
    """Which modes are stable."""
    return lam < 0.0 if reparam.time == "continuous" else lam.abs() < 1.0


def stays(reparam: AbstractReparam, lam: torch.Tensor) -> torch.Tensor:
    """Which modes are stable, or so slow that they round to the boundary."""
    return lam <= 0.0 if reparam.time == "continuous" else lam.abs() <= 1.0


def _contained(reparam: AbstractReparam, lam: torch.Tensor) -> bool:
    inside = reparam.contains(lam)
    boolean = isinstance(inside, torch.Tensor) and inside.dtype == torch.bool
    must(boolean and inside.shape == lam.shape, "contains does not answer by a boolean for each")
    return bool(inside.all())


def _check_range(reparam: AbstractReparam) -> None:
    """What it says to reach it reaches with a finite weight: slow, fast and unstable modes."""
    sizes = torch.logspace(-6, 3, 1000, dtype=torch.float64)
    lam = -sizes if reparam.time == "continuous" else torch.cat([-(-sizes).exp(), (-sizes).exp()])
    beyond = torch.tensor([-2.0, -1.5, -1.0, 0.0, 1e-6, 0.5, 1.0, 1.5, 2.0], dtype=torch.float64)
    lam = torch.cat([lam, beyond])
    inside = lam[reparam.contains(lam)]
    must(bool(inside.numel()), "contains holds no eigenvalue of a usual size")
    w = reparam.inverse(inside)
    must(bool(w.isfinite().all()), "contains holds an eigenvalue without a finite raw weight")
    off = float((reparam.forward(w) - inside).abs().div(inside.abs() + 1.0).max())
    must(off <= REPARAM_CLOSE, f"contains holds an eigenvalue that is missed by {off:.2g}")
    nothing = torch.tensor([math.nan, math.inf, -math.inf], dtype=torch.float64)
    must(not bool(reparam.contains(nothing).any()), "contains holds a number that is not finite")


def _check_gradient(reparam: AbstractReparam, w: torch.Tensor) -> None:
    """The gradient is a number everywhere, and that of central differences away from kinks."""
    places = torch.cat([_dense(), torch.arange(-8.0, 9.0, dtype=torch.float64)])
    known = derivative(reparam.forward, places).isfinite()
    must(bool(known.all()), "the gradient is not finite at w = " + _first(places, ~known))
    h = 1e-6
    ahead, behind = reparam.forward(w + h), reparam.forward(w - h)
    left, right = derivative(reparam.forward, w - h), derivative(reparam.forward, w + h)
    smooth = (left - right).abs() <= 1e-3 * (1.0 + left.abs())
    must(bool(smooth.any()), "the gradient jumps at every weight")
    off = (derivative(reparam.forward, w) - (ahead - behind) / (2 * h)).abs()
    worst = float((off / (1.0 + left.abs()))[smooth].amax())
    must(worst <= 1e-4, f"the gradient is off by {worst:.2g} from the slope")


def _check_scale(reparam: AbstractReparam, w: torch.Tensor) -> None:
    """A closed form of the gradient scale is the numeric one."""
    stated, found = reparam.gradient_scale(w), gradient_scale(reparam.forward, w, time=reparam.time)
    must(stated.shape == w.shape, f"gradient_scale gives {tuple(stated.shape)}")
    off = (stated - found).abs() <= SAME_SCALE * found
    right = off | (stated == found)
    must(bool(right.all()), f"gradient_scale is not |f'| / f² at w = {_first(w, ~right)}")


def _check_modulus(reparam: AbstractReparam) -> None:
    for beta in BETAS:
        stated, found = reparam.modulus(beta), modulus(reparam.forward, beta, time=reparam.time)
        near = math.isfinite(found) and abs(stated - found) <= SEARCHED * found
        fact = f"modulus({beta:g}) is {stated:.5g}, where the definition gives {found:.5g}"
        must(near or stated == found, fact)
        endless = math.isinf(stated)
        must(endless or reparam.stable, f"it is not called stable, yet {fact}")
        # Definition 3.2 is about continuous time; in discrete time one weight may be on the edge.
        edge = reparam.time == "discrete"
        must(edge or not (endless and reparam.stable), f"it is called stable, yet {fact}")


def _check_far(reparam: AbstractReparam) -> None:
    """No weight leaves the stable set, however far it is."""
    near = _dense()
    inside = decays(reparam, reparam.forward(near))
    must(bool(inside.all()), f"it is called stable, and is not at w = {_first(near, ~inside)}")
    far = torch.tensor([*FAR, *(-w for w in FAR)], dtype=torch.float64)
    inside = stays(reparam, reparam.forward(far))
    must(bool(inside.all()), f"it is called stable, and is not at w = {_first(far, ~inside)}")


def _check_steps(reparam: AbstractReparam, lam: torch.Tensor) -> None:
    """Gradient descent towards the boundary stays inside, whatever the size of a step."""
    upstream = torch.rand(lam.shape, generator=seeded(1), dtype=torch.float64)
    for rate, holds in ((RATE, decays), (WILD, stays)):
        w = reparam.inverse(lam).clone().requires_grad_()
        optimizer = torch.optim.SGD([w], lr=rate)
        for _ in range(TRAINING_STEPS):
            optimizer.zero_grad()
            (-(upstream * reparam.forward(w)).sum()).backward()
            optimizer.step()
            inside = bool(holds(reparam, reparam.forward(w.detach())).all())
            must(inside, "a step of gradient descent makes a mode unstable")


def _dense() -> torch.Tensor:
    return torch.linspace(-STRICT, STRICT, DENSE, dtype=torch.float64)


def _first(w: torch.Tensor, there: torch.Tensor) -> str:
    return f"{float(w[there][0]):.6g}" if bool(there.any()) else "none"


# -- The laws of a target functional.

TARGET_STEPS, TARGET_ROWS = 48, 3
#: Sums of 48 products, by FFT or one after the other, in float64.
ROUNDING = 1e-11


def check_target(target: AbstractTarget) -> None:
    """The laws of `AbstractTarget`: shape, float64, causal, rows by themselves, its own text."""
    from memaudit.targets import target as named

    must(isinstance(target, AbstractTarget), f"{target!r} is no AbstractTarget")
    check_words(target, "name", "summary")
    draw = seeded(0)
    u = torch.randn(TARGET_ROWS, TARGET_STEPS, target.inputs, generator=draw, dtype=torch.float64)
    y = target.answer(u)
    shape = (TARGET_ROWS, TARGET_STEPS, target.outputs)
    must(tuple(y.shape) == shape, f"it answers {tuple(u.shape)} by {tuple(y.shape)}, not {shape}")
    must(y.dtype == torch.float64, f"it answers in {y.dtype}, not in float64")
    must(bool(y.isfinite().all()), "it answers by numbers that are not finite")
    must(torch.equal(target.answer(u), y), "it gives another answer the second time")
    size = ROUNDING * max(1.0, float(y.abs().amax()))
    later = u.clone()
    later[:, TARGET_STEPS // 2 :] += 1.0
    early = (target.answer(later) - y)[:, : TARGET_STEPS // 2]
    must(float(early.abs().amax()) <= size, "an input changes answers that were given before it")
    alone = target.answer(u[:1])
    must(float((alone - y[:1]).abs().amax()) <= size, "a row depends on the other rows")
    if target.linear:
        _check_linear(target, u, y, size)
    must(named(str(target)) == target, f"{target} read as text is another target")


def _check_linear(target: AbstractTarget, u: torch.Tensor, y: torch.Tensor, size: float) -> None:
    must(
        float((target.answer(-2.0 * u) + 2.0 * y).abs().amax()) <= 4 * size,
        "it says that it is linear, and is not",
    )
    if isinstance(target, AbstractKernelTarget):
        impulse = torch.zeros(1, TARGET_STEPS, 1, dtype=torch.float64)
        impulse[0, 0] = 1.0
        off = target.answer(impulse)[0, :, 0] - target.kernel(TARGET_STEPS)
        must(float(off.abs().amax()) <= size, "its answer to an impulse is not its kernel")
