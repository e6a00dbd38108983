"""A report as rows of a table: the model, then a row for every layer and recurrence."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.metrics.curves import curve_numbers
from memaudit.recall.result import Recall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memaudit.memory.result import Curve
    from memaudit.report import Recurrence, Report
    from memaudit.spectrum.result import LayerSpectrum as Spectrum

#: The columns that every table has, with the type of their values.
COLUMNS: dict[str, type] = {
    "row": str,  # "model" or "layer"
    "layer": str,  # of report.layers, or the part of a host; None for the model
    "recurrence": str,  # the recurrence inside the layer, None where there is none
    "cell": str,
    "parameterization": str,
    "size": int,  # numbers in the state
    "parameters": int,
    "modes": int,
    "margin": float,  # smallest 1 - |eigenvalue|
    "time_scale": float,  # steps, infinite on the boundary and beyond it
    "slowest": float,  # largest |eigenvalue|
    "lyapunov": float,
    "capacity": float,  # past inputs that the state tells; of the model, the most of a state
}
#: Those of every query, behind its name: `impulse_horizon`.
QUERY_COLUMNS: dict[str, type] = {
    "kind": str,
    "rate": float,
    "exponent": float,
    "horizon": int,
    "horizon_beyond": int,  # the last lag, where the horizon lies behind it
    "half_life": float,
}


def rows(report: Report) -> list[dict[str, Any]]:
    """The model first, then its layers; every row has all columns, None where nothing is known."""
    listed = [_model(report), *_layers(report)]
    names = columns(report)
    return [{name: row.get(name) for name in names} for row in listed]


def columns(report: Report) -> dict[str, type]:
    """The columns of a report with the type of their values, queries in their order."""
    groups = (report.memory, *report.layers.values())
    queries = dict.fromkeys(query for curves in groups for query in curves)
    own = {f"{q}_{name}": kind for q in queries for name, kind in QUERY_COLUMNS.items()}
    return {**COLUMNS, **own}


def _model(report: Report) -> dict[str, Any]:
    """The model as a whole; its spectrum is that of the recurrence nearest to the boundary."""
    near = min(report.spectrum, key=lambda item: item.margin, default=None)
    found = {} if near is None else _modes(near)
    for name in ("parameterization", "lyapunov", "modes"):  # those belong to one recurrence
        found.pop(name, None)
    exponents = [item.lyapunov for item in report.spectrum if item.lyapunov is not None]
    subject = report.subject
    return {
        **found,
        "row": "model",
        "cell": subject.family,
        "parameters": subject.parameters,
        "modes": sum(item.count for item in report.spectrum) or None,
        "lyapunov": max(exponents, default=None),
        "capacity": report.recall.capacity if isinstance(report.recall, Recall) else None,
        **_memory(report.memory),
    }


def _layers(report: Report) -> Iterator[dict[str, Any]]:
    known, held = _recurrences(report), _capacities(report.recall)
    told: set[tuple[str, str]] = set()
    inside_of = _insides(known, report.layers, whole=report.subject.whole)
    for layer, curves in report.layers.items():
        inside = inside_of[layer]
        told |= set(inside)
        for key in inside or [("", "")]:
            found = {"capacity": held.get(layer), **known.get(key, {}), **_memory(curves)}
            yield {"row": "layer", "layer": layer, **found}
    for key, numbers in known.items():
        if key not in told:
            layer = key[0] or key[1]
            yield {"row": "layer", "layer": layer, "capacity": held.get(layer), **numbers}


def _capacities(recall: Any) -> dict[str, float]:
    """The most that a state tells, by the layer or part of a host that it belongs to."""
    found: dict[str, float] = {}
    if isinstance(recall, Recall):
        for part in (recall, *recall.others):
            for item in part.decodings:
                if item.capacity is not None:
                    place = part.where or item.state
                    found[place] = max(item.capacity, found.get(place, 0.0))
    return found


def _recurrences(report: Report) -> dict[tuple[str, str], dict[str, Any]]:
    """Every recurrence by the part of a host and its name: what it is, and its modes."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    sizes: dict[str, tuple[int, Recurrence]] = {}
    for place, one in enumerate(report.subject.recurrences):
        sizes.setdefault(one.layer, (place, one))
    lengths, heard = sorted({len(name) for name in sizes}, reverse=True), set()
    for item in report.spectrum:
        names = (item.layer, f"{item.where}.{item.layer}")
        size = _innermost(names, sizes, lengths)
        heard.add(size.layer if size is not None else "")
        found[item.where, item.layer] = {**_size(size), **_modes(item)}
    for item in report.subject.recurrences:
        if item.layer not in heard:
            found["", item.layer] = _size(item)
    return found


def _innermost(
    names: tuple[str, ...], sizes: dict[str, tuple[int, Recurrence]], lengths: list[int]
) -> Recurrence | None:
    """The recurrence that has one of the names, or holds it; of several the one inside of others.

    `lengths` are those of the names of the recurrences, the longest first: few, however many
    recurrences there are.
    """
    for length in lengths:
        fitting = [
            sizes[name[:length]]
            for name in names
            if f"{name}."[length : length + 1] == "." and name[:length] in sizes
        ]
        if fitting:
            return min(fitting, key=lambda found: found[0])[1]
    return None


def _insides(
    known: Iterable[tuple[str, str]], layers: Iterable[str], *, whole: bool
) -> dict[str, list[tuple[str, str]]]:
    """The recurrences of every layer, in their order: of the part of a host, or by their names."""
    parts: dict[str, list[tuple[int, tuple[str, str]]]] = {}
    named: list[tuple[str, int, tuple[str, str]]] = []
    for place, key in enumerate(known):
        where, name = key
        if not whole and where:
            parts.setdefault(where, []).append((place, key))
        else:
            named.append((f"{name}.", place, key))
    named.sort()
    found: dict[str, list[tuple[str, str]]] = {}
    for layer in layers:
        prefix, own = f"{layer}.", list(parts.get(layer, ()))
        at = bisect_left(named, (prefix,))
        while at < len(named) and named[at][0].startswith(prefix):
            own.append(named[at][1:])
            at += 1
        found[layer] = [key for _, key in sorted(own)]
    return found


def _size(item: Recurrence | None) -> dict[str, Any]:
    if item is None:
        return {}
    numbers = {"size": item.size, "parameters": item.parameters}
    return {"recurrence": item.layer, "cell": item.cell, **numbers}


def _modes(item: Spectrum) -> dict[str, Any]:
    largest = float(np.abs(item.eigenvalues).max()) if len(item.eigenvalues) else None
    return {
        "recurrence": item.layer,
        "cell": item.cell,
        "parameterization": item.parameterization,
        "modes": item.count,
        "margin": float(item.margin),
        "time_scale": float(item.time_scale),
        "slowest": largest,
        "lyapunov": item.lyapunov,
    }


def _memory(curves: Mapping[str, Curve]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for query, curve in curves.items():
        seen = {"horizon": curve.horizon, "half_life": curve.half_life}
        numbers = {**curve_numbers(curve), **seen, "kind": curve.decay.kind}
        told |= {f"{query}_{name}": numbers[name] for name in QUERY_COLUMNS}
    return told
