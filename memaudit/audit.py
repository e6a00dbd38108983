"""The audit itself: open a source, measure, judge, report. Nothing here prints."""

from __future__ import annotations

import copy
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.devices import computing_threads, exact_math, resolve_device, resolve_dtype, shortage
from memaudit.doctor import environment
from memaudit.errors import (
    ArgumentError,
    MachineError,
    MemauditError,
    OutOfBudget,
    SourceError,
    clean,
    listed,
    nearest,
)
from memaudit.interfaces import (
    AbstractAdapter,
    AbstractSubject,
    Claim,
    Request,
    Tools,
)
from memaudit.loading.access import ACCESS, Access, access_from
from memaudit.loading.adapters import is_adapter
from memaudit.loading.filling import digest_tensors
from memaudit.loading.saving import is_retrofit
from memaudit.loading.series import read_data, whole_series
from memaudit.loading.source import Source, parse_source
from memaudit.options import (
    OPTIONS,
    build_probes,
    check_setting,
    given_options,
    split_options,
    split_probe_options,
)
from memaudit.registry import BUILT_IN
from memaudit.report import Report, Result
from memaudit.report_files import dumps
from memaudit.rules import judge
from memaudit.subjects.batches import BatchedSubject, Meter
from memaudit.subjects.hosts import data_by_part
from memaudit.texts import describe_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import torch

    from memaudit.interfaces import (
        AbstractProbe,
        AbstractQuery,
        AbstractTrialQuery,
        Setting,
    )

    Progress = Callable[[str, int, int], None]
    AnyQuery = AbstractQuery | AbstractTrialQuery

__all__ = ["Interrupted", "load", "scan"]


#: The share of a budget that is kept for the probes that follow.
RESERVE = 0.3


#: Probes that need no more than the weights that make the modes.
FROM_WEIGHTS = ("spectrum",)
#: Bytes of weights that are opened whole where no layer is known by names and shapes alone.
SMALL = 1 << 28


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during an audit; `report` holds what was measured until then."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__("the audit was interrupted; the partial report is in .report")


def scan(
    source: Any,
    *,
    horizon: int = 512,
    queries: Sequence[str | AnyQuery] | None = None,
    probes: Sequence[str | AbstractProbe] | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Report:
    """Audit a source, a module or a subject, and give back the whole report.

    `options` are measuring options (budget, data, level, normalization, amplitudes, epsilon,
    baseline, text, words, pad, sequences), opening options (adapter, device, dtype, revision), the
    adapter's own, and those of a probe, as in **{"stability.ball": "frobenius"}. Ctrl-C raises
    `Interrupted`, which carries the partial report. `progress` True draws a bar on a terminal.
    """
    started = time.perf_counter()
    plain, of_probes = split_probe_options(options)
    if plain.get("data") is not None:
        plain |= read_data(plain["data"])
    if plain.get("weights_only"):
        queries, probes = _without_a_run(queries, probes, plain)
    setting, opening = split_options(horizon=horizon, seed=seed, options=plain)
    check_setting(setting)
    chosen = build_probes(probes, of_probes, queries=queries)
    with _progress(progress) as advance, shortage(), computing_threads(threads):
        advance("opening", 0, 1)
        opened = open_source(source, progress=advance, **opening)
        advance("opening", 1, 1)
        ready = time.perf_counter()
        subject = opened.subject
        with exact_math(subject.device):
            found = _measure(subject, chosen, setting, advance)
        for change in opened.changed_files():
            found.failed(change, where="")
    timing = {"open_seconds": ready - started, "measure_seconds": time.perf_counter() - ready}
    settings = _settings(setting, chosen, subject, trusted=opened.access.trust_remote_code)
    if plain.get("weights_only"):
        settings["weights_only"] = True
    if found.left_out:
        settings["left_out"] = found.left_out
    report = Report(
        subject=replace(
            subject.identity,
            whole=not subject.parts(),
            context=subject.advertised,
            longest=subject.longest,
        ),
        settings=settings,
        results=found.results(host=bool(subject.parts())),
        complete=not found.interrupted and not found.errors,
        errors=tuple(found.errors),
        timing=timing,
        environment=environment() | ({"memory": found.shortage} if found.shortage else {}),
    )
    try:
        report = replace(report, findings=judge(report))
    except KeyboardInterrupt:
        if found.interrupted:  # for the second time: the user wants to be gone
            raise
        raise Interrupted(replace(report, complete=False)) from None
    if found.interrupted:
        raise Interrupted(report)
    return report


def _without_a_run(
    queries: Any, probes: Any, options: dict[str, Any]
) -> tuple[tuple[()], tuple[str, ...]]:
    """What stored weights can tell; anything else that was asked for is refused."""
    asked = [*([queries] if isinstance(queries, str) else queries or ())]
    asked += [probes] if isinstance(probes, str) else probes or ()
    asked += [f"--{name}" for name in ("data", "text", "budget") if options.get(name) is not None]
    for name in asked:
        if name not in FROM_WEIGHTS:
            fact = f"{clean(getattr(name, 'name', name))} needs a run of the model"
            raise ArgumentError(fact, hint="leave it, or --weights-only, out")
    return (), FROM_WEIGHTS


@dataclass(slots=True)
class _Measured:
    """Results by part and probe, what failed, and whether memory ran short."""

    parts: dict[str, dict[str, Result]] = field(default_factory=dict)
    errors: list[dict[str, str]] = field(default_factory=list)
    shortage: str = ""
    interrupted: bool = False
    #: Probes that the budget cut short, with their part.
    left_out: list[str] = field(default_factory=list)

    def failed(self, error: MemauditError, *, where: str) -> None:
        """Note what went wrong; the rest is measured all the same."""
        self.errors.append({**error.to_dict(), "where": where})

    def results(self, *, host: bool) -> dict[str, Result]:
        """The results by probe in the order of the catalog, those of a host's parts joined."""
        order = [*BUILT_IN["probes"], *(n for own in self.parts.values() for n in own)]
        found: dict[str, Result] = {}
        for name in dict.fromkeys(order):
            parts = {part: own[name] for part, own in self.parts.items() if name in own}
            if parts:
                first = next(iter(parts.values()))
                try:
                    with registry.calling("probes", name, "cannot join what it measured"):
                        found[name] = type(first).joined(parts) if host else first
                except MemauditError as error:
                    self.failed(error, where="")
        return found


def _measure(
    subject: AbstractSubject, probes: list[AbstractProbe], setting: Setting, progress: Progress
) -> _Measured:
    """Every probe on every part; what is there is kept when a step fails or Ctrl-C ends it."""
    found, meter = _Measured(), Meter(setting.budget)
    parts = dict(subject.parts()) or {"": subject}
    data = {}
    if setting.data is not None:
        own = subject.parts()
        data = data_by_part(subject, setting.data) if own else {"": whole_series(setting.data)}
    for number, (name, part) in enumerate(parts.items()):
        place = f"{name} ({number + 1} of {len(parts)}): " if len(parts) > 1 else ""
        batched, results = BatchedSubject(part, meter, name), found.parts.setdefault(name, {})
        end = meter.allow(1 / (len(parts) - number))
        own = replace(setting, data=data.get(name))
        try:
            for left, probe in zip(range(len(probes) - 1, -1, -1), probes, strict=True):
                meter.allow(1 - RESERVE * left / len(probes), end)
                outside = registry.outside("probes", probe.name)
                before = outside and digest_tensors(dict(part.weights()))
                try:
                    _run(probe, batched, own, results, progress, place)
                except OutOfBudget:
                    found.left_out.append(place + probe.name)
                except MemauditError as error:
                    cheap = probe.cost == "cheap" and outside is None
                    asked = isinstance(error, ArgumentError)
                    if asked or (cheap and len(parts) == 1 and "memory" not in results):
                        raise  # what was asked for cannot be, or nothing was measured
                    found.failed(error, where=name)
                    if cheap:
                        break
                if outside and digest_tensors(dict(part.weights())) != before:
                    results.pop(probe.name, None)
                    fact = "moved the weights of the model: load it anew"
                    found.failed(registry.misbehaved(outside, fact), where=name)
                    break  # the probes that follow would measure another model
        except KeyboardInterrupt:
            found.interrupted = True
            break
        finally:
            found.shortage = found.shortage or batched.shortage_text
            found.left_out += (place + name for name in meter.shortened)
            meter.shortened.clear()
    if found.left_out and not any(found.parts.values()):
        fact = f"the budget of {setting.budget} was used up before anything was measured"
        raise ArgumentError(fact, hint="give a larger --budget, or a smaller --horizon")
    return found


def _run(
    probe: AbstractProbe,
    subject: BatchedSubject,
    setting: Setting,
    results: dict[str, Result],
    progress: Progress,
    place: str,
) -> None:
    """One probe; an outside one is named when it fails."""
    stage = f"{place}{probe.name}"

    def keep(result: Result) -> None:
        if not isinstance(result, probe.result):
            raise TypeError(f"measured {type(result).__name__}, not {probe.result.__name__}")
        if registry.outside("probes", probe.name):  # here its name is known, in a writer it is not
            dumps(result.to_dict())
            tuple(result.metrics())
            tuple(result.sections())
        results[probe.name] = result

    progress(stage, 0, 1)

    def tick(done: int, of: int) -> None:
        progress(stage, done, of)
        if probe.cost != "cheap":  # those that feed sequences are stopped between two passes
            subject.meter.check()

    say = getattr(progress, "say", lambda _: None)
    tools = Tools(tick, dict(results), keep, say)
    with registry.calling("probes", probe.name, "failed"), _enough_memory(probe.name):
        keep(probe.measure(subject, setting, tools))
    progress(stage, 1, 1)


@contextmanager
def _enough_memory(probe: str) -> Iterator[None]:
    """A shortage that nobody could help becomes an error that leaves the other parts alone."""
    try:
        with shortage():
            yield
    except MemoryError:
        raise MachineError(
            "E_MEMORY",
            f"the machine has too little memory for the probe {probe}",
            hint="try --quick or a smaller --horizon",
            stage="measure",
        ) from None


def _settings(
    setting: Setting, probes: list[AbstractProbe], subject: AbstractSubject, *, trusted: bool
) -> dict[str, Any]:
    """What a report says about how it was made."""
    queries = [getattr(q, "name", q) for p in probes for q in getattr(p, "queries", ())]
    reads = subject.vocabulary is not None and subject.tokens_of("a") is not None
    settings = {
        "horizon": setting.horizon,
        "seed": setting.seed,
        "level": setting.level,
        "normalization": setting.normalization,
        "amplitudes": setting.amplitudes,
        "epsilon": setting.epsilon,
        "baseline": setting.baseline,
        "text": describe_text(setting.text) if reads else None,
        "words": setting.words,
        "trust_remote_code": trusted,
        "queries": queries,
        "probes": [probe.name for probe in probes if probe.name != "memory"],
    }
    if setting.data is not None:
        settings["data"] = setting.data.described
    if setting.budget is not None:
        settings["budget"] = str(setting.budget)
    settings |= {
        name: value
        for name in ("pad", "sequences")
        if (value := getattr(setting, name)) is not None
    }
    if options := given_options(probes):  # reports of usual probes look as they always did
        settings["probe_options"] = options
    return settings


@contextmanager
def _progress(progress: Progress | bool | None) -> Iterator[Progress]:
    if callable(progress):
        yield progress
        return
    from memaudit.writers.progress import progress_bar

    with progress_bar(wanted=bool(progress)) as advance:
        yield advance


# Opening: from a source to a subject.

#: A claim this strong knows the module better than a trial of its forward does.
CERTAIN = 15


def load(
    source: Any,
    *,
    adapter: str | None = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    **options: Any,
) -> AbstractSubject:
    """Open a source as a subject that `scan` can audit.

    A source is a file or folder, `demo:NAME`, a hub id, a timm name, or an `nn.Module`. What the
    source does not say is an option of its adapter; the defaults taken stand in the report.
    """
    return open_source(
        source, adapter=adapter, device=device, dtype=dtype, revision=revision, **options
    ).subject


@dataclass(frozen=True, slots=True)
class Opened:
    """A subject, the source it came from (None when it was given) and what was allowed."""

    subject: AbstractSubject
    source: Source | None
    access: Access

    def changed_files(self) -> list[MemauditError]:
        """What happened to the source's files since they were read, as errors."""
        return [] if self.source is None else self.source.changes()


def open_source(
    source: Any,
    *,
    adapter: str | None = None,
    device: Any = "auto",
    dtype: Any = "auto",
    revision: str | None = None,
    weights_only: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Opened:
    """The subject behind a source, with its weights behind their forms; a subject as it is."""
    access = access_from(options, progress=progress)
    if isinstance(source, AbstractSubject):
        given = {"adapter": adapter, "device": device, "dtype": dtype, "revision": revision}
        # A timeout is for the hub, and harmless where nothing is fetched.
        chosen = {**options, **given, "timeout": None}
        late = [name for name, value in chosen.items() if value not in (None, False, "auto")]
        if late:
            fact = f"{clean(late[0])} cannot be set on a subject that is already open"
            raise ArgumentError(fact, hint="give it to memaudit.load or memaudit.wrap")
        return Opened(source, None, access)
    own = {name: value for name, value in options.items() if name not in ACCESS}
    where = parse_source(source, revision=revision, access=access)
    try:
        record = None
        if where.kind == "path" and where.path is not None and is_retrofit(where.path):
            from memaudit.retrofitting.record import read_config, read_record

            record = read_config(read_record(where.path))
            if adapter in (None, record.adapter):
                adapter, own = record.adapter, {**record.options, **own}
        request = Request(resolve_device(device), resolve_dtype(dtype), where.revision, own)
        # A retrofitted model is opened whole: its forms stand beside the plain weights.
        alone = weights_only and record is None
        subject = _from_weights(where, adapter) if alone else None
        if subject is None:
            subject = _open(where, adapter, request, moved=str(device) != "auto")
            if weights_only:
                kinds = " and ".join(sorted({*where.stored.formats.values()}))
                subject.identity = replace(subject.identity, dtype=kinds)
        if record is not None:
            from memaudit.retrofitting.folder import restore

            restore(subject, where.checkpoint, record)
        return Opened(subject, where, access)
    except MemauditError as error:
        raise error.at(where.text) from error


def _from_weights(source: Source, adapter: str | None) -> AbstractSubject | None:
    """What a few tensors say; None where a small checkpoint is opened whole for that."""
    stored = source.stored
    for name in registry.available("adapters") if adapter is None else (adapter,):
        with registry.calling("adapters", name, "failed to read weights"):
            subject = registry.build("adapters", name).from_weights(stored)
        if subject is not None:
            return subject
    if sum(tensor.numel() * tensor.itemsize for tensor in stored.tensors.values()) <= SMALL:
        return None
    shown = listed(stored.tensors, most=6)
    raise SourceError(
        "E_UNSUPPORTED",
        f"no recurrent layer is known by its names among {len(stored.tensors)} tensors ({shown})",
        hint="leave --weights-only out, to run the model",
        stage="recognise",
    )


def _open(source: Source, adapter: str | None, request: Request, *, moved: bool) -> AbstractSubject:
    if source.kind == "module" and moved:
        source = _on_device(source, request.device)
    if source.kind == "module" and adapter is None:
        subject = _whole_module(source, request, moved=moved)
        if subject is not None:
            return subject
    chosen = _choose(source, adapter, request.options)
    unknown = [name for name in request.options if name not in chosen.options]
    if unknown:
        hint = nearest(unknown[0], [*chosen.options, *OPTIONS])
        fact = f"neither scan nor adapter {chosen.name} has an option {clean(unknown[0])!r}"
        raise ArgumentError(fact, hint=hint)
    with registry.calling("adapters", chosen.name, "failed to open it"):
        return chosen.load(source, request)


def _on_device(source: Source, device: torch.device) -> Source:
    """The module on another device: a copy, for the caller's stays where it is."""
    from torch import nn

    if not isinstance(source.module, nn.Module):
        return source
    return replace(source, module=copy.deepcopy(source.module).to(device))


def _whole_module(source: Source, request: Request, *, moved: bool) -> AbstractSubject | None:
    """The module as a whole, by the width that was given or found; None leaves it to adapters."""
    from torch import nn

    from memaudit.subjects.callables import discover, wrap

    options = dict(request.options)
    if "input_size" in options:
        known = {key: options.pop(key) for key in ("input_size", "pooled") if key in options}
        if options:
            raise ArgumentError(
                f"unknown option {next(iter(options))!r}", hint="known are: input_size, pooled"
            )
        if moved and not isinstance(source.module, nn.Module):  # a module was moved before
            known["device"] = request.device
        return wrap(source.module, dtype=request.dtype, **known)
    if not isinstance(source.module, nn.Module):
        raise ArgumentError(
            "a function does not say how wide its input is",
            hint="use memaudit.wrap(function, input_size=...)",
        )
    if options or any(claim.strength >= CERTAIN for _, claim in _claims(source)):
        return None
    subject = discover(source.module, dtype=request.dtype)
    if subject is not None:
        reason = f"{subject.input_size} (found by trial; give input_size= to set it)"
        subject.identity = replace(subject.identity, assumed={"input_size": reason})
    return subject


def _choose(source: Source, name: str | None, options: Collection[str]) -> AbstractAdapter:
    if name is not None:
        return registry.build("adapters", name)
    claims = sorted(_claims(source, options), key=lambda pair: -pair[1].strength)
    if not claims:
        fact, hint = _nobody(source)
        raise SourceError("E_UNSUPPORTED", fact, hint=hint, stage="open")
    best = claims[0][1].strength
    rivals = [adapter.name for adapter, claim in claims if claim.strength == best]
    if len(rivals) > 1:
        raise ArgumentError(
            f"the adapters {' and '.join(rivals)} both claim it", hint="choose with --adapter"
        )
    return claims[0][0]


def _claims(source: Source, options: Collection[str] = ()) -> list[tuple[AbstractAdapter, Claim]]:
    """Every adapter that can open the source; one that is broken is passed over.

    A file that one adapter cannot read may be another's: a refusal counts when nobody claims. A
    file that nobody claims is that of the one adapter which has the options that are given.
    """
    claims, refusal, broken, owners = [], _refusal(source), [], []
    for name, plugins in registry.available("adapters").items():
        if len(plugins) > 1:
            raise registry.clash(plugins)
        try:
            with registry.calling("adapters", name, "failed to look"):
                adapter = registry.build("adapters", name)
                if options and set(options) <= set(adapter.options):
                    owners.append(adapter)
                claim = adapter.claim(source)
        except SourceError as error:
            refusal = refusal or error
            continue
        except MemauditError as error:
            broken.append(error)
            continue
        if claim is not None:
            claims.append((adapter, claim))
    if not claims and len(owners) == 1:
        return [(owners[0], Claim(owners[0].name, 0))]
    if not claims and (refusal or broken):
        raise refusal or broken[0]
    return claims


def _refusal(source: Source) -> SourceError | None:
    """Open the source before the adapters are asked: a failing machine is not their fault."""
    if not source.has_checkpoint or is_adapter(source):
        return None
    try:
        _ = source.checkpoint
    except SourceError as error:
        return error
    return None


def _nobody(source: Source) -> tuple[str, str]:
    """The fact and the hint when no adapter claims a source."""
    known = {
        "timm": ("no installed adapter opens timm models", "see memaudit doctor"),
        "module": (
            "no input width was found that the module takes, and no recurrent layer in it",
            "give the width: memaudit.scan(module, input_size=...)",
        ),
    }
    if source.kind not in known:
        names = list(source.checkpoint.tensors)
        shown = listed(names, most=6)
        what = f"no recurrent layer was recognised among {len(names)} tensors ({shown})"
        return what, "build the model in Python and pass the module to memaudit.scan"
    return known[source.kind]
