"""Finding plugins by kind and name; built-ins and entry points through the same door."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from memaudit.errors import ArgumentError, MachineError, MemauditError, clean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

#: kind → name → "module:Class". Entry points of the group `memaudit.<kind>` join at run time.
BUILT_IN: Final[dict[str, dict[str, str]]] = {
    "adapters": {},  # the zoos register by entry points, like everybody else's
    "queries": {
        "driven": "memaudit.memory.driven:Driven",
        "heaviside": "memaudit.memory.queries:Heaviside",
        "impulse": "memaudit.memory.queries:Impulse",
        "reversed": "memaudit.memory.queries:ReversedInput",
        "repeat": "memaudit.memory.queries:Repeat",
        "context": "memaudit.memory.driven:Context",
    },
    "probes": {
        "assumptions": "memaudit.memory.probe:Assumptions",
        "memory": "memaudit.memory.probe:Memory",
        "spectrum": "memaudit.spectrum.probe:Spectrum",
        "closed-form": "memaudit.closed_form.probe:ClosedForm",
        "stability": "memaudit.stability.probe:Stability",
        "precision": "memaudit.precision.probe:Precision",
        "gradient": "memaudit.gradient.probe:Gradient",
        "recall": "memaudit.recall.probe:Recall",
    },
    "reparams": {
        "direct": "memaudit.reparams:Direct",
        "relu": "memaudit.reparams:Relu",
        "clip": "memaudit.reparams:Clip",
        "exp": "memaudit.reparams:Exp",
        "softplus": "memaudit.reparams:Softplus",
        "inverse": "memaudit.reparams:Inverse",
        "tanh": "memaudit.reparams:Tanh",
        "best": "memaudit.reparams:Best",
        "heavytail": "memaudit.reparams:Heavytail",
    },
    "targets": {
        "exp": "memaudit.targets:Exp",
        "poly": "memaudit.targets:Poly",
        "airy": "memaudit.targets:Airy",
        "shift": "memaudit.targets:Shift",
        "volterra": "memaudit.targets:Volterra",
        "lotka-volterra": "memaudit.targets:LotkaVolterra",
    },
    "findings": {
        "MA208": "memaudit.families.result:crossings_shift_left",
        "MA209": "memaudit.families.result:weight_growth",
    },
    "reports": {
        "terminal": "memaudit.writers.terminal:Terminal",
        "json": "memaudit.writers.json_file:JsonFile",
        "markdown": "memaudit.writers.markdown:Markdown",
        "github": "memaudit.writers.github:Github",
        "junit": "memaudit.writers.junit:Junit",
        "lm-eval": "memaudit.writers.lm_eval:LmEval",
        "html": "memaudit.writers.html:Html",
        "figure": "memaudit.writers.picture:Picture",
    },
}

#: kind → the abstract classes of which its plugins descend from one.
ABSTRACT: Final[dict[str, tuple[str, ...]]] = {
    "adapters": ("memaudit.interfaces.AbstractAdapter",),
    "queries": ("memaudit.interfaces.AbstractQuery", "memaudit.interfaces.AbstractTrialQuery"),
    "probes": ("memaudit.interfaces.AbstractProbe",),
    "reparams": ("memaudit.interfaces.AbstractReparam",),
    "targets": ("memaudit.interfaces.AbstractTarget",),
    "findings": ("memaudit.rules.Rule",),
    "reports": ("memaudit.interfaces.AbstractReportFormat",),
}
#: Rises when a plugin that was written for the old contracts would no longer work.
CONTRACT: Final = 2

#: What `scan` measures unless it is told otherwise.
DEFAULT_QUERIES: Final = ("driven", "heaviside", "impulse", "reversed")
DEFAULT_PROBES: Final = ("assumptions", "spectrum", "closed-form")

#: Trained models in the package, and what they were trained on.
DEMOS: Final[dict[str, str]] = {
    "lstm": "LSTM, 1 layer of 32: moving average with kernel 0.95^t",
    "gru": "GRU, 1 layer of 32: repeat the input of 10 steps ago",
    "rnn": "tanh RNN, 1 layer of 32: moving average with kernel 0.9^t",
    "s4d": "S4D, 1 block of 16: moving average with kernel 0.95^t",
    "lru": "LRU, 1 block of 24: repeat the symbol of 8 steps ago",
    "mamba": "Mamba, 2 layers of 48: language model of letters",
    "bert": "BERT, 2 layers of 48: are more words of a review good than bad",
}

KINDS = tuple(BUILT_IN)
SINGULAR = {kind: kind.removesuffix("s") for kind in KINDS} | {"queries": "query"}
OURS = "memaudit"
BROKEN = "reinstall or uninstall that distribution"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One registered name: where its class lives and which distribution brought it."""

    kind: str
    name: str
    target: str
    distribution: str

    @property
    def built_in(self) -> bool:
        """Whether it came with memaudit itself."""
        return self.distribution == OURS

    def origin(self) -> str:
        """The words that name this plugin in an error."""
        return f"{clean(self.target)} ({clean(self.distribution)})"

    def title(self) -> str:
        """The words that begin a sentence about this plugin."""
        return f"{self.kind}/{clean(self.name)} from {self.origin()}"


def available(kind: str) -> dict[str, tuple[Plugin, ...]]:
    """Every registered name of a kind; more than one plugin behind a name is a clash."""
    _known_kind(kind)
    found: dict[str, tuple[Plugin, ...]] = {
        name: (Plugin(kind, name, target, OURS),) for name, target in BUILT_IN[kind].items()
    }
    for point in _points(kind):
        plugin = Plugin(kind, point.name, point.value, _distribution(point))
        same = found.get(point.name, ())
        if all(other.target != plugin.target for other in same):
            found[point.name] = (*same, plugin)
    return dict(sorted(found.items()))


def find(kind: str, name: str) -> Plugin:
    """The one plugin behind a name, or an error that names the neighbours or the rivals."""
    plugins = available(kind)
    if name not in plugins:
        raise ArgumentError(
            f"unknown {SINGULAR[kind]} {clean(name)!r}", hint=nearest(name, plugins)
        )
    first, *others = plugins[name]
    if others:
        raise clash(plugins[name])
    return first


def clash(rivals: tuple[Plugin, ...]) -> MachineError:
    """The error for two plugins that want one name."""
    both = " and ".join(plugin.origin() for plugin in rivals)
    return MachineError(
        "E_PLUGIN_CLASH",
        f"{rivals[0].kind}/{clean(rivals[0].name)} is registered by {both}",
        hint="uninstall one of them",
        stage="plugins",
    )


def load(plugin: Plugin) -> type[Any]:
    """Import the class behind a plugin."""
    module, _, attribute = plugin.target.partition(":")
    with named(plugin, "does not import"):
        return getattr(importlib.import_module(module), attribute)


def build(kind: str, name: str, **options: Any) -> Any:
    """An instance of the named plugin, made with its options."""
    plugin = find(kind, name)
    made = load(plugin)
    _check_contract(plugin, made)
    with named(plugin, "cannot be built"):
        return made(**options)


def outside(kind: str, name: object) -> Plugin | None:
    """The plugin behind a name when it came from outside, None for what memaudit brings."""
    rivals = available(kind).get(str(name), ())
    return next((plugin for plugin in rivals if not plugin.built_in), None)


@contextmanager
def named(plugin: Plugin, does: str) -> Iterator[None]:
    """Turn what a plugin raises into E_PLUGIN, with its name; --debug shows the traceback.

    The only broad `except` of the code base. Errors of memaudit itself and a shortage of memory,
    which somebody may help, pass through.
    """
    try:
        yield
    except (MemauditError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # an exit would end a scan as if it were clean
        fact = f"{plugin.title()} {does}: {type(error).__name__}: {clean(error)}"
        raise MachineError("E_PLUGIN", fact, hint=BROKEN, stage="plugins") from error


@contextmanager
def calling(kind: str, name: object, does: str) -> Iterator[None]:
    """Name a plugin from outside when it raises; memaudit's own bugs stay visible as such."""
    plugin = outside(kind, name)
    if plugin is None:
        yield
        return
    with named(plugin, does):
        yield


def misbehaved(plugin: Plugin, fact: str) -> MachineError:
    """The error for a plugin that answers with something that it must not."""
    return _unfit(plugin, fact, hint="report it to its authors, or uninstall it")


def _check_contract(plugin: Plugin, made: Any) -> None:
    """Refuse a class of the wrong kind, an unfinished one, and one from the future."""
    wanted = getattr(made, "contract", None)
    if isinstance(wanted, int) and wanted > CONTRACT:
        fact = f"was written for contract {wanted}, this memaudit has contract {CONTRACT}"
        raise _unfit(plugin, fact, hint="update memaudit, or install an older version of it")
    bases = {f"{base.__module__}.{base.__qualname__}" for base in getattr(made, "__mro__", ())}
    if bases.isdisjoint(ABSTRACT[plugin.kind]):
        wanted = " or ".join(ABSTRACT[plugin.kind])
        raise _unfit(plugin, f"is no subclass of {wanted}", hint=BROKEN)
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    if missing:
        hint = "it was written for another version of memaudit; update or uninstall it"
        raise _unfit(plugin, f"lacks {', '.join(missing)}", hint=hint)


def _unfit(plugin: Plugin, fact: str, *, hint: str) -> MachineError:
    return MachineError("E_PLUGIN", f"{plugin.title()} {fact}", hint=hint, stage="plugins")


def _known_kind(kind: str) -> None:
    if kind not in BUILT_IN:
        raise ArgumentError(f"unknown kind {clean(kind)!r}", hint=nearest(kind, KINDS))


def _points(kind: str) -> tuple[EntryPoint, ...]:
    return _installed()[kind]


@cache
def _installed() -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points of every kind: what is installed is read once, not once for every kind."""
    from importlib.metadata import entry_points  # which loads email, zipfile and sockets

    every = entry_points()
    return {kind: tuple(every.select(group=f"memaudit.{kind}")) for kind in KINDS}


@cache
def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown distribution"
