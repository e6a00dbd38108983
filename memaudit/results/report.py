"""A whole audit as one record, and its strict JSON form."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from memaudit.errors import clean
from memaudit.records import Record
from memaudit.results.checking import check_numbers, check_settings, check_types
from memaudit.results.closed_form import ClosedForm
from memaudit.results.curve import Curve
from memaudit.results.gate import GateResult
from memaudit.results.gradient import Gradient
from memaudit.results.identity import Identity
from memaudit.results.judgement import Assumption, Finding
from memaudit.results.precision import Precision
from memaudit.results.reading import listed
from memaudit.results.recall import Recall
from memaudit.results.spectrum import Spectrum
from memaudit.results.stability import Stability

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure
    from pandas import DataFrame

#: Rises when a field of the JSON report changes its meaning or goes away.
SCHEMA = 1
#: Fields that older files of this schema do not have yet.
YOUNGER = ("closed_form", "gradient", "gates")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report(Record):
    """A whole audit. `complete` is False when it was cut short; what was measured is kept.

    `layers` holds curves by layer and query. For a model that ran as a whole they are those of the
    hidden state after every layer, from the same passes as `memory`; for a host (`subject.whole`
    False) they are those of the parts, each run by itself, and `memory` holds, per query, the curve
    of the part that remembers longest.
    """

    subject: Identity
    settings: dict[str, Any]
    assumptions: tuple[Assumption, ...] = ()
    memory: dict[str, Curve] = field(default_factory=dict)
    layers: dict[str, dict[str, Curve]] = field(default_factory=dict)
    spectrum: tuple[Spectrum, ...] = ()
    closed_form: tuple[ClosedForm, ...] = ()
    stability: Any = None
    precision: Any = None
    gradient: tuple[Gradient, ...] = ()
    recall: Any = None
    findings: tuple[Finding, ...] = ()
    gates: tuple[GateResult, ...] = ()
    complete: bool = True
    errors: tuple[dict[str, str], ...] = ()
    timing: dict[str, float] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        curves = "".join(f"\n  {curve!r}" for curve in self.memory.values())
        codes = " ".join(clean(finding.code) for finding in self.findings) or "none"
        title = f"{clean(self.subject.source)}: {clean(self.subject.description)}"
        return f"Report({title}{curves}\n  findings: {codes})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from memaudit.reports.notebook import notebook_html

        return notebook_html(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON report: schema number first, then the version, then the fields."""
        from memaudit import __version__

        return {"schema": SCHEMA, "memaudit": __version__, **Record.to_dict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; refuses a schema that it does not know."""
        from memaudit.report_files import check_schema, undamaged

        check_schema(data)
        with undamaged():
            report = cls._from_known(data)
            check_types(report)
            check_settings(report.settings)
            check_numbers(report.to_dict())  # what no report file holds was never measured
        return report

    @classmethod
    def _from_known(cls, data: dict[str, Any]) -> Self:
        data = {**dict.fromkeys(YOUNGER, ()), **data}
        known = {f.name: data[f.name] for f in fields(cls)}
        extra = set(data) - set(known) - {"schema", "memaudit"}
        if extra:
            raise ValueError(f"unknown fields {', '.join(sorted(extra))}")
        curves = {name: Curve.from_dict(item) for name, item in data["memory"].items()}
        layers = {
            layer: {name: Curve.from_dict(item) for name, item in group.items()}
            for layer, group in data["layers"].items()
        }
        return cls(
            **{
                **known,
                "subject": Identity.from_dict(data["subject"]),
                "assumptions": tuple(
                    Assumption.from_dict(item) for item in listed(data["assumptions"])
                ),
                "memory": curves,
                "layers": layers,
                "spectrum": tuple(Spectrum.from_dict(item) for item in listed(data["spectrum"])),
                "closed_form": tuple(
                    ClosedForm.from_dict(item) for item in listed(data["closed_form"])
                ),
                "stability": _record(Stability, data["stability"]),
                "precision": _record(Precision, data["precision"]),
                "gradient": tuple(Gradient.from_dict(item) for item in listed(data["gradient"])),
                "recall": _record(Recall, data["recall"]),
                "findings": tuple(Finding.from_dict(item) for item in listed(data["findings"])),
                "gates": tuple(GateResult.from_dict(item) for item in listed(data["gates"])),
                "errors": tuple(listed(data["errors"])),
            }
        )

    def metrics(self) -> dict[str, float]:
        """The measured numbers by flat names, for any tracker: `memaudit/impulse/horizon`.

        Only finite ones: what was not measured is absent. A horizon beyond the window is absent,
        too, and the last lag stands under `horizon_beyond`, as in the logs of the callbacks.
        """
        from memaudit.metrics import metrics

        return metrics(self)

    def plot(self, *, queries: Sequence[str] | None = None) -> Figure:
        """The report as a matplotlib figure, of these queries or of all; `savefig` writes it.

        Memory curves with floor, fitted window and horizon; beside them the eigenvalues, E(beta)
        and R² by lag, as far as they were measured. Needs the extra `memaudit[plot]`.
        """
        from memaudit.extras import needs

        with needs("matplotlib", extra="plot"):
            from memaudit.reports.drawing.figure import figure
        return figure(self, queries=queries)

    def rows(self) -> list[dict[str, Any]]:
        """A row for the model and one a layer and recurrence, as plain values and None.

        The columns are those of `memaudit.metrics.rows`: `layer`, `cell`, `margin`, `time_scale`,
        …, and for every query `impulse_kind`, `impulse_rate`, `impulse_horizon`, …
        """
        from memaudit.metrics.rows import rows

        return rows(self)

    def frame(self) -> DataFrame:
        """The `rows` as a pandas table; what was not measured is NaN or NA.

        Needs the extra `memaudit[frame]`.
        """
        from memaudit.extras import needs

        with needs("pandas", extra="frame"):
            from memaudit.reports.frame import frame
        return frame(self)

    def save(self, path: str | Path) -> Path:
        """Write the JSON report in one atomic step and give back its path."""
        from memaudit.report_files import write_json

        return write_json(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a report that `save` wrote."""
        from memaudit.report_files import read_json

        return cls.from_dict(read_json(path))


def _record(kind: type[Stability] | type[Precision] | type[Recall], data: Any) -> Any:
    """The record of a probe; what a plugin filled in stays as it is."""
    needed = {f.name for f in fields(kind) if f.default is MISSING}
    ours = isinstance(data, dict) and needed <= set(data) <= {f.name for f in fields(kind)}
    return kind.from_dict(data) if ours else data
