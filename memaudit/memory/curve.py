"""A memory curve: what was measured at every lag, and what was concluded from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.interfaces import Status
from memaudit.numerics.verdict import SIGNAL_OVER_FLOOR, Decay
from memaudit.records import Floats, Integers, Record
from memaudit.sections import Beyond

if TYPE_CHECKING:
    import numpy as np

#: Of a linear model large and small inputs give one curve. One that saturates answers large inputs
#: by less than this share of it.
BOUNDED = 0.1
#: A floor that lies more decades than this below the curve is not drawn.
FLOOR_DECADES = 2.0
#: Horizons of the interval that are within this share of each other are one horizon.
SPREAD = 0.1
#: What is fed in use where nothing is known about the inputs.
UNIT_NOISE = "unit noise"
#: The kinds of decay, and what each says.
KINDS = {
    "memoryless": "No trace of an earlier input is seen in the answers: nothing rises above the "
    "floor.",
    "finite": "The memory ends after a fixed number of lags, the support, and is zero from there "
    "on, as in convolutions and in attention over a window.",
    "exponential": "The memory falls by the same share at every step, like exp(-rate t).",
    "polynomial": "The memory falls like a power of the lag, t^-exponent, more slowly than any "
    "exponential. Many exponentials together look the same inside a window.",
    "persistent": "The memory does not fall inside the window: it stays on a plateau, or swings "
    "evenly.",
    "growing": "The memory rises with the lag: an old input moves the answer more than a recent "
    "one.",
    "undetermined": "No kind of decay can be told: too few lags rise above the floor, or several "
    "kinds fit the curve equally well.",
}
#: Other words about curves.
TERMS = {
    "lag": "How many steps ago an input was fed. A memory curve has one value for every lag.",
    "window": "The lags that were looked at: from the first to the last that --horizon allows. The "
    "column of that name has those that the verdict rests on. A verdict is about its window, and "
    "says nothing about later lags.",
    "floor": "The numerical noise of a curve, in its own unit: what rounding, and the difference "
    "of two identical runs, leave where nothing is remembered. Values count as memory from ten "
    "times the floor on; where the horizon lies below that, it is shown as ?. --dtype float64 "
    "lowers the floor.",
    "supremum": "A memory curve takes, at every lag, the largest value over all inputs that were "
    "tried: directions times sizes. For linear models it is exact, for others a lower bound. "
    "--set 'amplitudes=[0.5,1,2]' tries inputs of the sizes that your data have.",
    "at worst": "The longest memory that any input has under heaviside, impulse or reversed, where "
    "it is longer than in use: over all sizes |x| together, or with inputs of one size, which is "
    "named. Beside it stands how large the inputs in use are: a size that never occurs says little "
    "about the model at work. The table by the size of the input has every size.",
    "interval": "The range in which the rate, or the exponent, of the fit lies.",
    "decay": "How a memory curve falls: " + ", ".join(KINDS) + ". Each of them can be explained.",
}


#: With no event in K trials its share is below 3 / K at 95 %.
RULE_OF_THREE = 3.0
#: With these nothing is known of the memory, whatever the curve looks like.
UNKNOWABLE = (Status.HIDDEN, Status.CHAOTIC, Status.UNSEEN)
#: With these the window ended before anything could be said about the horizon.
UNREAD = (
    *(Status.NOT_MEASURED, Status.BELOW_FLOOR, Status.TOO_FEW_LAGS),
    *(Status.NO_TOKENS, Status.NO_TOKENIZER, Status.UNKNOWN_TEXT, Status.TOO_SHORT),
    *(Status.NO_VARIATION, *UNKNOWABLE),
)


class HorizonStatus(StrEnum):
    """Where the horizon of a curve is, as far as the window shows."""

    INSIDE = "inside the window"
    BEYOND = "beyond the window"
    HIDDEN = "the floor hides the horizon"
    NONE = "there was no memory to see"


@dataclass(frozen=True, slots=True, eq=False)
class AtSize(Record):
    """What inputs of one size say: the largest value and the horizon, as a table shows it."""

    size: float
    peak: float
    kind: str
    horizon: int | None
    #: The last lag, where the horizon lies behind it.
    beyond: int | None = None

    @property
    def cell(self) -> int | Beyond | str | None:
        """The horizon as a table shows it."""
        if self.beyond is not None:
            return Beyond(self.beyond)
        return "?" if self.horizon is None and self.kind != "memoryless" else self.horizon

    @property
    def extent(self) -> float:
        """The horizon as a number, of one beyond the window infinity."""
        return math.inf if self.beyond is not None else float(self.horizon or 0)


def _no_values() -> np.ndarray:
    import numpy as np

    return np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Curve(Record):
    """One memory function: the supremum over probes at every lag, and what was concluded.

    `values` is a lower bound of the supremum unless `exact`; `median` is over the same probes.
    `floor` is the numerical noise in the unit of the values, `noise` the part of it by which two
    identical runs differed. `horizon` is the lag from which the
    envelope stays below epsilon times its maximum, None when that lies beyond the window, or
    below ten times the floor, where nobody can see it.
    `half_life` counts the lags from the largest value until the envelope has halved; where an
    exponential has not halved inside the window, it is log(2) / rate. `holder` is the size of the
    probe that holds the supremum at the last lag above the floor, None when it is exact.
    `at_edge` says that the supremum kept rising at the end of the amplitude grid. `trials` names
    what was fed where that has names, such as the words that were repeated. `sizes` are the same by
    the size of the inputs.

    Of the query driven `values` is a mean, which lies between `low` and `high` by a bootstrap over
    the sequences, and `spread` are the horizons that these two have, the second None beyond the
    window. `fed` says what stood in them, `reach` how large its numbers were, and `share`
    which part of the natural variation of an answer comes from inputs other than the present one.
    `unfed` says why the text that was given was not among them.
    `limit` says what ended the window before the lags that were asked for, and what to do.
    """

    query: str
    normalization: str
    lags: Integers
    values: Floats
    median: Floats
    floor: float
    status: Status
    decay: Decay
    horizon: int | None
    half_life: float | None
    epsilon: float
    probes: int
    exact: bool
    at_edge: bool
    noise: float = 0.0
    holder: float | None = None
    prefix: int | None = None
    trials: tuple[str, ...] = ()
    sizes: tuple[AtSize, ...] = ()
    low: Floats = field(default_factory=_no_values)
    high: Floats = field(default_factory=_no_values)
    fed: str = ""
    reach: float | None = None
    share: float | None = None
    spread: tuple[int, int | None] | None = None
    limit: str = ""
    unfed: Status = Status.OK

    def __post_init__(self) -> None:
        import numpy as np

        if not len(self.lags) == len(self.values) == len(self.median):
            raise ValueError("lags, values and median differ in count")
        if (np.diff(self.lags, prepend=-1) <= 0).any():
            raise ValueError("the lags do not rise from 0 on")

    def __repr__(self) -> str:
        half = "-" if self.half_life is None else f"{self.half_life:.4g}"
        facts = f"horizon {self.horizon_text}, half-life {half}"
        return f"Curve({clean(self.query)}: {self.decay}; {facts}, {len(self.values)} lags)"

    # What the window shows

    @property
    def last_lag(self) -> int:
        """The last lag that was measured; 0 when there is none."""
        return int(self.lags[-1]) if len(self.lags) else 0

    @property
    def remembers(self) -> bool:
        """Whether something of the past was seen, whatever the kind of its decay."""
        return bool(len(self.values)) and self.decay.kind != "memoryless"

    @property
    def above_floor(self) -> bool:
        """Whether anything rises above the floor."""
        return bool((self.values > max(0.0, self.floor)).any())

    def memory(self) -> tuple[np.ndarray, np.ndarray]:
        """Lags and values of memory.

        Lag 0 counts only where the verdict does: with an impulse it is the present, not memory.
        """
        first = 1 if self.decay.window is None else min(self.decay.window[0], 1)
        past = self.lags >= first
        return self.lags[past], self.values[past]

    @property
    def horizon_status(self) -> HorizonStatus:
        """Where the horizon is."""
        if self.horizon is not None:
            return HorizonStatus.INSIDE
        if self.status in UNKNOWABLE:
            return HorizonStatus.HIDDEN
        if self.looked_to is None:
            few = self.status is Status.TOO_FEW_LAGS and self.remembers
            return HorizonStatus.HIDDEN if few else HorizonStatus.NONE
        _, values = self.memory()
        if self.decay.kind not in ("persistent", "growing") and len(values):
            signal = SIGNAL_OVER_FLOOR * self.floor
            # The curve sinks into its floor before it has fallen to epsilon.
            if self.epsilon * values.max() < signal and values[-1] <= signal:
                return HorizonStatus.HIDDEN
        return HorizonStatus.BEYOND

    @property
    def input_ended(self) -> bool:
        """Whether the input was zero by the time that the answers were read."""
        return self.query in ENDING_IN_ZEROS

    @property
    def bounded_oscillation(self) -> bool:
        """Whether a constant input started a motion whose size does not grow with the input.

        What changes without end and stays bounded, oscillates: that is no memory of the input.
        """
        if self.query not in CONSTANT or self.decay.kind not in ("persistent", "growing"):
            return False
        if len(self.sizes) < 2 or self.horizon is not None:
            return False
        least, largest = self.sizes[0], self.sizes[-1]
        return largest.peak <= BOUNDED * least.peak and largest.size > least.size

    @property
    def least_size(self) -> float | None:
        """The smallest inputs that are remembered longest; None where sizes are one."""
        if len(self.sizes) < 2:
            return None
        held = [at.size for at in self.sizes if at.extent == self.longest]
        return min(held, default=self.holder)

    @property
    def longest(self) -> float:
        """The horizon, or that of inputs of one size where it is longer; infinity beyond."""
        own = math.inf if self.horizon_status is HorizonStatus.BEYOND else float(self.horizon or 0)
        return max((own, *(at.extent for at in self.sizes)))

    @property
    def looked_to(self) -> int | None:
        """The last lag of a curve in which memory was seen, None where there was none to see."""
        seen = self.status not in UNREAD and self.decay.kind != "memoryless"
        if self.status is Status.TOO_FEW_LAGS and len(self.values):
            # Too few for a kind of decay, and memory outlasts them all the same.
            seen = bool(self.values[-1] > SIGNAL_OVER_FLOOR * self.floor)
        return self.last_lag if seen and len(self.lags) else None

    @property
    def extent(self) -> tuple[int, float]:
        """Sorts by memory: growing, persistent, a horizon beyond the window, one inside."""
        rank = {"growing": 3, "persistent": 2}.get(self.decay.kind, 0)
        if rank == 0 and self.horizon is None and len(self.values):
            rank = int(self.values[-1] > SIGNAL_OVER_FLOOR * self.floor)
        return rank, float(self.horizon or 0)

    @property
    def inputs(self) -> str:
        """What was fed, without how many sequences of it; "" of a query that makes its inputs."""
        return self.fed.partition(", ")[0]

    def numbers(self) -> dict[str, tuple[float | None, float | None]]:
        """Every number with the lag that it lies beyond, if it does: it is infinite then.

        What was not seen is None. A half-life counts from the largest value on; a curve that stays
        or grows has had none so far.
        """
        import numpy as np

        decay, last = self.decay, self.looked_to
        far = None if last is None else float(last)
        beyond = far if self.horizon_status is HorizonStatus.BEYOND else None
        half, half_beyond = self.half_life, None
        if half is None and far is not None:
            lags, values = self.memory()
            if decay.kind in ("persistent", "growing"):
                half, half_beyond = math.inf, far
            elif len(values) and values.max() / 2 >= SIGNAL_OVER_FLOOR * self.floor:
                half, half_beyond = math.inf, far - float(lags[int(np.argmax(values))])
        return {
            "horizon": (self.horizon if beyond is None else math.inf, beyond),
            "horizon_beyond": (beyond, None),
            "half_life": (half, half_beyond),
            "rate": (decay.rate, None),
            "exponent": (decay.exponent, None),
            "support": (decay.support, None),
            "confidence": (decay.confidence if len(self.values) else None, None),
        }

    # Words, and what is drawn

    @property
    def horizon_cell(self) -> int | Beyond | str | None:
        """The horizon as a table shows it: "?" where the floor hides it."""
        match self.horizon_status:
            case HorizonStatus.BEYOND:
                return Beyond(self.last_lag)
            case HorizonStatus.HIDDEN:
                return "?"
            case _:
                return self.horizon

    @property
    def horizon_text(self) -> str:
        """The horizon in words: `43`, `> 512`, `?` where the floor hides it, `-` for none."""
        cell = self.horizon_cell
        return "-" if cell is None else str(cell)

    @property
    def remembered_text(self) -> str:
        """`139 steps`, `more than 512 steps`; "" where no number is known."""
        text = self.horizon_text.replace("> ", "more than ")
        return "" if text in ("-", "?") else f"{text} step{'' if text == '1' else 's'}"

    @property
    def spread_text(self) -> str:
        """`120 to 160`, `120 to more than 255`; "" where the interval leaves the horizon as it is.

        A number of steps is exact to a tenth at best, so less is not worth saying.
        """
        if self.spread is None:
            return ""
        low, high = self.spread
        if high is None:
            far = self.last_lag
            return f"{low} to more than {far}" if far - low > SPREAD * far else ""
        return f"{low} to {high}" if high - low > SPREAD * high else ""

    @property
    def window_text(self) -> str | None:
        """The lags that the verdict rests on."""
        pair = self.decay.window
        return None if pair is None else f"{pair[0]}-{pair[1]}"

    @property
    def probes_text(self) -> str:
        """How many probes were tried, what the supremum is worth, and the size that holds it."""
        if self.normalization == "none":  # tokens, not probe vectors
            return f"{self.probes} trial{'s' if self.probes != 1 else ''}"
        if self.exact:
            return f"{self.probes}, exact"
        if self.holder is None:
            return f"{self.probes}, lower bound"
        return f"{self.probes}, sup at |x| {self.holder:.3g}"

    @property
    def floor_shown(self) -> bool:
        """Whether the floor is reached by the curve, or near enough to be drawn."""
        positive = self.values[self.values > 0]
        if not len(positive) or not self.floor > 0:
            return False
        above = positive[positive > self.floor]
        least = float((above if len(above) else positive).min())
        reached = bool((self.values <= self.floor).any())
        return reached or math.log10(least / self.floor) < FLOOR_DECADES

    def fit(self) -> tuple[np.ndarray, np.ndarray]:
        """The fitted decay over its window: C exp(-rate t) or C t^-exponent; empty for others.

        A report holds rate or exponent. C is that of the envelope, which the fit was made to.
        """
        import numpy as np

        decay = self.decay
        nothing = np.zeros(0), np.zeros(0)
        if decay.window is None or (decay.rate is None and decay.exponent is None):
            return nothing
        inside = (self.lags >= max(decay.window[0], 1)) & (self.lags <= decay.window[1])
        upper = np.maximum.accumulate(self.values[::-1])[::-1]
        heights = (self.values if decay.kind == "growing" else upper)[inside]
        t, heights = self.lags[inside][heights > 0].astype(float), heights[heights > 0]
        if len(t) < 2:
            return nothing
        fall = (decay.rate or 0.0) * t if decay.exponent is None else decay.exponent * np.log(t)
        start = float(np.median(np.log(heights) + fall))
        few = np.unique(np.linspace(0, len(t) - 1, 40).round().astype(int))
        with np.errstate(over="ignore"):
            return t[few], np.exp(start - fall[few])


# Several curves together

#: Queries that read the answer while the input is zero.
ENDING_IN_ZEROS = ("impulse", "reversed")
#: Queries that repeat one input without end.
CONSTANT = ("heaviside", "repeat")


def blind_to_zeros(curves: Mapping[str, Curve], *, baseline: object = "zero") -> list[str]:
    """The queries that end in zeros, where all of them see nothing and another one does."""
    fed = [query for query in curves if query in ENDING_IN_ZEROS]
    blind = _blind(curves, ENDING_IN_ZEROS)
    return blind if baseline == "zero" and len(blind) == len(fed) else []


def blind_to_constants(curves: Mapping[str, Curve]) -> list[str]:
    """The queries that feed a constant and see nothing, where another one does."""
    return _blind(curves, CONSTANT)


def informative(curves: Mapping[str, Curve], *, baseline: object = "zero") -> dict[str, Curve]:
    """The curves without those that see nothing only because of what their query feeds."""
    blind = {*blind_to_zeros(curves, baseline=baseline), *blind_to_constants(curves)}
    return {query: curve for query, curve in curves.items() if query not in blind}


def _blind(curves: Mapping[str, Curve], group: tuple[str, ...]) -> list[str]:
    """The memoryless ones of a group of queries, unless all the others are, too."""
    if not any(curve.remembers for query, curve in curves.items() if query not in group):
        return []
    return [q for q, curve in curves.items() if q in group and curve.decay.kind == "memoryless"]


def longest_curves(layers: Mapping[str, Mapping[str, Curve]]) -> dict[str, Curve]:
    """Per query, the curve of the layer that remembers longest."""
    found: dict[str, Curve] = {}
    for query in dict.fromkeys(name for curves in layers.values() for name in curves):
        own = [curves[query] for curves in layers.values() if query in curves]
        found[query] = max(own, key=lambda curve: (curve.extent, curve.half_life or 0.0))
    return found


def longest_layers(layers: Mapping[str, Mapping[str, Curve]]) -> dict[str, str]:
    """Per query, the layer that remembers longest, where the window can tell it from the others.

    Layers that all remember beyond the window, or not at all, are alike.
    """
    found: dict[str, str] = {}
    for query in dict.fromkeys(name for curves in layers.values() for name in curves):
        extents = {layer: own[query].extent for layer, own in layers.items() if query in own}
        best = max(extents.values())
        first, *others = [layer for layer, extent in extents.items() if extent == best]
        if not others and best > (0, 0.0):
            found[query] = first
    return found
