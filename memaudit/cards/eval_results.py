"""The hub's evaluation results: the numbers of an audit as `.eval_results/*.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from memaudit import __version__
from memaudit.errors import clean
from memaudit.metrics import PREFIX, metrics, whole_holders

if TYPE_CHECKING:
    from memaudit.report import Report

#: Results belong to a dataset of the hub, which makes a leaderboard of them once it is registered
#: there as a benchmark; until then they are numbers beside the model.
DATASET = "memaudit/memory"
#: The numbers that say something without the others, of the model and of every query.
TOLD = ("horizon", "half_life", "rate", "exponent", "margin", "radius", "capacity")
HEAD = "# Written by `memaudit card`; see https://huggingface.co/docs/hub/eval-results\n"


def eval_results(report: Report, *, dataset: str = DATASET) -> str:
    """One entry per number; its note has the settings and the query that it was measured at."""
    held = whole_holders(report)
    entries = [
        {
            "dataset": {"id": dataset, "task_id": task},
            "value": value,
            "notes": _note(report, held[task][0] if task in held else ""),
        }
        for task, value in _tasks(report).items()
    ]
    return HEAD + yaml.safe_dump(entries, sort_keys=False, allow_unicode=False, width=100)


def _tasks(report: Report) -> dict[str, float]:
    """`horizon` of the model, `impulse_horizon` of a query; not those of layers."""
    queries = {clean(query) for query in report.memory}
    told: dict[str, float] = {}
    for key, value in metrics(report).items():
        parts = key.removeprefix(PREFIX).split("/")
        whole = len(parts) == 1 and parts[0] in TOLD
        query = len(parts) == 2 and parts[0] in queries and parts[1] in TOLD
        if whole or query:
            told["_".join(parts)] = int(value) if value.is_integer() else value
    return told


def _note(report: Report, query: str) -> str:
    keys = ("horizon", "seed", "level")
    settings = [f"{key} {clean(report.settings[key])}" for key in keys if key in report.settings]
    settings += [f"query {clean(query)}"] if query else []
    partial: list[Any] = [] if report.complete else ["partial"]
    version = clean(report.environment.get("memaudit", __version__))
    return ", ".join([f"memaudit {version}", *settings, *partial])
