"""From a source to a subject: which adapter opens it, with which options."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.devices import resolve_device, resolve_dtype
from memaudit.errors import ArgumentError, MachineError, MemauditError, SourceError, clean, nearest
from memaudit.loading.source import Source, parse_source
from memaudit.settings import MEASURING, OPENING, SCANNING

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
    return open_subject(
        source, adapter=adapter, device=device, dtype=dtype, revision=revision, **options
    )


def open_subject(
    source: Any,
    *,
    adapter: str | None = None,
    device: Any = "auto",
    dtype: Any = "auto",
    revision: str | None = None,
    **options: Any,
) -> AbstractSubject:
    """The subject behind a source; a subject is given back as it is."""
    if isinstance(source, AbstractSubject):
        given = {"adapter": adapter, "device": device, "dtype": dtype, "revision": revision}
        late = [*options, *(name for name, value in given.items() if value not in (None, "auto"))]
        if late:
            fact = f"{clean(late[0])} cannot be set on a subject that is already open"
            raise ArgumentError(fact, hint="give it to memaudit.load or memaudit.wrap")
        return source
    where = parse_source(source)
    try:
        return _open(where, adapter, device, dtype, revision, options)
    except MemauditError as error:
        raise error.at(where.text) from error


def _open(
    source: Source,
    adapter: str | None,
    device: Any,
    dtype: Any,
    revision: str | None,
    options: dict[str, Any],
) -> AbstractSubject:
    request = Request(resolve_device(device), resolve_dtype(dtype), revision, options)
    if source.kind == "module" and str(device) != "auto":
        source = _on_device(source, request.device)
    if source.kind == "module" and adapter is None:
        subject = _whole_module(source, request)
        if subject is not None:
            return subject
    chosen = _choose(source, adapter)
    unknown = [name for name in options if name not in chosen.options]
    if unknown:
        hint = nearest(unknown[0], [*chosen.options, *SCANNING, *OPENING, *MEASURING])
        fact = f"neither scan nor adapter {chosen.name} has an option {clean(unknown[0])!r}"
        raise ArgumentError(fact, hint=hint)
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

    from memaudit.discovery import discover
    from memaudit.wrapping import wrap

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
    """Every adapter that can open the source; one that does not import is passed over.

    A file that one adapter cannot read may be another's: a refusal counts when nobody claims.
    """
    claims, refusal = [], None
    for name, plugins in registry.available("adapters").items():
        if len(plugins) > 1:
            raise registry.clash(plugins)
        try:
            adapter = registry.build("adapters", name)
            claim = adapter.claim(source)
        except MachineError:
            continue
        except SourceError as error:
            refusal = refusal or error
            continue
        if claim is not None:
            claims.append((adapter, claim))
    if refusal is not None and not claims:
        raise refusal
    return claims


def _nobody(source: Source) -> tuple[str, str]:
    """The fact and the hint when no adapter claims a source."""
    known = {
        "hub": (
            "it looks like a hub id, and no installed adapter opens those",
            "download the model and give its path; memaudit list adapters shows what there is",
        ),
        "timm": (
            "no installed adapter opens timm models",
            "build the model in Python and pass the module to memaudit.scan",
        ),
        "module": (
            "no input width was found that the module takes, and no recurrent layer in it",
            "give the width: memaudit.scan(module, input_size=...)",
        ),
    }
    if source.kind not in known:
        names = list(source.checkpoint.tensors)
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        what = f"no recurrent layer was recognised among {len(names)} tensors ({shown})"
        return what, "build the model in Python and pass the module to memaudit.scan"
    return known[source.kind]
