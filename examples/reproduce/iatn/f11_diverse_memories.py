"""I-F11: random tanh networks remember in many ways; one of two units has a periodic memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

import memaudit
from examples.hurwitz_but_persistent import Drifter, audit
from examples.reproduce.drawing import COLOURS, lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import RecurrentStudent
from memaudit.memory.result import Curve

SIZES, NETWORKS, LAGS = (2, 4, 16, 64, 256), 20, 1000
#: A memory that ends above this share of its largest value has not decayed, below it it has.
KEPT, LOST = 0.1, 1e-3
#: Steps of the integration of dz/dt = W tanh(z) with z = W h: v = tanh(z) keeps its digits near 1.
PACE = 0.02
PATIENCE = 40.0
#: A path that comes back to where it began within this share of its size is a cycle.
CLOSED = 1e-6
STARTS = 60
WEIGHT = Drifter((0.0, 0.0)).weight.numpy()


def random_network(size: int, generator: torch.Generator) -> RecurrentStudent:
    """dh/dt = tanh(W h + U x + b) with Gaussian weights of size 1/sqrt(m), in steps of 0.1."""
    student = RecurrentStudent(size, generator=generator)
    with torch.no_grad():
        for weight in (student.W, student.bias):
            weight.normal_(0.0, size**-0.5, generator=generator)
    return student


def memories(effort: Effort) -> dict[int, list[Curve]]:
    """The Heaviside memories of random networks, by size."""
    draw = torch.Generator().manual_seed(effort.seed)
    options = {"horizon": LAGS, "amplitudes": [1.0], "level": "quick", "probes": []}
    found: dict[int, list[Curve]] = {}
    for done, size in enumerate(SIZES):
        subjects = [
            memaudit.wrap(random_network(size, draw), input_size=1) for _ in range(NETWORKS)
        ]
        reports = [memaudit.scan(s, queries=["heaviside"], **options) for s in subjects]
        found[size] = [report.memory["heaviside"] for report in reports]
        effort.tick(done + 1, len(SIZES) + 1)
    return found


def stepped(z: np.ndarray, pace: float) -> np.ndarray:
    """One Runge-Kutta step of order four."""
    a = WEIGHT @ np.tanh(z)
    b = WEIGHT @ np.tanh(z + pace / 2 * a)
    c = WEIGHT @ np.tanh(z + pace / 2 * b)
    d = WEIGHT @ np.tanh(z + pace * c)
    return z + pace / 6 * (a + 2 * b + 2 * c + d)


def flow(z: np.ndarray, time: float) -> np.ndarray:
    """The path (T,2) of z = W h."""
    path = [z]
    for _ in range(round(time / PACE)):
        path.append(stepped(path[-1], PACE))
    return np.array(path)


def half_turn(height: float) -> tuple[float, float]:
    """Where a path from z = (0, -height) crosses z_1 = 0 again, and when.

    (0, inf) if it comes to rest, (inf, inf) if it stays in a corner for longer than anybody waits.
    """
    z, time = stepped(np.array([0.0, -height]), PACE), PACE
    side = np.sign(z[0])
    while np.sign(now := stepped(z, PACE)[0]) == side:
        z, time = stepped(z, PACE), time + PACE
        if np.abs(z).max() < 1e-3 or time > PATIENCE:
            return (0.0 if np.abs(z).max() < 1.0 else np.inf), np.inf
    share = PACE * z[0] / (z[0] - now)
    for _ in range(4):  # Newton's method for the moment of the crossing
        there = stepped(z, share)
        share -= there[0] / (WEIGHT @ np.tanh(there))[0]
    return float(abs(stepped(z, share)[1])), time + share


def cycle_height() -> float:
    """The height at which half a turn ends as high as it began: lower ones fall, higher rise."""
    low, high = 1.0, 100.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if half_turn(middle)[0] < middle else (low, middle)
    return low


def dwelling(path: np.ndarray) -> np.ndarray:
    """The times between changes of sign of v_1."""
    return np.diff(np.flatnonzero(np.diff(np.sign(path[1:, 0])))) * PACE


@dataclass(frozen=True, slots=True)
class Plane:
    """The network of two units around its cycle.

    The paths begin at 0.97, 1 and 1.03 of the cycle; `kinds` are the memories that an audit finds
    from starts at 0.9 and 1.1 of it.
    """

    period: float
    off: float
    paths: list[np.ndarray]
    kinds: dict[float, str]

    @classmethod
    def around(cls, height: float) -> Plane:
        """Follow the cycle that crosses z = (0, -height), and what begins beside it."""
        back, half = half_turn(height)
        times = {0.97: 60.0, 1.0: 2 * half, 1.03: 500.0}
        paths = [flow(np.array([0.0, -share * height]), t) for share, t in times.items()]
        # The example steps by Euler, whose cycle is a few hundredths smaller than that of the flow.
        cycle = np.array([0.0, -height])
        starts = {share: np.linalg.solve(WEIGHT, share * cycle).tolist() for share in (0.9, 1.1)}
        found = {share: audit(start).memory["impulse"] for share, start in starts.items()}
        kinds = {share: curve.decay.kind for share, curve in found.items()}
        return cls(2 * half, float(abs(back / height - 1)), paths, kinds)

    @property
    def stays(self) -> np.ndarray:
        """How long the path outside the cycle stays in one corner after the other."""
        return dwelling(self.paths[-1])

    @property
    def parted(self) -> bool:
        """Whether the cycle parts what forgets from what does not."""
        return tuple(self.kinds.values()) == ("exponential", "persistent")


def ends(seed: int) -> Counter[str]:
    """Where the velocities of random starts in the unit square are after 512 steps."""
    draw = torch.Generator().manual_seed(seed)
    found: Counter[str] = Counter()
    for start in (2 * torch.rand(STARTS, 2, generator=draw) - 1).tolist():
        kick = torch.zeros(1, 512, 1, dtype=torch.float64)
        kick[:, 0] = 1.0
        with torch.no_grad():
            last = Drifter(start)(kick)[0, -1]
        found["({:+.0f}, {:+.0f})".format(*(last + 0.0).round().tolist()).replace("-0", "+0")] += 1
    return found


def run(effort: Effort) -> Outcome:
    """Both panels."""
    found = memories(effort)
    shares = {m: [_left(curve) for curve in some] for m, some in found.items()}
    kept = sum(share > KEPT for some in shares.values() for share in some)
    lost = sum(share < LOST for some in shares.values() for share in some)
    plane = Plane.around(cycle_height())
    where = ends(effort.seed)
    effort.tick(len(SIZES) + 1, len(SIZES) + 1)
    return Outcome(
        holds=kept > 0 and lost > 0 and plane.off < CLOSED and plane.parted,
        reason=f"of {len(SIZES) * NETWORKS} random networks {kept} keep over {KEPT:g} of their "
        f"memory for {LAGS} steps and {lost} lose all but {LOST:g}; in the plane a cycle of period "
        f"{plane.period:.2f} lies between what rests and what does not "
        f"(it closes to {plane.off:.0e})",
        numbers=(*_random_numbers(found, shares), *_plane_numbers(plane, where)),
        settings={
            "after a look": "a period from half turns of one path failed, they drift; it "
            "is now that of a "
            "fixed point of the half-turn map",
            "m": SIZES,
            "networks": NETWORKS,
            "lags": LAGS,
            "step": 0.1,
            "starts": STARTS,
            "weights": "Gaussian, 1/sqrt(m)",
        },
        figure=_figure(found, plane.paths),
        errata="the velocities end next to (1, -1) and (-1, 1), not (1, 1) and (-1, -1); and these "
        "attract nothing for ever: a path outside the cycle goes from one to the other and back, "
        f"staying longer every time ({', '.join(f'{t:.0f}' for t in plane.stays)} time units)",
    )


def _random_numbers(
    found: dict[int, list[Curve]], shares: dict[int, list[float]]
) -> Iterator[Number]:
    kinds = Counter(curve.decay.kind for some in found.values() for curve in some)
    for name, count in sorted(kinds.items()):
        yield Number(f"random networks: {name}", count)
    for m, some in shares.items():
        told = f"m = {m}: networks that keep over {KEPT:g} of their memory, of {NETWORKS}"
        yield Number(told, sum(share > KEPT for share in some))


def _plane_numbers(plane: Plane, where: Counter[str]) -> list[Number]:
    return [
        Number(
            "2D: velocity after 512 steps",
            ", ".join(f"{k} x {n}" for k, n in where.items()),
            "(0, 0), (1, 1), (-1, -1)",
        ),
        Number("2D: period of the cycle between the basins", plane.period),
        Number("2D: the cycle closes up to, as a share of its size", plane.off),
        Number("2D: times in a corner, just outside", ", ".join(f"{t:.1f}" for t in plane.stays)),
        Number("2D: audit of a start at 0.9 of the cycle", plane.kinds[0.9]),
        Number("2D: audit of a start at 1.1 of the cycle", plane.kinds[1.1]),
    ]


def _left(curve: Curve) -> float:
    return float(curve.values[-LAGS // 10 :].max() / curve.values.max())


def _figure(found: dict[int, list[Curve]], paths: list[np.ndarray]) -> Figure:
    figure, (left, middle, right) = panels(
        "random tanh networks", "2D: velocities (v1, v2)", "2D: v1 over time"
    )
    for k, (m, some) in enumerate(found.items()):
        for n, curve in enumerate(some[:6]):
            told = {f"m = {m}" if n == 0 else "_": (curve.lags + 1, np.maximum(curve.values, 1e-9))}
            lines(left, told, x="t", y="memory", logs="xy", color=COLOURS[k], alpha=0.7)
    names = ("inside: comes to rest", "the boundary: a cycle", "outside: from corner to corner")
    for k, (name, path) in enumerate(zip(names, paths, strict=True)):
        v = np.tanh(path)
        lines(middle, {name: (v[:, 0], v[:, 1])}, x="v1", y="v2", color=COLOURS[k])
        times = PACE * np.arange(len(v))
        lines(right, {name: (times[:6000], v[:6000, 0])}, x="time", y="v1", color=COLOURS[k])
    return figure


ROW = Row(
    id="I-F11a/b",
    title="Networks without a decaying memory",
    claim="random tanh RNNs have diverse, also non-decaying memories; a 2D one has a periodic one",
    run=run,
)
