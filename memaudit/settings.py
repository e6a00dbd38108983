"""The measuring options of an audit: told apart from the opening ones, and checked first."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from memaudit.contracts import Setting
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.loading.access import ACCESS
from memaudit.texts import read_text

SHORTEST, LONGEST = 8, 1_048_576
#: torch takes seeds as signed 64-bit integers.
LARGEST_SEED = 2**63 - 1
#: Amplitudes up to this size, and down to its inverse, leave room for the model's own gain.
LARGEST = 2.0**40
#: Keyword arguments of `scan`, of `load`, and those that shape the measurement.
SCANNING = ("horizon", "queries", "probes", "seed", "progress")
OPENING = ("adapter", "device", "dtype", "revision", *ACCESS)
MEASURING = ("level", "normalization", "amplitudes", "epsilon", "baseline", "text", "words")


def split_options(
    *, horizon: int, seed: int, options: dict[str, Any]
) -> tuple[Setting, dict[str, Any]]:
    """The setting of the audit, and the options that go to `load`."""
    measuring = {name: options[name] for name in MEASURING if name in options}
    if "amplitudes" in measuring and measuring["amplitudes"] is not None:
        measuring["amplitudes"] = _amplitudes(measuring["amplitudes"])
    if measuring.get("words") is not None:
        measuring["words"] = _words(measuring["words"])
    opening = {name: value for name, value in options.items() if name not in MEASURING}
    plain = [
        int(v) if isinstance(v, Integral) and not isinstance(v, bool) else v
        for v in (horizon, seed)
    ]
    return Setting(horizon=plain[0], seed=plain[1], **measuring), opening


def check_setting(setting: Setting) -> None:
    """Refuse what cannot be measured, before any work starts."""
    from memaudit.memory.curve import NORMALIZATIONS
    from memaudit.numerics.signals import LEVELS

    _whole("horizon", setting.horizon, SHORTEST, LONGEST)
    _whole("seed", setting.seed, 0, LARGEST_SEED)
    _known("level", setting.level, LEVELS)
    _known("normalization", setting.normalization, NORMALIZATIONS)
    _check_baseline(setting.baseline)
    if not isinstance(setting.epsilon, Real) or not 0 < float(setting.epsilon) < 1:
        raise ArgumentError(f"epsilon is {setting.epsilon!r}", hint="take a number between 0 and 1")
    if setting.text is not None:
        read_text(setting.text)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not low <= int(value) <= high:
        hint = f"take a whole number from {low} to {high}"
        raise ArgumentError(f"{name} is {clean(value)}", hint=hint)


def _known(name: str, value: Any, known: dict[str, Any]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(f"unknown {name} {clean(value)!r}", hint=nearest(str(value), known))


def _check_baseline(value: Any) -> None:
    from memaudit.numerics.signals import BASELINES

    if isinstance(value, Real) and not isinstance(value, bool):
        if not abs(float(value)) <= LARGEST:
            raise ArgumentError(f"baseline is {clean(value)}", hint=f"at most {LARGEST:g}")
        return
    _known("baseline", value, BASELINES)


def _amplitudes(value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    good = all(isinstance(v, Real) and not isinstance(v, bool) for v in values)
    if not values or not good or not all(1 / LARGEST <= v <= LARGEST for v in values):
        hint = f"give positive numbers from {1 / LARGEST:g} to {LARGEST:g}"
        raise ArgumentError(f"amplitudes are {clean(value)}", hint=hint)
    return tuple(float(v) for v in values)


def _words(value: Any) -> tuple[str, ...]:
    """Words from a list, or from a text with commas between them."""
    words = value.split(",") if isinstance(value, str) else value
    good = isinstance(words, list | tuple) and all(isinstance(w, str) and w.strip() for w in words)
    if not good or not words:
        raise ArgumentError(f"words are {clean(value)!r}", hint="give words, as in good,bad,ha")
    return tuple(word.strip() for word in words)
