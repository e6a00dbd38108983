"""The top of the page: what was audited, how long it remembers, and the worst that was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.memory.result import Status
from memaudit.report import SEVERITIES
from memaudit.reports import wording
from memaudit.reports.headline import headline, remembered
from memaudit.reports.page.axes import colour
from memaudit.reports.page.fitting import listed, more
from memaudit.reports.page.markup import Markup, joined, tag, text
from memaudit.reports.page.sparkline import sparkline
from memaudit.reports.summary import PARTIAL, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, GateResult, Report
    from memaudit.reports.page.detail import Detail

#: So many of many findings stand at the top; this few are all told there.
WORST, FEW = 3, 5
#: How a kind of decay ends a sentence.
MANNER = {
    "finite": "and then nothing at all is left",
    "exponential": "and its memory decays exponentially",
    "polynomial": "and its memory decays like a power law inside the window",
    "persistent": "and its memory does not decay inside the window",
    "growing": "and the trace of an input grows with every step",
}


def header(report: Report, detail: Detail) -> Markup:
    """Name and facts of the model; a partial report says so first."""
    who = report.subject
    facts = {
        "family": f"{who.family} (adapter {who.adapter})",
        "parameters": f"{who.parameters:,}, {percent(who.coverage)} of them run",
        "run as": f"{who.dtype} on {who.device}",
    }
    chips = [tag("li", tag("b", name), " ", value) for name, value in facts.items()]
    return tag(
        "header",
        alarm(report, detail),
        tag("p", "memaudit report", class_="eyebrow"),
        tag("h1", text(who.source, limit=300)),
        tag("p", who.description, class_="model") if who.description else None,
        tag("ul", chips, class_="facts"),
        listed(who.notes, detail, lambda note: tag("p", note, class_="aside")),
        class_="hero",
    )


def alarm(report: Report, detail: Detail) -> Markup | None:
    """What cut an audit short."""
    if report.complete and not report.errors:
        return None
    told = [tag("p", tag("strong", PARTIAL))] if not report.complete else []
    told += listed(report.errors, detail, _error)
    return tag("div", told, class_="alarm", role="note")


def _error(error: Mapping[str, str]) -> Markup:
    where = f" ({error['stage']})" if error.get("stage") else ""
    hint = f"; {error['hint']}" if error.get("hint") else ""
    return tag("p", f"{error.get('code', '')}{where}: {error.get('message', '')}{hint}")


def verdict(report: Report, detail: Detail) -> Markup:
    """One sentence, a card per query, and the worst findings."""
    curves = list(report.memory.items())[: detail.items]
    cards = [card(query, curve, colour(k)) for k, (query, curve) in enumerate(curves)]
    rest = more(len(report.memory) - len(cards))
    return tag(
        "section",
        tag("h2", "Verdict", id="verdict-title", class_="quiet"),
        tag("p", sentence(report), class_="sentence"),
        tag("div", cards, class_="cards") if cards else None,
        rest,
        hit_gates(report.gates),
        worst(report),
        id="verdict",
        aria_labelledby="verdict-title",
    )


def sentence(report: Report) -> Markup:
    """How long the model remembers, by the horizon that metrics and gates have, too."""
    found = headline(report)
    if found is None:
        return text("No memory curve could be judged.")
    kind, whence = found.curve.decay.kind, clean(found.whence)
    if kind == "memoryless" and not found.farthest:
        return text("No trace of an earlier input was heard in the answers.")
    if kind == "memoryless":
        return text(f"No trace of an earlier input was heard under one query ({whence}).")
    manner = MANNER.get(kind, "but how its memory decays stays undetermined")
    lags = remembered(found.curve)
    if not lags:
        return text(f"It remembers until the numerical floor hides it, {manner} ({whence}).")
    return joined("It remembers for ", tag("strong", lags), f", {manner} ({whence}).")


def card(query: str, curve: Curve, hue: str) -> Markup:
    """One query: horizon, kind, rate, half-life, and the curve in small."""
    rows = {"half-life": wording.half_life(curve)}
    name, _, strength = wording.strength(curve).partition(" ")
    if strength:
        rows[name] = f"{strength} {wording.interval(curve)}".strip()
    rows["window"] = f"lags {wording.window(curve)}".replace("lags -", wording.NOTHING)
    rows["confidence"] = wording.confidence(curve)
    facts = [(tag("dt", key), tag("dd", value)) for key, value in rows.items()]
    status = None if curve.status is Status.OK else tag("p", curve.status.value, class_="aside")
    return tag(
        "article",
        tag("h3", tag("i", class_=f"spot {hue.strip('$')}"), text(query, limit=60)),
        tag("p", tag("span", _big(curve), class_="big"), " ", tag("span", _unit(curve))),
        tag("p", tag("span", text(curve.decay.kind), class_=f"kind {_mood(curve)}")),
        tag("div", sparkline(curve), class_=f"spark {hue.strip('$')}"),
        tag("dl", facts),
        status,
        class_="card",
    )


def worst(report: Report) -> Markup:
    """The gravest findings in a line each; the rest is below."""
    counts = [
        f"{number} {severity}{'s' if number > 1 else ''}"
        for severity in reversed(SEVERITIES)
        if (number := sum(finding.severity == severity for finding in report.findings))
    ]
    if not counts:
        return tag("p", "No findings: nothing speaks against these numbers.", class_="aside")
    ordered = sorted(report.findings, key=lambda f: -_grade(f.severity))
    grave = ordered
    if len(ordered) > FEW:
        grave = ([f for f in ordered if f.severity != "note"] or ordered)[:WORST]
    told_worst = [
        tag(
            "li",
            tag("span", text(f.severity), class_=f"badge {_grade_name(f.severity)}"),
            tag(
                "span",
                _linked(f),
                f"{clean(f.where)}: " if f.where else "",
                text(f.message, limit=400),
            ),
        )
        for f in grave
    ]
    title = tag("h3", ", ".join(counts))
    rest = len(ordered) - len(grave)
    link = tag("a", f"{rest} more below", href="#findings") if rest else None
    told = tag("p", link, class_="aside") if link else None
    return tag("div", title, tag("ul", told_worst, class_="worst"), told, class_="found")


def hit_gates(gates: Sequence[GateResult]) -> Markup | None:
    """The gates that were hit, for those who come here because a check failed."""
    hit = [clean(gate.word, limit=60) for gate in gates if gate.hit]
    if not hit:
        return None
    others = f" and {len(hit) - WORST} more" if len(hit) > WORST else ""
    noun = "gate was" if len(hit) == 1 else "gates were"
    link = tag("a", f"{len(hit)} {noun} hit", href="#gates")
    return tag("p", link, f": {', '.join(hit[:WORST])}{others}", class_="notice")


def _linked(finding: Finding) -> Markup:
    words = f"{clean(finding.code)} {clean(finding.name)}"
    return joined(tag("a", words, href=f"#{anchor(finding.code)}"), " ")


def anchor(code: str) -> str:
    """The place of a finding on the page."""
    return "finding-" + "".join(c for c in clean(code, limit=20) if c.isalnum() and c.isascii())


def _grade(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1


def _grade_name(severity: str) -> str:
    return severity if severity in SEVERITIES else "note"


def _big(curve: Curve) -> str:
    horizon = wording.horizon(curve)
    return "none" if horizon == wording.NOTHING else horizon


def _unit(curve: Curve) -> str:
    horizon = wording.horizon(curve)
    if horizon == wording.UNKNOWN:
        return wording.HIDDEN
    return "horizon" if horizon == wording.NOTHING else "steps to the horizon"


def _mood(curve: Curve) -> str:
    return {"growing": "error", "persistent": "warning"}.get(curve.decay.kind, "plain")
