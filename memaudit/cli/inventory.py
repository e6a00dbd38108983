"""`memaudit list`, `explain` and `doctor`: what is registered, what it means, what works here."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from memaudit import registry
from memaudit.cli.output import readable, say, show, to_stdout, waiting
from memaudit.cli.parameters import takes
from memaudit.errors import ArgumentError, MachineError, clean, nearest
from memaudit.registry import DEMOS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from memaudit.registry import Plugin
    from memaudit.report import Metric

KINDS = (*registry.KINDS, "metrics", "demos")


@takes(
    "debug",
    kind=(str | None, typer.Argument(help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}."), None),
    pattern=(
        str,
        typer.Argument(help="A name with the wildcards * and ?.", show_default=False),
        "*",
    ),
)
def list_plugins(kind: str | None, pattern: str, **given: Any) -> None:
    """List adapters, queries, probes, reparameterizations, targets, findings, reports, metrics.

    Of adapters and probes it shows the options as well, of reparams ranges, moduli and gradients,
    when they are asked for by name.
    """
    from rich.text import Text

    del given
    if kind is not None and kind not in KINDS:
        raise ArgumentError(f"unknown kind {clean(kind)!r}", hint=nearest(kind, KINDS))
    wanted = (kind,) if kind else KINDS
    tables = [(name, rows(name, pattern)) for name in wanted]
    shown = [(name, found) for name, found in tables if found or kind]
    blocks: list[RenderableType] = []
    for position, (name, found) in enumerate(shown):
        title = Text(("\n" if position else "") + name, style="bold underline")
        blocks += [title, _table(found) if found else Text("none")]
    show(*blocks)
    if kind in ("adapters", "probes"):  # by name: only then is it worth importing them
        for name, options in options_of(kind, pattern).items():
            if options:
                title = Text(f"\noptions of {clean(name)} (--set KEY=VALUE)", style="bold")
                show(title, _table([Row(key, "", words) for key, words in options.items()]))
    if kind == "reparams":
        with waiting("computing moduli"):
            numbers = reparam_tables(pattern)
        show(*numbers)
    errors = [error for name in wanted for error in clashes(name)]
    for error in errors:
        say(error.line())
    if errors:
        raise typer.Exit(MachineError.exit_code)


@takes(
    "debug",
    word=(str, typer.Argument(help="A code such as MA102, or a word of a report: horizon.")),
)
def explain(word: str, **given: Any) -> None:
    """Explain a finding, or a word of a report: what it is, why it matters, what to do."""
    del given
    wanted, known = _compared(word), list(vocabulary())
    found: dict[str, Callable[[], str]] = {}
    for name, title, text in known:
        if _compared(name) == wanted:
            found.setdefault(title, text)  # the number of the model before that of every query
    if not found:
        code = wanted.startswith("ma")
        names = {name for name, _, _ in known if name.startswith("MA") or not code}
        hint = nearest(word.upper() if code else word.lower(), names)
        if hint.startswith("known are"):
            hint = "`memaudit list` shows queries, probes, findings and metrics"
        raise ArgumentError(f"unknown word {clean(word)!r}", hint=hint)
    blocks = []
    for title, text in found.items():
        paragraphs = inspect.cleandoc(text()).split("\n\n")
        filled = [_filled(clean(part, limit=5000)) for part in paragraphs]
        blocks.append("\n\n".join([clean(title), *filled]))
    to_stdout(readable("\n\n\n".join(blocks) + "\n"))


def _filled(paragraph: str) -> str:
    """Lines of 80 columns; a command stays one line, to be copied."""
    return paragraph if paragraph.startswith("memaudit ") else textwrap.fill(paragraph, width=80)


def _compared(word: str) -> str:
    """A word as it is compared: `time scale`, `time-scale` and `time_scale` are one."""
    from memaudit.report import spelled

    return spelled(word).replace(" ", "_")


#: How a plugin of a kind is asked for.
ASKING = {
    "queries": "memaudit scan SOURCE --query {}",
    "probes": "memaudit scan SOURCE --probe {}",
    "reports": "memaudit scan SOURCE --report {}=FILE",
    "reparams": "memaudit retrofit SOURCE --out DIR --reparam {}",
}


def vocabulary() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """The words of reports: each with its title and a function that gives its explanation.

    That of a finding is the docstring of its rule, that of a plugin the docstring of its class,
    that of a number the meaning of its metric; results explain further words by their `terms`.
    """
    from memaudit.gates import declared_metrics
    from memaudit.options import OPTIONS
    from memaudit.rules import all_rules

    for rule in all_rules().values():
        title = f"{rule.code} {rule.name} ({rule.severities})"
        for key in (rule.code, rule.name):
            yield key, title, partial(getattr, rule, "explanation")
    for kind in registry.KINDS:
        for name, rivals in registry.available(kind).items() if kind != "findings" else ():
            yield name, f"{name} ({registry.SINGULAR[kind]})", partial(_documented, rivals[0])
    for (probe, _), metric in declared_metrics().items():
        word = [part for part in metric.name.split("/") if part != "*"][-1]
        title = f"{word} (number{f' of the probe {probe}' if probe else ''})"
        yield word, title, partial(_meaning, metric, probe)
    for name in registry.available("probes"):
        try:
            terms = registry.load(registry.find("probes", name)).result.terms
        except MachineError:  # a plugin that does not import is named by `memaudit list`
            continue
        for word, text in terms.items():
            yield word, f"{word} (in the results of the probe {name})", partial(str, text)
    for option in OPTIONS.values():
        flag = option.flag or f"--set {option.name}=VALUE"
        usual = "" if option.default in (None, False) else f" Default: {option.default}."
        yield option.name, f"{option.name} (option {flag})", partial(str, option.help + usual)


def _documented(plugin: Plugin) -> str:
    text = inspect.getdoc(registry.load(plugin)) or _row(plugin).summary
    asking = ASKING.get(plugin.kind, "").format(plugin.name)
    return f"{text}\n\n{asking}"


def _meaning(metric: Metric, probe: str) -> str:
    """What a number is, what it says, and how a scan measures and compares it."""
    text = f"{metric.help[:1].upper()}{metric.help[1:]}. {metric.meaning}".strip()
    usual = probe in ("", "memory", *registry.DEFAULT_PROBES)
    measuring = "memaudit scan SOURCE" + ("" if usual else f" --probe {probe}")
    sign = {"more": "<", "less": ">"}.get(metric.better)
    if sign is not None:
        measuring += f' --fail-on "{metric.name.replace("*", "NAME")}{sign}N"'
    return f"{text}\n\n{measuring}"


@takes("debug")
def doctor(**given: Any) -> None:
    """Show versions, devices and adapters, and what is wrong with them.

    Exits with 5 when something is missing that every audit needs.
    """
    import warnings

    from rich.table import Table
    from rich.text import Text

    from memaudit.doctor import diagnose

    with warnings.catch_warnings():
        if not given["debug"]:
            warnings.simplefilter("ignore")
        checks = diagnose()
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    group = ""
    for check in checks:
        shown = check.group if check.group != group else ""
        group = check.group
        state = Text(clean(check.state, limit=1200), style="" if check.fine else "red")
        made.add_row(shown, Text(clean(check.name)), state)
    show(made)
    broken = [check.name for check in checks if check.needed and not check.fine]
    if broken:
        say(f"needs repair: {', '.join(broken)}")
        raise typer.Exit(MachineError.exit_code)


@dataclass(frozen=True, slots=True)
class Row:
    """One registered name; `problem` says why it cannot be used."""

    name: str
    distribution: str
    summary: str
    problem: str = ""


def rows(kind: str, pattern: str = "*") -> list[Row]:
    """The plugins of a kind whose names match a wildcard pattern."""
    if kind == "demos":
        found = [Row(name, registry.OURS, summary) for name, summary in DEMOS.items()]
    elif kind == "findings":
        from memaudit.rules import all_rules

        found = [
            Row(one.code, registry.OURS, f"{one.name} ({one.severities}): {one.summary}")
            for one in all_rules().values()
        ]
    elif kind == "metrics":
        from memaudit.gates import declared_metrics

        known = declared_metrics().items()
        found = [Row(metric.name, probe or "audit", metric.help) for (probe, _), metric in known]
    else:
        found = [_row(p) for rivals in registry.available(kind).values() for p in rivals]
    return [row for row in found if fnmatchcase(row.name.lower(), pattern.lower())]


def options_of(kind: str, pattern: str) -> dict[str, dict[str, str]]:
    """The options of every adapter or probe that matches; one that does not import has none."""
    found: dict[str, dict[str, str]] = {}
    for name, rivals in registry.available(kind).items():
        if len(rivals) != 1 or not fnmatchcase(name.lower(), pattern.lower()):
            continue
        if (kind, name) == ("probes", "memory"):  # its queries are given by --query
            continue
        try:
            made = registry.load(rivals[0])
        except MachineError:  # the row of the plugin says why
            continue
        found[name] = dict(getattr(made, "options", {})) if kind == "adapters" else _fields(made)
    return found


def _fields(probe: type) -> dict[str, str]:
    """The options of a probe, as they are given to --set, with what they are otherwise."""
    known = fields(probe) if is_dataclass(probe) else ()
    named = [(f"{getattr(probe, 'name', '')}.{f.name}", f) for f in known if f.init]
    means = getattr(probe, "options", None)
    meanings = means if isinstance(means, Mapping) else {}
    return {
        name: f"{meanings[f.name]} (default: {_default(f)})"
        if f.name in meanings
        else f"default: {_default(f)}"
        for name, f in named
    }


def _default(option: Field[Any]) -> str:
    value = "" if option.default is MISSING else option.default
    if isinstance(value, tuple):
        value = ",".join(map(str, value)) or None
    return "left to the audit" if value is None else clean(value)


def clashes(kind: str) -> list[MachineError]:
    """The names of a kind that more than one plugin wants."""
    if kind in ("demos", "metrics"):
        return []
    groups = registry.available(kind).values()
    return [registry.clash(rivals) for rivals in groups if len(rivals) > 1]


def _row(plugin: Plugin) -> Row:
    if plugin.built_in:
        return Row(plugin.name, plugin.distribution, _read_summary(plugin))
    try:
        cls = registry.load(plugin)
    except MachineError as error:
        _, _, reason = error.fact.partition("does not import: ")
        return Row(plugin.name, plugin.distribution, "", f"does not import: {reason}")
    summary = getattr(cls, "summary", "") or (cls.__doc__ or "").strip().partition("\n")[0]
    return Row(plugin.name, plugin.distribution, clean(summary))


def _read_summary(plugin: Plugin) -> str:
    """The summary of a class from its source text; importing it would load torch."""
    module, _, attribute = plugin.target.partition(":")
    text = _source(module)
    # What stands above the first method tells of the class, and is read in a tenth of the time.
    found = re.search(rf"^class {attribute}\b.*?(?=\n\n\n|\n    (?:def|@)|\Z)", text, re.M | re.S)
    tree = ast.parse(found.group() if found else text)  # a package tells of the class it exports
    node = tree.body[0]
    for item in node.body if isinstance(node, ast.ClassDef) else ():
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        if getattr(target, "id", "") == "summary":
            return ast.literal_eval(item.value)  # type: ignore[attr-defined]
    return (ast.get_docstring(node if found else tree) or "").partition("\n")[0]  # type: ignore[arg-type]


@cache
def _source(module: str) -> str:
    """The text of a module, found from its top package without importing it."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin)
    if inner:
        stem = path.parent.joinpath(*inner)
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return path.read_text(encoding="utf-8")


def _table(found: list[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for row in found:
        last = Text(clean(row.problem), style="red") if row.problem else Text(clean(row.summary))
        made.add_row(Text(clean(row.name)), Text(clean(row.distribution)), last)
    return made


TITLES = {
    "continuous": "in continuous time (stable: lambda < 0)",
    "discrete": "in discrete time (stable: |lambda| < 1)",
}
LEGEND = (
    "g(beta): the modulus of Definition 3.2, by which share of itself a mode changes at most when "
    "its raw weight moves by beta. Gradient scale: |f'| / f², in discrete time |f'| / (1 - f)²; it "
    "multiplies the gradient of a raw weight w. edge: stable but for one raw weight, which gives a "
    "mode on the boundary."
)


def reparam_tables(pattern: str) -> list[RenderableType]:
    """Ranges, moduli and gradient scales of the forms, a table for every time."""
    from rich.table import Table
    from rich.text import Text

    from memaudit.interfaces import TIMES
    from memaudit.reparams import BETAS, overview

    known = registry.available("reparams")
    names = [name for name in known if fnmatchcase(name.lower(), pattern.lower())]
    blocks: list[RenderableType] = []
    constants: dict[str, None] = {}
    problems: dict[str, None] = {}
    for time in TIMES:
        made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        made.add_column("name", no_wrap=True)
        made.add_column("stable")
        made.add_column("reaches", no_wrap=True)
        for beta in BETAS:
            made.add_column(f"g({beta:g})", justify="right")
        made.add_column("gradient scale", overflow="fold")
        for name in names:
            try:
                kind = registry.load(registry.find("reparams", name))
                with registry.calling("reparams", name, "cannot be shown"):
                    if time not in kind.times:
                        continue
                    row = overview(registry.build("reparams", name, time=time))
            except MachineError as error:  # the others are shown all the same
                problems[error.fact] = None
                continue
            edge = "edge" if any(map(math.isinf, row.moduli)) else "yes"
            moduli = ("infinite" if math.isinf(m) else f"{m:.4g}" for m in row.moduli)
            cells = (clean(name), edge if row.stable else "no", row.reach, *moduli, row.scale)
            made.add_row(*map(Text, cells))
            if row.options:
                constants[f"{clean(name)} with {row.options}"] = None
        if made.row_count:
            blocks += [Text(f"\n{TITLES[time]}", style="bold"), made]
    legend = LEGEND + (f" Constants: {'; '.join(constants)}." if constants else "")
    broken = [Text(problem, style="red") for problem in problems]
    return [*blocks, *([Text(f"\n{legend}")] if blocks else []), *broken]
