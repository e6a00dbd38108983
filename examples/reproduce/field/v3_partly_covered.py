"""V-3: a hybrid model of which only a part can be run is reported as such."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.numerics.signals import seeded
from memaudit.report import Report

WIDTH, STATES = 8, 16
SAID = "MA002"


class Hybrid(nn.Module):
    """An LSTM, causal attention over its states, and a mixing layer, as many hybrids have them."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, STATES, batch_first=True)
        self.attention = nn.MultiheadAttention(STATES, 2, batch_first=True)
        self.mix = nn.Linear(STATES, STATES)
        self.double()
        with torch.no_grad():
            for weight in self.parameters():
                weight.normal_(0.0, 0.2, generator=generator)

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,M) to (B,T,D)."""
        states, _ = self.lstm(u)
        later = torch.ones(u.shape[1], u.shape[1], dtype=torch.bool).triu(1)
        told = {"attn_mask": later, "need_weights": False}
        seen, _ = self.attention(states, states, states, **told)
        return torch.tanh(self.mix(states + seen))


def audited(source: object) -> Report:
    """A quick scan."""
    asked = {"horizon": 64, "queries": ["impulse"], "probes": ["spectrum"], "level": "quick"}
    return memaudit.scan(source, **asked)


def from_file(model: nn.Module, parts: tuple[str, ...]) -> Report:
    """The report of a file with some parts of a model, which does not say how they are joined."""
    state = {k: v for k, v in model.state_dict().items() if k.startswith(parts)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file(state, path)
        return audited(path)


def run(effort: Effort) -> Outcome:
    """The same weights as a file, as a file of the recurrence alone, and as a whole model."""
    model = Hybrid(seeded(effort.seed))
    reports = {
        "the hybrid, from a file": from_file(model, ("lstm", "attention", "mix")),
        "its LSTM alone, from a file": from_file(model, ("lstm",)),
        "the hybrid, as a module": audited(memaudit.wrap(model, input_size=WIDTH)),
    }
    counted = sum(p.numel() for p in model.lstm.parameters())
    share = counted / sum(p.numel() for p in model.parameters())
    said = {n: [f.severity for f in r.findings if f.code == SAID] for n, r in reports.items()}
    part, alone, whole = reports.values()
    numbers = [Number(f"{n}: share that was run", r.subject.coverage) for n, r in reports.items()]
    numbers += [Number(f"{n}: {SAID}", ", ".join(s) or "not raised") for n, s in said.items()]
    numbers += [
        Number(f"{n}: decay under an impulse", r.memory["impulse"].decay.kind)
        for n, r in reports.items()
    ]
    numbers.append(Number("share of the LSTM by counting its weights", share))
    right = abs(part.subject.coverage - share) < 1e-12
    quiet = alone.subject.coverage == whole.subject.coverage == 1.0
    told = list(said.values())
    figure, (at,) = panels("memory under an impulse")
    curves = {n: (r.memory["impulse"].lags, r.memory["impulse"].values) for n, r in reports.items()}
    for style, (name, curve) in zip(("-", "--", "-"), curves.items(), strict=True):
        shown = {name: (curve[0], curve[1].clip(1e-10))}
        lines(at, shown, x="lag", y="|y(t)| / |x|", logs="y", linestyle=style)
    kinds = [r.memory["impulse"].decay.kind for r in reports.values()]
    return Outcome(
        holds=right and quiet and told == [["warning"], [], []],
        reason=f"from the file alone {100 * part.subject.coverage:.1f} % of the parameters are "
        f"run, the LSTM ({100 * share:.1f} % by counting), and {SAID} warns of it; it is silent "
        f"where all is run. It matters: the decay of the part is {kinds[0]}, that of the whole "
        f"model {kinds[2]}",
        numbers=tuple(numbers),
        settings={"inputs": WIDTH, "states": STATES, "heads": 2, "horizon": 64},
        figure=figure,
    )


ROW = Row(
    id="V-3",
    title="A hybrid that is partly covered",
    claim="a hybrid model whose layers are only partly covered is reported as such",
    run=run,
)
