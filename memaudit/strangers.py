"""Plugins from outside: what they answer is looked at before it is believed."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from memaudit import registry
from memaudit.contracts import AbstractSubject, Claim
from memaudit.devices import shortage
from memaudit.errors import clean
from memaudit.numerics import signals
from memaudit.records import plain
from memaudit.report import SEVERITIES, Finding, Identity, Report
from memaudit.watch import WeightsKept

if TYPE_CHECKING:
    from memaudit.contracts import AbstractProbe, AbstractQuery, Setting
    from memaudit.registry import Plugin

#: Fields of the report that a probe may fill.
FILLED_BY_PROBES = (*("assumptions", "spectrum", "stability", "precision", "gradient", "recall"),)
#: Seconds after which a probe counts as hanging, unless --timeout says otherwise.
LONGEST_PROBE = 3600.0


def check_claim(plugin: Plugin | None, claim: Any) -> None:
    """A claim is None, or a family and a whole number."""
    if plugin is None or claim is None:
        return
    good = isinstance(claim, Claim) and isinstance(claim.strength, int)
    if not good or not isinstance(claim.family, str):
        raise registry.nonsense(plugin, f"answers a source by {type(claim).__name__}, no claim")


def check_subject(plugin: Plugin | None, subject: Any) -> None:
    """A subject has an identity, a width or parts, a device and a dtype."""
    if plugin is None:
        return
    if not isinstance(subject, AbstractSubject):
        raise registry.nonsense(plugin, f"opens a source as {type(subject).__name__}, no subject")
    if not isinstance(getattr(subject, "identity", None), Identity):
        raise registry.nonsense(plugin, "opens a source without an identity")
    if not is_plain(subject.identity):
        raise registry.nonsense(plugin, "gives an identity that cannot stand in a JSON report")
    for name, part in (dict(subject.parts()) or {"": subject}).items():
        _check_part(plugin, name, part)


def _check_part(plugin: Plugin, name: str, part: Any) -> None:
    where = f" of {name}" if name else ""
    width = getattr(part, "input_size", None)
    if not isinstance(width, int) or width < 1:
        raise registry.nonsense(plugin, f"gives {width!r} as the input width{where}")
    dtype = getattr(part, "dtype", None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise registry.nonsense(plugin, f"gives {dtype!r} as the dtype{where}")
    if not isinstance(getattr(part, "device", None), torch.device):
        raise registry.nonsense(plugin, f"names no device{where}")
    if not isinstance(getattr(part, "pooled", None), bool):
        raise registry.nonsense(plugin, f"does not say whether the answer is pooled{where}")


def check_query(query: AbstractQuery, subject: AbstractSubject, setting: Setting) -> None:
    """The sequences and moments of a stranger's query have the shapes that its contract states."""
    plugin = registry.find("queries", query.name)
    x = torch.ones(2, subject.input_size or 1, device=subject.device, dtype=subject.dtype)
    inputs = query.inputs(x, setting.horizon)
    against = query.reference(x, setting.horizon)
    for name, made in (("inputs", inputs), ("reference", inputs if against is None else against)):
        fit = isinstance(made, torch.Tensor) and made.ndim == 3 and made.dtype == x.dtype
        if not fit or (made.shape[0], made.shape[2]) != tuple(x.shape) or not made.shape[1]:
            raise registry.nonsense(plugin, f"gives {name} of another form than (P, L, D)")
        if not bool(torch.isfinite(made).all()):
            raise registry.nonsense(plugin, f"gives {name} that are not finite")
    lags = signals.lag_grid(setting.horizon)
    for times in query.moments(lags, setting.horizon):
        if times is None:
            continue
        whole = times.shape == lags.shape and not times.is_floating_point()
        if not whole or int(times.min()) < 0 or int(times.max()) >= inputs.shape[1]:
            raise registry.nonsense(plugin, "reads moments outside of its sequences")


def measured_by(
    probe: AbstractProbe, subject: AbstractSubject, setting: Setting, *, seconds: float | None
) -> Any:
    """A stranger's measurement, with the weights under watch."""
    kept = WeightsKept(subject.weights)
    limit = LONGEST_PROBE if seconds is None else seconds
    try:
        with registry.calling("probes", probe.name, "failed", seconds=limit), shortage():
            result = probe.measure(subject, setting)
    finally:
        moved = kept.restore()
    if moved:
        plugin = registry.find("probes", probe.name)
        done = "put back" if kept.is_restored() else "NOT put back: load the model anew"
        names = clean(", ".join(moved[:5]))
        raise registry.nonsense(plugin, f"moved the weights {names}; they were {done}")
    return result


def check_result(probe: AbstractProbe, result: Any) -> None:
    """A probe's result fits its field of the report and strict JSON, which knows no NaN."""
    plugin = registry.find("probes", probe.name)
    if probe.fills not in FILLED_BY_PROBES:
        raise registry.nonsense(plugin, f"wants to fill {probe.fills!r}, which is no probe's field")
    field = next(f for f in fields(Report) if f.name == probe.fills)
    several = field.default == ()
    if several != isinstance(result, tuple):
        raise registry.nonsense(plugin, f"gives {type(result).__name__} for {probe.fills}")
    if not is_plain(result):
        raise registry.nonsense(plugin, "gives NaN, infinity or objects that JSON cannot hold")


def check_findings(plugin: Plugin | None, found: tuple[Any, ...]) -> None:
    """What a rule finds are findings, under its own code."""
    if plugin is None:
        return
    for finding in found:
        good = isinstance(finding, Finding) and finding.severity in SEVERITIES
        if not good or not all(isinstance(v, str) for v in finding.to_dict().values()):
            raise registry.nonsense(plugin, f"finds {type(finding).__name__}, not a finding")
        if finding.code != plugin.name:
            raise registry.nonsense(plugin, f"speaks in the name of {clean(finding.code)}")


def copy_for(plugin: Plugin | None, report: Report) -> Report:
    """The report itself, or a copy for a stranger to scribble on."""
    return report if plugin is None else Report.from_dict(report.to_dict())


def is_plain(value: Any) -> bool:
    """Whether strict JSON can hold the value."""
    try:
        json.dumps(plain(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
