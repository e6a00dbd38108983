"""Results on disk: a strict JSON file and a picture for every row."""

from __future__ import annotations

import json
import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import memaudit
from examples.reproduce import catalog, drawing
from examples.reproduce.row import Effort, Outcome, Row, Verdict

RESULTS = "results"


def stem(out: Path, name: str, *, quick: bool) -> Path:
    """The path of a result without its ending; a quick one never replaces a full one."""
    return out / RESULTS / (catalog.slug(name) + ("-quick" if quick else ""))


def write(out: Path, row: Row, effort: Effort, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """Save picture and numbers, and give the numbers back."""
    base = stem(out, row.id, quick=effort.quick)
    base.parent.mkdir(parents=True, exist_ok=True)
    drawing.save(outcome.figure, _with(base, ".png"))
    record = {
        **_head(row, effort, outcome.verdict),
        "holds": bool(outcome.holds),
        "reason": outcome.reason,
        "scaled": outcome.scaled,
        "errata": outcome.errata,
        "explained": bool(outcome.explained),
        "numbers": [
            {"name": n.name, "measured": plain(n.measured), "printed": plain(n.printed)}
            for n in outcome.numbers
        ],
        "settings": plain(outcome.settings),
        "seconds": round(seconds, 1),
        "picture": _with(base, ".png").name,
    }
    return _saved(base, record)


def write_not_run(out: Path, row: Row, effort: Effort, reason: str) -> dict[str, Any]:
    """Save why a row could not be run; an older result of it is gone then."""
    base = stem(out, row.id, quick=effort.quick)
    base.parent.mkdir(parents=True, exist_ok=True)
    _with(base, ".png").unlink(missing_ok=True)
    return _saved(base, {**_head(row, effort, Verdict.NOT_RUN), "reason": reason})


def read(out: Path, name: str) -> dict[str, Any] | None:
    """The result of a row: that of the paper's settings, else the quick one, else None."""
    for quick in (False, True):
        path = _with(stem(out, name, quick=quick), ".json")
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    return None


def plain(value: Any) -> Any:
    """A value as strict JSON holds it; what is not finite becomes a word."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _head(row: Row, effort: Effort, verdict: Verdict) -> dict[str, Any]:
    return {
        "id": row.id,
        "paper": catalog.paper_of(row.id),
        "title": row.title,
        "claim": row.claim,
        "verdict": str(verdict),
        "quick": effort.quick,
        "seed": effort.seed,
        "versions": {
            "memaudit": memaudit.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _saved(base: Path, record: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False)
    _with(base, ".json").write_text(text + "\n", encoding="utf-8")
    return record


def _with(base: Path, ending: str) -> Path:
    """Names such as I-Thm3.9 have a dot that is no ending."""
    return base.with_name(base.name + ending)
