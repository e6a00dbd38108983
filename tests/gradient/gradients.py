"""Records of gradients built by hand."""

from __future__ import annotations

from typing import Any

from memaudit.gradient.result import LayerGradient, ReparamGradient


def form(name: str, largest: float, **changes: Any) -> ReparamGradient:
    """One form with that largest ratio, half of it as the median."""
    fields: dict[str, Any] = {
        **{"name": name, "time": "continuous", "stable": True, "largest": largest},
        **{"median": largest / 2, "bound": 4.0, "unreachable": 0, "learning_rate": 0.125},
    }
    return ReparamGradient(**{**fields, **changes})


def gradient(layer: str = "layers.0", **changes: Any) -> LayerGradient:
    """A layer that has exp, for which softplus is recommended."""
    fields: dict[str, Any] = {
        **{"layer": layer, "cell": "s4d", "current": "exp", "weights": (f"{layer}.log_A_real",)},
        **{
            "loss": "mean square",
            "own": 8.0,
            "reparams": (form("exp", 4.0), form("softplus", 2.0)),
        },
        **{"recommended": "softplus", "reasoning": "softplus has less."},
    }
    return LayerGradient(**{**fields, **changes})
