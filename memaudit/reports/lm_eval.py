"""The numbers in the layout of lm-evaluation-harness results."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from memaudit.contracts import AbstractReportFormat
from memaudit.errors import clean
from memaudit.metrics import described, named_numbers
from memaudit.records import plain
from memaudit.report import SCHEMA
from memaudit.report_files import dumps

if TYPE_CHECKING:
    from memaudit.memory.result import Curve
    from memaudit.report import Report

TASK = "memaudit"
#: There, metrics are named with the filter that the answers went through; here there is none.
FILTER = ",none"


@dataclass(frozen=True, slots=True)
class LmEval(AbstractReportFormat):
    """The whole model as the task `memaudit`, and each query as a task below it.

    `date` is when the evaluation began, in seconds since 1970: a report does not tell.
    """

    name: ClassVar[str] = "lm-eval"
    summary: ClassVar[str] = "numbers in the layout of lm-evaluation-harness results"
    suffix: ClassVar[str] = ".lm-eval.json"

    date: float = field(default_factory=time.time)

    def render(self, report: Report) -> str:
        """Strict JSON; what was not measured is absent."""
        tasks = _tasks(report)
        queries = {_task(query): curve for query, curve in report.memory.items()}
        made = {
            "results": {task: _results(task, numbers) for task, numbers in tasks.items()},
            "group_subtasks": {TASK: list(queries)},
            "configs": {
                TASK: _config(TASK, "the whole model", report.settings),
                **{task: _curve_config(task, curve) for task, curve in queries.items()},
            },
            "versions": dict.fromkeys(tasks, SCHEMA),
            "n-shot": dict.fromkeys(tasks, 0),
            "higher_is_better": {task: _better(report, numbers) for task, numbers in tasks.items()},
            "n-samples": {
                task: {"original": curve.probes, "effective": curve.probes}
                for task, curve in queries.items()
            },
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


def _tasks(report: Report) -> dict[str, dict[str, float]]:
    """The numbers by task; those of single layers are in the JSON report."""
    tasks: dict[str, dict[str, float]] = {TASK: {}}
    tasks |= {_task(query): {} for query in report.memory}
    for key, number in named_numbers(report):
        if number.layer is not None or number.value is None or not math.isfinite(number.value):
            continue
        task = TASK if number.query is None else _task(number.query)
        name = key if number.query is None else key.removeprefix(clean(f"{number.query}/"))
        tasks[task][name] = float(number.value)
    return tasks


def _results(task: str, numbers: dict[str, float]) -> dict[str, Any]:
    told: dict[str, Any] = {"alias": task}
    for name, value in numbers.items():
        told[name + FILTER] = value
        told[f"{name}_stderr{FILTER}"] = "N/A"
    return told


def _better(report: Report, numbers: dict[str, float]) -> dict[str, bool]:
    queries = tuple(report.memory)
    known = {name: described(name, queries) for name in numbers}
    return {name: m.better for name, m in known.items() if m is not None and m.better is not None}


def _config(task: str, description: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "task": task,
        "description": description,
        "output_type": "memory_function",
        "num_fewshot": 0,
        "metadata": {"version": SCHEMA, **{clean(k): _value(v) for k, v in metadata.items()}},
    }


def _curve_config(task: str, curve: Curve) -> dict[str, Any]:
    metadata = {"decay": curve.decay.kind, "status": curve.status.value, "epsilon": curve.epsilon}
    metadata["normalization"] = curve.normalization
    return _config(task, clean(curve.decay), metadata)


def _model(report: Report) -> dict[str, Any]:
    who, settings = report.subject, report.settings
    return {
        "model": clean(who.adapter),
        "model_args": f"pretrained={clean(who.source)}",
        "model_num_parameters": who.parameters,
        "model_dtype": clean(who.dtype),
        "model_revision": "",
        "model_sha": clean(who.sha256),
        "batch_size": None,
        "device": clean(who.device),
        "limit": None,
        "random_seed": settings.get("seed"),
        "torch_seed": settings.get("seed"),
    }


def _environment(report: Report) -> str:
    return ", ".join(f"{clean(k)} {clean(v)}" for k, v in report.environment.items())


def _task(query: str) -> str:
    return f"{TASK}_{clean(query)}"


def _file_name(source: str) -> str:
    return re.sub(r"[^\w.\-]+", "__", clean(source), flags=re.ASCII)


def _value(value: Any) -> Any:
    """Settings are plain values; texts in them are foreign."""
    if isinstance(value, str):
        return clean(value)
    return [_value(item) for item in value] if isinstance(value, list | tuple) else value
