"""The eigenvalues of every recurrent layer at rest, as the weights stand now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.numerics.recurrence import block_modes, settle

if TYPE_CHECKING:
    import numpy as np

    from memaudit.contracts import AbstractDynamics, AbstractSubject


def resting_modes(subject: AbstractSubject) -> dict[str, np.ndarray]:
    """Layer → eigenvalues of one step, without further operating points.

    A nonlinear cell has those of its Jacobian where it settles without input. What does not
    settle, or is not finite, is left out.
    """
    found = {item.layer: item.eigenvalues for item in subject.spectra()}
    for dynamics in subject.dynamics().values():
        if not found.keys() >= dynamics.blocks.keys():
            found |= _settled_modes(dynamics)
    return {layer: modes for layer, modes in found.items() if len(modes) and _finite(modes)}


def _finite(modes: np.ndarray) -> bool:
    return bool((abs(modes) < float("inf")).all())


def _settled_modes(dynamics: AbstractDynamics) -> dict[str, np.ndarray]:
    silence = torch.zeros(1, dynamics.width, dtype=torch.float64)
    (rest,) = settle(dynamics, silence)
    if not rest.at_rest:
        return {}
    u = silence[0].to(rest.state)
    found = {
        layer: block_modes(dynamics, rest.state, u, block)
        for layer, block in dynamics.blocks.items()
    }
    return {layer: modes.eigenvalues for layer, modes in found.items() if modes is not None}
