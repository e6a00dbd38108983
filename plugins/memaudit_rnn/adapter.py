"""The adapter of torch's recurrent layers: files of weights, demos, and modules in memory."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor, nn

from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, listed, nearest
from memaudit.loading.digest import digest_tensors
from memaudit.loading.finite import require_finite
from memaudit.results import Identity
from memaudit_rnn.network import (
    RecurrentNetwork,
    build_linear,
    build_table,
    can_stay,
    made_weights,
    recurrent_layers,
    told_form,
    twin,
)
from memaudit_rnn.placement import (
    BACK_SIDE,
    FRONT_SIDE,
    Surroundings,
    layers_among,
    likely_side,
    place,
    read_out,
)
from memaudit_rnn.recognition import (
    Facts,
    Stack,
    build,
    find_stacks,
    is_parametrized,
    lookalikes,
    read_facts,
    read_stack,
    read_stacks,
)
from memaudit_rnn.stored_decays import stored_decays
from memaudit_rnn.subject import RnnHost, RnnSubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memaudit.contracts import StoredDecay
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.loading.source import Source
    from memaudit_rnn.placement import Layer


OPTIONS: Final[dict[str, str]] = {
    "nonlinearity": "tanh or relu, for vanilla RNNs: the weights do not say which (default tanh)",
    "encoder": "auto, none, or the name of the embedding or linear layer in front (default auto)",
    "head": "auto, none, or the name of the linear layer behind (default auto)",
    "output": "auto, hidden or logits: what is read; language models give hidden (default auto)",
    "pool": "none, final, last, mean or max: one answer per sequence (default none)",
    "batch_first": "how the model was trained; recorded only, sequences are fed as (B,T,D)",
}
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "nonlinearity": ("tanh", "relu"),
    "output": ("auto", "hidden", "logits"),
    "pool": ("none", "final", "last", "mean", "max"),
    "batch_first": ("true", "false"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as given; None where the user left the choice to the source."""

    nonlinearity: str | None = None
    encoder: str = "auto"
    head: str = "auto"
    output: str = "auto"
    pool: str | None = None
    batch_first: str | None = None

    def notes(self) -> tuple[str, ...]:
        """What was accepted without changing a number."""
        if self.batch_first is None:
            return ()
        return (f"batch_first={self.batch_first} is recorded; sequences are fed as (B,T,D)",)


def read_settings(options: Mapping[str, Any]) -> Settings:
    """The settings behind the user's options; unknown names and values are refused."""
    values: dict[str, str] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
        text = "none" if value is None else str(value)
        choices = CHOICES.get(name)
        if choices is not None:
            text = text.lower()
            if text not in choices:
                raise ArgumentError(
                    f"{name}={clean(value)!r} is not possible", hint=nearest(text, choices)
                )
        values[name] = text
    return Settings(**values)


UNSAID = "not stored in the file"


def count(tensors: Mapping[str, Tensor], names: Iterable[str] | None = None) -> int:
    """Floating-point parameters among the named tensors, or among all."""
    chosen = tensors.values() if names is None else [tensors[name] for name in set(names)]
    return sum(tensor.numel() for tensor in chosen if tensor.is_floating_point())


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype as reports write it: float64."""
    return str(dtype).removeprefix("torch.")


def describe(stack: Stack, around: Surroundings) -> str:
    """One line: kind, sizes, and what stands around the stack."""
    words = [stack.title]
    if around.table is not None:
        words.append(f"embedding of {around.table.rows} tokens")
    if around.encoder is not None:
        words.append(f"linear encoder from {around.encoder.columns}")
    if around.head is not None:
        words.append(f"head to {around.head.rows}")
    return ", ".join(words)


def describe_host(stacks: Iterable[Stack]) -> str:
    """One line for a model that is audited layer by layer."""
    return "host of " + listed((f"{clean(x.name)} ({x.title})" for x in stacks), joint="; ")


def assumed_around(
    stack: Stack, around: Surroundings, *, encoder: str, head: str
) -> dict[str, str]:
    """What was taken for certain about the surroundings although the file does not state it."""
    assumed: dict[str, str] = {}
    front = around.table or around.encoder
    if encoder == "auto" and front is not None:
        kind = "embedding" if around.table is not None else "linear, no nonlinearity behind it"
        assumed["encoder"] = _placed(stack, front, kind, "encoder")
    if head == "auto" and around.head is not None:
        assumed["head"] = _placed(stack, around.head, "linear, no nonlinearity around it", "head")
    return assumed


def assumed_nonlinearity(stated: str | None) -> dict[str, str]:
    """The nonlinearity of a vanilla RNN, when nobody stated it."""
    if stated is not None:
        return {}
    return {"nonlinearity": f"tanh ({UNSAID}; --set nonlinearity=relu to change)"}


def assumed_orientation(stacks: Iterable[Stack]) -> dict[str, str]:
    """How weights lie that do not have torch's own names: square ones could be transposed."""
    foreign = [
        clean(key)
        for stack in stacks
        for place, key in stack.keys.keys.items()
        if place.role == "weight" and key.removeprefix(stack.keys.prefix).startswith("w_")
    ]
    if not foreign:
        return {}
    return {"orientation": f"rows are gates as in torch ({listed(foreign)}; {UNSAID})"}


def unused_notes(
    tensors: Mapping[str, Tensor], used: Iterable[str], alike: Iterable[str]
) -> tuple[str, ...]:
    """Which tensors are not run; those that look recurrent are named first and by themselves."""
    taken = set(used)
    recurrent = [name for name in alike if name not in taken]
    taken.update(recurrent)
    rest = [n for n, tensor in tensors.items() if n not in taken and tensor.is_floating_point()]
    notes: list[str] = []
    if recurrent:
        names = listed(map(clean, recurrent))
        notes.append(f"recurrent-looking tensors that were not matched: {names}")
    if rest:
        notes.append(f"not run: {listed(map(clean, rest))}")
    return tuple(notes)


def _placed(stack: Stack, layer: Layer, kind: str, option: str) -> str:
    side = FRONT_SIDE if option == "encoder" else BACK_SIDE
    named = likely_side(layer.name, stack.keys.prefix) == side
    reason = "by name and shape" if named else "by shape"
    return f"{clean(layer.name)} ({kind}; {reason}, {UNSAID}; --set {option}=none to change)"


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
        nonlinearity = assumed_nonlinearity(self.nonlinearity) if vanilla else {}
        return {**nonlinearity, **assumed_orientation(stacks)}


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
        **assumed_around(stack, run, encoder=options.encoder, head=options.head),
        **reading.assumed,
    }
    notes = (*around.notes, *reading.notes)
    identity = _identity(opening, (stack,), used, assumed, notes)
    identity = replace(identity, description=describe(stack, run))
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
            parameters=count(opening.tensors, stack.keys.keys.values()),
            description=stack.title,
            coverage=1.0,
            recurrences=stack.recurrences(),
            assumed=opening.assumed(stack),
            notes=(),
        )
        parts[stack.name] = RnnSubject(network, own)
    return RnnHost(parts, replace(identity, description=describe_host(stacks)))


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
    total = count(tensors)
    unused = unused_notes(tensors, used, opening.alike)
    return Identity(
        source=opening.text,
        adapter=FAMILY,
        family=FAMILY,
        parameters=total,
        dtype=dtype_name(opening.dtype),
        device=str(opening.device),
        sha256=opening.checkpoint.sha256,
        coverage=count(tensors, used) / total,
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


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass(frozen=True, slots=True)
class Found:
    """One recurrent layer of a module: its shape and a copy of its weights.

    `forms` are those of the weights that a retrofit has changed; `kept` is the layer itself where
    a copy of it can be run in them.
    """

    stack: Stack
    tensors: dict[str, Tensor]
    nonlinearity: str
    notes: tuple[str, ...]
    forms: dict[str, str]
    kept: nn.RNNBase | None = None

    def parameters(self) -> int:
        """How many weights it has."""
        return count(self.tensors)


def open_module(
    text: str, module: nn.Module, request: Request, settings: Settings
) -> AbstractSubject:
    """The subject of a bare recurrent layer, or the host of a module that contains some."""
    layers = recurrent_layers(module)
    if not layers:
        raise SourceError(
            "E_UNSUPPORTED",
            f"{text} contains no nn.RNN, nn.GRU, nn.LSTM or cell of them",
            hint="audit it as a function: memaudit.wrap(module, input_size=...)",
        )
    _check_options(settings)
    dropped = [name for name, _ in module.named_parameters() if name.endswith("_raw")]
    subjects = {}
    for path, layer in layers.items():
        found = _find(path, layer, dropped, request.dtype)
        subjects[found.stack.name] = _subject(text, found, request, settings)
    if "" in layers:
        return next(iter(subjects.values()))
    return RnnHost(subjects, _host_identity(text, module, subjects, settings))


def _find(path: str, layer: nn.Module, dropped: list[str], dtype: torch.dtype | None) -> Found:
    """The weights of one layer, read from a copy: a parametrization may change when it is read."""
    try:
        layer_copy = copy.deepcopy(layer).eval()
    except RuntimeError:  # the older weight norm keeps a tensor that cannot be copied
        layer_copy = layer
    names = NAMES
    if isinstance(layer_copy, nn.RNNBase):
        names = tuple(layer_copy._flat_weights_names)
    prefix = f"{path}." if path else ""
    values = {f"{prefix}{name}": getattr(layer_copy, name, None) for name in names}
    tensors = {name: t.detach().clone() for name, t in values.items() if isinstance(t, Tensor)}
    stack = read_stack(find_stacks(tensors)[0], tensors, dropped)
    own = not type(layer).forward.__module__.startswith("torch.")
    kept = layer if isinstance(layer, nn.RNNBase) and not own and can_stay(layer, dtype) else None
    forms = _forms(layer)
    end = "" if kept else "; it is run as the plain weight that this makes"
    notes = tuple(f"{prefix}{name} is kept as {form}{end}" for name, form in forms.items())
    if own:
        title = clean(type(layer).__name__.removeprefix("Parametrized"))
        notes += (f"{title} has a forward of its own; its weights are run as a plain {stack.cell}",)
    named = replace(stack, name=path or stack.name)
    return Found(named, tensors, _nonlinearity(layer), notes, forms, kept)


def _forms(layer: nn.Module) -> dict[str, str]:
    """The forms of the retrofitted weights."""
    told = {name: told_form(layer, name) for name in made_weights(layer)}
    return {name: form for name, form in told.items() if form}


def _nonlinearity(layer: nn.Module) -> str:
    return str(getattr(layer, "nonlinearity", "tanh"))


def _subject(text: str, found: Found, request: Request, settings: Settings) -> RnnSubject:
    require_finite(found.tensors, source=text)
    weight = next(iter(found.tensors.values()))
    dtype = request.dtype or weight.dtype
    made = {"nonlinearity": found.nonlinearity, "device": weight.device, "dtype": dtype}
    if found.kept is None:
        stack = build(found.stack, found.tensors, **made)
    else:
        stack = twin(found.kept, dtype)
    recurrences = found.stack.recurrences()
    identity = Identity(
        source=text,
        adapter="rnn",
        family="rnn",
        parameters=found.parameters(),
        dtype=dtype_name(dtype),
        device=str(weight.device),
        sha256=digest_tensors(found.tensors),
        description=found.stack.title,
        recurrences=recurrences,
        notes=(*found.notes, *settings.notes()),
    )
    layers = tuple(layer.layer for layer in recurrences)
    # A cell is run as the first layer of a stack.
    end = "_l0" if found.stack.keys.is_cell else ""
    forms = {f"{name}{end}": form for name, form in found.forms.items() if found.kept is None}
    pool = settings.pool or "none"
    network = RecurrentNetwork(stack, pool=pool, layers=layers, forms=forms)
    return RnnSubject(network, identity)


def _host_identity(
    text: str, module: nn.Module, parts: dict[str, RnnSubject], settings: Settings
) -> Identity:
    first = next(iter(parts.values())).identity
    total = sum(parameter.numel() for parameter in module.parameters())
    used = sum(part.identity.parameters for part in parts.values())
    inside = "; ".join(f"{name} ({part.identity.description})" for name, part in parts.items())
    return replace(
        first,
        parameters=total,
        description=f"host of {inside}",
        coverage=min(1.0, used / max(total, 1)),
        recurrences=tuple(r for part in parts.values() for r in part.identity.recurrences),
        notes=(
            f"only the recurrent layers of {text} are run: {', '.join(parts)}",
            *(note for part in parts.values() for note in part.identity.notes),
        ),
    )


def _check_options(settings: Settings) -> None:
    """A module states its own nonlinearity, and nothing of it but the recurrent layers is run."""
    given = {
        "nonlinearity": settings.nonlinearity is not None,
        "encoder": settings.encoder not in ("auto", "none"),
        "head": settings.head not in ("auto", "none"),
        "output": settings.output == "logits",
    }
    for name, wrong in given.items():
        if wrong:
            raise ArgumentError(f"{name} is an option of files, not of modules in memory")


STRENGTH = 10
#: A module that is a recurrent layer: its own class says which axis is time.
CERTAIN = 20
FILES = ("path", "demo", "hub")


class RnnAdapter(AbstractAdapter):
    """nn.RNN, nn.GRU, nn.LSTM and their cells, alone or with what certainly surrounds them."""

    name: ClassVar[str] = "rnn"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source has recurrent weights."""
        if source.kind == "module":
            layers = recurrent_layers(source.module)
            return Claim(FAMILY, CERTAIN if "" in layers else STRENGTH) if layers else None
        if source.kind not in FILES:
            return None
        names = source.checkpoint.tensors
        found = find_stacks(names) or any(is_parametrized(name) for name in names)
        return Claim(FAMILY, STRENGTH) if found else None

    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The subject, with the weights of the source and no others."""
        try:
            settings = read_settings(request.options)
            if source.kind == "module":
                return open_module(source.text, source.module, request, settings)
            if source.kind not in FILES:
                what = "files, hub repositories and modules"
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"the rnn adapter opens {what}, not a {source.kind} source",
                    hint="download the file and give its path",
                )
            return open_file(source.text, source.checkpoint, request, settings)
        except MemauditError as error:
            raise error.at(source.text) from None

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        """Every layer and direction of torch's recurrent layers inside a module."""
        return stored_decays(module)
