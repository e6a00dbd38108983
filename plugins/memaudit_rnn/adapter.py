"""The adapter of torch's recurrent layers: files of weights, demos, and modules in memory."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor, nn

from memaudit.devices import widest_dtype
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, listed, nearest
from memaudit.interfaces import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.loading.filling import digest_tensors, require_finite
from memaudit.report import Identity
from memaudit.subjects.hosts import (
    LAYERS,
    Host,
    choose_parts,
    embedding_rows,
    natural_order,
    read_layers,
    require_all,
)
from memaudit_rnn.network import (
    RecurrentNetwork,
    build_linear,
    build_stack,
    build_table,
    keeps_raw_weights,
    recurrent_layers,
    retrofitted_copy,
    retrofitted_forms,
)
from memaudit_rnn.placement import (
    UNSTATED,
    Placement,
    layers_among,
    place,
    read_out,
)
from memaudit_rnn.recognition import (
    Stack,
    StatedConfig,
    find_stacks,
    is_parametrized,
    lookalikes,
    read_config,
    read_stacks,
)
from memaudit_rnn.stored_decays import stored_decays
from memaudit_rnn.subject import RnnSubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memaudit.interfaces import StoredDecay
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.loading.source import Source


FAMILY = "rnn"
STRENGTH = 10
#: A module that is a recurrent layer: its own class says which axis is time.
CERTAIN = 20
FILES = ("path", "demo", "hub")
CELL_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
OPTIONS: Final[dict[str, str]] = {
    "nonlinearity": "tanh or relu, for vanilla RNNs: the weights do not say which (default tanh)",
    "encoder": "auto, none, or the name of the embedding or linear layer in front (default auto)",
    "head": "auto, none, or the name of the linear layer behind (default auto)",
    "output": "auto, hidden or logits: what is read; language models give hidden (default auto)",
    "pool": "none, final, last, mean or max: one answer per sequence (default none)",
    "layers": LAYERS,
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
    layers: tuple[str, ...] | None = None
    batch_first: str | None = None

    def notes(self) -> tuple[str, ...]:
        """What was accepted without changing a number."""
        if self.batch_first is None:
            return ()
        return (f"batch_first={self.batch_first} is recorded; sequences are fed as (B,T,D)",)


def read_settings(options: Mapping[str, Any]) -> Settings:
    """The settings behind the user's options; unknown names and values are refused."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
        if name == "layers":
            values[name] = read_layers(value)
            continue
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


def count(tensors: Mapping[str, Tensor], names: Iterable[str] | None = None) -> int:
    """Floating-point parameters among the named tensors, or among all."""
    chosen = tensors.values() if names is None else [tensors[name] for name in set(names)]
    return sum(tensor.numel() for tensor in chosen if tensor.is_floating_point())


def open_file(
    text: str, checkpoint: Checkpoint, request: Request, settings: Settings
) -> AbstractSubject:
    """The subject behind a checkpoint: the whole model, or a host of its recurrent layers."""
    tensors = checkpoint.tensors
    lookalike_names = tuple(lookalikes(tensors))
    groups = find_stacks(tensors)
    if not groups:
        raise _no_recurrence(tensors, lookalike_names)
    stacks = _distinct(read_stacks(groups, tensors, lookalike_names))
    if settings.nonlinearity is not None and all(stack.cell != "RNN" for stack in stacks):
        cells = " and ".join(sorted({stack.cell for stack in stacks}))
        raise ArgumentError(
            f"nonlinearity={settings.nonlinearity} is for vanilla RNNs; this is {cells}"
        )
    stated = read_config(checkpoint.config, checkpoint.metadata)
    dtype = request.dtype or widest_dtype(request.device)
    file = _File(text, checkpoint, request.device, dtype, settings, stated, lookalike_names)
    named = {stack.name: stack for stack in stacks}
    run = [named[name] for name in choose_parts(named, settings.layers)]
    if len(stacks) > 1:
        names = listed(natural_order(named))
        return file.host(
            run, named, f"how {names} are joined is not stored in the file: each is run by itself"
        )
    stated.check(stacks[0])
    layers, others = layers_among(tensors, stacks[0].keys.keys.values())
    around = place(stacks[0], layers, others, settings)
    if not around.whole:
        return file.host(run, named, *around.notes)
    require_all(settings.layers)
    return file.whole(stacks[0], around)


@dataclass(frozen=True, slots=True)
class _File:
    """A checkpoint, and how it is opened."""

    text: str
    checkpoint: Checkpoint
    device: torch.device
    dtype: torch.dtype
    settings: Settings
    stated: StatedConfig
    lookalikes: tuple[str, ...]

    def whole(self, stack: Stack, around: Placement) -> RnnSubject:
        """A model that is run from end to end."""
        reading = read_out(around, self.settings, self.stated)
        run = replace(around, head=around.head if reading.logits else None)
        used = [*stack.keys.keys.values(), *(key for layer in run.layers() for key in layer.keys)]
        words = [stack.title]
        if run.table is not None:
            words.append(f"embedding of {run.table.rows} tokens")
        if run.encoder is not None:
            words.append(f"linear encoder from {run.encoder.columns}")
        if run.head is not None:
            words.append(f"head to {run.head.rows}")
        identity = replace(
            self._identity((stack,), used, (*around.notes, *reading.notes)),
            description=", ".join(words),
            assumed={
                **self._assumed(stack),
                **run.assumed(stack, self.settings),
                **reading.assumed,
            },
        )
        return RnnSubject(self._network(stack, run, reading.pool), identity)

    def host(self, stacks: Sequence[Stack], among: Iterable[str], *notes: str) -> Host:
        """A model whose recurrent layers, some `among` all of them, are run one by one."""
        used = [key for stack in stacks for key in stack.keys.keys.values()]
        identity = self._identity(stacks, used, notes)
        parts: dict[str, RnnSubject] = {}
        tensors = self.checkpoint.tensors
        tables = {name: tensor for name, tensor in tensors.items() if name not in used}
        for stack in stacks:
            own = replace(
                identity,
                parameters=count(self.checkpoint.tensors, stack.keys.keys.values()),
                description=stack.title,
                coverage=1.0,
                recurrences=stack.recurrences(),
                assumed=self._assumed(stack),
                notes=(),
            )
            network = self._network(stack, Placement(), self.settings.pool or "none")
            subject = RnnSubject(network, own)
            subject.rows = embedding_rows(stack.name, network.input_size, among, tables)
            parts[stack.name] = subject
        inside = listed((f"{clean(x.name)} ({x.title})" for x in stacks), joint="; ")
        left = tuple(name for name in natural_order(among) if name not in parts)
        identity = replace(identity, description=f"host of {inside}", unreached=left)
        return _host(parts, identity)

    def _network(self, stack: Stack, around: Placement, pool: str) -> RecurrentNetwork:
        tensors, where = self.checkpoint.tensors, (self.device, self.dtype)
        nonlinearity = self.settings.nonlinearity or self.stated.nonlinearity or "tanh"
        return RecurrentNetwork(
            build_stack(stack, tensors, nonlinearity, *where),
            table=build_table(around.table, tensors, *where),
            encoder=build_linear(around.encoder, tensors, *where),
            head=build_linear(around.head, tensors, *where),
            pool=pool,
            layers=tuple(layer.layer for layer in stack.recurrences()),
        )

    def _assumed(self, *stacks: Stack) -> dict[str, str]:
        """What every stack alone rests on although the file does not state it."""
        assumed: dict[str, str] = {}
        stated = self.settings.nonlinearity or self.stated.nonlinearity
        if stated is None and any(stack.cell == "RNN" for stack in stacks):
            reason = f"tanh ({UNSTATED}; --set nonlinearity=relu to change)"
            assumed["nonlinearity"] = reason
        # Square weights that do not have torch's own names could be transposed.
        foreign = [
            clean(key)
            for stack in stacks
            for place, key in stack.keys.keys.items()
            if place.role == "weight" and key.removeprefix(stack.keys.prefix).startswith("w_")
        ]
        if foreign:
            reason = f"rows are gates as in torch ({listed(foreign)}; {UNSTATED})"
            assumed["orientation"] = reason
        return assumed

    def _identity(
        self, stacks: Sequence[Stack], used: list[str], notes: tuple[str, ...]
    ) -> Identity:
        """The identity of the whole file; refuses weights that are not finite."""
        tensors = self.checkpoint.tensors
        require_finite({name: tensors[name] for name in used}, source=self.text)
        total = count(tensors)
        unused = unused_notes(tensors, used, self.lookalikes)
        return Identity(
            source=self.text,
            adapter=FAMILY,
            family=FAMILY,
            parameters=total,
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(self.device),
            sha256=self.checkpoint.sha256,
            coverage=count(tensors, used) / total,
            recurrences=tuple(layer for stack in stacks for layer in stack.recurrences()),
            assumed=self._assumed(*stacks),
            notes=(*self.checkpoint.notes, *notes, *unused, *self.settings.notes()),
        )


def _host(
    parts: Mapping[str, RnnSubject], identity: Identity, model: nn.Module | None = None
) -> Host:
    """A host of recurrent layers, which are called by their part, and by their place in it."""
    for name, part in parts.items():
        inner = (layer.removeprefix(name) for layer in part.network.layers)
        part.network.layers = tuple(layer.removeprefix(".") for layer in inner)
    return Host(parts, identity, model=model)


def unused_notes(
    tensors: Mapping[str, Tensor], used: Iterable[str], lookalike_names: Iterable[str]
) -> tuple[str, ...]:
    """Which tensors are not run; those that look recurrent are named first and by themselves."""
    taken = set(used)
    recurrent = [name for name in lookalike_names if name not in taken]
    taken.update(recurrent)
    rest = [n for n, tensor in tensors.items() if n not in taken and tensor.is_floating_point()]
    notes: list[str] = []
    if recurrent:
        names = listed(map(clean, recurrent))
        notes.append(f"recurrent-looking tensors that were not matched: {names}")
    if rest:
        notes.append(f"not run: {listed(map(clean, rest))}")
    return tuple(notes)


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


def open_module(
    text: str, module: nn.Module, request: Request, settings: Settings
) -> AbstractSubject:
    """The subject of a bare recurrent layer, or the host of a module that contains some.

    The module is not touched. It states its own nonlinearity, and nothing of it but the recurrent
    layers is run.
    """
    layers = recurrent_layers(module)
    if not layers:
        raise SourceError(
            "E_UNSUPPORTED",
            f"{text} contains no nn.RNN, nn.GRU, nn.LSTM or cell of them",
            hint="audit it as a function: memaudit.wrap(module, input_size=...)",
        )
    given = {
        "nonlinearity": settings.nonlinearity is not None,
        "encoder": settings.encoder not in ("auto", "none"),
        "head": settings.head not in ("auto", "none"),
        "output": settings.output == "logits",
    }
    for name, wrong in given.items():
        if wrong:
            raise ArgumentError(f"{name} is an option of files, not of modules in memory")
    dropped = [name for name, _ in module.named_parameters() if name.endswith("_raw")]
    parts: dict[str, RnnSubject] = {}
    if "" in layers:
        require_all(settings.layers)
    modules = dict(module.named_modules()).items()
    tables = {f"{n}.embedding": m.weight for n, m in modules if isinstance(m, nn.Embedding)}
    for path in choose_parts(layers, settings.layers):
        name, subject = _open_layer(text, path, layers[path], dropped, request.dtype, settings)
        width = subject.network.input_size
        subject.rows = embedding_rows(path, width, layers, tables)
        parts[name] = subject
    first = next(iter(parts.values()))
    if "" in layers:
        return first
    total = sum(parameter.numel() for parameter in module.parameters())
    used = sum(part.identity.parameters for part in parts.values())
    inside = "; ".join(f"{name} ({part.identity.description})" for name, part in parts.items())
    identity = replace(
        first.identity,
        parameters=total,
        description=f"host of {inside}",
        coverage=min(1.0, used / max(total, 1)),
        recurrences=tuple(r for part in parts.values() for r in part.identity.recurrences),
        unreached=tuple(name for name in natural_order(layers) if name not in parts),
        notes=(
            f"only the recurrent layers of {text} are run: {', '.join(parts)}",
            *(note for part in parts.values() for note in part.identity.notes),
        ),
    )
    return _host(parts, identity, module)


def _open_layer(
    text: str,
    path: str,
    layer: nn.Module,
    dropped: list[str],
    dtype: torch.dtype | None,
    settings: Settings,
) -> tuple[str, RnnSubject]:
    """The name and the subject of one layer, with a copy of its weights.

    They are read from a copy: a parametrization may change when it is read. A retrofitted layer
    of torch is run in its forms where the dtype lets it, else by the plain weights these make.
    """
    try:
        source = copy.deepcopy(layer).eval()
    except RuntimeError:  # the older weight norm keeps a tensor that cannot be copied
        source = layer
    names = source._flat_weights_names if isinstance(source, nn.RNNBase) else CELL_WEIGHTS
    prefix = f"{path}." if path else ""
    values = {f"{prefix}{name}": getattr(source, name, None) for name in names}
    tensors = {name: t.detach().clone() for name, t in values.items() if isinstance(t, Tensor)}
    stack = read_stacks(find_stacks(tensors), tensors, dropped)[0]
    stack = replace(stack, name=path or stack.name)
    require_finite(tensors, source=text)
    weight = next(iter(tensors.values()))
    dtype = dtype or weight.dtype
    own_forward = not type(layer).forward.__module__.startswith("torch.")
    forms = retrofitted_forms(layer)
    built, end = None, "; it is run as the plain weight that this makes"
    if isinstance(layer, nn.RNNBase) and not own_forward and keeps_raw_weights(layer, dtype):
        built, end = retrofitted_copy(layer, dtype), ""
    notes = [f"{prefix}{name} is kept as {form}{end}" for name, form in forms.items()]
    if own_forward:
        title = clean(type(layer).__name__.removeprefix("Parametrized"))
        notes.append(
            f"{title} has a forward of its own; its weights are run as a plain {stack.cell}"
        )
    # A cell is run as the first layer of a stack.
    first = "_l0" if stack.keys.is_cell else ""
    nonlinearity = str(getattr(layer, "nonlinearity", "tanh"))
    network = RecurrentNetwork(
        built or build_stack(stack, tensors, nonlinearity, weight.device, dtype),
        pool=settings.pool or "none",
        layers=tuple(record.layer for record in stack.recurrences()),
        forms={} if built else {f"{name}{first}": form for name, form in forms.items()},
    )
    identity = Identity(
        source=text,
        adapter=FAMILY,
        family=FAMILY,
        parameters=count(tensors),
        dtype=str(dtype).removeprefix("torch."),
        device=str(weight.device),
        sha256=digest_tensors(tensors),
        description=stack.title,
        recurrences=stack.recurrences(),
        notes=(*notes, *settings.notes()),
    )
    return stack.name, RnnSubject(network, identity)
