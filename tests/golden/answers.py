"""The answers of today, those that were recorded, and where the two differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memaudit

STORED = Path(__file__).with_name("answers.json")
DEMOS = ("lstm", "gru", "rnn", "s4d", "lru", "mamba", "bert")
LAGS = (0, 1, 2, 4, 8, 16, 32, 64, 127)
#: Two processors round otherwise: numbers by their own size, small ones by the largest of a curve.
CLOSE, OF_THE_LARGEST = 1e-6, 1e-9
#: What is found along a random trajectory.
LOOSE = {"lyapunov": 0.02}


def answer(demo: str) -> dict[str, Any]:
    """What a scan says, in numbers and words."""
    report = memaudit.scan(f"demo:{demo}", horizon=128, level="quick")
    told = {
        "memory": {
            query: {
                "kind": str(curve.decay.kind),
                "horizon": curve.horizon,
                "half_life": curve.half_life,
                "values": [float(curve.values[lag]) for lag in LAGS if lag < len(curve.values)],
            }
            for query, curve in report.memory.items()
        },
        "margins": {item.place: item.margin for item in report.spectrum},
        "lyapunov": {item.place: item.lyapunov for item in report.spectrum},
        "findings": sorted({finding.code for finding in report.findings}),
    }
    return json.loads(json.dumps(told))


def differences(was: Any, now: Any, path: str = "", scale: float = 0.0) -> Iterator[str]:
    """Sentences about where two answers differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from differences(was.get(key), now.get(key), f"{path}/{key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        sizes = [abs(value) for value in was if isinstance(value, float)]
        for place, pair in enumerate(zip(was, now, strict=True)):
            yield from differences(*pair, f"{path}[{place}]", max(sizes, default=0.0))
    elif isinstance(was, float) and isinstance(now, float):
        near = next((share for word, share in LOOSE.items() if word in path), CLOSE)
        if abs(was - now) > near * max(abs(was), abs(now)) + OF_THE_LARGEST * scale:
            yield f"{path}: was {was:.8g}, is {now:.8g}"
    elif was != now:
        yield f"{path}: was {was}, is {now}"


def record() -> None:
    """Write the answers of today."""
    answers = {demo: answer(demo) for demo in DEMOS}
    STORED.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def stored() -> dict[str, Any]:
    """The answers that were recorded."""
    return json.loads(STORED.read_text(encoding="utf-8"))
