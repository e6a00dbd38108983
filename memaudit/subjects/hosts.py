"""A model whose recurrent layers are known and whose rest is not: they are audited one by one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from memaudit.errors import ArgumentError, SourceError, clean, listed
from memaudit.interfaces import AbstractSubject, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Generator

    from memaudit.interfaces import AbstractDynamics, AbstractLinearPart, AbstractPerturbable
    from memaudit.modes import LayerSpectrum as Spectrum
    from memaudit.report import Identity

#: What an adapter says of its option `layers`.
LAYERS = (
    "all, or names or numbers of the parts to run, with commas; a number is the first one in a "
    "part's name (default all)"
)
ALL = "all"
#: How many choices an error lists.
SHOWN = 40
#: Sequences of the user's data that a live module is run on to record what reaches its parts.
MOST_RECORDED = 256
#: What a forward raises that does not take the data.
NOT_TAKEN = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
_WORDS = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"([0-9]{1,18})")
_NUMBER = re.compile(r"(?:^|[._])([0-9]+)(?=[._]|\Z)")


def natural_order(names: Iterable[str]) -> list[str]:
    """The names with numbers in their order (0, 1, 2, 10) and words in that of their appearance."""
    words: dict[str, int] = {}

    def place(name: str) -> list[int]:
        # Words and digits take turns, so that equal places hold the same kind.
        pieces = enumerate(_DIGITS.split(name))
        return [int(p) if k % 2 else words.setdefault(p, len(words)) for k, p in pieces]

    return sorted(names, key=place)


def read_layers(value: Any) -> tuple[str, ...] | None:
    """The words of the option `layers`; None for all parts."""
    if value is None:
        return None
    # A layer may be called 3, and a number is what the command line makes of that.
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    words = tuple(str(item).strip() for item in items)
    if not words or not all(words):
        raise ArgumentError(
            f"layers={clean(value)!r} names no recurrent layer",
            hint="give all, or names or numbers with commas",
        )
    return None if words == (ALL,) else words


def choose_parts(names: Iterable[str], layers: tuple[str, ...] | None) -> list[str]:
    """The parts to run, in natural order: all, or those that the option `layers` means.

    A name stands for a part and for everything inside it, a number for all parts in whose names
    it is the first number.
    """
    every = natural_order(names)
    if layers is None:
        return every
    chosen: set[str] = set()
    for word in layers:
        meant = [name for name in every if name == word or name.startswith(f"{word}.")]
        meant = meant or [n for n in every if (m := _NUMBER.search(n)) and m[1] == word]
        if not meant:
            raise ArgumentError(
                f"there is no recurrent layer {clean(word)!r}",
                hint=f"layers is all, or some of: {listed(every, most=SHOWN)}",
            )
        chosen.update(meant)
    return [name for name in every if name in chosen]


def require_all(layers: tuple[str, ...] | None) -> None:
    """Refuse a choice of parts where the model runs as a whole."""
    if layers is not None:
        raise ArgumentError(
            "the model runs as a whole: layers chooses among layers that are run one by one",
            hint="leave it out",
        )


class Host(AbstractSubject):
    """A host of parts; with exactly one it answers as that part does, with several not at all.

    `modules` are the live modules of the model, those of the parts where nothing else is given.
    `model` is the module in which the parts have their names, where it can be run on data.
    `reason` says why several parts have no answer in common.
    """

    def __init__(
        self,
        parts: Mapping[str, AbstractSubject],
        identity: Identity,
        *,
        modules: Mapping[str, nn.Module] | None = None,
        model: nn.Module | None = None,
        reason: str = "",
    ) -> None:
        first = next(iter(parts.values()))
        self._parts = dict(parts)
        self._only = first if len(parts) == 1 else None
        self._modules = modules
        self._model = model
        self._reason = reason or (
            f"how the recurrent layers {listed(parts)} are joined is not known, "
            "so the model cannot be run as a whole"
        )
        self.identity = identity
        self.input_size = None if self._only is None else first.input_size
        self.pooled = first.pooled
        self.device = first.device
        self.dtype = first.dtype

    def parts(self) -> Mapping[str, AbstractSubject]:
        """The parts by name."""
        return dict(self._parts)

    def recorded(self, data: Tensor) -> Mapping[str, Tensor]:
        """What reaches every part, as (B,T,D), while the model runs on data as they were given.

        Nothing where there is no model to run, or where its forward does not take the data.
        """
        if self._model is None:
            return {}
        data = data[:MOST_RECORDED] if data.ndim > 1 else data
        return _recorded(self._model, self._parts, data) or _recorded(
            self._model, self._parts, data[None]
        )

    def live_modules(self) -> Mapping[str, nn.Module]:
        """Those of the model, or the module of every part under its name."""
        if self._modules is not None:
            return self._modules
        parts = self._parts.items()
        return {name: module for name, part in parts for module in part.live_modules().values()}

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of every part, under its name."""
        parts = self._parts.items()
        return {f"{name}.{key}": t for name, part in parts for key, t in part.weights().items()}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The spectra of all parts at rest; only a single part can be fed inputs."""
        if inputs is not None and self._only is None:
            raise ArgumentError(
                f"{len(self._parts)} layers have no input in common",
                hint="feed them one by one: subject.parts()[name].spectra(inputs)",
            )
        return tuple(item for part in self._parts.values() for item in part.spectra(inputs))

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        """Those of all parts."""
        return {k: v for part in self._parts.values() for k, v in part.linear_parts().items()}

    def dynamics(self) -> Mapping[str, AbstractDynamics]:
        """Those of all parts."""
        return {k: v for part in self._parts.values() for k, v in part.dynamics().items()}

    def natural_inputs(self, count: int, generator: Generator) -> Tensor | None:
        """Those of the only part."""
        return None if self._only is None else self._only.natural_inputs(count, generator)

    def perturbable(self) -> AbstractPerturbable | None:
        """That of the only part; several have no answer in common."""
        return None if self._only is None else self._only.perturbable()

    def respond(self, inputs: Tensor) -> Tensor:
        """The answer of the only part; with several parts there is no answer of the whole."""
        if self._only is None:
            raise SourceError(
                "E_UNSUPPORTED",
                self._reason,
                hint="audit them one by one: subject.parts()",
                source=self.identity.source,
                stage="respond",
            )
        return self._only.respond(inputs)


# What reaches the parts


def data_by_part(subject: AbstractSubject, data: Series) -> dict[str, Series | None]:
    """The data of every part of a host: its own, what reaches it in the model, or all the data.

    A part without data, or one that they do not fit, is run on what else is known.
    """
    parts = subject.parts()
    sizes = listed(f"{clean(name)} takes {part.input_size or 1}" for name, part in parts.items())
    if not isinstance(data.given, Tensor):
        own = data.given or {}
        foreign = [name for name in own if name not in parts]
        if foreign:
            fact = f"{data.name} has an array {clean(foreign[0])!r}, and no part is called so"
            raise ArgumentError(fact, hint=f"name them as the parts: {listed(parts, most=SHOWN)}")
        return {
            name: Series(data.name, own[name], own[name], optional=True) if name in own else None
            for name in parts
        }
    reached = subject.recorded(data.given) if isinstance(subject, Host) else {}
    if reached:
        words = f"{data.name} as the model hands them to it"
        return {
            name: Series(words, reached[name], optional=True) if name in reached else None
            for name in parts
        }
    width = None if data.values is None else data.values.shape[-1]
    if width is None or width not in {part.input_size or 1 for part in parts.values()}:
        fact = f"the data have the shape {tuple(data.given.shape)}, which no part takes: {sizes}"
        hint = "give (T, D) or (B, T, D) for one of them, or an .npz with an array for each"
        raise ArgumentError(fact, hint=hint)
    return dict.fromkeys(parts, Series(data.name, data.values, data.given, optional=len(parts) > 1))


def _recorded(model: nn.Module, parts: Iterable[str], data: Tensor) -> dict[str, Tensor]:
    """The sequences (B,T,D) that reach parts of a model; nothing where its forward fails."""
    like = next(model.parameters())
    data = data.to(like.device, like.dtype if data.is_floating_point() else data.dtype)
    seen: dict[str, list[Tensor]] = {name: [] for name in parts}
    layers = {name: model.get_submodule(name) for name in seen}
    training = {module: module.training for module in model.modules()}

    def hear(name: str) -> Any:
        def hook(layer: nn.Module, given: tuple[Any, ...]) -> None:
            seen[name].append(_as_sequences(layer, given[0]))

        return layers[name].register_forward_pre_hook(hook)

    hooks = [hear(name) for name in seen]
    try:
        with torch.no_grad():
            model.eval()(data)
    except NOT_TAKEN:
        return {}
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in training.items():
            module.training = mode
    return {name: _joined(layers[name], calls) for name, calls in seen.items() if calls}


def _as_sequences(layer: nn.Module, given: Any) -> Tensor:
    """What a layer of torch is called with, as (B,T,D), or (B,D) for a step of a cell."""
    batch_first = bool(getattr(layer, "batch_first", False))
    if isinstance(given, PackedSequence):
        padded, lengths = pad_packed_sequence(given, batch_first=True)
        return padded[:, : int(lengths.min())].detach().cpu().double()
    given = given.detach().cpu().double()
    if isinstance(layer, nn.RNNCellBase):
        return given if given.ndim > 1 else given[None]
    if given.ndim == 2:  # one sequence without a batch
        return given[None]
    return given if batch_first else given.transpose(0, 1)


def _joined(layer: nn.Module, calls: list[Tensor]) -> Tensor:
    """All calls: the steps of a cell one after another, sequences as a batch of the shortest."""
    if isinstance(layer, nn.RNNCellBase):
        rows = min(len(step) for step in calls)
        return torch.stack([step[:rows] for step in calls], 1)
    steps = min(call.shape[1] for call in calls)
    return torch.cat([call[:, :steps] for call in calls])


def embedding_rows(
    part: str, width: int, parts: Iterable[str], tensors: Mapping[str, Tensor]
) -> Tensor | None:
    """The embedding table that feeds a part by its name: as wide, and most words in common.

    None where no table fits, or several fit equally. Words that all parts share tell nothing.
    """
    others = [set(_WORDS.findall(name.lower())) for name in parts]
    common = set.intersection(*others) if len(others) > 1 else set()
    own = set(_WORDS.findall(part.lower())) - common
    fitting: dict[str, int] = {}
    for name, tensor in tensors.items():
        words = set(_WORDS.findall(name.lower()))
        table = any(w.startswith("emb") for w in words) and not any(w[:3] == "pos" for w in words)
        if table and tensor.is_floating_point() and tensor.ndim == 2 and tensor.shape[1] == width:
            fitting[name] = len(own & words)
    most = max(fitting.values(), default=0)
    best = [name for name, shared in fitting.items() if shared == most]
    if len(best) != 1 or (len(others) > 1 and not most):
        return None
    return tensors[best[0]]
