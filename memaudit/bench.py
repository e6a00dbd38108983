"""Feeds the sequences of all queries through a subject in as few passes as it allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.devices import shortage
from memaudit.memory.result import Facts as Facts
from memaudit.numerics import signals
from memaudit.numerics.signals import Probes
from memaudit.rig import Rig, too_little_memory
from memaudit.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memaudit.contracts import AbstractQuery, Setting

#: Numbers (inputs and answers) of one pass; about a gigabyte with the temporaries. Sequential
#: models cost by passes more than by rows, so a pass should be as large as memory allows.
PASS_NUMBERS = 2**26
#: Tokens times parameters of one pass: some seconds of work, after which the progress moves and
#: Ctrl-C is heard. Fixed by size, not by the clock, so that the same audit gives the same numbers.
PASS_WORK, SMALL_MODEL = 2**35, 2**16
#: Every pass feeds silence and a repeated row besides: fewer probes than this would waste it.
FEWEST_PROBES = 4


class Batch:
    """Blocks of sequences stacked into one pass; a block that repeats another's start is shared."""

    def __init__(self, *, share: bool) -> None:
        self._share = share
        self._blocks: list[torch.Tensor] = []
        self._starts: list[int] = []

    def add(self, block: torch.Tensor) -> slice:
        """The rows at which this block's answers will stand."""
        length = block.shape[1]
        for start, other in zip(self._starts, self._blocks, strict=True):
            long_enough = len(other) == len(block) and other.shape[1] >= length
            same_length = other.shape[1] == length
            if (
                long_enough
                and (self._share or same_length)
                and torch.equal(other[:, :length], block)
            ):
                return slice(start, start + len(block))
        self._starts.append(sum(map(len, self._blocks)))
        self._blocks.append(block)
        return slice(self._starts[-1], self._starts[-1] + len(block))

    def stacked(self, length: int) -> torch.Tensor:
        """All blocks in one tensor, each held at its last value up to the common length."""
        return torch.cat([hold(block, length) for block in self._blocks])


def hold(block: torch.Tensor, length: int) -> torch.Tensor:
    """Sequences continued by their last value."""
    missing = length - block.shape[1]
    if missing <= 0:
        return block
    return torch.cat([block, block[:, -1:].expand(-1, missing, -1)], dim=1)


@dataclass(frozen=True, slots=True)
class Bench:
    """One subject under one setting, ready to run queries."""

    subject: Rig
    setting: Setting
    facts: Facts
    probes: Probes
    normalization: str
    advance: Callable[[int], None]
    #: What silence is, (D,); None for zeros.
    rest: torch.Tensor | None = None

    def tallies(self, queries: Sequence[AbstractQuery]) -> list[Tally]:
        """An empty tally for every query."""
        horizon = self.setting.horizon
        lags = signals.lag_grid(horizon) if self.subject.pooled else torch.arange(horizon)
        rounding = self.facts.rounding
        sweep = self.probes.sweep if self.facts.linear else 0
        tallies = [Tally(q, lags, self.normalization, rounding, sweep) for q in queries]
        # A pooled answer belongs to the end of a sequence, hidden states to every step of it.
        for name in () if self.subject.pooled else self.subject.layers():
            for tally in tallies:
                tally.hidden[name] = Tally(tally.query, lags, self.normalization, rounding, 0)
        return tallies

    def run(self, tallies: Sequence[Tally]) -> None:
        """Feed every probe to every query; what is in the tallies when it is cut short counts."""
        size, start = min(self._pass_size(tallies), len(self.probes.x)), 0
        while start < len(self.probes.x):
            if self._fits(tallies, slice(start, start + size)):
                start += size
            elif size > 1:
                size = self.subject.shrink(size, self._length(tallies))
            elif any(tally.hidden for tally in tallies):
                # The answers of the model come before those of its layers.
                for tally in tallies:
                    tally.hidden.clear()
            else:
                raise too_little_memory(self._length(tallies))

    def _fits(self, tallies: Sequence[Tally], rows: slice) -> bool:
        """Feed these probes; False, with the tallies as they were, when memory ran out."""
        marks = [tally.mark() for tally in tallies]
        try:
            with shortage():
                self._feed(tallies, rows)
        except (MemoryError, KeyboardInterrupt) as stop:
            for tally, mark in zip(tallies, marks, strict=True):
                tally.rewind(mark)
            if isinstance(stop, KeyboardInterrupt):
                raise
            return False
        return True

    def _feed(self, tallies: Sequence[Tally], rows: slice) -> None:
        x = self.probes.x[rows].to(self.subject.device, self.subject.dtype)
        amplitude = self.probes.amplitude[rows]
        if self.subject.pooled:
            for tally in tallies:
                self._pooled(tally, x, amplitude)
        else:
            self._together(tallies, x, amplitude)

    def cost(self, tallies: Sequence[Tally]) -> int:
        """Tokens that `run` will feed, for the progress bar."""
        if self.subject.pooled:
            return sum(int((self._times(t) + 1).sum()) for t in tallies) * len(self.probes.x)
        return len(self.probes.x) * self._rows_per_probe(tallies) * self._length(tallies)

    def _pass_size(self, tallies: Sequence[Tally]) -> int:
        """Probes that go into one pass."""
        width = (self.subject.input_size or 1) + 2 * self.facts.outputs
        tokens = self._length(tallies) * self._rows_per_probe(tallies)
        work = tokens * max(self.subject.identity.parameters, SMALL_MODEL)
        return max(1, min(PASS_NUMBERS // (width * tokens), max(PASS_WORK // work, FEWEST_PROBES)))

    def _rows_per_probe(self, tallies: Sequence[Tally]) -> int:
        return 1 if self.subject.pooled else len(tallies)

    def _length(self, tallies: Sequence[Tally]) -> int:
        horizon = self.setting.horizon
        longest = max(t.query.inputs(self._sample(), horizon).shape[1] for t in tallies)
        # A model that looks ahead must not see the end of the window from inside it.
        return longest if self.facts.causal else longest + horizon

    def _sample(self) -> torch.Tensor:
        return self.probes.x[:1]

    def _together(self, tallies: Sequence[Tally], x: torch.Tensor, amplitude: torch.Tensor) -> None:
        horizon, batch = self.setting.horizon, Batch(share=self.facts.causal)
        length = self._length(tallies)
        order = sorted(tallies, key=lambda t: -t.query.inputs(x[:1], horizon).shape[1])
        plan = []
        for tally in order:
            reference = tally.query.reference(x, horizon)
            against = None if reference is None else batch.add(reference)
            plan.append((tally, batch.add(tally.query.inputs(x, horizon)), against))
        silence = x.new_zeros(1, length, x.shape[1])
        stacked = batch.stacked(length)
        # The first row twice: identical runs that differ show the machine's own noise.
        sequences = self._rested(torch.cat([silence, stacked, stacked[:1]]))

        def read(answers: torch.Tensor, layer: str | None = None) -> None:
            noise = float(torch.nan_to_num((answers[-1] - answers[1]).abs()).amax())
            for tally, rows, against in plan:
                base = answers[:1] if against is None else answers[1:-1][against]
                into = tally if layer is None else tally.hidden[layer]
                self._read(into, x, amplitude, answers[1:-1][rows], base, noise)
            # A long pass through a deep model is told layer by layer.
            self.advance(sequences.shape[0] * length // (len(tallies[0].hidden) + 1))

        if tallies[0].hidden:
            read(self.subject.listen(sequences, lambda name, hidden: read(hidden, name)))
        else:
            read(self.subject.respond(sequences))

    def _read(
        self,
        tally: Tally,
        x: torch.Tensor,
        amplitude: torch.Tensor,
        answers: torch.Tensor,
        base: torch.Tensor,
        noise: float,
    ) -> None:
        later, earlier = tally.query.moments(tally.lags, self.setting.horizon)
        before = tally.query.prefix(self.setting.horizon)
        drift = None
        if before >= 2:
            at = self._last_step(before)
            last = difference(answers, base, slice(at, at + 1), slice(at - 1, at))
            drift = last.abs().amax((1, 2))
        readings = difference(answers, base, as_slice(later), as_slice(earlier))
        low, high = answers[:, : int(later.amax()) + 1].flatten(1).aminmax(dim=1)
        loudest = torch.maximum(-low, high)
        if len(base) == len(answers):  # a reference run of its own rounds as well
            low, high = base[:, : int(later.amax()) + 1].flatten(1).aminmax(dim=1)
            loudest = torch.maximum(loudest, torch.maximum(-low, high))
        loudest = torch.nan_to_num(loudest, posinf=0.0)
        tally.add(
            float64(x), amplitude, readings, loudest=float64(loudest), noise=noise, drift=drift
        )

    def _pooled(self, tally: Tally, x: torch.Tensor, amplitude: torch.Tensor) -> None:
        """A pooled model answers once: lag t is read from the prefixes that end at its moments."""
        horizon = self.setting.horizon
        inputs = tally.query.inputs(x, horizon)
        silence = inputs.new_zeros(1, *inputs.shape[1:])
        reference = tally.query.reference(x, horizon)
        against = inputs[:0] if reference is None else reference
        sequences = self._rested(torch.cat([silence, inputs, against, inputs[:1]]))
        times = self._times(tally)
        answers = None
        for time in times.tolist():
            answer = self.subject.respond(sequences[:, : time + 1])
            if answers is None:
                answers = answer.new_zeros(len(sequences), int(times[-1]) + 1, answer.shape[-1])
            answers[:, time] = answer
            self.advance(len(x) * (time + 1))
        assert answers is not None
        noise = float((answers[-1] - answers[1]).abs().amax())
        mine = answers[1 : 1 + len(x)]
        base = answers[:1] if reference is None else answers[1 + len(x) : 1 + 2 * len(x)]
        self._read(tally, x, amplitude, mine, base, noise)

    def _rested(self, sequences: torch.Tensor) -> torch.Tensor:
        """Sequences on top of what silence is."""
        return sequences if self.rest is None else sequences + self.rest.to(sequences)

    def _last_step(self, before: int) -> int:
        """The step of the prefix whose change tells whether the state has settled.

        A model that looks ahead sees the end of the prefix before it comes.
        """
        return before - 1 if self.facts.causal else max(before - 1 - before // 4, 1)

    def _times(self, tally: Tally) -> torch.Tensor:
        later, earlier = tally.query.moments(tally.lags, self.setting.horizon)
        before = tally.query.prefix(self.setting.horizon)
        at = self._last_step(before)
        extra = torch.tensor([at - 1, at] if before >= 2 else [], dtype=torch.long)
        return torch.cat([later, later if earlier is None else earlier, extra]).unique()


def as_slice(times: torch.Tensor | None) -> slice | torch.Tensor | None:
    """Consecutive times as a slice, which reads without a copy."""
    if times is None or len(times) < 2 or int(times[-1] - times[0]) != len(times) - 1:
        return times
    return slice(int(times[0]), int(times[-1]) + 1)


def difference(
    answers: torch.Tensor,
    base: torch.Tensor,
    later: slice | torch.Tensor | None,
    earlier: slice | torch.Tensor | None,
) -> torch.Tensor:
    """a[later] - a[earlier] of a = answers - base, in float64 and with one large temporary.

    Neighbouring answers are subtracted first: that is exact, whatever their common size.
    """
    readings = float64(answers[:, later], own=True)
    offset = float64(base[:, later])
    if earlier is not None:
        readings -= answers[:, earlier].to(readings.device)
        offset = offset - float64(base[:, earlier])
    return readings.sub_(offset)


def float64(tensor: torch.Tensor, *, own: bool = False) -> torch.Tensor:
    """The tensor in float64, on its own device where that has float64; `own` forces a copy."""
    if tensor.device.type == "mps":
        tensor = tensor.cpu()
    return tensor.to(torch.float64, copy=own)
