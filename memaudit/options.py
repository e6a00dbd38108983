"""The options of a scan, defined once: for Python, the command line, the environment and manifests.

Every option has a name (a keyword of `memaudit.scan`), a default, a sentence, and the stage that it
belongs to; those with a flag have the environment variable MEMAUDIT_NAME, all others are given by
`--set NAME=VALUE`. Options of probes are written PROBE.OPTION, those of adapters stand with them.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.errors import ArgumentError, MachineError, clean, nearest
from memaudit.registry import BUILT_IN, DEFAULT_PROBES, DEFAULT_QUERIES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from dataclasses import Field

    from memaudit.interfaces import AbstractProbe, Budget, Setting
    from memaudit.report import Report

    Options = dict[str, dict[str, Any]]

SHORTEST, LONGEST = 8, 1_048_576
#: torch takes seeds as signed 64-bit integers.
LARGEST_SEED = 2**63 - 1
#: Amplitudes up to this size, and down to its inverse, leave room for the model's own gain.
LARGEST = 2.0**40
#: |y|_inf / |x|_inf and |y|_inf / (|x|_inf + 1), suprema over x; |y|_2 at x = 1, at one random x.
NORMALIZATIONS = ("iatn", "stablessm", "universal", "script")
#: Where the value of an option is cut in a command: lists of numbers are long.
LONGEST_VALUE = 1000


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a scan.

    `stage` is "scan" for what decides what is measured, "open" for how the source is opened,
    "measure" for how it is measured. `kind` is the type of its value, `repeated` options are given
    several times. One without a `flag` is given by `--set`.
    """

    name: str
    stage: str
    help: str
    default: Any = None
    kind: type = str
    flag: str = ""
    metavar: str | None = None
    repeated: bool = False
    low: int | None = None
    high: int | None = None
    required: bool = False
    env: str = ""

    @property
    def variable(self) -> str:
        """Its environment variable, after the first of its flags."""
        return (
            self.env
            or "MEMAUDIT_" + self.flag.split("/")[0].removeprefix("--").replace("-", "_").upper()
        )


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            "horizon",
            "scan",
            "Lags to measure.",
            512,
            int,
            "--horizon",
            "N",
            low=SHORTEST,
            high=LONGEST,
        ),
        Option(
            "queries",
            "scan",
            "A memory function to measure; may be repeated (default: driven, heaviside, impulse "
            "and reversed; repeat and context feed tokens).",
            flag="--query",
            metavar="NAME",
            repeated=True,
        ),
        Option(
            "probes",
            "scan",
            "A measurement, instead of the default ones; may be repeated (default: "
            f"{', '.join(DEFAULT_PROBES)}; on request: "
            f"{', '.join(n for n in BUILT_IN['probes'] if n not in (*DEFAULT_PROBES, 'memory'))}).",
            flag="--probe",
            metavar="NAME",
            repeated=True,
        ),
        Option("seed", "scan", "Seed of the random probes.", 0, int, "--seed", "N", low=0),
        Option(
            "budget",
            "measure",
            "What the audit may cost, as in 60s, 5min or 20000tokens: it measures what is worth "
            "most first, and says what it left out.",
            flag="--budget",
            metavar="AMOUNT",
        ),
        Option("threads", "scan", "Threads to compute with.", None, int, "--threads", "N", low=1),
        Option(
            "adapter",
            "open",
            "The adapter to open the source with.",
            flag="--adapter",
            metavar="NAME",
        ),
        Option(
            "device",
            "open",
            "auto, cpu, cuda, cuda:1, mps, xpu, or what else torch has.",
            "auto",
            flag="--device",
        ),
        Option(
            "dtype", "open", "auto, float64, float32, bfloat16, float16.", "auto", flag="--dtype"
        ),
        Option("revision", "open", "Branch, tag or commit of a hub repository.", flag="--revision"),
        Option("offline", "open", "Use no network.", False, bool, "--offline"),
        Option(
            "timeout",
            "open",
            "Seconds to wait for an answer of the hub (default: 60).",
            None,
            float,
            "--timeout",
            "S",
        ),
        Option(
            "trust_remote_code",
            "open",
            "Let an adapter run Python code that comes with the model.",
            False,
            bool,
            "--trust-remote-code",
        ),
        Option(
            "allow_pickle",
            "open",
            "Open files that pickle more than tensors; their objects become inert, none is run.",
            False,
            bool,
            "--allow-pickle",
        ),
        Option(
            "weights_only",
            "open",
            "Read only the few tensors that make the modes, out of files of any size or out of the "
            "hub, and run nothing: spectra, time scales, margins.",
            False,
            bool,
            "--weights-only",
        ),
        Option("max_bytes", "open", "Most bytes of weights (default: the machine's memory)."),
        Option("max_header", "open", "Most bytes of a header."),
        Option("max_tensors", "open", "Most tensors of a source."),
        Option(
            "text",
            "measure",
            "A text for the queries that feed tokens, and for the spectrum over data (default: a "
            "small one in the package).",
            flag="--text",
            metavar="FILE",
        ),
        Option(
            "data",
            "measure",
            "Sequences that the model works on, of the shape (T, D) or (B, T, D), or token ids "
            "(T,) or (B, T), for its memory in use: a npy, npz, csv, wav, safetensors or txt file "
            "(default: the text, embeddings, or unit noise).",
            flag="--data",
            metavar="FILE",
        ),
        Option("level", "measure", "How much is tried: quick, standard, thorough.", "standard"),
        Option("normalization", "measure", "iatn, stablessm, universal or script.", "iatn"),
        Option("amplitudes", "measure", "Sizes of the inputs, as in [0.5, 1.0]."),
        Option("epsilon", "measure", "Share of the maximum that ends the horizon.", 1e-3, float),
        Option(
            "baseline", "measure", "What counts as zero input: zero, natural, a number.", "zero"
        ),
        Option("words", "measure", "Words that the query repeat feeds, as in good,bad."),
        Option(
            "pad",
            "measure",
            "What follows the changed input of the query driven: a number or a token id (default: "
            "the sequence itself).",
        ),
        Option(
            "sequences",
            "measure",
            "How many sequences the query driven feeds, at least 8 (default: 256, 8 of a large "
            "model).",
        ),
    )
}


def names(*stages: str) -> tuple[str, ...]:
    """The names of the options of some stages."""
    return tuple(option.name for option in OPTIONS.values() if option.stage in stages)


def split_options(
    *, horizon: int, seed: int, options: dict[str, Any]
) -> tuple[Setting, dict[str, Any]]:
    """The setting of the audit, and the options that go to `load`."""
    from memaudit.interfaces import Setting

    own = names("measure")
    measuring = {name: options[name] for name in own if name in options}
    if "amplitudes" in measuring and measuring["amplitudes"] is not None:
        measuring["amplitudes"] = _amplitudes(measuring["amplitudes"])
    if measuring.get("words") is not None:
        measuring["words"] = _words(measuring["words"])
    if measuring.get("budget") is not None:
        measuring["budget"] = parse_budget(measuring["budget"])
    opening = {name: value for name, value in options.items() if name not in own}
    plain = [
        int(v) if isinstance(v, Integral) and not isinstance(v, bool) else v
        for v in (horizon, seed)
    ]
    return Setting(horizon=plain[0], seed=plain[1], **measuring), opening


def check_setting(setting: Setting) -> None:
    """Refuse what cannot be measured, before any work starts."""
    from memaudit.numerics.signals import LEVELS
    from memaudit.texts import read_text

    _whole("horizon", setting.horizon, SHORTEST, LONGEST)
    _whole("seed", setting.seed, 0, LARGEST_SEED)
    _known("level", setting.level, LEVELS)
    _known("normalization", setting.normalization, NORMALIZATIONS)
    _check_baseline(setting.baseline)
    if not isinstance(setting.epsilon, Real) or not 0 < float(setting.epsilon) < 1:
        raise ArgumentError(f"epsilon is {setting.epsilon!r}", hint="take a number between 0 and 1")
    if setting.text is not None:
        read_text(setting.text)
    if setting.sequences is not None:
        _whole("sequences", setting.sequences, 8, LONGEST)
    pad = setting.pad
    if pad is not None and (not isinstance(pad, Real) or isinstance(pad, bool)):
        raise ArgumentError(f"pad is {clean(pad)!r}", hint="take a number, or the id of a token")


def _whole(name: str, value: Any, low: int, high: int) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not low <= int(value) <= high:
        hint = f"take a whole number from {low} to {high}"
        raise ArgumentError(f"{name} is {clean(value)}", hint=hint)


def _known(name: str, value: Any, known: Collection[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(f"unknown {name} {clean(value)!r}", hint=nearest(str(value), known))


def _check_baseline(value: Any) -> None:
    from memaudit.numerics.signals import BASELINES

    if isinstance(value, Real) and not isinstance(value, bool):
        if not abs(float(value)) <= LARGEST:
            raise ArgumentError(f"baseline is {clean(value)}", hint=f"at most {LARGEST:g}")
        return
    _known("baseline", value, BASELINES)


def _amplitudes(value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    good = all(isinstance(v, Real) and not isinstance(v, bool) for v in values)
    if not values or not good or not all(1 / LARGEST <= v <= LARGEST for v in values):
        hint = f"give positive numbers from {1 / LARGEST:g} to {LARGEST:g}"
        raise ArgumentError(f"amplitudes are {clean(value)}", hint=hint)
    return tuple(float(v) for v in values)


def _words(value: Any) -> tuple[str, ...]:
    """Words from a list, or from a text with commas between them."""
    words = value.split(",") if isinstance(value, str) else value
    good = isinstance(words, list | tuple) and all(isinstance(w, str) and w.strip() for w in words)
    if not good or not words:
        raise ArgumentError(f"words are {clean(value)!r}", hint="give words, as in good,bad,ha")
    return tuple(word.strip() for word in words)


#: The units of a budget in seconds.
UNITS = {"s": 1, "min": 60, "h": 3600}


def parse_budget(value: Any) -> Budget:
    """Seconds as a number or as in 60s, 5min, 2h; or tokens, as in 20000tokens."""
    from memaudit.interfaces import Budget

    found = re.fullmatch(r"([0-9.]+) *(s|min|h|tokens)?", str(value).strip())
    try:
        amount, unit = float(found[1] if found else ""), (found[2] if found else "") or "s"
    except ValueError:
        amount, unit = 0.0, ""
    if isinstance(value, bool) or not 0 < amount < math.inf:
        hint = "give seconds, or an amount as in 60s, 5min or 20000tokens"
        raise ArgumentError(f"budget is {clean(value)!r}", hint=hint)
    return Budget(tokens=amount) if unit == "tokens" else Budget(seconds=amount * UNITS[unit])


def split_probe_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """The options without a probe before them, and those of every probe by its name."""
    plain: dict[str, Any] = {}
    of_probes: Options = {}
    for key, value in options.items():
        probe, dot, option = key.partition(".")
        if not dot:
            plain[key] = value
            continue
        given = of_probes.setdefault(probe.replace("_", "-"), {})
        name = option.replace("-", "_")
        if name in given:
            fact = f"{clean(key)} is given twice"
            raise ArgumentError(fact, hint="dashes and underscores in its name are the same")
        given[name] = value
    return plain, of_probes


def build_probes(
    requested: Sequence[str | AbstractProbe] | str | AbstractProbe | None,
    options: Options,
    *,
    queries: Sequence[Any] | str | None = None,
) -> list[AbstractProbe]:
    """The probes of an audit with their options, in the order in which they run.

    `memory` runs whenever there are queries. Cheap ones come first, outside ones last; a probe that
    nobody asked for takes no options.
    """
    from memaudit.interfaces import AbstractProbe

    names = _requested(DEFAULT_PROBES if requested is None else requested)
    named = {name.replace("_", "-") for name in names if isinstance(name, str)}
    for probe in options:
        if probe not in named:
            raise _not_taken(probe, next(iter(options[probe])), names)
    found = [
        p if isinstance(p, AbstractProbe) else _built(p, options.get(p.replace("_", "-"), {}))
        for p in names
        if p != "memory"
    ]
    wanted = [queries] if isinstance(queries, str) else queries
    if "memory" in registry.available("probes") and (wanted is None or len(wanted)):
        made = {} if wanted is None else {"queries": _queries(wanted)}
        found.append(_built("memory", made))
    order = list(BUILT_IN["probes"])
    place = {name: (number, "") for number, name in enumerate(order)}
    return sorted(found, key=lambda p: place.get(p.name, (len(order), p.name)))


def _queries(wanted: Sequence[Any]) -> tuple[Any, ...]:
    """Query objects; a name that nothing has is refused before a model is opened."""
    return tuple(registry.build("queries", q) if isinstance(q, str) else q for q in wanted)


def probe_options(name: str) -> tuple[str, ...]:
    """The names of a probe's options."""
    kind = registry.load(registry.find("probes", name))
    return tuple(f.name for f in fields(kind) if f.init) if is_dataclass(kind) else ()


def given_options(probes: Iterable[AbstractProbe]) -> dict[str, Any]:
    """The options that are not the usual ones, as in recall.lags, as plain values of JSON.

    What only Python can give, such as a function, is named by a word: "<function>", "<Tensor>".
    """
    return {
        f"{clean(probe.name)}.{option.name}": value
        for probe in probes
        if is_dataclass(probe) and probe.name != "memory"  # its queries are a setting of their own
        for option in fields(probe)
        if option.init and (value := _plain(getattr(probe, option.name))) != _plain(_usual(option))
    }


def _usual(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "<function>" if callable(value) else f"<{clean(type(value).__name__)}>"


def _requested(requested: Any) -> list[str | AbstractProbe]:
    """What was asked for as a list, when all of it is a probe or the name of one."""
    from memaudit.interfaces import AbstractProbe

    one = isinstance(requested, str) or not isinstance(requested, Iterable)
    found: list[Any] = [requested] if one else [*requested]
    for probe in found:
        if not isinstance(probe, str | AbstractProbe):
            fact = f"{clean(probe)!r} is neither a probe nor the name of one"
            raise ArgumentError(fact, hint="`memaudit list probes` shows the names")
    return found


def _not_taken(probe: str, option: str, names: Sequence[str | AbstractProbe]) -> ArgumentError:
    """The error for an option that no probe of this audit is built with."""
    from memaudit.interfaces import AbstractProbe

    name = f"{clean(probe)}.{clean(option)}"
    if any(isinstance(made, AbstractProbe) and made.name == probe for made in names):
        fact = f"{name} is an option of a probe that is built already"
        return ArgumentError(fact, hint="give it to the probe itself")
    registry.find("probes", probe)
    fact = f"{name} is an option of a probe that is not asked for"
    return ArgumentError(fact, hint=f"add --probe {clean(probe)}")


def _built(name: str, options: Mapping[str, Any]) -> AbstractProbe:
    known = probe_options(name)
    for option in options:
        if option not in known:
            fact = f"the probe {clean(name)} has no option {clean(option)!r}"
            raise ArgumentError(fact, hint=nearest(option, known))
    try:
        return registry.build("probes", name, **options)
    except MachineError as error:
        # A probe that stumbles over a value without a word of its own is not broken by that.
        if not options or not isinstance(error.__cause__, TypeError | ValueError | ArithmeticError):
            raise
        given = ", ".join(f"{clean(name)}.{o}={clean(v)!r}" for o, v in options.items())
        fact = f"{given} is refused: {type(error.__cause__).__name__}: {clean(error.__cause__)}"
        hint = f"`memaudit list probes {clean(name)}` shows its options"
        raise ArgumentError(fact, hint=hint) from error


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """The options by name; dashes and underscores in a key are the same."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().replace("-", "_")
        probe, _, option = name.rpartition(".")  # as in stability.ball
        if not equals or not option.isidentifier() or not (probe or "x").isidentifier():
            raise ArgumentError(f"--set wants KEY=VALUE, got {clean(pair)!r}")
        own = {"source": "the argument SOURCE", "progress": "--no-progress"}
        flag = own.get(name) or (OPTIONS[name].flag if name in OPTIONS else "")
        flag = "--quick or --thorough" if name == "level" else flag
        if flag:
            raise ArgumentError(f"--set cannot change {name}", hint=f"use {flag}")
        if name in found:
            raise ArgumentError(f"--set names {name} twice")
        found[name] = parse_value(value)
    return found


def parse_value(text: str) -> Any:
    """A JSON number, boolean, null, string or list; everything else is a plain string."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict) else value


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are no JSON


_USUAL_CHOICE: dict[str, tuple[str, ...]] = {"queries": DEFAULT_QUERIES, "probes": DEFAULT_PROBES}


def command(report: Report) -> str:
    """`memaudit scan …` for a shell, or the call for what lives in Python only.

    Options of the adapter are in the notes of the report.
    """
    settings, who = report.settings, report.subject
    own, options = _in_python(report), _options(report)
    if own or any("<" in str(value) for value in options.values()):
        return _call(report, "model" if own else clean(repr(who.source)), options)
    words = ["memaudit", "scan", clean(who.source)]
    for key in ("horizon", "seed"):
        words += [f"--{key}", clean(settings[key])] if key in settings else []
    if settings.get("level") in ("quick", "thorough"):
        words.append(f"--{settings['level']}")
    if settings.get("trust_remote_code") is True:
        words.append("--trust-remote-code")
    for key, option in (("queries", "--query"), ("probes", "--probe")):
        words += [word for name in _chosen(report, key) for word in (option, clean(name))]
    if "budget" in settings:
        words += ["--budget", clean(settings["budget"])]
    for key, value in {**_unusual(report), **options}.items():
        words += ["--set", clean(f"{key}={_text(value)}", limit=LONGEST_VALUE)]
    return shlex.join([*words, "--dtype", clean(who.dtype)])


def _in_python(report: Report) -> bool:
    """Whether no file holds what was measured."""
    who = report.subject
    return who.adapter == "wrap" or (not who.sha256 and who.source.isidentifier())


def _call(report: Report, source: str, options: dict[str, Any]) -> str:
    """`memaudit.scan(…)` of a module or function, or with an option that is one."""
    keys = ("horizon", "seed", "level", "budget")
    given = {key: report.settings[key] for key in keys if key in report.settings}
    given |= {key: list(names) for key in _USUAL_CHOICE if (names := _chosen(report, key))}
    given |= _unusual(report)
    words = [f"{clean(key)}={clean(repr(value))}" for key, value in given.items()]
    if source != "model":
        words.append(f"dtype={clean(repr(report.subject.dtype))}")
    pairs = (f"{clean(repr(key))}: {clean(_word(value))}" for key, value in options.items())
    words += [f"**{{{', '.join(pairs)}}}"] if options else []
    return f"memaudit.scan({', '.join([source, *words])})"


def _chosen(report: Report, key: str) -> tuple[str, ...]:
    names = tuple(report.settings.get(key) or ())
    return () if names == _USUAL_CHOICE[key] else names


def _unusual(report: Report) -> dict[str, Any]:
    settings = report.settings
    given = ("normalization", "amplitudes", "epsilon", "baseline", "words", "pad", "sequences")
    return {
        key: settings[key]
        for key in given
        if settings.get(key, OPTIONS[key].default) != OPTIONS[key].default
    }


def _options(report: Report) -> dict[str, Any]:
    """Options of probes; files from before there were any have none."""
    found = report.settings.get("probe_options")
    return found if isinstance(found, dict) else {}


def _word(value: Any) -> str:
    """A value as Python writes it; <function> stands for what only its owner has."""
    return value if isinstance(value, str) and value.startswith("<") else repr(value)


def _text(value: Any) -> str:
    """A value as `--set` reads it: JSON, or a text that is no JSON as it is."""
    if not isinstance(value, str):
        return json.dumps(value, default=str)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)
