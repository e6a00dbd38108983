"""The report as one page for a browser: nothing is loaded from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractReportFormat
from memaudit.errors import clean
from memaudit.reports.page.document import Document
from memaudit.reports.page.fitting import fitted
from memaudit.reports.page.gradient import gradient_section
from memaudit.reports.page.judged import assumptions_section, findings_section, gates_section
from memaudit.reports.page.layers import layers_section
from memaudit.reports.page.linear import linear_section
from memaudit.reports.page.memory import memory_section
from memaudit.reports.page.recall import recall_section
from memaudit.reports.page.reproduce import reproduce_section
from memaudit.reports.page.spectrum import spectrum_section
from memaudit.reports.page.stability import stability_section
from memaudit.reports.page.verdict import header, verdict

if TYPE_CHECKING:
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail

SECTIONS = (
    *(memory_section, layers_section, spectrum_section, linear_section, stability_section),
    *(gradient_section, recall_section, assumptions_section, findings_section, gates_section),
    reproduce_section,
)


@dataclass(frozen=True, slots=True)
class HtmlPage(AbstractReportFormat):
    """The report for a person with a browser: plots that zoom, tables behind them, light or dark.

    Law: at most `MOST_BYTES`, whatever the report is; a page that shows a part says so.
    """

    name: ClassVar[str] = "html"
    summary: ClassVar[str] = "one page with plots for a browser, which needs no network"
    suffix: ClassVar[str] = ".html"

    def render(self, report: Report) -> str:
        """The page in the finest detail that fits."""
        return fitted(lambda detail: document(report, detail))


def document(report: Report, detail: Detail) -> Document:
    """The page of a report in that much detail."""
    made = [section(report, detail) for section in SECTIONS]
    return Document(
        title=f"memaudit: {clean(report.subject.source, limit=100)}",
        header=header(report, detail),
        verdict=verdict(report, detail),
        sections=[section for section in made if section is not None],
    )
