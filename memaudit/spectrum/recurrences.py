"""The spectra of a nonlinear recurrence: at rest, under constant inputs, along a trajectory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.modes import AT_REST, NOT_SETTLED, LayerSpectrum, point, spectrum
from memaudit.subjects.jacobian import Modes, block_modes, lyapunov
from memaudit.subjects.recurrence import Settled, first_state, settle, trajectory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from memaudit.interfaces import AbstractDynamics, StateBlock
    from memaudit.modes import SpectrumPoint

    Tick = Callable[[int, int], None]

QUANTILES = (0.05, 0.5, 0.95)
#: Away from rest all eigenvalues are taken up to this block size, else the leading ones of a space.
POINT_WHOLE, POINT_SPACE = 256, 64
#: States of the trajectory that are looked at: as many as make up so many numbers.
LOOKED_AT, MOST_STATES, FEWEST_STATES = 2048, 32, 5
#: A larger state has its exponents from a shorter stretch of the trajectory.
LARGE_STATE, SHORTER = 512, 128


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """What is shared by all blocks: settled states, and a trajectory (T,n) with its inputs."""

    dynamics: AbstractDynamics
    rest: Settled
    held: dict[str, tuple[Settled, Tensor]]
    states: Tensor
    inputs: Tensor


def recurrence_spectra(
    dynamics: AbstractDynamics,
    inputs: Tensor,
    *,
    held: Mapping[str, Tensor],
    generator: torch.Generator,
    tick: Tick | None = None,
) -> tuple[LayerSpectrum, ...]:
    """The spectrum of every block of a recurrence.

    The eigenvalues are those at the state that all blocks together settle in under zero input.
    Points are at the states under the constant inputs `held` (D,), and at quantiles of the spectral
    radius over the states that the inputs (T,D) lead through; along these the Lyapunov exponents.
    """
    tick = tick or (lambda done, of: None)
    path = _run(dynamics, inputs, held, lambda done, of: tick(done, 4 * of))
    exponents = {}
    if len(path.states):
        exponents = lyapunov(
            dynamics,
            path.inputs,
            generator=generator,
            states=path.states,
            tick=lambda done, of: tick(of + done, 4 * of),
        )
    tick(2, 4)
    found = []
    for number, (layer, block) in enumerate(dynamics.blocks.items()):
        made = _layer_spectrum(path, layer, block)
        if made is not None and layer in exponents:
            exponent = exponents[layer]
            made = replace(made, lyapunov=exponent.value, lyapunov_interval=exponent.interval)
        found += [] if made is None else [made]
        tick(2 * len(dynamics.blocks) + 2 * (number + 1), 4 * len(dynamics.blocks))
    return tuple(found)


def _run(
    dynamics: AbstractDynamics, inputs: Tensor, held: Mapping[str, Tensor], tick: Tick
) -> Trajectory:
    zero = torch.zeros(1, dynamics.width, dtype=torch.float64)
    fed = torch.cat([zero, *(x.detach().cpu().double()[None] for x in held.values())])
    rest, *others = settle(dynamics, fed, tick=tick)
    tick(1, 1)
    kept = inputs[:SHORTER] if len(rest.state) > LARGE_STATE else inputs
    states = trajectory(dynamics, kept) if dynamics.causal else rest.state.new_zeros(0, 0)
    pairs = zip(held, others, fed[1:], strict=True)
    held_states = {name: (state, u) for name, state, u in pairs}
    return Trajectory(dynamics, rest, held_states, states, kept.to(rest.state))


def _layer_spectrum(path: Trajectory, layer: str, block: StateBlock) -> LayerSpectrum | None:
    """The spectrum of one block; None where no Jacobian of it is finite."""
    rest, dynamics = path.rest, path.dynamics
    zero = rest.state.new_zeros(dynamics.width)
    notes = [] if rest.at_rest else [f"{rest.motion}; the eigenvalues are those at the last state"]
    modes = block_modes(dynamics, rest.state, zero, block)
    if modes is None:
        notes = ["no Jacobian at rest is finite; the eigenvalues are those at the first state"]
        modes = block_modes(dynamics, first_state(dynamics), zero, block)
    if modes is None:
        return None
    if rest.state.dtype != torch.float64:
        notes.append(f"stepped in {str(rest.state.dtype).removeprefix('torch.')}")
    word = "settled" if rest.at_rest else NOT_SETTLED
    made = spectrum(
        layer=layer,
        cell=block.cell,
        parameterization=block.parameterization,
        at=f"{AT_REST}, {word} after {rest.steps} steps",
        eigenvalues=modes.eigenvalues,
        points=(*_held(path, block), *_visited(path, block)),
    )
    note = "; ".join(filter(None, (*notes, modes.note)))
    return replace(made, count=block.stop - block.start, note=note)


def _held(path: Trajectory, block: StateBlock) -> list[SpectrumPoint]:
    points = []
    for name, (settled, u) in path.held.items():
        modes = _point_modes(path, settled.state, u.to(settled.state), block)
        word = "" if settled.at_rest else f", {NOT_SETTLED}"
        points += [] if modes is None else [point(f"{name}{word}", modes.eigenvalues)]
    return points


def _visited(path: Trajectory, block: StateBlock) -> list[SpectrumPoint]:
    """The points at quantiles of the spectral radius over states of the trajectory."""
    states = path.states
    if not len(states):
        return []
    wanted = min(max(LOOKED_AT // (block.stop - block.start), FEWEST_STATES), MOST_STATES)
    # The first eighth still knows where the trajectory began.
    times = np.unique(np.linspace(len(states) // 8, len(states) - 1, wanted).round().astype(int))
    found = [_point_modes(path, states[t], path.inputs[t], block) for t in times]
    finite = [modes for modes in found if modes is not None]
    if not finite:
        return []
    order = np.argsort([np.abs(modes.eigenvalues).max() for modes in finite], kind="stable")
    places = np.quantile(np.arange(len(finite)), QUANTILES, method="nearest")
    return [
        point(f"trajectory {100 * share:.0f} %", finite[order[int(place)]].eigenvalues)
        for share, place in zip(QUANTILES, places, strict=True)
    ]


def _point_modes(path: Trajectory, state: Tensor, u: Tensor, block: StateBlock) -> Modes | None:
    return block_modes(path.dynamics, state, u, block, whole=POINT_WHOLE, space=POINT_SPACE)
