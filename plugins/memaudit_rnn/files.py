"""Opening a recurrent model from a file of weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from memaudit.errors import ArgumentError, SourceError, clean, listed
from memaudit.loading.filling import require_finite
from memaudit.report import Identity
from memaudit_rnn import describing
from memaudit_rnn.facts import Facts, read_facts
from memaudit_rnn.host import RnnHost
from memaudit_rnn.keys import find_stacks, lookalikes
from memaudit_rnn.network import RecurrentNetwork, build_linear, build_table
from memaudit_rnn.placing import place
from memaudit_rnn.reading import read_stacks
from memaudit_rnn.readout import read_out
from memaudit_rnn.stack import Stack, build
from memaudit_rnn.subject import RnnSubject
from memaudit_rnn.surroundings import Surroundings, layers_among

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from memaudit.contracts import AbstractSubject, Request
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit_rnn.settings import Settings

FAMILY = "rnn"


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that building a subject of one file needs to know."""

    text: str
    checkpoint: Checkpoint
    device: torch.device
    dtype: torch.dtype
    settings: Settings
    facts: Facts
    alike: tuple[str, ...]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors of the file by name."""
        return self.checkpoint.tensors

    @property
    def nonlinearity(self) -> str | None:
        """The nonlinearity as the user or the file states it."""
        return self.settings.nonlinearity or self.facts.nonlinearity

    def assumed(self, *stacks: Stack) -> dict[str, str]:
        """What every stack alone rests on."""
        vanilla = any(stack.cell == "RNN" for stack in stacks)
        nonlinearity = describing.assumed_nonlinearity(self.nonlinearity) if vanilla else {}
        return {**nonlinearity, **describing.assumed_orientation(stacks)}


def open_file(
    text: str, checkpoint: Checkpoint, request: Request, settings: Settings
) -> AbstractSubject:
    """The subject, or the host, behind a checkpoint."""
    tensors = checkpoint.tensors
    alike = tuple(lookalikes(tensors))
    groups = find_stacks(tensors)
    if not groups:
        raise _no_recurrence(tensors, alike)
    stacks = _distinct(read_stacks(groups, tensors, alike))
    check_nonlinearity(settings, stacks)
    facts = read_facts(checkpoint.config, checkpoint.metadata)
    dtype = request.dtype or (torch.float32 if request.device.type == "mps" else torch.float64)
    opening = Opening(text, checkpoint, request.device, dtype, settings, facts, alike)
    if len(stacks) > 1:
        names = listed(stack.name for stack in stacks)
        note = f"how {names} are joined is not stored in the file: each is run by itself"
        return _host(opening, stacks, notes=(note,))
    facts.check(stacks[0])
    layers, others = layers_among(tensors, stacks[0].keys.keys.values())
    around = place(stacks[0], layers, others, settings)
    if not around.whole:
        return _host(opening, stacks, notes=around.notes)
    return _whole(opening, stacks[0], around)


def check_nonlinearity(settings: Settings, stacks: Sequence[Stack]) -> None:
    """Refuse the option where no stack has a choice of nonlinearity."""
    if settings.nonlinearity is not None and all(stack.cell != "RNN" for stack in stacks):
        cells = " and ".join(sorted({stack.cell for stack in stacks}))
        raise ArgumentError(
            f"nonlinearity={settings.nonlinearity} is for vanilla RNNs; this is {cells}"
        )


def _whole(opening: Opening, stack: Stack, around: Surroundings) -> RnnSubject:
    """A model that is run from end to end."""
    reading = read_out(around, opening.settings, opening.facts)
    run = replace(around, head=around.head if reading.logits else None)
    used = [*stack.keys.keys.values(), *(key for layer in run.layers() for key in layer.keys)]
    options = opening.settings
    assumed = {
        **opening.assumed(stack),
        **describing.assumed_around(stack, run, encoder=options.encoder, head=options.head),
        **reading.assumed,
    }
    notes = (*around.notes, *reading.notes)
    identity = _identity(opening, (stack,), used, assumed, notes)
    identity = replace(identity, description=describing.describe(stack, run))
    return RnnSubject(_network(opening, stack, run, reading.pool), identity)


def _host(opening: Opening, stacks: Sequence[Stack], notes: tuple[str, ...]) -> RnnHost:
    """A model whose recurrent layers are run one by one."""
    used = [key for stack in stacks for key in stack.keys.keys.values()]
    identity = _identity(opening, stacks, used, opening.assumed(*stacks), notes)
    parts: dict[str, RnnSubject] = {}
    for stack in stacks:
        network = _network(opening, stack, Surroundings(), opening.settings.pool or "none")
        own = replace(
            identity,
            parameters=describing.count(opening.tensors, stack.keys.keys.values()),
            description=stack.title,
            coverage=1.0,
            recurrences=stack.recurrences(),
            assumed=opening.assumed(stack),
            notes=(),
        )
        parts[stack.name] = RnnSubject(network, own)
    return RnnHost(parts, replace(identity, description=describing.describe_host(stacks)))


def _network(opening: Opening, stack: Stack, around: Surroundings, pool: str) -> RecurrentNetwork:
    device, dtype, tensors = opening.device, opening.dtype, opening.tensors
    nonlinearity = opening.nonlinearity or "tanh"
    return RecurrentNetwork(
        build(stack, tensors, nonlinearity=nonlinearity, device=device, dtype=dtype),
        table=build_table(around.table, tensors, device, dtype),
        encoder=build_linear(around.encoder, tensors, device, dtype),
        head=build_linear(around.head, tensors, device, dtype),
        pool=pool,
        layers=tuple(layer.layer for layer in stack.recurrences()),
    )


def _identity(
    opening: Opening,
    stacks: Sequence[Stack],
    used: list[str],
    assumed: dict[str, str],
    notes: tuple[str, ...],
) -> Identity:
    """The identity of the whole file; refuses weights that are not finite."""
    tensors = opening.tensors
    require_finite({name: tensors[name] for name in used}, source=opening.text)
    total = describing.count(tensors)
    unused = describing.unused_notes(tensors, used, opening.alike)
    return Identity(
        source=opening.text,
        adapter=FAMILY,
        family=FAMILY,
        parameters=total,
        dtype=describing.dtype_name(opening.dtype),
        device=str(opening.device),
        sha256=opening.checkpoint.sha256,
        coverage=describing.count(tensors, used) / total,
        recurrences=tuple(layer for stack in stacks for layer in stack.recurrences()),
        assumed=assumed,
        notes=(*opening.checkpoint.notes, *notes, *unused, *opening.settings.notes()),
    )


def _distinct(stacks: list[Stack]) -> list[Stack]:
    """The stacks with different names: where stripping made two alike, the prefix stays.

    Prefixes may be alike too once they are made safe to print: then the number tells them apart.
    """
    often = Counter(stack.name for stack in stacks)
    named: dict[str, Stack] = {}
    for number, stack in enumerate(stacks):
        full = clean(stack.keys.prefix).rstrip("._") or f"{stack.name}_{number}"
        kind = "_cell" if stack.keys.is_cell and often[full] else ""
        name = stack.name if often[stack.name] == 1 else full + kind
        while name in named:
            name = f"{name}_{number}"
        named[name] = replace(stack, name=name)
    return list(named.values())


def _no_recurrence(tensors: Mapping[str, Tensor], alike: Sequence[str]) -> SourceError:
    shown = listed(clean(f"{name} {tuple(tensor.shape)}") for name, tensor in tensors.items())
    close = f"; {listed(map(clean, alike))} look recurrent but have another form" if alike else ""
    return SourceError(
        "E_UNSUPPORTED",
        f"no recurrent layer of torch (weight_ih, weight_hh) is among its tensors: {shown}{close}",
        hint="memaudit list adapters shows what else can be opened",
        stage="recognise",
    )
