"""The numbers in the layout of lm-evaluation-harness results."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.records import plain
from memaudit.report_files import SCHEMA, dumps

if TYPE_CHECKING:
    from memaudit.report import Metric, Report

TASK = "memaudit"
#: There, metrics are named with the filter that the answers went through; here there is none.
FILTER = ",none"


@dataclass(frozen=True, slots=True)
class LmEval(AbstractReportFormat):
    """The whole model as the task `memaudit`, and each query as a task below it.

    `date` is when the evaluation began, in seconds since 1970: a report does not know.
    """

    name: ClassVar[str] = "lm-eval"
    summary: ClassVar[str] = "numbers in the layout of lm-evaluation-harness results"
    suffix: ClassVar[str] = ".lm-eval.json"

    date: float = field(default_factory=time.time)

    def render(self, report: Report) -> str:
        """Strict JSON; what was not measured is absent."""
        tasks = _tasks(report)
        made = {
            "results": {task: _results(task, numbers) for task, numbers in tasks.items()},
            "group_subtasks": {TASK: [task for task in tasks if task != TASK]},
            "configs": {task: _config(report, task) for task in tasks},
            "versions": dict.fromkeys(tasks, SCHEMA),
            "n-shot": dict.fromkeys(tasks, 0),
            "higher_is_better": {
                task: {name: m.better == "more" for name, m in numbers.items() if m.better}
                for task, numbers in tasks.items()
            },
            "n-samples": {},
            "config": _model(report),
            "git_hash": None,
            "date": self.date,
            "pretty_env_info": _environment(report),
            "task_hashes": {},
            "model_source": TASK,
            "model_name": clean(report.subject.source),
            "model_name_sanitized": _file_name(report.subject.source),
            "total_evaluation_time_seconds": str(sum(report.timing.values())),
        }
        return dumps(plain(made))


def _tasks(report: Report) -> dict[str, dict[str, Metric]]:
    """The numbers by task; those of single layers are in the JSON report.

    Of a name such as "impulse/horizon" the part before the slash is a task of its own where a
    result measured something of that name.
    """
    queries = [name for result in report.results.values() for name in result.measured()]
    tasks: dict[str, dict[str, Metric]] = {TASK: {}}
    tasks |= {f"{TASK}_{clean(query)}": {} for query in queries}
    for metric in report.numbers():
        if metric.layer or metric.value is None or not math.isfinite(metric.value):
            continue
        query, _, name = metric.name.rpartition("/")
        if query in queries:
            tasks[f"{TASK}_{clean(query)}"][clean(name)] = metric
        else:
            tasks[TASK][metric.key] = metric
    return tasks


def _results(task: str, numbers: dict[str, Metric]) -> dict[str, Any]:
    found: dict[str, Any] = {"alias": task}
    for name, metric in numbers.items():
        found[name + FILTER] = metric.value
        found[f"{name}_stderr{FILTER}"] = "N/A"
    return found


def _config(report: Report, task: str) -> dict[str, Any]:
    settings = {clean(key): _value(value) for key, value in report.settings.items()}
    lines = [clean(section.line) for section in report.sections() if section.line]
    return {
        "task": task,
        "description": "; ".join(lines) if task == TASK else f"query {task[len(TASK) + 1 :]}",
        "output_type": "memory_function",
        "num_fewshot": 0,
        "metadata": {"version": SCHEMA, **settings},
    }


def _model(report: Report) -> dict[str, Any]:
    subject, settings = report.subject, report.settings
    return {
        "model": clean(subject.adapter),
        "model_args": f"pretrained={clean(subject.source)}",
        "model_num_parameters": subject.parameters,
        "model_dtype": clean(subject.dtype),
        "model_revision": "",
        "model_sha": clean(subject.sha256),
        "batch_size": None,
        "device": clean(subject.device),
        "limit": None,
        "random_seed": settings.get("seed"),
        "torch_seed": settings.get("seed"),
    }


def _environment(report: Report) -> str:
    return ", ".join(f"{clean(k)} {clean(v)}" for k, v in report.environment.items())


def _file_name(source: str) -> str:
    return re.sub(r"[^\w.\-]+", "__", clean(source), flags=re.ASCII)


def _value(value: Any) -> Any:
    """Settings are plain values; texts in them are foreign."""
    if isinstance(value, str):
        return clean(value)
    return [_value(item) for item in value] if isinstance(value, list | tuple) else value
