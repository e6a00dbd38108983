"""The adapter of Acme's filters: JSON files with a list of taps or a decay."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeGuard

import torch

from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import AbstractAdapter, Claim, Request
from memaudit.loading.source import Source
from memaudit.report import Identity
from memaudit_acme.subject import AcmeSubject

SUFFIX = ".acme.json"


class AcmeAdapter(AbstractAdapter):
    """Acme's linear filters: NAME.acme.json, or a folder with one such file."""

    name: ClassVar[str] = "acme"
    options: ClassVar[Mapping[str, str]] = {
        "gain": "a number that the answer is multiplied by (default 1)"
    }

    def claim(self, source: Source) -> Claim | None:
        return Claim("filter", 20) if _file(source) else None

    def load(self, source: Source, request: Request) -> AcmeSubject:
        file = _file(source)
        if file is None:
            raise SourceError("E_UNSUPPORTED", f"no {SUFFIX} file is here", source=source.text)
        data = file.read_bytes()
        taps, decay = _weights(data, source.text)
        dtype = request.dtype or torch.float64
        numbers = torch.tensor(decay if taps is None else taps, dtype=dtype, device=request.device)
        identity = Identity(
            source=source.text,
            adapter=self.name,
            family="filter",
            parameters=numbers.numel(),
            dtype=str(dtype).removeprefix("torch."),
            device=str(request.device),
            sha256=hashlib.sha256(data).hexdigest(),
            description="decay" if taps is None else f"filter with {len(taps)} taps",
            assumed={} if "gain" in request.options else {"gain": "1; the file does not say"},
        )
        kind = "decay" if taps is None else "taps"
        return AcmeSubject(kind, numbers, gain=_gain(request.options), identity=identity)


def _file(source: Source) -> Path | None:
    if source.path is None:
        return None
    if source.path.is_dir():
        inside = sorted(source.path.glob(f"*{SUFFIX}"))
        return inside[0] if len(inside) == 1 else None
    return source.path if source.path.name.endswith(SUFFIX) else None


def _weights(data: bytes, text: str) -> tuple[list[float] | None, float | None]:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise SourceError("E_CORRUPT", f"this is no JSON: {error}", source=text) from error
    taps = content.get("taps") if isinstance(content, dict) else None
    decay = content.get("decay") if isinstance(content, dict) else None
    if isinstance(taps, list) and taps and all(map(_is_number, taps)):
        return [float(tap) for tap in taps], None
    if _is_number(decay):
        return None, float(decay)
    fact = "there is neither a list of taps nor a decay in it"
    raise SourceError("E_WEIGHTS", fact, hint='write {"taps": [1.0]}', source=text)


def _gain(options: Mapping[str, Any]) -> float:
    gain = options.get("gain", 1.0)
    if not _is_number(gain):
        raise ArgumentError(f"gain is {gain!r}", hint="give a number")
    return float(gain)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
