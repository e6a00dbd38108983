"""What is registered, with a summary of each; built-ins are read, not imported."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.catalog import DEMOS
from memaudit.errors import MachineError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.registry import Plugin

KINDS = (*registry.KINDS, "demos")


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
    else:
        found = [_row(p) for rivals in registry.available(kind).values() for p in rivals]
    return [row for row in found if fnmatchcase(row.name.lower(), pattern.lower())]


def options_of(kind: str, pattern: str) -> dict[str, dict[str, str]]:
    """The options of every adapter or probe that matches; one that does not import has none."""
    found: dict[str, dict[str, str]] = {}
    for name, rivals in registry.available(kind).items():
        if len(rivals) != 1 or not fnmatchcase(name.lower(), pattern.lower()):
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
    told = means if isinstance(means, Mapping) else {}
    return {
        name: f"{told[f.name]} (default: {_default(f)})"
        if f.name in told
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
    if kind == "demos":
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
    tree = _tree(module)
    if tree is None:
        return ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == attribute:
            words = dict(_literals(node))
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if "severity" in words:
                grave = " or ".join(words[key] for key in ("severity", "milder") if key in words)
                return f"{words['name']} ({grave}): {first}"
            return words.get("summary", first)
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _literals(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for item in node.body:
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        value = getattr(item, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            yield target.id, str(value.value)


def _tree(module: str) -> ast.Module | None:
    """The parsed source of a module, found from its top package without importing it."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    if inner:
        stem = path.parent.joinpath(*inner)
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
