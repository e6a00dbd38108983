"""The laws of an adapter and of the subjects that it makes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from memaudit import registry
from memaudit.audit import load, scan
from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.errors import MemauditError
from memaudit.loading.access import Access
from memaudit.loading.source import Source, parse_source
from memaudit.options import OPTIONS
from memaudit.testing.law import check_plain, check_words, draw, must
from memaudit.testing.linear_part import check_linear_part
from memaudit.testing.weights import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A row alone and in a batch may be summed in another order.
ROUNDINGS = 1e4


def check_adapter(
    adapter: AbstractAdapter, source: Any, *, options: Mapping[str, Any] | None = None
) -> None:
    """The laws of `AbstractAdapter` and its subject, on a source that it opens, on the CPU."""
    must(isinstance(adapter, AbstractAdapter), f"{adapter!r} is no AbstractAdapter")
    check_words(adapter, "name")
    _check_options(adapter, source)
    where = parse_source(source)
    claim = adapter.claim(where)
    strong = isinstance(claim, Claim) and bool(claim.family) and claim.strength > 0
    must(strong, f"claim gives {claim!r} for a source that it should open")
    away = Access(offline=True)
    for other in (Source("hub", "nobody/nothing", access=away), Source("timm", "timm:nothing")):
        try:
            wild = adapter.claim(other)
        except MemauditError:
            continue  # nobody can look into it from here
        must(wild is None or isinstance(wild, Claim), f"claim gives {wild!r}, no Claim and no None")
    for dtype in (None, torch.float64):
        request = Request(torch.device("cpu"), dtype, None, dict(options or {}))
        subject, again = adapter.load(where, request), adapter.load(parse_source(source), request)
        _check_identity(adapter, subject, in_memory=where.kind == "module")
        parts = dict(subject.parts()) or {"": subject}
        other_parts = dict(again.parts()) or {"": again}
        for name, part in parts.items():
            must(dtype in (None, part.dtype), f"{dtype} was asked for, {part.dtype} was loaded")
            _check_subject(part, other_parts[name])
        after = adapter.load(parse_source(source), request).identity
        must(after == subject.identity, "after an audit the source loads as another one")


def _check_options(adapter: AbstractAdapter, source: Any) -> None:
    for name, words in adapter.options.items():
        must(name.isidentifier(), f"the option {name!r} cannot be a keyword")
        must(bool(words.strip()), f"the option {name} has no sentence")
        must(name not in OPTIONS, f"the option {name} belongs to memaudit itself")
    if adapter.name not in registry.available("adapters"):
        return
    try:
        load(source, adapter=adapter.name, no_such_option=1)
    except MemauditError as error:
        named = "no_such_option" in error.fact
        must(named, f"an unknown option ends in another error: {error}")
        return
    must(False, "an unknown option is taken without a word")


def _check_identity(adapter: AbstractAdapter, subject: AbstractSubject, *, in_memory: bool) -> None:
    who = subject.identity
    must(who.adapter == adapter.name, f"identity.adapter is {who.adapter!r}, not {adapter.name}")
    for name in ("source", "family", "dtype", "device", "description"):
        must(bool(str(getattr(who, name)).strip()), f"identity.{name} is empty")
    digest = bool(re.fullmatch("[0-9a-f]{64}", who.sha256)) or (in_memory and not who.sha256)
    must(digest, f"identity.sha256 is {who.sha256!r}, not 64 hexadecimal digits")
    must(who.parameters >= 0, f"identity.parameters is {who.parameters}")
    must(0 <= who.coverage <= 1, f"identity.coverage is {who.coverage}, outside 0 to 1")
    for name, reason in who.assumed.items():
        known = name in (*adapter.options, *OPTIONS)
        must(known, f"{name} was assumed, but there is no such option to set it")
        must(bool(reason.strip()), f"{name} was assumed without a reason")
    check_plain(who, "the identity")


def _check_subject(subject: AbstractSubject, again: AbstractSubject) -> None:
    width = subject.input_size
    must(isinstance(width, int) and width > 0, f"input_size is {width!r} and there are no parts")
    before, weights = None, fingerprint(subject)
    for length in (1, 9):
        u = torch.stack([draw(length, width or 1), draw(length, width or 1, seed=1)])
        u = u.to(subject.dtype)
        kept, before = u.clone(), subject.respond(u)
        lead = (2,) if subject.pooled else (2, length)
        right = before.shape[:-1] == lead and before.ndim == len(lead) + 1
        must(right, f"respond answers {tuple(u.shape)} by {tuple(before.shape)}")
        must(before.dtype == subject.dtype, f"respond answers in {before.dtype}")
        must(torch.equal(u, kept), "respond changes its input")
        must(torch.equal(subject.respond(u), before), "two identical calls differ")
        must(torch.equal(again.respond(u), before), "two loads of one source answer differently")
        off = float((subject.respond(u[:1]) - before[:1]).abs().max())
        limit = ROUNDINGS * torch.finfo(subject.dtype).eps * max(1.0, float(before.abs().max()))
        must(off <= limit, f"a row alone and in a batch differ by {off:.2g}")
    for part in subject.linear_parts().values():
        check_linear_part(part, dtype=subject.dtype)
    scan(subject, horizon=8, level="quick")
    must(fingerprint(subject) == weights, "an audit moves the weights")
    must(torch.equal(subject.respond(u), before), "an audit changes what the subject answers")
