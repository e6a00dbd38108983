"""Report files in which one value is not what it should be; `python -m tests.odd_reports` has all.

Give it report files, or nothing for the samples; it prints whatever is no error of memaudit.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.compare import compare
from memaudit.errors import MemauditError
from memaudit.report import Report
from memaudit.testing import sample_reports
from memaudit.writers.card import eval_results
from memaudit.writers.html import notebook_html, render_document
from memaudit.writers.terminal import brief, one_line, plain_text, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Place = tuple[str | int, ...]
    Uses = dict[str, Callable[[Report], object]]

#: Each of these is wrong somewhere; the last is a number in JSON, and in no arithmetic.
ODD: tuple[Any, ...] = (None, True, -1, math.inf, "x", [], {}, [[]], 1.5, 10**400)


def places(data: Any, path: Place = ()) -> Iterator[Place]:
    """Every place of a report; of a list the first and the last stand for the others."""
    if path:
        yield path
    if isinstance(data, dict):
        for key in data:
            yield from places(data[key], (*path, key))
    elif isinstance(data, list):
        for number in sorted({0, len(data) - 1} if data else ()):
            yield from places(data[number], (*path, number))


def escaped(data: dict[str, Any], path: Place, odd: Any, uses: Uses) -> str:
    """What goes wrong with that value at that place; "" for a report that is refused, or is fine.

    A report may be refused when it is loaded, as damaged or unknown, and never later.
    """
    inside: Any = data
    for step in path[:-1]:
        inside = inside[step]
    kept, inside[path[-1]] = inside[path[-1]], odd
    doing = "load"
    try:
        report = Report.from_dict(data)
        for name, use in uses.items():
            doing = name
            use(report)
    except Exception as error:  # whatever it is: this is what is looked for
        codes = ("E_UNSUPPORTED",) if path == ("schema",) else ("E_CORRUPT",)
        told = doing == "load" and isinstance(error, MemauditError) and error.code in codes
        return "" if told else f"{doing}: {type(error).__name__} {error}"
    finally:
        inside[path[-1]] = kept
    return ""


def all_uses() -> Uses:
    """All that is made of a report."""
    built_in = ("terminal", "json", "markdown", "github", "junit", "lm-eval", "html")
    return {
        **{name: registry.build("reports", name).render for name in built_in},
        "print": repr,
        "line": one_line,
        "summary": lambda report: plain_text(brief(report.document())),
        "metrics": Report.metrics,
        "rows": Report.rows,
        "frame": Report.frame,
        "card": eval_results,
        "diff": lambda report: plain_text(whole(compare(report, report).document())),
        "page of a diff": lambda report: render_document(compare(report, report).document()),
        "notebook": notebook_html,
    }


def plain(report: Report) -> dict[str, Any]:
    """The report as its file has it."""
    return json.loads(json.dumps(report.to_dict()))


def main(files: list[str]) -> None:
    """Every odd value at every place of every report."""
    reports = {file: json.loads(Path(file).read_text()) for file in files}
    uses = all_uses()
    for name, data in (reports or {n: plain(r) for n, r in sample_reports().items()}).items():
        found = list(places(data))
        print(f"{name}: {len(found)} places, {len(ODD)} values", flush=True)
        for path in found:
            for odd in ODD:
                told = escaped(data, path, odd, uses)
                if told:
                    print(f"  {'.'.join(map(str, path))} = {str(odd)[:20]}: {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
