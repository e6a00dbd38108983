"""RESULTS.md from the saved results: no number in it is typed by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from examples.reproduce import catalog, records
from examples.reproduce.row import MEANINGS, Verdict

PAGE = "RESULTS.md"
HEAD = """# The papers, re-run

Made by `python -m examples.reproduce`; every number and picture comes from a run.

"""
HEAD += "\n".join(f"* {word}: {means}." for word, means in MEANINGS.items()) + "\n"


def write_page(out: Path) -> Path:
    """Write the page of all results below a folder and give back its path."""
    found = {name: records.read(out, name) for name in catalog.names()}
    there = {name: record for name, record in found.items() if record is not None}
    parts = [HEAD, *_summary(there), *_table(there)]
    for paper, group in catalog.ROWS.items():
        parts.append(f"## {paper}\n")
        parts += [_section(there[name]) for name in group if name in there]
    path = out / PAGE
    path.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return path


def _summary(found: dict[str, Any]) -> list[str]:
    missing = [name for name in catalog.names() if name not in found]
    whole = [r for r in found.values() if r["verdict"] in (Verdict.HOLDS, Verdict.FAILS)]
    agree = [r for r in whole if r["holds"]]
    known = [r for r in whole if _explained(r)]
    scaled = [r for r in found.values() if r["verdict"] == Verdict.SCALED]
    alike = [r for r in scaled if r["holds"]]
    share = 100 * (len(agree) + len(known)) / max(1, len(whole))
    told = [
        f"* {len(found)} of {len(catalog.names())} rows have a result.",
        f"* Not scaled down: {len(whole)}. The claim holds in {len(agree)}, and errata of the "
        f"paper explain {len(known)} more: {share:.0f} %.",
        f"* Scaled down: {len(scaled)}; in {len(alike)} of them the claim was seen in that size.",
    ]
    unrun = [r["id"] for r in found.values() if r["verdict"] == Verdict.NOT_RUN]
    told += [f"* Not run: {'; '.join(unrun)}."] if unrun else []
    told += [f"* No result yet: {'; '.join(missing)}."] if missing else []
    return ["\n".join(told), ""]


def _table(found: dict[str, Any]) -> list[str]:
    lines = ["| row | claim | verdict | settings | seconds |", "|---|---|---|---|---|"]
    for name, record in found.items():
        cells = (
            f"[{name}](#{anchor(record)})",
            record["claim"],
            verdict_of(record),
            "quick" if record["quick"] else "full",
            str(record.get("seconds", "")),
        )
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return ["\n".join(lines), ""]


def verdict_of(record: dict[str, Any]) -> str:
    """The verdict; of a scaled one also whether the claim was seen, and whether errata explain."""
    verdict = record["verdict"]
    if verdict == Verdict.SCALED:
        verdict += ", seen" if record["holds"] else ", not seen"
    return f"{verdict} (explained by an erratum)" if _explained(record) else verdict


def _explained(record: dict[str, Any]) -> bool:
    """Whether it fails because the paper is wrong there; older results do not say."""
    return not record.get("holds", True) and bool(record.get("explained"))


def anchor(record: dict[str, Any]) -> str:
    """The anchor that a heading gets on the usual sites."""
    kept = (c for c in heading(record).lower() if c.isalnum() or c in " -_")
    return "".join(kept).replace(" ", "-")


def heading(record: dict[str, Any]) -> str:
    """The heading of a row."""
    return f"{record['id']}: {record['title']}"


def _section(record: dict[str, Any]) -> str:
    parts = [f"### {heading(record)}\n", f"Claim: {record['claim']}\n"]
    parts.append(f"**{verdict_of(record)}**: {record['reason']}\n")
    if record["verdict"] == Verdict.NOT_RUN:
        return "\n".join(parts)
    if record["scaled"]:
        parts.append(f"Scaled down: {record['scaled']}\n")
    if record["errata"]:
        parts.append(f"Errata: {record['errata']}\n")
    parts.append(f"![{record['id']}]({records.RESULTS}/{record['picture']})\n")
    if record["numbers"]:
        parts += ["| number | measured | printed |", "|---|---|---|"]
        parts += [_row(_numbers(number)) for number in record["numbers"]]
        parts.append("")
    told = ", ".join(f"{key} {_value(value)}" for key, value in record["settings"].items())
    parts.append(f"Settings: {told}.\n")
    return "\n".join(parts)


def _numbers(number: dict[str, Any]) -> tuple[str, str, str]:
    return number["name"], _value(number["measured"]), _value(number["printed"])


def _value(value: Any) -> str:
    """A number in four digits; a list with commas, a list in it in brackets; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        words = [(item, _value(item)) for item in value]
        return ", ".join(f"({told})" if isinstance(item, list) else told for item, told in words)
    return str(value)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
