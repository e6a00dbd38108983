"""What a model is made of: the part that is audited, its embeddings, positions and layers."""

from __future__ import annotations

import inspect
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from memaudit.errors import SourceError, clean
from memaudit_transformers.library import LIBRARY_ERRORS, text_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What wrappers call the text model inside.
_TEXT = ("language_model", "text_model", "text_encoder", "text_decoder")
_CONTEXT_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_sequence_length", "context_length"),
    *("seq_length", "max_seq_len", "max_seq_length", "n_ctx", "max_source_positions"),
)
#: A stated length is tried out up to here: one run of a sequence that long.
LONGEST_TRIAL = 4096


@dataclass(frozen=True, slots=True)
class Core:
    """The part that turns embeddings into hidden states.

    `note` and, in two words, `part` say which when it is not the whole model.
    """

    module: nn.Module
    note: str = ""
    part: str = ""


def find_core(model: Any) -> Core:
    """The model proper, its encoder, or the text model inside; E_UNSUPPORTED without one."""
    if getattr(model.config, "is_encoder_decoder", False):
        encoder = _encoder(model)
        if encoder is not None:
            note = "an encoder and a decoder: only the encoder is audited, over its own input"
            return Core(encoder, note + _where(model, encoder), "encoder only")
    base = getattr(model, "base_model", model)
    for outer in (model, base):
        for name in _TEXT:
            inner = getattr(outer, name, None)
            if isinstance(inner, nn.Module) and inner is not base and takes_embeddings(inner):
                # A language model inside may have a head of its own: the bare model is meant.
                bare = getattr(inner, "base_model", inner)
                inner = bare if takes_embeddings(bare) else inner
                note = f"of {type(model).__name__} only the text model is audited"
                return Core(inner, note + _where(model, inner), "text model only")
    for part in (base, model):
        if takes_embeddings(part):
            return Core(part)
    takes = getattr(model, "main_input_name", "something else")
    raise SourceError(
        "E_UNSUPPORTED",
        f"{type(model).__name__} takes {takes} and no embeddings of a sequence (inputs_embeds)",
        hint="wrap what turns a sequence into answers: memaudit.wrap(function, input_size=...)",
        stage="build",
    )


def _encoder(model: Any) -> nn.Module | None:
    try:
        encoder = model.get_encoder()
    except LIBRARY_ERRORS:
        return None
    usable = isinstance(encoder, nn.Module) and encoder is not model and takes_embeddings(encoder)
    return encoder if usable else None


def _where(model: nn.Module, part: nn.Module) -> str:
    path = next((name for name, module in model.named_modules() if module is part), "")
    return f" ({clean(path)})" if path else ""


def takes_embeddings(module: nn.Module) -> bool:
    """Whether a forward has a place for embeddings."""
    return "inputs_embeds" in inspect.signature(module.forward).parameters


def find_embedding(model: Any, core: nn.Module) -> nn.Module | None:
    """The embedding of the tokens that the core reads, or None."""
    for owner in (core, model):
        try:
            embedding = owner.get_input_embeddings()  # type: ignore[operator]
        except (AttributeError, NotImplementedError, TypeError):
            continue
        weight = getattr(embedding, "weight", None)
        if isinstance(embedding, nn.Module) and weight is not None and weight.ndim == 2:
            return embedding
    return None


# Positions: the length that a config advertises, and the hard limit of a learned table.


def advertised_length(config: Any) -> int | None:
    """The context length that a config states, or None."""
    for part in (text_config(config), config):
        for name in _CONTEXT_LENGTHS:
            value = getattr(part, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40:
                return value
    return None


def possible_limits(core: nn.Module, advertised: int | None) -> tuple[int, ...]:
    """The lengths that a model may allow at the most, longest first.

    Some tables have rows in front that no position uses: OPT keeps an `offset`, and RoBERTa counts
    from the padding index on. Where positions are no table of weights (GPT-J, MPT), the length that
    the config advertises may be a limit, or none (RoPE): a run shows it.
    """
    limits: set[int] = set()
    if advertised is not None and advertised <= LONGEST_TRIAL:
        limits.add(advertised)
    for path, table in core.named_modules():
        owner, _, leaf = path.rpartition(".")
        name = leaf.lower()
        positional = "position" in name or name in ("wpe", "pos_emb", "pos_embed")
        if not positional or "relative" in name or not isinstance(table, nn.Embedding):
            continue
        rows = table.num_embeddings
        padding = getattr(core.get_submodule(owner), "padding_idx", None)
        padding = table.padding_idx if padding is None else padding
        unused = {0, getattr(table, "offset", 0), 0 if padding is None else padding + 1}
        limits |= {rows - skip for skip in unused if isinstance(skip, int) and 0 <= skip < rows}
    return tuple(sorted(limits, reverse=True))


def proved_limit(limits: tuple[int, ...], runs: Callable[[int], bool]) -> int | None:
    """The longest of the lengths that the model runs at, None when none of them limits it."""
    if not limits or runs(limits[0] + 1):
        return None
    return next((limit for limit in limits if runs(limit)), limits[-1])


# Layers: the elements of a module list that answer a sequence by a sequence, one after the other.


def hidden_state(output: Any) -> Tensor | None:
    """The (B,T,H) hidden state in what a layer answers, or None; parallel streams side by side."""
    first = output[0] if isinstance(output, tuple | list) and output else output
    state = getattr(first, "last_hidden_state", first)
    if not isinstance(state, Tensor) or not state.is_floating_point() or state.ndim < 3:
        return None
    return state.flatten(2)


@dataclass(slots=True)
class _ListCalls:
    """The calls of the elements of one module list.

    `links` counts how often an element was fed what the one before it had answered.
    """

    paths: list[str] = field(default_factory=list)
    links: int = 0
    last: Tensor | None = None
    sequences: bool = True

    def note(self, path: str, fed: Tensor | None, state: Tensor | None) -> None:
        """One call of an element: what it was fed, and its answer when that is (B,T,H)."""
        if state is None:
            self.sequences = False
            return
        if fed is not None and self.last is not None and fed.shape == self.last.shape:
            self.links += torch.equal(self.last, fed)
        self.last = state
        self.paths.append(path)

    @property
    def is_chain(self) -> bool:
        """Whether most elements were fed the answer of the one before, as layers are.

        The feed-forward parts of all layers, kept in a list of their own, are not.
        """
        return bool(self.paths) and self.sequences and 2 * self.links >= len(self.paths) - 1


@contextmanager
def layers_found(
    core: nn.Module, shape: tuple[int, int]
) -> Iterator[Callable[[], tuple[str, ...]]]:
    """While open, calls of module lists are noted; the function gives the paths of the layers.

    Layers are the longest list whose elements answered (B,T,H) of this shape, the outermost of
    equals, in the order of their calls; one that is called again appears again.
    """
    calls: dict[str, _ListCalls] = {}

    def noting(home: str, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            state = hidden_state(output)
            sequence = state is not None and tuple(state.shape[:2]) == shape
            fed = hidden_state(args[0] if args else kwargs.get("hidden_states"))
            calls.setdefault(home, _ListCalls()).note(path, fed, state if sequence else None)

        return hook

    def longest() -> tuple[str, ...]:
        chains = {home: found.paths for home, found in calls.items() if found.is_chain}
        home = max(chains, key=lambda home: (len(chains[home]), -len(home)), default="")
        return tuple(chains.get(home, ()))

    with ExitStack() as stack:
        for home, group in core.named_modules():
            if isinstance(group, nn.ModuleList) and not isinstance(group, ParametrizationList):
                for index, element in enumerate(group):
                    hook = noting(home, f"{home}.{index}")
                    handle = element.register_forward_hook(hook, with_kwargs=True)
                    stack.callback(handle.remove)
        yield longest


def layer_names(calls: tuple[str, ...]) -> tuple[str, ...]:
    """One name per call; a layer that is called several times is numbered."""
    often, seen = Counter(calls), Counter[str]()
    names: list[str] = []
    for path in calls:
        seen[path] += 1
        names.append(path if often[path] == 1 else f"{path} (pass {seen[path]})")
    return tuple(names)


@contextmanager
def reporting_layers(
    core: nn.Module, calls: tuple[str, ...], report: Callable[[str, Tensor], None]
) -> Iterator[None]:
    """While open, the hidden state after every layer is reported as soon as it is there."""
    names = iter(layer_names(calls))

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        state, name = hidden_state(output), next(names, None)
        if state is not None and name is not None:
            report(name, state)

    with ExitStack() as stack:
        for path in dict.fromkeys(calls):
            stack.callback(core.get_submodule(path).register_forward_hook(hook).remove)
        yield
