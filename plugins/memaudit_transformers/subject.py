"""A model of transformers as a subject: what it answers, its weights, and its identity."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError, clean, listed
from memaudit.interfaces import AbstractSubject, Role, plain_name
from memaudit.numerics.wide_floats import without_widening
from memaudit.report import Identity
from memaudit.subjects.copies import Copies, ModeSource
from memaudit.subjects.modules import checked_inputs
from memaudit_transformers.kinds import spectra_of, unmatched
from memaudit_transformers.scans import decays_of
from memaudit_transformers.structure import layer_names, proved_limit, reporting_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memaudit.interfaces import AbstractPerturbable
    from memaudit.modes import LayerSpectrum as Spectrum
    from memaudit_transformers.kinds import Recurrent
    from memaudit_transformers.running import RunnableModel
    from memaudit_transformers.tokenizer import Tokens

#: How many names a note lists.
SHOWN = 6
#: What a recurrent layer calls the projection behind its state, and its skip.
_READOUT = re.compile(r"(?:.*\.)?(?:out_proj|o_proj|output|down_proj|proj_down)\.\w+|D")


class TransformersSubject(AbstractSubject):
    """A model that answers embeddings or token ids; `model` is the library's own module."""

    def __init__(
        self, runnable: RunnableModel, identity: Identity, *, tokens: Tokens | None = None
    ) -> None:
        self.identity = identity
        self.model: Any = runnable.model
        self.core: Any = runnable.core
        self.embedding = runnable.embedding
        self.input_size = runnable.width
        self.vocabulary = vocabulary_of(runnable)
        self.advertised = runnable.advertised
        self.pooled = runnable.pooled
        self.dtype = runnable.dtype
        self.device = runnable.device
        self.unknown = None if tokens is None else tokens.unknown
        self._runnable = runnable
        self._tokens = tokens

    @cached_property
    def longest(self) -> int | None:  # type: ignore[override]
        """Steps at which a learned table of positions ends, proved by running; None: no limit."""
        return proved_limit(self._runnable.limits, self._runnable.runs)

    def respond(self, inputs: Tensor) -> Tensor:
        checked = self._checked(inputs)
        return self._answer(checked, lambda: self._runnable.run(checked))

    def layers(self) -> tuple[str, ...]:
        """The layers, such as `layers.3`; one that is called again is numbered."""
        return layer_names(self._runnable.layers)

    def respond_with_hook(self, inputs: Tensor, hook: Callable[[str, Tensor], None]) -> Tensor:
        def report(name: str, state: Tensor) -> None:
            with without_widening():
                hook(name, state)

        checked = self._checked(inputs)
        hooks = reporting_layers(self.core, self._runnable.layers, report)
        return self._answer(checked, lambda: self._runnable.run(checked, hooks))

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Embeddings of distinct tokens; a padding row of zeros is no input."""
        if self.embedding is None:
            return None
        rows = self.embedding.get_parameter("weight").detach()
        filled = torch.nonzero(rows.abs().amax(dim=1) > 0).flatten()
        order = torch.randperm(len(filled), generator=generator, device=generator.device)
        chosen = filled[order[:count].to(filled.device)]
        with torch.no_grad():  # some tables scale what they hold
            return self.embedding(chosen).detach().to(self.dtype)

    def tokens_of(self, text: str) -> Tensor | None:
        return None if self._tokens is None else self._tokens.of(text)

    def framed(self, tokens: Tensor) -> Tensor:
        return tokens if self._tokens is None else self._tokens.framed(tokens)

    def word_of(self, token: int) -> str:
        word = None if self._tokens is None else self._tokens.word(token)
        return super().word_of(token) if word is None else word

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues of every recurrent layer at rest, and at quantiles over the inputs."""
        return spectra_of(self._runnable.recurrents, self.respond, inputs)

    def decays(self, inputs: Tensor) -> dict[str, Tensor]:
        """Recurrent layer → its decays (B,T,…) at every token of the inputs."""
        return decays_of(self._runnable.recurrents, self.respond, inputs)

    def perturbable(self) -> AbstractPerturbable:
        """The model with its weights as an argument, read as `respond` reads it.

        Scans of recurrent layers are run one copy after the other: memaudit's own write in place,
        and in one batch the library's are slower than they.
        """
        recurrents = self._runnable.recurrents

        def call(model: nn.Module, inputs: Tensor) -> Tensor:
            del model  # it is the runnable one, with other weights in it
            checked = self._checked(inputs)
            return self._answer(checked, lambda: self._runnable.forward(checked))

        modes: dict[str, ModeSource] = {}
        for recurrent in recurrents:
            own = (name for name, _ in recurrent.module.named_parameters())
            names = tuple(name for name in own if _makes_decay(recurrent, name))
            if names:
                source = ModeSource(recurrent.module, recurrent.modes_of, names)
                modes[clean(recurrent.layer)] = source
        return Copies(
            self.model,
            _roles(self._runnable),
            call=call,
            modes=modes,
            around=self._runnable.ready,
            together=not recurrents,
        )

    def weights(self) -> Mapping[str, Tensor]:
        return live_weights(self.model)

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {"": self.model}

    def _checked(self, inputs: Any) -> Tensor:
        """Inputs that the model has a place for: nothing is cut off silently."""
        checked = checked_inputs(self, inputs)
        steps, limits = checked.shape[1], self._runnable.limits
        if limits and steps > limits[-1] and self.longest is not None and steps > self.longest:
            raise ArgumentError(
                f"a sequence of {steps} steps is longer than the {self.longest} positions that "
                "the model has",
                hint=f"give a horizon that needs at most {self.longest} steps",
            )
        return checked

    def _answer(self, inputs: Tensor, run: Callable[[], Tensor | None]) -> Tensor:
        """The answer of a run, or an error that says why there is none."""
        try:
            answer = run()
        except IndexError as error:
            fact = f"the model cannot be run on {inputs.shape[1]} steps: {error}"
            raise ArgumentError(fact, hint="give a shorter horizon") from error
        if answer is None:
            raise ArgumentError("the model gives no such output", hint="give output=hidden")
        return answer


def vocabulary_of(runnable: RunnableModel) -> int | None:
    """How many token ids there are; None without an embedding of tokens."""
    embedding = runnable.embedding
    return None if embedding is None else int(embedding.get_parameter("weight").shape[0])


# The weights of a model: the live tensors, and what each of them does.


def live_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state dict, with raw weights in the place of what parametrizations make of them.

    The state dict of a retrofitted model holds the made ones, which are new tensors at every call:
    whoever writes to them changes nothing.
    """
    named = model.named_parameters(remove_duplicate=False)
    raw = {name: weight.detach() for name, weight in named if plain_name(name) != name}
    made = {plain_name(name) for name in raw}
    kept = {name: t for name, t in model.state_dict().items() if name not in made}
    return {**kept, **raw}


def _roles(runnable: RunnableModel) -> dict[str, Role]:
    """The role of every weight that floats pass through.

    Floats do not pass through the embedding of tokens, but a linear head may share it.
    """
    inner: dict[int, Role] = {}
    for recurrent in runnable.recurrents:
        for name, weight in recurrent.module.named_parameters():
            inner.setdefault(id(weight), _role_inside(recurrent, plain_name(name), weight))
    linears = (part for part in runnable.readout.modules() if isinstance(part, nn.Linear))
    heads = {id(weight) for linear in linears for weight in linear.parameters()}
    embedding = runnable.embedding
    unused = set() if embedding is None else {id(w) for w in embedding.parameters()} - heads
    used = {id(weight) for weight in runnable.readout.parameters()} - unused
    core = {id(weight) for weight in runnable.core.parameters()}
    return {
        name: inner.get(id(weight))
        or Role("other" if id(weight) in core else "readout", _form(weight))
        for name, weight in runnable.model.named_parameters()
        if id(weight) in used and weight.is_floating_point()
    }


def _role_inside(recurrent: Recurrent, name: str, weight: Tensor) -> Role:
    layer = clean(recurrent.layer)
    if _makes_decay(recurrent, name):
        # A gate's own matrix acts as one; everything else is a number for every mode.
        return Role("recurrent", "matrix" if name.endswith("weight") else "diagonal", layer)
    if _READOUT.fullmatch(name):
        return Role("readout", "diagonal" if name == "D" else _form(weight), layer)
    return Role("input", _form(weight), layer)


def _makes_decay(recurrent: Recurrent, name: str) -> bool:
    """Whether a weight of the layer makes its decay; it may stand in a gate inside the layer."""
    return plain_name(name).endswith(recurrent.kind.decays)


def _form(weight: Tensor) -> str:
    return "matrix" if weight.ndim > 1 else "vector"


# The identity: its description, its layers by kind, and what was not audited.


def describe(
    runnable: RunnableModel,
    *,
    source: str,
    sha256: str,
    stored: int = 0,
    assumed: Mapping[str, str],
    notes: Iterable[str],
) -> Identity:
    """The identity; `stored` is how many numbers the file holds, where there is one."""
    model, core = runnable.model, runnable.core
    total = max(_count(model.parameters()), stored)
    used = _count(runnable.readout.parameters())
    pooler = getattr(core, "pooler", None)
    if pooler is not None and not runnable.logits:  # computed beside the hidden state
        used -= _count(pooler.parameters())
    title = [type(model).__name__, *([runnable.part] if runnable.part else [])]
    if runnable.layers:
        title.append(f"{len(runnable.layers)} layers")
    title.append(f"width {runnable.width}")
    if runnable.embedding is not None:
        title.append(f"{vocabulary_of(runnable)} tokens")
    notes = [*notes, *([runnable.note] if runnable.note else [])]
    others = unmatched(core, runnable.recurrents)
    if others:
        names = listed(map(clean, others), most=SHOWN)
        notes.append(f"recurrent-looking tensors that were not matched: {names}")
    return Identity(
        source=source,
        adapter="transformers",
        family=clean(getattr(model.config, "model_type", "") or "transformers", limit=60),
        parameters=total,
        dtype=str(runnable.dtype).removeprefix("torch."),
        device=str(runnable.device),
        sha256=sha256,
        description=", ".join(title),
        coverage=min(1.0, used / max(total, 1)),
        recurrences=tuple(recurrent.record() for recurrent in runnable.recurrents),
        assumed={**assumed, **runnable.assumed},
        notes=(*notes, *_layer_notes(runnable, total)),
        attention=_attention(runnable),
    )


def _attention(runnable: RunnableModel) -> str:
    """Whether attention looks back only, or both ways; "" where a recurrence carries the past."""
    parts = [m for m in runnable.core.modules() if "attention" in type(m).__name__.lower()]
    if runnable.recurrents or not parts:
        return ""
    causal = any(getattr(part, "is_causal", False) for part in parts)
    return "causal" if causal else "both ways"


def _count(parameters: Iterable[Tensor]) -> int:
    """How many numbers there are, tied ones once."""
    return sum({id(p): p.numel() for p in parameters}.values())


def _layer_notes(runnable: RunnableModel, total: int) -> Iterable[str]:
    """Which layers are recurrent, which attention or other, each with its share of parameters."""
    # Modules inside a recurrence do not count as attention: RWKV calls its recurrence so.
    inside = {id(m) for r in runnable.recurrents for m in r.module.modules()}
    kinds: dict[str, list[str]] = {}
    for path in dict.fromkeys(runnable.layers):
        layer = runnable.core.get_submodule(path)
        parts = [m for m in layer.modules() if id(m) not in inside and m is not layer]
        found = {
            "recurrent": any(f"{r.layer}.".startswith(f"{path}.") for r in runnable.recurrents),
            "attention": any("attention" in type(m).__name__.lower() for m in parts),
        }
        kind = " and ".join(name for name, there in found.items() if there) or "other"
        kinds.setdefault(kind, []).append(path)
    for kind, paths in kinds.items():
        layers = map(runnable.core.get_submodule, paths)
        share = 100 * _count(p for layer in layers for p in layer.parameters()) / max(total, 1)
        noun = "layer" if len(paths) == 1 else "layers"
        where = listed(paths, most=SHOWN)
        yield f"{len(paths)} {kind} {noun}, {share:.1f} % of the parameters: {where}"
