"""A model looked at and run once: what it takes, what it answers, and which layers it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit_transformers.anatomy import Core, advertised_length, find_core, find_table
from memaudit_transformers.blocks import Blocks, watched
from memaudit_transformers.configuring import text_config
from memaudit_transformers.library import TROUBLE
from memaudit_transformers.positions import possible_limits
from memaudit_transformers.readout import Readout, read_out
from memaudit_transformers.recurrent import Recurrent, find_recurrences
from memaudit_transformers.running import Machine

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memaudit_transformers.settings import Settings

#: Rows and steps of the trial: different numbers, so that no axis is taken for another.
ROWS, STEPS = 2, 5


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """What one look and one run tell about a model."""

    machine: Machine
    part: Core
    table: nn.Module | None
    width: int
    vocabulary: int | None
    advertised: int | None
    limits: tuple[int, ...]
    pooled: bool
    blocks: Blocks
    recurrents: tuple[Recurrent, ...]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.machine.core.parameters()).device

    @property
    def readout(self) -> Readout:
        """What is read."""
        return self.machine.readout


def examine(model: Any, dtype: torch.dtype, settings: Settings) -> Examined:
    """Look at a model, and run it once on a few steps; E_UNSUPPORTED when that does not work."""
    part = find_core(model)
    readout = read_out(model, part, settings)
    recurrents = find_recurrences(part.module)
    machine = Machine(model, part.module, readout, dtype, recurrent=bool(recurrents))
    table = find_table(model, part.module)
    width = _width(model, table)
    blocks, answer = _trial(machine, width)
    advertised = advertised_length(model.config)
    rows = None if table is None else int(table.get_parameter("weight").shape[0])
    return Examined(
        machine=machine,
        part=part,
        table=table,
        width=width,
        vocabulary=rows,
        advertised=advertised,
        limits=possible_limits(part.module, advertised),
        pooled=answer.ndim == 2,
        blocks=blocks,
        recurrents=recurrents,
    )


def _width(model: Any, table: nn.Module | None) -> int:
    """How wide an embedding is: by the table, else by the config."""
    if table is not None:
        return int(table.get_parameter("weight").shape[1])
    config = text_config(model.config)
    for name in ("embedding_size", "hidden_size", "d_model", "n_embd"):
        width = getattr(config, name, None)
        if isinstance(width, int) and width > 0:
            return width
    raise _unsupported(model, "it has no embedding table, and its config states no width")


def _trial(machine: Machine, width: int) -> tuple[Blocks, Tensor]:
    parameter = next(machine.core.parameters())
    inputs = torch.linspace(-1, 1, ROWS * STEPS * width, dtype=torch.float64)
    inputs = inputs.reshape(ROWS, STEPS, width).to(parameter.device, machine.dtype)
    try:
        with watched(machine.core, (ROWS, STEPS)) as watch:
            answer = machine.run(inputs)
    except TROUBLE as error:
        raise _unsupported(machine.model, f"a trial failed: {error}") from None
    if answer is None:
        if machine.readout.logits:
            fact = f"{type(machine.model).__name__} answers no logits"
            raise ArgumentError(f"output=logits is not possible: {fact}", hint="output=hidden")
        raise _unsupported(machine.model, "its answer holds no hidden state")
    shape = tuple(answer.shape)
    sequence = len(shape) == 3 and shape[:2] == (ROWS, STEPS)
    scores = machine.readout.logits and len(shape) == 2 and shape[0] == ROWS
    if not sequence and not scores:
        fact = f"it answers {ROWS} sequences of {STEPS} steps by the shape {shape}"
        raise _unsupported(machine.model, fact)
    return watch.blocks(), answer


def _unsupported(model: Any, fact: str) -> SourceError:
    return SourceError(
        "E_UNSUPPORTED",
        f"{type(model).__name__} cannot be audited: {clean(fact, limit=500)}",
        hint="wrap what turns a sequence into answers: memaudit.wrap(function, input_size=...)",
        stage="build",
    )
