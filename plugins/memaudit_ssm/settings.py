"""What no tensor says: options of the user, the config, the code's own defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memaudit.errors import ArgumentError, SourceError, clean, nearest
from memaudit.numerics.linear import DISCRETIZATIONS, EXECUTIONS

_POSITIVE = "none, exp, relu, sigmoid, softplus"

#: Option → one sentence. Nothing else is asked for.
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
    "norm": "LRU and S4: layer, batch or none",
    "parameterization": "S4D and StableSSM: exp, softplus, best, direct",
    "pool": "what the decoder reads: none (every step), mean (or true), last",
    "prenorm": "true when norms stand before the layers, false when after the sum",
    "real_transform": f"S4: how the real part of A is made positive: {_POSITIVE}",
    "residual": "S4: how the residual is added",
}

OPTIONS: Final[dict[str, str]] = {
    "layers": "all, or the names of the scans or modules to run, with commas (default all)",
    "execution": f"how linear layers are run: {', '.join(EXECUTIONS)} (default auto)",
    **HYPERPARAMETERS,
}

ALL = "all"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The options as given; `layers` None runs everything."""

    layers: tuple[str, ...] | None = None
    execution: str = "auto"

    def chosen(self, names: Iterable[str]) -> set[str]:
        """The names to run: a layer stands for itself and for everything inside it."""
        every = list(names)
        if self.layers is None:
            return set(every)
        taken: set[str] = set()
        for layer in self.layers:
            inside = [name for name in every if name == layer or name.startswith(f"{layer}.")]
            if not inside:
                raise ArgumentError(
                    f"no scan is called {clean(layer)!r}", hint=nearest(layer, _with_parents(every))
                )
            taken.update(inside)
        return taken


def read_settings(options: Mapping[str, Any]) -> RunSettings:
    """The settings behind the user's options; unknown names and values are refused."""
    for name in options:
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
    return RunSettings(_layers(options.get("layers")), _execution(options.get("execution")))


def _execution(value: Any) -> str:
    if value is None:
        return "auto"
    if value not in EXECUTIONS:
        hint = nearest(str(value), EXECUTIONS)
        raise ArgumentError(f"execution={clean(value)!r} is unknown", hint=hint)
    return str(value)


def _layers(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    # A layer may be called 3, and a number is what the command line makes of that.
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    names = tuple(str(item).strip() for item in items)
    if not names or not all(names):
        raise ArgumentError(
            f"layers={clean(value)!r} names no layer", hint="give all, or names with commas"
        )
    return None if names == (ALL,) else names


def _with_parents(names: Iterable[str]) -> set[str]:
    """Every name that could have been meant: the scans and the modules around them."""
    found: set[str] = set()
    for name in names:
        while name:
            found.add(name)
            name = name.rpartition(".")[0]
    return found


#: Where the settings of a layer stand in the configs of the families, innermost first.
_PLACES = (("model", "layer"), ("layer",), ("model", "net"), ("net",), ("model",), ())


class Facts:
    """Settings by name: the user's options first, then the config, then the code's own default.

    A default counts only where a config lies beside the weights and is silent: then the code that
    wrote it took the default too, and `assumed` says so. Without any config the setting is
    missing, and `settle` asks for every missing one by name.
    """

    def __init__(self, options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self._options = options
        self._config = resolved(config)
        self._missing: dict[str, str] = {}
        self._asked: set[str] = set()
        self._overruled: dict[str, str] = {}
        self.assumed: dict[str, str] = {}

    @property
    def stated(self) -> bool:
        """Whether there is a config at all."""
        return bool(self._config)

    def given(self, name: str) -> bool:
        """Whether the user gave it as an option."""
        self._asked.add(name)
        return self._options.get(name) is not None

    def section(self, *path: str) -> Mapping[str, Any]:
        """The part of the config at a path; empty when there is none."""
        here: Any = self._config
        for name in path:
            here = here.get(name) if isinstance(here, Mapping) else None
        return here if isinstance(here, Mapping) else Section()

    def choice(
        self,
        name: str,
        choices: Sequence[str],
        *,
        default: str | None = None,
        also: Sequence[str] = (),
        places: Sequence[tuple[str, ...]] = _PLACES,
    ) -> str:
        """One of the choices; `also` are further names of the setting in configs."""
        value = self._value(name, also, places)
        if value is None:
            return self._default(name, default, choices)
        word = "none" if value is _NULL else str(value).lower()
        if word not in choices:
            raise self._wrong(name, value, f"one of {', '.join(choices)}")
        return word

    def flag(
        self,
        name: str,
        *,
        default: bool | None = None,
        also: Sequence[str] = (),
        places: Sequence[tuple[str, ...]] = _PLACES,
    ) -> bool:
        """True or false."""
        value = self._value(name, also, places)
        if value is None or value is _NULL:
            word = self._default(name, None if default is None else str(default).lower(), _TRUTH)
            return word == "true"
        if isinstance(value, bool):
            return value
        if str(value).lower() not in _TRUTH:
            raise self._wrong(name, value, "true or false")
        return str(value).lower() == "true"

    def number(
        self,
        name: str,
        *,
        default: float | None = None,
        also: Sequence[str] = (),
        places: Sequence[tuple[str, ...]] = _PLACES,
    ) -> float | None:
        """A number; None when the config says null, or nothing and there is no default."""
        value = self._value(name, also, places)
        if value is None or value is _NULL:
            return default
        if isinstance(value, bool):
            raise self._wrong(name, str(value).lower(), "a number")
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self._wrong(name, value, "a number") from None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user said, and what of the config that overruled."""
        said = [
            f"{name}={clean(self._options[name], limit=40)}"
            + (f" (the config says {self._overruled[name]})" if name in self._overruled else "")
            for name in HYPERPARAMETERS
            if self._options.get(name) is not None
        ]
        return (f"said by options: {', '.join(said)}",) if said else ()

    def settle(self, *others: Facts) -> None:
        """Ask for everything that is missing, by name; refuse options that nobody asked about.

        `others` are earlier attempts to build the same model.
        """
        asked = self._asked.union(*(other._asked for other in others))
        given = [name for name in HYPERPARAMETERS if self._options.get(name) is not None]
        idle = [name for name in given if name not in asked]
        if idle and not self._missing:
            known = ", ".join(sorted(asked)) or "none"
            raise ArgumentError(
                f"{', '.join(idle)}: this model has no such setting", hint=f"it has: {known}"
            )
        if not self._missing:
            return
        names = ", ".join(self._missing)
        example = " ".join(f"--set {name}={values}" for name, values in self._missing.items())
        why = "the config does not say it" if self.stated else "no config lies beside it"
        raise SourceError(
            "E_CONFIG",
            f"not stored in the file, and {why}: {names}",
            hint=f"put the config beside the weights, or say it: {example}",
            stage="config",
        )

    def _value(
        self, name: str, also: Sequence[str], places: Sequence[tuple[str, ...]]
    ) -> Any | None:
        if name not in HYPERPARAMETERS:
            raise KeyError(f"{name} is no option, so nobody could say it")
        self._asked.add(name)
        stated = self._stated(name, also, places)
        if not self.given(name):
            return stated
        if stated is not None and stated is not _NULL:
            self._overruled[name] = clean(stated, limit=40)
        return self._options[name]

    def _stated(
        self, name: str, also: Sequence[str], places: Sequence[tuple[str, ...]]
    ) -> Any | None:
        """What the config says."""
        for path in places:
            section = self.section(*path)
            said = [section[key] for key in (name, *also) if key in section]
            said = [value for value in said if not isinstance(value, Mapping)]
            if said:
                # An old name that speaks beats a new one that is null.
                return next((value for value in said if value is not None), _NULL)
        return None

    def _default(self, name: str, default: str | None, choices: Sequence[str]) -> str:
        if default is None or not self.stated:
            self._missing[name] = "|".join(choices)
            return default or choices[0]
        self.assumed[name] = f"{default} (the config is silent; the code's own default)"
        return default

    def _wrong(self, name: str, value: Any, wanted: str) -> Exception:
        fact = f"{name} is {clean(value)}, not {wanted}"
        if self.given(name):
            return ArgumentError(fact, hint=f"give --set {name}=VALUE")
        return SourceError(
            "E_CONFIG",
            f"the config says that {fact}",
            hint=f"correct it, or give --set {name}=VALUE",
            stage="config",
        )


class _Null:
    """What a config says by null."""

    def __str__(self) -> str:
        return "null"


_NULL = _Null()

_TRUTH = ("false", "true")

_LAYER_PLACES = (("model", "layer"), ("layer",), ("model",), ())


def is_stated(facts: Facts, name: str, also: Sequence[str] = ()) -> bool:
    """Whether an option or the config says it, and not by null."""
    sections = [facts.section(*path) for path in _LAYER_PLACES]
    stated = any(section.get(key) is not None for section in sections for key in (name, *also))
    return facts.given(name) or stated


def assumed_flag(facts: Facts, name: str, *, default: bool, why: str) -> bool:
    """True or false as somebody says, or the default with its reason."""
    if is_stated(facts, name):
        return facts.flag(name, places=_LAYER_PLACES)
    facts.assumed[name] = f"{str(default).lower()} ({why})"
    return default


def assumed_choice(
    facts: Facts, name: str, choices: Sequence[str], *, why: str, also: Sequence[str] = ()
) -> str:
    """One of the choices as somebody says, or the first one with its reason."""
    if is_stated(facts, name, also):
        return facts.choice(name, choices, also=also, places=_LAYER_PLACES)
    facts.assumed[name] = f"{choices[0]} ({why})"
    return choices[0]


POOLINGS = ("none", "mean", "last")

#: What configs and options may say instead.
_POOL_WORDS = {"true": "mean", "false": "none", "pool": "mean"}

_POOL_PLACES = (("model",), ())

#: No default of a code: users change that line, and the answer of every step tells more.
_POOL_UNSAID = (
    "none: nothing says whether the model averages over time, so every step is read; if it "
    "does: --set pool=mean"
)


def pool_word(
    facts: Facts,
    *,
    default: str,
    also: Sequence[str] = (),
    places: Sequence[tuple[str, ...]] = _POOL_PLACES,
) -> str:
    """The very word that is said, true and false among them; `default` is the code's own."""
    # Questions show the first choice as their example.
    ordered = (default, *(word for word in (*POOLINGS, *_POOL_WORDS) if word != default))
    return facts.choice("pool", ordered, default=default, also=also, places=places)


def read_pooling(facts: Facts, *, default: str, also: Sequence[str] = ()) -> str:
    """None, mean or last; `default` is what the code does where a config is silent."""
    found = pool_word(facts, default=default, also=also)
    return _POOL_WORDS.get(found, found)


def every_step_unless_said(facts: Facts, *, also: Sequence[str] = (), ask: bool = True) -> str:
    """None, mean or last; every step where a config is silent, or, unless `ask`, without one."""
    if not ask and not is_stated(facts, "pool", also):
        facts.assumed["pool"] = _POOL_UNSAID
        return "none"
    found = read_pooling(facts, default="none", also=also)
    note_every_step(facts)
    return found


def note_every_step(facts: Facts) -> None:
    """Say of an assumed pooling that it is no default of a code, and how to change it."""
    if "pool" in facts.assumed:
        facts.assumed["pool"] = _POOL_UNSAID


#: Where configs without nesting, or with a model, say the sizes of the whole.
MODEL_PLACES: Sequence[tuple[str, ...]] = ((), ("model",))


def said_in(facts: Facts, places: Sequence[tuple[str, ...]], *names: str) -> Any:
    """The first thing that the config says under one of the names, null apart; or None."""
    found = (facts.section(*path).get(name) for path in places for name in names)
    return next((value for value in found if value is not None), None)


def require_stated(
    facts: Facts, places: Sequence[tuple[str, ...]], name: str, found: int, what: str
) -> None:
    """What the config says under a name is what was found; or E_CONFIG."""
    for path in places:
        stated = facts.section(*path).get(name)
        if stated is not None and not isinstance(stated, Mapping | list) and not _is(stated, found):
            raise SourceError(
                "E_CONFIG",
                f"the config says {name} = {clean(stated)}, but {what} {found}",
                hint="the config or the weights belong to another model, or the file is damaged",
                stage="config",
            )


def _is(stated: Any, found: int) -> bool:
    """Whether a number of a config, which may be text there, is the one that was found."""
    try:
        return not isinstance(stated, bool) and float(stated) == found
    except (TypeError, ValueError):
        return False


def config_error(fact: str) -> SourceError:
    """A config that belongs to another model."""
    return SourceError(
        "E_CONFIG",
        f"the config and the tensors disagree: {fact}",
        hint="look whether the config belongs to the weights",
        stage="config",
    )


_WHOLE = re.compile(r"\$\{\s*(?P<path>[\w.]+)\s*\}\Z")

_SELECT = re.compile(
    r"\$\{\s*oc\.select\s*:\s*(?P<path>[\w.]+)\s*(?:,\s*(?P<other>[\w.+-]*)\s*)?\}\Z"
)

_OPEN = "${"

_DEEPEST = 8

_LITERALS = {"null": None, "none": None, "true": True, "false": False, "": None}

_NOWHERE = object()


class Section(dict[str, Any]):
    """A part of a config; to read a setting that is still open is an error, not its text."""

    def get(self, key: str, default: Any = None) -> Any:
        """The setting of that name; E_CONFIG when it points at something that is not there."""
        try:
            return self[key]
        except KeyError:
            return default

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, str) and _OPEN in value:
            raise SourceError(
                "E_CONFIG",
                f"the config leaves {clean(key)} open: {clean(value)}",
                hint="save the config with its references resolved, or write the value there",
                stage="config",
            )
        return value


def resolved(config: Mapping[str, Any]) -> Section:
    """The config with references to its own settings followed; others stay open."""
    return _copied(config, config)


def _copied(part: Mapping[str, Any], root: Mapping[str, Any]) -> Section:
    return Section({key: _followed(value, root, 0) for key, value in part.items()})


def _followed(value: Any, root: Mapping[str, Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        return _copied(value, root)
    if not isinstance(value, str) or _OPEN not in value or depth > _DEEPEST:
        return value
    chosen = _SELECT.match(value)
    match = chosen or _WHOLE.match(value)
    if match is None:
        return value
    found = _at(root, match["path"].split("."))
    if found is _NOWHERE:
        return value if chosen is None else _plain(chosen["other"] or "")
    return _followed(found, root, depth + 1) if not isinstance(found, Mapping) else value


def _at(root: Mapping[str, Any], path: list[str]) -> Any:
    here: Any = root
    for name in path:
        if not isinstance(here, Mapping) or name not in here:
            return _NOWHERE
        here = dict.__getitem__(here, name) if isinstance(here, dict) else here[name]
    return here


def _plain(word: str) -> Any:
    """A default as it stands in a reference."""
    if word.lower() in _LITERALS:
        return _LITERALS[word.lower()]
    try:
        return int(word)
    except ValueError:
        return word
