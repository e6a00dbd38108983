"""The report as strict JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.interfaces import AbstractReportFormat
from memaudit.report_files import dumps

if TYPE_CHECKING:
    from memaudit.report import Report


@dataclass(frozen=True, slots=True)
class JsonFile(AbstractReportFormat):
    """Everything that was measured, for programs; `Report.load` reads it back."""

    name: ClassVar[str] = "json"
    summary: ClassVar[str] = "everything that was measured, as strict JSON"
    suffix: ClassVar[str] = ".json"

    def render(self, report: Report) -> str:
        """The JSON text that `Report.save` writes."""
        return dumps(report.to_dict())
