"""The rules that judge memory curves, and the assumptions of the theory behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.errors import MemauditError, clean
from memaudit.memory.curve import (
    CONSTANT,
    ENDING_IN_ZEROS,
    SIGNAL_OVER_FLOOR,
    Curve,
    Status,
    blind_to_constants,
    blind_to_zeros,
)
from memaudit.options import SHORTEST
from memaudit.registry import DEFAULT_QUERIES
from memaudit.report import Finding
from memaudit.rules import SURE, rule

if TYPE_CHECKING:
    from memaudit.memory.result import Assumption
    from memaudit.report import Report

#: A fit is trusted this many windows ahead, not further.
TRUSTED_WINDOWS = 16
#: The longest horizon that is advised.
LONGEST_ADVISED = 2**17
#: Rates within this factor are one rate, measured through different nonlinear regimes.
RATE_FACTOR = 1.5
#: Queries whose curves are not comparable with those of the suprema over vectors.
IN_TOKENS = ("driven", "repeat", "context")
#: Roundings (in units of the largest value) beyond which the floor is not rounding alone.
MANY_ROUNDINGS = 1e6
#: Distance from 1 to the next number.
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: A state path that makes less than this share of the answers is hardly used.
UNUSED = 0.01
#: A horizon below this share of the context falls far short of it.
FAR_SHORT = 0.25
#: Statuses of a query that could not be put to the model at all.
NOT_POSSIBLE = (
    *(Status.NOT_MEASURED, Status.NO_TOKENS, Status.NO_TOKENIZER),
    *(Status.UNKNOWN_TEXT, Status.TOO_SHORT, Status.NO_VARIATION),
)


# Where the rules look


def _places(report: Report) -> Iterator[tuple[str, Mapping[str, Curve]]]:
    """The curves by place: every part of a host, else the whole model.

    For a host `report.memory` repeats curves of its parts, so only one of the two is read. The
    hidden states of a whole model are no findings of their own.
    """
    if report.layers and not report.subject.whole:
        yield from report.layers.items()
    else:
        yield "", report.memory


def _matching(
    report: Report, wanted: Callable[[Curve], bool]
) -> Iterator[tuple[str, dict[str, Curve]]]:
    """The places with at least one curve of that sort, and these curves by query."""
    for where, curves in _places(report):
        found = {query: curve for query, curve in curves.items() if wanted(curve)}
        if found:
            yield where, found


def _failed(report: Report, name: str) -> Iterator[Assumption]:
    """The measurements in which an assumption does not hold."""
    return (
        item
        for item in getattr(report, "assumptions", ())
        if item.name == name and item.holds is False
    )


def _fails(report: Report, name: str, where: str) -> bool:
    """Whether an assumption fails at a place, or in the model as a whole."""
    return any(item.where in ("", where) for item in _failed(report, name))


def _residual(item: Assumption) -> str:
    """The residual beside its tolerance, and the note of the measurement."""
    text = ""
    if item.residual is not None and item.tolerance is not None:
        text = f" (residual {item.residual:.2g}, tolerance {item.tolerance:.2g})"
    return text + (f": {item.note}" if item.note else "")


def _each(curves: Mapping[str, Curve], sentence: Callable[[Curve], str]) -> str:
    """One clause per query: `heaviside: …; impulse: …`."""
    return "; ".join(f"{query}: {sentence(curve)}" for query, curve in curves.items())


def _span(curve: Curve) -> str:
    """The lags that the verdict rests on, in words."""
    if curve.decay.window is not None:
        return f"lags {curve.decay.window[0]} to {curve.decay.window[1]}"
    return f"lags {int(curve.lags[0])} to {curve.last_lag}" if len(curve.lags) else "no lag"


def _bracket(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.4g}, {interval[1]:.4g}]"


def _next_power(number: int) -> int:
    """The next power of two, as people choose horizons."""
    return 1 << (max(number, 8) - 1).bit_length()


def _queries(measured: Collection[str]) -> list[str]:
    probes = registry.available("probes")
    return [name for name in measured if name not in probes]


def _one_and_another(group: tuple[str, ...]) -> Callable[[Collection[str]], str]:
    """What a rule lacks that compares a group of queries with the others."""

    def missing(measured: Collection[str]) -> str:
        queries = _queries(measured)
        if not any(query in group for query in queries):
            return group[0]
        if all(query in group for query in queries):
            return next(query for query in DEFAULT_QUERIES if query not in group)
        return ""

    return missing


def _two_on_vectors(measured: Collection[str]) -> str:
    vectors = [query for query in _queries(measured) if query not in IN_TOKENS]
    others = [q for q in DEFAULT_QUERIES if q not in (*vectors, *IN_TOKENS)]
    return others[0] if len(vectors) < 2 else ""


# Curves that are missing or cut


@rule("MA005", "window-cut", "note")
def window_cut(report: Report) -> Iterable[Finding]:
    """The model takes fewer steps than the window needs, so some curves end early.

    The model has a table of positions that ends, so it cannot be run for the whole window. The
    queries were measured for as many lags as fit: the impulse needs one step a lag, the reversed
    query a prefix besides, and a model that looks ahead is run past the end of the window. Nothing
    was truncated silently: every curve has the lags that were measured. A query that does not fit
    at all has no curve, and its status says so.
    """
    limit, wanted = report.subject.longest, int(report.settings.get("horizon", 0))
    if limit is None:
        return

    def cut(curve: Curve) -> bool:
        other = curve.status in (Status.DIVERGED, Status.NO_TOKENIZER)
        return curve.last_lag + 1 < wanted and not other

    for where, curves in _matching(report, cut):
        lags = ", ".join(
            f"{query} {c.last_lag + 1 if len(c.lags) else 0}" for query, c in curves.items()
        )
        most = max((c.last_lag + 1 for c in curves.values() if len(c.lags)), default=0)
        fitting = (
            f"--horizon {most} is what fits" if most >= SHORTEST else "--query impulse may fit"
        )
        yield window_cut.finding(
            f"the model takes at most {limit} steps; lags measured instead of {wanted}: {lags}",
            f"take the curves as far as they go; {fitting}",
            where=where,
        )


@rule("MA006", "query-not-measured", "warning")
def query_not_measured(report: Report) -> Iterable[Finding]:
    """A query that was asked for could not be put to this model, and its curve is empty.

    The model takes no tokens, has no tokenizer, does not know the text, takes too few steps, or the
    data hold one value only. An empty curve is no verdict. The other curves are not touched by it.
    Give a text that the tokenizer knows with --text FILE, or ask in embedding space with --query
    impulse.
    """
    for where, curves in _matching(report, lambda curve: curve.status in NOT_POSSIBLE):
        yield query_not_measured.finding(
            f"not measured ({_each(curves, lambda curve: curve.status.value)})",
            "give another --text or --data, or ask in embedding space: --query impulse",
            where=where,
        )


@rule("MA119", "text-not-fed", "warning", needs=("driven",))
def text_not_fed(report: Report) -> Iterable[Finding]:
    """A text was given with --text, and the model was not fed it.

    The model takes no tokens, has no tokenizer that fits it, or has one that does not know the
    text. Its memory in use was then measured on other inputs, which the headline names. Token ids
    of its own tokenizer, of the shape (T,) or (B, T), or the vectors that it works on, are given
    with --data FILE.
    """
    reasons = {c.unfed for _, curves in _places(report) for c in curves.values()}
    for status in sorted(reasons - {Status.OK}):
        kind = "the inputs that it works on" if status is Status.NO_TOKENS else "token ids"
        yield text_not_fed.finding(
            f"the text was not fed: {status.value}", f"give {kind} with --data FILE"
        )


# The kind of decay


@rule("MA101", "memoryless", "note", needs=("heaviside",))
def memoryless(report: Report) -> Iterable[Finding]:
    """A step in the input leaves no trace after it is over.

    The model answers its input, yet under a step the answer is constant from the first moment on:
    nothing of the past reaches the present. An identity map, a pointwise layer or a network whose
    recurrent weights are zero behaves like this. For a feed-forward model that is right. For a
    recurrent one it means that the recurrence is cut off or was never trained; check that the
    recurrent weights were loaded and are not all zero.
    """
    for where, curves in _places(report):
        curve = curves.get("heaviside")
        if curve is None or curve.decay.kind != "memoryless":
            continue
        if _fails(report, "responsive", where) or any(c.remembers for c in curves.values()):
            continue
        peak = float(curve.values.max()) if len(curve.values) else 0.0
        yield memoryless.finding(
            f"the answer to a step keeps no trace of the past: at most {peak:.2g} against a "
            f"numerical floor of {curve.floor:.2g}",
            "if the model is meant to be recurrent, check its recurrent weights: --probe spectrum "
            "--verbose shows their eigenvalues",
            where=where,
        )


@rule("MA102", "growing-memory", "error")
def growing_memory(report: Report) -> Iterable[Finding]:
    """The memory curve rises with the lag.

    An input of long ago moves the answer more than a recent one. The model is unstable around the
    inputs that were tried, small changes are amplified from step to step, and longer sequences than
    those of the training will overflow or saturate. A growth inside the window may still end later,
    where the nonlinearity saturates. Check the spectrum of the recurrent weights, and constrain or
    regularize them before the model is used on long sequences.
    """

    def growth(curve: Curve) -> str:
        text = f"over {_span(curve)}"
        if curve.decay.rate is not None:
            text = f"rate {curve.decay.rate:.4g}{_bracket(curve.decay.interval)} a lag " + text
        if len(curve.values) and curve.values[0] > 0:
            text += f", from {curve.values[0]:.2g} to {curve.values[-1]:.2g}"
        return text

    def grows(curve: Curve) -> bool:
        # Of a mean over a sequence the early inputs make more than the late ones: no instability.
        mean = curve.query in ("driven", "context")
        return curve.decay.kind == "growing" and not mean and not curve.bounded_oscillation

    for where, curves in _matching(report, grows):
        yield growing_memory.finding(
            f"the memory grows with the lag ({_each(curves, growth)})",
            "constrain the recurrent weights before you run longer sequences; --query driven "
            "--data FILE shows whether it grows on your inputs, too",
            where=where,
        )


@rule("MA103", "persistent-memory", "warning", milder="note")
def persistent_memory(report: Report) -> Iterable[Finding]:
    """Inside the measured window the memory curve does not fall.

    It stays on a plateau or swings with an even amplitude. The state then holds an input for as
    long as was looked, as an integrator, a latch, a counter or an oscillator on the edge of
    stability does. Where the task needs that, it is right. Otherwise old inputs never leave the
    state, and a small change of the weights can turn the plateau into growth. Measure again with a
    larger --horizon: a very slow decay looks like a plateau in a short window. A curve that falls
    to a plateau below epsilon of its maximum has a horizon, and is no such finding. Attention looks
    back at everything that it is given, so of models without a recurrence this is a note.
    """

    def stays(curve: Curve) -> bool:
        unended = curve.decay.kind == "persistent" and curve.horizon is None
        return unended and not curve.bounded_oscillation

    def level(curve: Curve) -> str:
        text, (_, values) = f"over {_span(curve)}", curve.memory()
        if len(values):
            text += f", {values.max():.2g} at most and {values[-1]:.2g} at the end"
        return text

    for where, curves in _matching(report, stays):
        longest = max(curve.last_lag for curve in curves.values())
        further = f"--horizon {_next_power(4 * longest)}"
        if report.subject.longest is not None:  # it cannot be run for more steps
            further = "--query driven --data FILE"
        yield persistent_memory.finding(
            f"the memory does not decay inside the window ({_each(curves, level)})",
            f"measure again with {further}, and ask whether the task needs it",
            where=where,
            severity="note" if report.subject.attention else "",
        )


@rule("MA118", "bounded-oscillation", "note", needs=("heaviside",))
def bounded_oscillation(report: Report) -> Iterable[Finding]:
    """A constant input starts an oscillation of bounded size.

    Under a step the answer goes on changing as far as was looked, and the size of that motion does
    not grow with the input: the state runs around a cycle. That is no memory of the step, and no
    instability that would overflow, so the curve is left out of how long the model remembers at
    worst. Cells that saturate do this under inputs that they were not trained on. Look at the curve
    in use (driven), and feed no constant input for long.
    """
    for where, curves in _matching(report, lambda curve: curve.bounded_oscillation):
        yield bounded_oscillation.finding(
            f"a constant input starts an oscillation of bounded size ({', '.join(curves)})",
            "rely on the curve in use: --query driven",
            where=where,
        )


@rule("MA104", "undetermined-decay", "note")
def undetermined_decay(report: Report) -> Iterable[Finding]:
    """The curve was measured, but no kind of decay could be told from it.

    Either too few lags rise above ten times the numerical floor, or the kinds describe the curve
    equally well inside the window. Nothing is wrong with the model; the measurement is too weak for
    a verdict. More precision (--dtype float64), a larger --horizon or inputs of one size (--set
    'amplitudes=[1.0]') usually decide it.
    """

    def undetermined(curve: Curve) -> bool:
        other = curve.status is Status.DIVERGED or curve.status in NOT_POSSIBLE
        return curve.decay.kind == "undetermined" and not other

    def reason(curve: Curve) -> str:
        above = int((curve.values > SIGNAL_OVER_FLOOR * curve.floor).sum())
        text = f"{above} of {len(curve.values)} lags above 10 x floor {curve.floor:.2g}"
        return text if curve.status is Status.OK else f"{text}, {curve.status.value}"

    for where, curves in _matching(report, undetermined):
        steps = ["--set 'amplitudes=[1.0]' for inputs of one size"]
        if limits := _limits(curves.values()):
            steps[:0] = limits
        elif report.subject.longest is None:
            steps.insert(0, _longer(report, min(curve.epsilon for curve in curves.values())))
        if report.subject.dtype != "float64":
            steps.insert(0, "--dtype float64 (dtype='float64' in Python)")
        yield undetermined_decay.finding(
            f"the kind of decay is open ({_each(curves, reason)})",
            "try " + ", or ".join(steps),
            where=where,
        )


def _longer(report: Report, epsilon: float) -> str:
    """A larger horizon; where the spectrum says how slow the model is, one that it fits into."""
    scales = [
        item.time_scale
        for item in getattr(report, "spectrum", ())
        if math.isfinite(item.time_scale)
    ]
    slowest = max(scales, default=0.0)
    # After so many time scales the slowest mode is down to epsilon.
    wanted = math.ceil(slowest * math.log(1.0 / epsilon))
    if not report.settings.get("horizon", 0) < wanted <= LONGEST_ADVISED:
        return "a larger --horizon"
    return f"--horizon {_next_power(wanted)} (the slowest mode lasts {slowest:.3g} steps)"


@rule("MA111", "power-law-in-window", "note")
def power_law_in_window(report: Report) -> Iterable[Finding]:
    """Inside the measured window the curve falls like a power of the lag.

    That is more slowly than any single exponential. Many exponentials with spread rates add up to
    the same picture inside a window: 64 of them with log-spaced rates cannot be told from a power
    law up to lag 512. So the verdict is about the window, and is no statement about the asymptotic
    class. A finite linear recurrence, for one, decays exponentially in the end. A larger --horizon
    shows whether the straight line in log-log coordinates bends. A verdict of less than 0.5
    confidence is not reported here.
    """

    def law(curve: Curve) -> str:
        if curve.decay.exponent is None:
            return f"over {_span(curve)}"
        exponent = f"exponent {curve.decay.exponent:.4g}{_bracket(curve.decay.interval)}"
        return f"{exponent} over {_span(curve)}"

    def falls(curve: Curve) -> bool:
        return curve.decay.kind == "polynomial" and curve.decay.confidence >= SURE

    for where, curves in _matching(report, falls):
        longest = max(curve.last_lag for curve in curves.values())
        yield power_law_in_window.finding(
            f"the memory falls like a power law inside the window ({_each(curves, law)}); a "
            "sum of exponentials looks the same inside a window, so this says nothing about "
            "the asymptotic class",
            f"--horizon {_next_power(4 * longest)} shows whether it bends",
            where=where,
        )


# How far the numbers can be trusted


@rule("MA105", "supremum-at-edge", "note")
def supremum_at_edge(report: Report) -> Iterable[Finding]:
    """The supremum was still rising at the edge of the amplitudes that were tried.

    A memory curve is a supremum over inputs, estimated over a grid of directions and amplitudes.
    Here the largest values came from the first or the last amplitude of that grid and were still
    rising. The curve is then a lower bound that more extreme inputs would lift; its level is
    uncertain, its kind of decay less so. Ask whether such amplitudes occur in your data; --set
    'amplitudes=[0.5,1,2]' tries those that do.
    """
    for where, curves in _matching(report, lambda c: c.at_edge and c.decay.kind != "memoryless"):
        probes = max(curve.probes for curve in curves.values())
        yield supremum_at_edge.finding(
            f"the supremum was still rising at the edge of the amplitude grid "
            f"({', '.join(curves)}; {probes} probes)",
            "take the level as a lower bound; --set 'amplitudes=[...]' tries others",
            where=where,
        )


@rule("MA106", "beyond-window", "note")
def beyond_window(report: Report) -> Iterable[Finding]:
    """The memory decays, but has not fallen to epsilon at the last lag.

    The horizon is the lag from which the curve stays below epsilon times its maximum. The curve
    does decay, but at the last lag that was measured it was still above that, so the horizon is
    known only to be larger. The rate and the kind of decay rest on the window alone. Measure again
    with a larger --horizon; where the fit allows it, with a confidence of 0.5 or more, the finding
    says at which lag the horizon is to be expected.
    """

    def unfinished(curve: Curve) -> bool:
        if curve.horizon is not None or curve.decay.kind not in ("exponential", "polynomial"):
            return False
        # A curve that has sunk into its floor would not rise out of it in a longer window.
        return not len(curve.values) or bool(curve.values[-1] > SIGNAL_OVER_FLOOR * curve.floor)

    def bound(curve: Curve) -> str:
        text = f"more than {curve.last_lag} lags"
        expected = _expected_horizon(curve)
        return text if expected is None else f"{text}, about {expected} by the fit"

    for where, curves in _matching(report, unfinished):
        free = [curve for curve in curves.values() if not curve.limit]
        steps = [f"try {wider_window(free)}"] if free else []
        yield beyond_window.finding(
            f"the horizon lies beyond the window ({_each(curves, bound)})",
            "; ".join((*steps, *_limits(curves.values()))),
            where=where,
        )


def _limits(curves: Iterable[Curve]) -> list[str]:
    """What ended windows early, and what to do about each."""
    return list(dict.fromkeys(clean(curve.limit) for curve in curves if curve.limit))


def wider_window(curves: Iterable[Curve]) -> str:
    """The window in which the horizon of curves that lie beyond theirs is to be expected."""
    curves = list(curves)
    wanted = max(_expected_horizon(curve) or 0 for curve in curves)
    last = max(curve.last_lag for curve in curves)
    return f"--horizon {_next_power(wanted or 4 * last)}"


def _expected_horizon(curve: Curve) -> int | None:
    """The lag at which the fitted curve reaches epsilon, None when that is too far or unsure.

    From the last lag on the level falls by `left`: exp(-rate·s) = left, or (1 + s/T)^-alpha = left.
    """
    if not len(curve.values) or not curve.values[-1] > 0 or curve.horizon is not None:
        return None
    if curve.decay.confidence < SURE:
        return None
    try:
        first = int(registry.build("queries", curve.query).first_lag)
    except MemauditError:  # the plugin of this query is not installed
        first = 0
    past = curve.values[curve.lags >= first]
    left = min(curve.epsilon * float(past.max(initial=0.0)) / float(curve.values[-1]), 1.0)
    if left <= 0.0:
        return None
    end, rate, exponent = curve.last_lag, curve.decay.rate, curve.decay.exponent
    if curve.decay.kind == "exponential" and rate is not None and rate > 0:
        lag = end - math.log(left) / rate
    elif curve.decay.kind == "polynomial" and exponent is not None and exponent > 0:
        # exp(36) is too far already, and a small exponent would overflow.
        lag = end * math.exp(min(-math.log(left) / exponent, 36.0))
    else:
        return None
    return math.ceil(lag) if lag <= TRUSTED_WINDOWS * end else None


@rule("MA107", "queries-disagree", "note", needs=_two_on_vectors)
def queries_disagree(report: Report) -> Iterable[Finding]:
    """A step, an impulse and a switched-off input are forgotten differently.

    For a linear, time-homogeneous model every query reads the same memory function, so their
    verdicts agree. Here they differ in kind, or their exponential rates differ by more than a
    factor of 1.5 with intervals that do not overlap. The memory then depends on the state the model
    is in: gates that a large input holds open, or several equilibria. Gated models mostly do this
    at the largest amplitudes: --set 'amplitudes=[1.0]' looks at inputs of one size. One number does
    not describe such a model. Read the curves side by side, and rely on the query that resembles
    your data.
    """

    def verdict(curve: Curve) -> str:
        decay = curve.decay
        if decay.rate is not None:
            return f"{decay.kind}, rate {decay.rate:.4g}{_bracket(decay.interval)}"
        if decay.exponent is not None:
            return f"{decay.kind}, exponent {decay.exponent:.4g} over {_span(curve)}"
        return decay.kind

    for where, curves in _places(report):
        sure = {
            query: curve
            for query, curve in curves.items()
            if curve.decay.kind != "undetermined" and curve.normalization != "none"
        }
        own = list(sure.values())
        if len({curve.decay.kind for curve in own}) > 1:
            fact = "the queries disagree about the kind of decay"
        elif any(_rates_differ(a, b) for i, a in enumerate(own) for b in own[i + 1 :]):
            fact = f"the rates of the queries differ by more than a factor of {RATE_FACTOR}"
        else:
            continue
        yield queries_disagree.finding(
            f"{fact} ({_each(sure, verdict)})",
            "rely on the query that resembles your data: --query driven --data FILE feeds them",
            where=where,
        )


def _rates_differ(one: Curve, other: Curve) -> bool:
    slow, fast = sorted((one.decay, other.decay), key=lambda decay: decay.rate or 0.0)
    if slow.kind != "exponential" or not slow.rate or not fast.rate or slow.rate <= 0:
        return False
    overlap = slow.interval and fast.interval and slow.interval[1] >= fast.interval[0]
    return fast.rate > RATE_FACTOR * slow.rate and not overlap


@rule("MA108", "input-ignored", "warning", needs=("assumptions",))
def input_ignored(report: Report) -> Iterable[Finding]:
    """Whatever is fed, the answer is the same.

    Every curve stays at the numerical floor, and the answer to the inputs that were tried is the
    answer to zero: the model does not look at its input. Dead input weights, a saturated
    activation, a wrong output that is read, or weights that were never loaded look like this. There
    is no memory to measure in such a model. Check the input weights and the option that chooses the
    output; if the inputs of the task are large, the scale of the probes may be too small to be
    seen.
    """

    def empty(curve: Curve) -> bool:
        return curve.status is Status.BELOW_FLOOR or curve.decay.kind == "memoryless"

    for where, curves in _places(report):
        if not curves or not all(map(empty, curves.values())):
            continue
        if not _fails(report, "responsive", where):
            continue
        peak = max((float(c.values.max()) for c in curves.values() if len(c.values)), default=0)
        yield input_ignored.finding(
            f"the answer does not depend on the input: {', '.join(curves)} read at most {peak:.2g}",
            "check the input weights, and which output is read: `memaudit list adapters "
            f"{clean(report.subject.adapter)}` shows the options",
            where=where,
        )


@rule("MA109", "diverged", "error")
def diverged(report: Report) -> Iterable[Finding]:
    """The answer overflowed inside the window.

    For at least one probe the answer became infinite or undefined before the window was over. The
    curve ends at the last lag that was finite. The recurrence amplifies what it holds, or a
    normalization divides by zero. A model that does this on bounded inputs is not usable on
    sequences of that length. Look at the spectrum of the recurrent weights; a wider dtype only
    moves the lag at which it overflows.
    """

    def end(curve: Curve) -> str:
        if not len(curve.values):
            return "from the first lag on"
        return f"the last finite lag is {curve.last_lag}, with {curve.values[-1]:.2g}"

    for where, curves in _matching(report, lambda curve: curve.status is Status.DIVERGED):
        yield diverged.finding(
            f"the response is not finite ({_each(curves, end)})",
            "constrain the recurrent weights, or audit a --horizon that ends before it",
            where=where,
        )


@rule("MA110", "unsettled-prefix", "note")
def unsettled_prefix(report: Report) -> Iterable[Finding]:
    """A query that switches an input off did not find a state at rest.

    The reversed query holds an input until the state has settled, switches it off and measures how
    it fades. The state was still moving after the longest prefix that was tried, so the curve mixes
    the fading with the rest of that motion. Its early lags are not to be trusted; the tail is. A
    model with a memory longer than the prefix, an oscillator or an integrator never settles.
    Compare with the heaviside curve, or use a larger --horizon, which lengthens the prefix too.
    """

    def unsettled(curve: Curve) -> bool:
        # A curve that is zero throughout has nothing that a moving state could spoil.
        return curve.status is Status.UNSETTLED and curve.decay.kind != "memoryless"

    def prefix(curve: Curve) -> str:
        return "prefix unknown" if curve.prefix is None else f"after {curve.prefix} steps"

    for where, curves in _matching(report, unsettled):
        yield unsettled_prefix.finding(
            f"the state had not settled before the input was switched off "
            f"({_each(curves, prefix)})",
            "trust the tail of that curve only, or use a larger --horizon",
            where=where,
        )


@rule("MA112", "sensitive-to-rounding", "warning")
def sensitive_to_rounding(report: Report) -> Iterable[Finding]:
    """Two runs on the same input drift apart by far more than a rounding error.

    Two rows with the same input, in one batch, gave answers that differ by more than a million
    rounding errors, although the model is deterministic. Something in the model amplifies the
    rounding of the last digit: under that input the state does not forget small differences, it
    enlarges them, which is the mark of chaotic dynamics. The floor of the curve is raised to that
    noise, so fewer decades can be read. Expect answers on long inputs to depend on the machine, the
    batch size and the precision. Feed shorter sequences or smaller inputs, and compare float32 with
    float64 before you rely on it.
    """
    rounding = EPS.get(report.subject.dtype, EPS["float32"])

    def noisy(curve: Curve) -> bool:
        if curve.status is Status.DIVERGED or not len(curve.values):
            return False
        answers = (curve.floor - curve.noise) / rounding  # the rest of a floor is their rounding
        return curve.noise > MANY_ROUNDINGS * rounding * max(answers, *curve.values) > 0

    def sizes(curve: Curve) -> str:
        return f"by {curve.noise:.2g}, largest value {float(curve.values.max()):.2g}"

    for where, curves in _matching(report, noisy):
        if not _fails(report, "deterministic", where):
            yield sensitive_to_rounding.finding(
                f"rounding errors grow until identical runs differ ({_each(curves, sizes)})",
                "do not rely on long runs to the last digits; compare --dtype float32 and float64",
                where=where,
            )


@rule("MA113", "short-of-context", "warning")
def short_of_context(report: Report) -> Iterable[Finding]:
    """No curve reaches a quarter of the context that the model advertises.

    The config of the model states a context length, the most positions that it takes. The longest
    horizon of all the curves, the lag from which the answer keeps less than epsilon of the effect
    of an input, is less than a quarter of it. A longer prompt is accepted, and its beginning hardly
    counts. The horizon depends on what is fed: --query context measures it on text, your own with
    --text FILE. A smaller epsilon (--set epsilon=1e-4) counts fainter traces as memory.
    """
    context = report.subject.context
    # What one more repetition changes saturates, however far the model looks back.
    curves = {q: c for q, c in report.memory.items() if q != "repeat" and c.remembers}
    if context is None or not curves or any(c.horizon is None for c in curves.values()):
        return
    query, curve = max(curves.items(), key=lambda pair: pair[1].horizon or 0)
    if (curve.horizon or 0) >= FAR_SHORT * context:
        return
    yield short_of_context.finding(
        f"the config advertises a context of {context} steps; the longest horizon that was "
        f"measured is {curve.horizon} ({query})",
        "compare with text of the kind that you will feed"
        if "context" in curves
        else "ask with your own text (--query context --text FILE) before relying on it",
    )


@rule("MA117", "unused-memory", "warning", needs=("driven",))
def unused_memory(report: Report) -> Iterable[Finding]:
    """The model has a recurrence, and its answers hardly come from it.

    On natural inputs almost all of the variation of an answer comes from the input of the same
    moment: the skip path of a state-space layer or the residual stream carries it, and the state
    path makes less than one per cent. The horizon is then that of a small remainder. Where memory
    is needed, look at the output gate, at C and at the step sizes; where it is not, a layer without
    a state does the same for less.
    """

    def unused(curve: Curve) -> bool:
        declared = bool(report.subject.recurrences) or curve.remembers
        return declared and curve.share is not None and curve.share < UNUSED

    for where, curves in _matching(report, unused):
        curve = next(iter(curves.values()))
        yield unused_memory.finding(
            f"inputs other than the present one make {curve.share:.2g} of the natural variation of "
            f"an answer ({curve.fed}): declared memory that is not used",
            "give your own inputs with --data FILE before you rely on it",
            where=where,
        )


def _others(curves: Mapping[str, Curve], group: tuple[str, ...]) -> str:
    """The queries outside of a group that saw memory, and which kind."""
    seen = [(q, c.decay.kind) for q, c in curves.items() if q not in group and c.remembers]
    return ", ".join(f"{query} {kind}" for query, kind in seen)


@rule("MA114", "hidden-by-zero-input", "warning", needs=_one_and_another(ENDING_IN_ZEROS))
def hidden_by_zero_input(report: Report) -> Iterable[Finding]:
    """Queries that end in zeros find no memory, others do.

    The impulse and the reversed query feed zeros while they read. In a gated model such as Mamba a
    zero input shuts the gate through which the state is read, so the answer is zero whatever the
    state holds: these curves say nothing about the memory. Other queries of the same model, which
    read it under input, do find memory. Take a real input for zero (--set baseline=natural, or a
    number for models without embeddings), or read text (--query context).
    """
    for where, curves in _places(report):
        blind = blind_to_zeros(curves, baseline=report.settings.get("baseline", "zero"))
        if blind:
            yield hidden_by_zero_input.finding(
                f"under zero input the answer is shut off ({', '.join(blind)}: memoryless), "
                f"under input it is not ({_others(curves, ENDING_IN_ZEROS)})",
                "--set baseline=natural takes a real input for zero; --query context reads a text",
                where=where,
            )


@rule("MA115", "blind-to-constants", "note", needs=_one_and_another(CONSTANT))
def hidden_by_constant_input(report: Report) -> Iterable[Finding]:
    """Queries with a constant input find no memory, others do.

    The heaviside query feeds one vector from the start on, and the answer does not change from step
    to step. Attention without absolute positions behaves like this: it averages values that are all
    equal, however far it looks back. Other queries of the same model do find memory, so this curve
    says nothing about it. Rely on the impulse, on the reversed query, or on text (--query context).
    """
    for where, curves in _places(report):
        blind = blind_to_constants(curves)
        if blind:
            yield hidden_by_constant_input.finding(
                f"a constant input leaves nothing to see ({', '.join(blind)}: memoryless), "
                f"others do ({_others(curves, CONSTANT)})",
                "rely on the impulse, on the reversed query, or on --query context",
                where=where,
            )


# The assumptions of the theory


@rule("MA301", "not-causal", "warning", needs=("assumptions",), milder="note")
def not_causal(report: Report) -> Iterable[Finding]:
    """The answer at a moment depends on what is fed afterwards.

    A change of a later input moved an earlier answer, so the model looks ahead: it is
    bidirectional, pools over the sequence, or normalizes over time. The memory function is defined
    for causal models. The curves here read the past only, and the windows were followed by extra
    steps so that the end of the sequence does not disturb them. They describe how the past fades,
    and say nothing about the part that looks ahead. If the model is meant to be causal, this is a
    leak of the future: look for it before anything else. Of an encoder whose attention is made to
    look both ways it is a note.
    """
    for item in _failed(report, "causal"):
        yield not_causal.finding(
            f"later inputs reach earlier answers{_residual(item)}; the curves read the past "
            "only, and the windows were followed by extra steps",
            "read the curves as the memory of the past, and --query driven for both sides; if the "
            "model should be causal, find the leak",
            where=item.where,
            severity="note" if report.subject.attention == "both ways" else "",
        )


@rule("MA302", "not-time-homogeneous", "note", needs=("assumptions",))
def not_time_homogeneous(report: Report) -> Iterable[Finding]:
    """The same input gives another answer when it comes later.

    The same input was fed at several offsets, and the answers differ by more than rounding. Models
    with positions, with an initial state that is not a fixed point, or with a normalization over
    time behave like this. The memory function then belongs to the moment at which it was measured.
    The residual is the spread over the offsets. Where it is large beside the curve, measure at the
    positions that occur in your data.
    """
    for item in _failed(report, "time-homogeneous"):
        yield not_time_homogeneous.finding(
            f"the answer depends on when the input comes{_residual(item)}",
            "read the curves as those of the start of a sequence; --query driven reads what comes "
            "after a warm-up",
            where=item.where,
        )


@rule("MA303", "not-deterministic", "warning", needs=("assumptions",))
def not_deterministic(report: Report) -> Iterable[Finding]:
    """Two runs on the same input gave different answers.

    Dropout that is left on, sampling, a state that survives on the module, or nondeterministic
    kernels do that. The difference counts as memory at every lag and raises the numerical floor, so
    slow decays vanish in it. Put the module into evaluation mode and reset its state between calls;
    on a GPU ask torch for deterministic algorithms.
    """
    for item in _failed(report, "deterministic"):
        yield not_deterministic.finding(
            f"two runs on the same input differ{_residual(item)}",
            "call `module.eval()`, and reset the state between calls",
            where=item.where,
        )


@rule("MA304", "rows-depend", "warning", needs=("assumptions",))
def rows_depend(report: Report) -> Iterable[Finding]:
    """The answer to a sequence depends on what else is in the batch.

    A sequence was answered differently alone and together with others. Batch norm in training mode,
    experts with a capacity, padding that leaks into the state, or a swapped batch and time axis do
    that. Probes run in batches, so one probe may stand in the curve of another, and the curves are
    to be read with care. In use, answers depend on who shares the batch. Check the batch_first
    setting and evaluation mode first.
    """
    for item in _failed(report, "rows-independent"):
        yield rows_depend.finding(
            f"the rows of a batch influence each other{_residual(item)}",
            "check `batch_first` of its layers, and call `module.eval()`",
            where=item.where,
        )


@rule("MA305", "outside-theory", "note", needs=("assumptions",))
def outside_theory(report: Report) -> Iterable[Finding]:
    """The model is not bounded, not continuous or not regular; the theorems ask for all three.

    The theorems that tie the decay of memory to stability hold for functionals that are bounded,
    continuous and regular. The model was measured to break one of these: its gain grows without
    limit at the ends of the amplitudes, a tiny change of the input makes a large change of the
    answer, or inputs that vanish leave an answer that does not. The curves are still what was
    measured, but conclusions from the theory do not follow. Thresholds, square roots and chaotic
    dynamics are common reasons.
    """
    for name in ("bounded", "continuous", "regular"):
        for item in _failed(report, name):
            yield outside_theory.finding(
                f"the model is not {name}{_residual(item)}",
                "read the curves as measurements only; --set 'amplitudes=[0.1,1]' feeds less",
                where=item.where,
            )


OF_CURVES = (
    *(
        window_cut,
        query_not_measured,
        text_not_fed,
        memoryless,
        growing_memory,
        persistent_memory,
        bounded_oscillation,
        undetermined_decay,
    ),
    *(supremum_at_edge, beyond_window, queries_disagree, input_ignored, diverged),
    *(unsettled_prefix, power_law_in_window, sensitive_to_rounding, short_of_context),
    *(hidden_by_zero_input, hidden_by_constant_input, unused_memory),
)
OF_ASSUMPTIONS = (not_causal, not_time_homogeneous, not_deterministic, rows_depend, outside_theory)
