"""Pages of at most five megabytes: less detail first, then sections that are only named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memaudit.reports.page.detail import DETAILS, MOST_BYTES
from memaudit.reports.page.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memaudit.reports.page.detail import Detail
    from memaudit.reports.page.document import Document

TOO_LARGE = "This part is too large for a page; the JSON report has it."


def fitted(make: Callable[[Detail], Document]) -> str:
    """The page in the finest detail that fits; what never does is left out, and says so."""
    document = make(DETAILS[0])
    page = document.render()
    for detail in DETAILS[1:]:
        if _fits(page):
            return page
        document = replace(make(detail), thinned=True)
        page = document.render()
    for _ in document.sections:
        if _fits(page):
            break
        document = _without_largest(document)
        page = document.render()
    return page


def listed(items: Sequence[object], detail: Detail, shown: Callable[..., Markup]) -> list[Markup]:
    """As many of some items as a page has room for, and how many more there are."""
    made = [shown(item) for item in items[: detail.items]]
    return [*made, *more(len(items) - len(made))]


def more(count: int) -> Iterable[Markup]:
    """That so many are not shown; nothing where there are none."""
    return [tag("p", f"{count:,} more in the JSON report", class_="aside")] if count > 0 else []


def _without_largest(document: Document) -> Document:
    sizes = [sum(map(len, filter(None, section.blocks))) for section in document.sections]
    largest = sizes.index(max(sizes))
    sections = list(document.sections)
    sections[largest] = replace(sections[largest], told=TOO_LARGE, blocks=[], scale=False)
    return replace(document, sections=sections)


def _fits(page: str) -> bool:
    return len(page.encode()) <= MOST_BYTES
