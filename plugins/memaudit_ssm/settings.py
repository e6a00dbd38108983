"""What no tensor says: options of the user, the config, the defaults of the original code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from memaudit.errors import ArgumentError, SourceError, clean, nearest
from memaudit.numerics.linear import DISCRETIZATIONS, EXECUTIONS
from memaudit.report import Identity
from memaudit.subjects.hosts import LAYERS, read_layers

_POSITIVE = "none, exp, relu, sigmoid, softplus"
#: Settings of a model that its tensors may leave open: option → one sentence.
HYPERPARAMETERS: Final[dict[str, str]] = {
    "activation": "what stands behind the recurrence, e.g. gelu, tanh, linear, half_glu1",
    "bandlimit": "S4: frequencies above this share are cut off (default: none)",
    "batchnorm": "S5 in JAX: true for batch norms, false for layer norms",
    "cell": "Curse-of-memory: rnn, softplusrnn, diagonalrnn, lru, ssm",
    "clip_eigs": "S5 in JAX: true when rates are kept at or below -1e-4",
    "conj_sym": "S5 and ports of LRU: true when the real part of the readout is doubled",
    "degree": "s5-pytorch: the power of the input matrix",
    "disc": f"the discretization: {', '.join(DISCRETIZATIONS)}",
    "dt": "Curse-of-memory: the step size",
    "dt_fast": "S4: true when the step size is stored under asinh",
    "dt_transform": f"S4: how the step size is made positive: {_POSITIVE}",
    "final_act": "S4: what stands behind the mixing layer, e.g. glu",
    "hyper_act": "S4 v2: what joins the hyper network, if there is one",
    "imag_transform": f"S4: how the imaginary part of A is made positive: {_POSITIVE}",
    "l_kernel": "S4 before version 4: the length that the stored C belongs to, 0 for none",
    "liquid": "s5-pytorch: true for the liquid form, which is refused",
    "mult_act": "S4: what stands behind the gate",
    "multidim": "LRU: outputs of the decoder per class",
    "ngroups": "Mamba-2: groups of heads with a B and a C of their own (default 1)",
    "norm": "LRU and S4: layer, batch or none",
    "norm_before_gate": "Mamba-2: true when the norm comes before the gate (default false)",
    "parameterization": "S4D and StableSSM: exp, softplus, best, direct",
    "pool": "what the decoder reads: none (every step), mean (or true), last",
    "prenorm": "true when norms stand before the layers, false when after the sum",
    "real_transform": f"S4: how the real part of A is made positive: {_POSITIVE}",
    "residual": "S4: how the residual is added",
}
OPTIONS: Final[dict[str, str]] = {
    "layers": LAYERS,
    "execution": f"how linear layers are run: {', '.join(EXECUTIONS)} (default auto)",
    **HYPERPARAMETERS,
}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What is run and how; `layers` None runs everything."""

    layers: tuple[str, ...] | None = None
    execution: str = "auto"


def read_settings(options: Mapping[str, Any]) -> RunSettings:
    """The settings behind the user's options; unknown names and values are refused."""
    for name in options:
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
    execution = "auto" if options.get("execution") is None else options["execution"]
    if execution not in EXECUTIONS:
        hint = nearest(str(execution), EXECUTIONS)
        raise ArgumentError(f"execution={clean(execution)!r} is unknown", hint=hint)
    return RunSettings(read_layers(options.get("layers")), str(execution))


@dataclass(frozen=True, slots=True)
class Opening:
    """Tensors of a file or of a module in memory, and how they are to be run."""

    text: str
    tensors: Mapping[str, Tensor] = field(repr=False)
    device: torch.device
    dtype: torch.dtype
    sha256: str
    settings: RunSettings
    notes: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def parameters(self) -> int:
        """Numbers in all tensors; tied ones, which share their memory, count once."""
        numbers = [t for t in self.tensors.values() if t.is_floating_point() or t.is_complex()]
        return sum({(t.data_ptr(), t.shape, t.stride()): t.numel() for t in numbers}.values())

    def identity(self, **fields: Any) -> Identity:
        """What a report says of the model, or of a part of it."""
        return Identity(
            source=self.text,
            adapter="ssm",
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(self.device),
            sha256=self.sha256,
            **fields,
        )


#: Where the settings of a layer stand in the configs of the families, innermost first.
_PLACES = (("model", "layer"), ("layer",), ("model", "net"), ("net",), ("model",), ())
#: Where configs without nesting, or with a model, say the sizes of the whole.
MODEL_PLACES = ((), ("model",))
_UNSTATED = object()
_TRUTH = ("false", "true")

Places = Sequence[tuple[str, ...]]


class Hyperparameters:
    """Settings by name: the user's options first, then the config, then the code's own default.

    A default counts only where a config lies beside the weights and does not say: then the code
    that wrote it took the default too, and `assumed` says so. Without any config the setting is
    missing, and `settle` asks for every missing one by name. A default with a reason of its own,
    `why`, counts in any case.
    """

    def __init__(self, options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        given = {name: options.get(name) for name in HYPERPARAMETERS}
        self._options = {name: value for name, value in given.items() if value is not None}
        self._config = _resolved(config, config)
        self._missing: dict[str, str] = {}
        self._requested: set[str] = set()
        self._overruled: dict[str, str] = {}
        self.assumed: dict[str, str] = {}

    @property
    def has_config(self) -> bool:
        """Whether there is a config at all."""
        return bool(self._config)

    def given(self, name: str) -> bool:
        """Whether the user gave it as an option."""
        self._requested.add(name)
        return name in self._options

    def section(self, *path: str) -> Mapping[str, Any]:
        """The part of the config at a path; empty when there is none."""
        here: Any = self._config
        for name in path:
            here = here.get(name) if isinstance(here, Mapping) else None
        return here if isinstance(here, Mapping) else Section()

    def stated(self, *names: str, places: Places = MODEL_PLACES) -> Any:
        """The first thing that the config says under one of the names, null apart; or None."""
        found = (self.section(*path).get(name) for path in places for name in names)
        return next((value for value in found if value is not None), None)

    def choice(
        self,
        name: str,
        choices: Sequence[str],
        *,
        default: str | None = None,
        also: Sequence[str] = (),
        places: Places = _PLACES,
        why: str = "",
    ) -> str:
        """One of the choices; `also` are further names of the setting in configs."""
        value = self._value(name, also, places)
        if value is _UNSTATED or (value is None and why):
            return self._default(name, default, choices, why)
        word = "none" if value is None else str(value).lower()
        if word not in choices:
            raise self._wrong(name, value, f"one of {', '.join(choices)}")
        return word

    def flag(
        self, name: str, *, default: bool | None = None, places: Places = _PLACES, why: str = ""
    ) -> bool:
        """True or false."""
        value = self._value(name, (), places)
        if value is _UNSTATED or value is None:
            word = None if default is None else str(default).lower()
            return self._default(name, word, _TRUTH, why) == "true"
        if str(value).lower() not in _TRUTH:
            raise self._wrong(name, value, "true or false")
        return str(value).lower() == "true"

    def number(self, name: str, *, also: Sequence[str] = ()) -> float | None:
        """A number; None when the config says null or nothing."""
        value = self._value(name, also, _PLACES)
        if value is _UNSTATED or value is None:
            return None
        try:
            if not isinstance(value, bool):
                return float(value)
        except (TypeError, ValueError):
            pass
        shown = str(value).lower() if isinstance(value, bool) else value
        raise self._wrong(name, shown, "a number")

    def require_sizes(
        self, sizes: Mapping[str, tuple[int, str]], *, places: Places = MODEL_PLACES
    ) -> None:
        """Raise E_CONFIG where the config states another size than the tensors have.

        `sizes` has the size of every setting and the words in front of it: the inputs of X are.
        """
        for name, (found, what) in sizes.items():
            for path in places:
                stated = self.section(*path).get(name)
                if not (stated is None or isinstance(stated, Mapping | list) or _is(stated, found)):
                    raise config_error(
                        f"the config says {name} = {clean(stated)}, but {what} {found}"
                    )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user's options say, and what of the config they overrule."""
        said = [
            f"{name}={clean(value, limit=40)}"
            + (f" (the config says {self._overruled[name]})" if name in self._overruled else "")
            for name, value in self._options.items()
        ]
        return (f"said by options: {', '.join(said)}",) if said else ()

    def settle(self, *others: Hyperparameters) -> None:
        """Ask for everything that is missing, by name; refuse options that the model has not.

        `others` are earlier attempts to build the same model.
        """
        if self._missing:
            example = " ".join(f"--set {name}={values}" for name, values in self._missing.items())
            why = "the config does not say it" if self.has_config else "no config lies beside it"
            raise config_error(
                f"not stored in the file, and {why}: {', '.join(self._missing)}",
                hint=f"put the config beside the weights, or say it: {example}",
            )
        requested = self._requested.union(*(other._requested for other in others))
        idle = [name for name in self._options if name not in requested]
        if idle:
            known = ", ".join(sorted(requested)) or "none"
            raise ArgumentError(
                f"{', '.join(idle)}: this model has no such setting", hint=f"it has: {known}"
            )

    def _value(self, name: str, also: Sequence[str], places: Places) -> Any:
        """What the option says, or the config: None by null, _UNSTATED for nothing."""
        stated: Any = _UNSTATED
        for path in places:
            section = self.section(*path)
            found = [section[key] for key in (name, *also) if key in section]
            found = [value for value in found if not isinstance(value, Mapping)]
            if found:
                # An old name that speaks beats a new one that is null.
                stated = next((value for value in found if value is not None), None)
                break
        if not self.given(name):
            return stated
        if stated is not _UNSTATED and stated is not None:
            self._overruled[name] = clean(stated, limit=40)
        return self._options[name]

    def _default(self, name: str, default: str | None, choices: Sequence[str], why: str) -> str:
        if default is None or not (why or self.has_config):
            self._missing[name] = "|".join(choices)
            return default or choices[0]
        why = why or "the config does not say; the code's own default"
        self.assumed[name] = f"{default} ({why})"
        return default

    def _wrong(self, name: str, value: Any, wanted: str) -> Exception:
        fact = f"{name} is {clean('null' if value is None else value)}, not {wanted}"
        if self.given(name):
            return ArgumentError(fact, hint=f"give --set {name}=VALUE")
        return config_error(
            f"the config says that {fact}", hint=f"correct it, or give --set {name}=VALUE"
        )


def _is(stated: Any, found: int) -> bool:
    """Whether a number of a config, which may be text there, is the one that was found."""
    try:
        return not isinstance(stated, bool) and float(stated) == found
    except (TypeError, ValueError):
        return False


def config_error(
    fact: str, *, hint: str = "look whether config and weights belong together, or are damaged"
) -> SourceError:
    """A config that belongs to another model, or does not say enough."""
    return SourceError("E_CONFIG", fact, hint=hint, stage="config")


def unsupported(fact: str, *, hint: str, stage: str = "config") -> SourceError:
    """A model that is known, and cannot be audited."""
    return SourceError("E_UNSUPPORTED", fact, hint=hint, stage=stage)


POOLINGS = ("none", "mean", "last")
#: What configs and options may say instead.
_POOL_WORDS = {"true": "mean", "false": "none", "pool": "mean"}
#: No default of a code: users change that line, and the answer of every step tells more.
_EVERY_STEP = (
    "none: nothing says whether the model averages over time, so every step is read; if it "
    "does: --set pool=mean"
)


def pool_word(
    hyper: Hyperparameters,
    *,
    default: str,
    also: Sequence[str] = (),
    places: Places = (("model",), ()),
    why: str = "",
) -> str:
    """The very word for the pooling, true and false among them; `default` is the code's own."""
    # Questions show the first choice as their example.
    words = tuple(dict.fromkeys((default, *POOLINGS, *_POOL_WORDS)))
    found = hyper.choice("pool", words, default=default, also=also, places=places, why=why)
    if default == "none" and "pool" in hyper.assumed:
        hyper.assumed["pool"] = _EVERY_STEP
    return found


def read_pooling(
    hyper: Hyperparameters, *, default: str, also: Sequence[str] = (), why: str = ""
) -> str:
    """None, mean or last; `default` is what the code does where a config does not say."""
    found = pool_word(hyper, default=default, also=also, why=why)
    return _POOL_WORDS.get(found, found)


#: Settings that point at other settings, as OmegaConf writes them: ${dataset.l_max}.
_REFERENCE = re.compile(r"\$\{\s*(?P<path>[\w.]+)\s*\}\Z")
_SELECT = re.compile(
    r"\$\{\s*oc\.select\s*:\s*(?P<path>[\w.]+)\s*(?:,\s*(?P<other>[\w.+-]*)\s*)?\}\Z"
)
_OPEN = "${"
_DEEPEST = 8
_LITERALS = {"null": None, "none": None, "true": True, "false": False, "": None}


class Section(dict[str, Any]):
    """A part of a config; to read a setting that is still open is an error, not its text."""

    def get(self, key: str, default: Any = None) -> Any:
        """The setting of that name; E_CONFIG when it points at something that is not there."""
        return self[key] if key in self else default  # noqa: SIM401 (dict.get skips the check)

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, str) and _OPEN in value:
            raise config_error(
                f"the config leaves {clean(key)} open: {clean(value)}",
                hint="save the config with its references resolved, or write the value there",
            )
        return value


def _resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Section:
    """A part of a config with references to other settings followed; those to nowhere stay open."""
    return Section({key: _followed(value, root) for key, value in part.items()})


def _followed(value: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    if isinstance(value, Mapping):
        return _resolved(value, root)
    if not isinstance(value, str) or _OPEN not in value or depth > _DEEPEST:
        return value
    select = _SELECT.match(value)
    match = select or _REFERENCE.match(value)
    if match is None:
        return value
    here: Any = root
    for name in match["path"].split("."):
        if not isinstance(here, Mapping) or name not in here:
            return value if select is None else _literal(select["other"] or "")
        here = here[name]
    return value if isinstance(here, Mapping) else _followed(here, root, depth + 1)


def _literal(word: str) -> Any:
    """A default as it stands in a reference."""
    if word.lower() in _LITERALS:
        return _LITERALS[word.lower()]
    try:
        return int(word)
    except ValueError:
        return word
