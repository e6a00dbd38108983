"""From a source to a subject: which adapter opens it, with which options."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.devices import resolve_device, resolve_dtype
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, listed, nearest
from memaudit.loading.access import ACCESS, Access, Progress, access_from
from memaudit.loading.saving import retrofit_folder
from memaudit.loading.source import Source, parse_source
from memaudit.options import OPTIONS

if TYPE_CHECKING:
    import torch

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
    progress: Progress | None = None,
    restored: bool = True,
    **options: Any,
) -> Opened:
    """The subject behind a source, with its forms `restored`; a subject is given back as it is."""
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
        folder, record = (retrofit_folder(where) if restored else None), None
        if folder is not None:
            from memaudit.retrofitting.folder import recorded

            record, adapter, own = recorded(folder, adapter, own)
        request = Request(resolve_device(device), resolve_dtype(dtype), where.revision, own)
        subject = _open(where, adapter, request, moved=str(device) != "auto")
        if folder is not None and record is not None:
            from memaudit.retrofitting.folder import restore

            restore(subject, where.checkpoint, folder, record)
        return Opened(subject, where, access)
    except MemauditError as error:
        raise error.at(where.text) from error


def _open(source: Source, adapter: str | None, request: Request, *, moved: bool) -> AbstractSubject:
    if source.kind == "module" and moved:
        source = _on_device(source, request.device)
    if source.kind == "module" and adapter is None:
        subject = _whole_module(source, request)
        if subject is not None:
            return subject
    chosen = _choose(source, adapter)
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


def _whole_module(source: Source, request: Request) -> AbstractSubject | None:
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


def _choose(source: Source, name: str | None) -> AbstractAdapter:
    if name is not None:
        return registry.build("adapters", name)
    claims = sorted(_claims(source), key=lambda pair: -pair[1].strength)
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


def _claims(source: Source) -> list[tuple[AbstractAdapter, Claim]]:
    """Every adapter that can open the source; one that is broken is passed over.

    A file that one adapter cannot read may be another's: a refusal counts when nobody claims.
    """
    claims, refusal, broken = [], _refusal(source), []
    for name, plugins in registry.available("adapters").items():
        if len(plugins) > 1:
            raise registry.clash(plugins)
        try:
            with registry.calling("adapters", name, "failed to look"):
                adapter = registry.build("adapters", name)
                claim = adapter.claim(source)
        except SourceError as error:
            refusal = refusal or error
            continue
        except MemauditError as error:
            broken.append(error)
            continue
        if claim is not None:
            claims.append((adapter, claim))
    if not claims and (refusal or broken):
        raise refusal or broken[0]
    return claims


def _refusal(source: Source) -> SourceError | None:
    """Open the source before the adapters are asked: a failing machine is not their fault."""
    if not source.has_checkpoint:
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
