"""What torch.save wrote, read without torch.load: nothing in the file is imported or called."""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.errors import MachineError, SourceError, clean, listed
from memaudit.loading.access import SAFE, Access
from memaudit.loading.formats import (
    MOST_DIMENSIONS,
    STORED,
    ZIP,
    BadArchive,
    find_directory,
    read_members,
)
from memaudit.loading.pickle_child import LENGTH, LONGEST_NAME, describe
from memaudit.loading.pickle_machine import Budget, split_pickles
from memaudit.loading.pickle_objects import MOST_NUMBERS, WIDTHS, Stored, damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import IO

    from memaudit.loading.access import Limits

# -- A torch file taken apart: its pickles, and where the bytes of its storages are.

#: Magic number, version, facts about the machine, the object, the order of the storages.
LEGACY_PICKLES = 5
#: A pickle also holds what trainers keep beside the weights, vocabularies and settings: it may
#: have this many times the bytes of a header.
HEADERS_PER_PICKLE = 4
_LENGTH = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes data[start:end] of a file."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TorchParts:
    """The pickles of a torch file, the members that hold storages, and what is behind them.

    `members` is None for a legacy file, whose storages follow one another from `behind` on.
    """

    data: bytes
    pickles: tuple[bytes, ...]
    members: Mapping[str, Span] | None
    big_endian: bool
    behind: int

    def spans(self, stored: Sequence[Stored], keys: Sequence[str] | None) -> dict[str, Span]:
        """Where each storage is, once its size agrees with what the pickle says."""
        sizes = {found.key: (WIDTHS[found.dtype], found.count) for found in stored}
        if self.members is not None:
            return {key: self._member(key, *size) for key, size in sizes.items()}
        if keys is None or len(set(keys)) < len(keys) or set(keys) != set(sizes):
            raise damaged("the file does not hold the storages that its pickle speaks of")
        spans: dict[str, Span] = {}
        at = self.behind
        for key in keys:
            spans[key] = self._next(at, *sizes[key])
            at = spans[key].end
        return spans

    def _member(self, key: str, width: int, count: int) -> Span:
        span = (self.members or {}).get(key)
        if span is None or span.end - span.start != width * count:
            raise damaged("a tensor in the file is not as large as its pickle says")
        return span

    def _next(self, at: int, width: int, count: int) -> Span:
        """A legacy storage: the count of its numbers, and the numbers."""
        start = at + _LENGTH.size
        end = start + width * count
        if end > len(self.data) or _LENGTH.unpack_from(self.data, at)[0] != count:
            raise damaged("a tensor in the file is not as large as its pickle says")
        return Span(start, end)


def torch_parts(data: bytes, limits: Limits) -> TorchParts:
    """The parts of a torch file, zip or legacy; of a zip, the checksums are not looked at again."""
    if data.startswith(ZIP):
        try:
            return _zip_parts(data, limits)
        except BadArchive as error:
            raise damaged(f"the zip archive {error}") from None
    pickles, behind = split_pickles(data, LEGACY_PICKLES, Budget(limits.max_tensors))
    _require_short(sum(map(len, pickles)), limits)
    return TorchParts(data, pickles, None, False, behind)


def _zip_parts(data: bytes, limits: Limits) -> TorchParts:
    members = read_members(data, find_directory(data))
    spans = {m.name: Span(m.start, m.end) for m in members if m.method == STORED}
    pickles = [name for name in spans if name.endswith("/data.pkl")]
    if len(pickles) != 1 or pickles[0].count("/") != 1:
        raise damaged("the archive does not hold one pickle, as torch.save writes it")
    root = pickles[0].removesuffix("data.pkl")
    span = spans[pickles[0]]
    _require_short(span.end - span.start, limits)
    order = spans.get(f"{root}byteorder")
    word = b"little" if order is None else data[order.start : order.end]
    if word not in (b"little", b"big"):
        raise damaged()
    prefix = f"{root}data/"
    storages = {n.removeprefix(prefix): s for n, s in spans.items() if n.startswith(prefix)}
    return TorchParts(data, (data[span.start : span.end],), storages, word == b"big", len(data))


def _require_short(length: int, limits: Limits) -> None:
    most = HEADERS_PER_PICKLE * limits.max_header
    if length > most:
        needed = -(-length // HEADERS_PER_PICKLE)
        raise SourceError(
            "E_LIMIT",
            f"the pickle in the file has {length} bytes, more than {most}",
            hint=f"is this a model? if so, raise the limit with --set max_header={needed}",
            stage="open",
        )


# -- Starts the process that reads pickles with foreign objects, and waits no longer than allowed.

#: The package may stand in an ordinary folder, which comes last: nothing there hides a module.
_START_CHILD = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from memaudit.loading.pickle_child import main; main()"
)
#: What a Python may need to find its own libraries; nothing else of the environment is passed on.
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "SystemRoot")
#: Memory of the child beyond the interpreter: a byte of pickle becomes at worst so many, until the
#: budget of instructions is spent; from there on bytes are long texts, of which there are copies.
ALLOWANCE = 256 << 20
PER_BYTE = 64
DENSE_BYTES = 16 << 20
COPIES = 8
MOST_ANSWER = 128 << 20
_CODES = ("E_CORRUPT", "E_LIMIT", "E_UNSAFE_FORMAT", "E_UNSUPPORTED")


def describe_in_child(pickles: Sequence[bytes], access: Access) -> dict[str, Any]:
    """What the pickles say, as `describing.describe` tells it, found out by a confined process."""
    seconds = access.patience()
    size = sum(map(len, pickles))
    order = {
        "pickles": len(pickles),
        "max_tensors": access.limits.max_tensors,
        "memory": ALLOWANCE + PER_BYTE * min(size, DENSE_BYTES) + COPIES * size,
        "seconds": math.ceil(seconds),
    }
    raw = _run(json.dumps(order), pickles, seconds=seconds)
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _gave_up("did not answer as it should")
    if "exhausted" in answer:
        raise _gave_up("ran out of the memory that a model needs")
    if "refused" in answer:
        raise _child_refusal(answer["refused"])
    return answer


def _run(order: str, pickles: Sequence[bytes], *, seconds: float) -> bytes:
    """The answer of the child, which is gone when this returns or raises."""
    child = _started(order)
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    clock = threading.Timer(seconds, end)
    clock.daemon = True
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        feeder = threading.Thread(target=_feed, args=(child.stdin, pickles), daemon=True)
        try:
            clock.start()
            feeder.start()
            answer = child.stdout.read(MOST_ANSWER + 1)
            if len(answer) > MOST_ANSWER:
                child.kill()
            status = child.wait()
        finally:
            clock.cancel()
            child.kill()
            for thread in (clock, feeder):
                if thread.is_alive():
                    thread.join()
    if late.is_set():
        raise _gave_up(f"took longer than {seconds:g} s", hint="allow more with --timeout S")
    if len(answer) > MOST_ANSWER:
        raise _gave_up("had more to say than a model has")
    if status < 0:
        raise _gave_up("was ended by the system for the time or the memory that it took")
    if status or not answer:
        fact = f"the process that reads pickles failed with status {status}"
        hint = "check the installation of memaudit"
        raise MachineError("E_MEMORY", fact, hint=hint, stage="open")
    return answer


def _started(order: str) -> subprocess.Popen[bytes]:
    """A Python that sees neither the environment nor the folders of this one."""
    if not sys.executable or getattr(sys, "frozen", False):
        fact = "objects beside the tensors need a Python interpreter of their own to be read"
        hint = "run memaudit from a normal Python"
        raise SourceError("E_UNSUPPORTED", fact, hint=hint, stage="open")
    folder = Path(__file__).resolve().parents[2]  # where memaudit itself lies
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _START_CHILD, str(folder), order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        fact = f"no process can be started to read the pickle: {clean(error.strerror)}"
        raise MachineError("E_MEMORY", fact, hint="close other programs", stage="open") from None


def _feed(pipe: IO[bytes], pickles: Sequence[bytes]) -> None:
    """Give the child its pickles; one that has already refused does not listen."""
    try:
        with pipe:
            for pickle in pickles:
                pipe.write(len(pickle).to_bytes(LENGTH, "little"))
                pipe.write(pickle)
    except OSError:
        pass


def _gave_up(fact: str, *, hint: str = "") -> SourceError:
    return SourceError(
        "E_LIMIT",
        f"the process that read the pickle {fact}",
        hint=hint or "the file is damaged or hostile; copy or download it again",
        stage="open",
    )


def _child_refusal(answer: Any) -> SourceError:
    """The child's refusal, as far as it looks like one."""
    fields = answer if isinstance(answer, dict) else {}
    code, fact, hint = (str(fields.get(name, "")) for name in ("code", "fact", "hint"))
    if code not in _CODES:
        return _gave_up("did not answer as it should")
    return SourceError(code, fact[:5000], hint=clean(hint[:5000], limit=1200), stage="open")


# -- From a description to values and tensors; the description is believed in nothing.

#: A little more than whoever writes a description allows.
DEEPEST = 80


def rebuild(described: Mapping[str, Any], parts: TorchParts, *, max_tensors: int) -> Any:
    """The content of a torch file, its tensors made from the file's own bytes."""
    try:
        return _Builder(described, parts, max_tensors).value(described["tree"], 0)
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error):
        raise damaged() from None
    except MemoryError:
        raise too_large() from None
    except RuntimeError as error:
        raise (too_large() if "allocate memory" in str(error) else damaged()) from None


class _Builder:
    """Builds every tensor once, however often the tree names it."""

    def __init__(self, described: Mapping[str, Any], parts: TorchParts, max_tensors: int) -> None:
        self._described = described
        self._parts = parts
        stored = [_stored(*fields) for fields in described["storages"]]
        if len(described["tensors"]) + len(described["arrays"]) > max_tensors:
            raise damaged()
        self._spans = parts.spans(stored, described["keys"])
        self._dtypes = {found.key: found.dtype for found in stored}
        self._raw: dict[str, torch.Tensor] = {}
        self._storages: dict[tuple[str, str], torch.Tensor] = {}
        self._tensors: dict[tuple[str, int], torch.Tensor] = {}

    def value(self, node: Any, depth: int) -> Any:
        """One node of the tree."""
        if depth > DEEPEST:
            raise damaged()
        match node:
            case None | bool() | int() | float() | str():
                return node
            case ["d", [*pairs]]:
                return self._dictionary(pairs, depth)
            case ["l", [*items]]:
                return [self.value(item, depth + 1) for item in items]
            case ["t" | "a" as kind, int(place)] if place >= 0:
                return self._tensor(kind, place)
            case ["x"]:
                return None
        raise damaged()

    def _dictionary(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        """The last value of a key counts: one that was left out takes the others with it."""
        found: dict[Any, Any] = {}
        for stated, node in pairs:
            key = _key(stated)
            if node == ["x"]:
                found.pop(key, None)
            else:
                found[key] = self.value(node, depth + 1)
        return found

    def _tensor(self, kind: str, place: int) -> torch.Tensor:
        if (kind, place) not in self._tensors:
            if kind == "t":
                made = self._view(*self._described["tensors"][place])
            else:
                made = _from_array(*self._described["arrays"][place])
            self._tensors[kind, place] = made
        return self._tensors[kind, place]

    def _view(
        self,
        key: str,
        dtype: str,
        offset: int,
        size: list[int],
        stride: list[int],
        conjugate: bool,
        negative: bool,
    ) -> torch.Tensor:
        numbers = self._numbers(key, dtype)
        _require_inside(offset, size, stride, room=numbers.numel())
        found = torch.as_strided(numbers, size, stride, offset)
        # Both are lazy: a view costs nothing until it has turned out to be a weight.
        found = found.conj() if conjugate else found
        if negative:
            return torch._neg_view(found)  # pyright: ignore[reportPrivateImportUsage]
        return found

    def _numbers(self, key: str, dtype: str) -> torch.Tensor:
        """The numbers of a storage; a rest that fills no number is left out."""
        if (key, dtype) not in self._storages:
            raw, width = self._bytes(key), WIDTHS[dtype]
            whole = raw[: raw.numel() // width * width]
            self._storages[key, dtype] = _typed(whole, dtype)
        return self._storages[key, dtype]

    def _bytes(self, key: str) -> torch.Tensor:
        """The bytes of a storage, copied once whatever they are taken for."""
        if key not in self._raw:
            span = self._spans[key]
            length = span.end - span.start
            raw = np.frombuffer(self._parts.data, np.uint8, length, span.start).copy()
            swapped = _swapped(raw, self._dtypes[key]) if self._parts.big_endian else raw
            self._raw[key] = torch.from_numpy(swapped)
        return self._raw[key]


def _stored(key: str, dtype: str, count: int) -> Stored:
    if not isinstance(key, str) or type(count) is not int or not 0 <= count < MOST_NUMBERS:
        raise damaged()
    if dtype not in WIDTHS:
        raise damaged()
    return Stored(key, dtype, count)


class Unnamed:
    """A key that can name nothing: every one is another."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return f"({self.kind})"


def _key(key: Any) -> str | int | bool | Unnamed | None:
    match key:
        case ["k", str(kind)]:
            return Unnamed(kind)
    if key is None or isinstance(key, str | int):
        return key
    raise damaged()


def _require_inside(offset: int, size: list[int], stride: list[int], *, room: int) -> None:
    """Refuse a view that would reach beyond the numbers of its storage."""
    numbers = [offset, *size, *stride]
    if any(type(n) is not int or not 0 <= n < MOST_NUMBERS for n in numbers):
        raise damaged("a tensor in the file has an impossible shape")
    if len(size) != len(stride) or len(size) > MOST_DIMENSIONS:
        raise damaged("a tensor in the file has an impossible shape")
    count = math.prod(max(n, 1) for n in size)
    last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if count >= MOST_NUMBERS:
        raise damaged("a tensor in the file has an impossible shape")
    if 0 not in size and offset + last >= room:
        raise damaged("a tensor in the file is larger than its storage")
    if 0 in size and offset > room:
        raise damaged("a tensor in the file begins behind its storage")


def _from_array(
    dtype: str, shape: list[int], big_endian: bool, column_major: bool, raw: str
) -> torch.Tensor:
    """A tensor from the bytes of a numpy array."""
    data = np.frombuffer(base64.b64decode(raw, validate=True), np.uint8).copy()
    if any(type(n) is not int or n < 0 for n in shape) or len(shape) > MOST_DIMENSIONS:
        raise damaged()
    if math.prod(shape) * WIDTHS[dtype] != len(data):
        raise damaged()
    flat = _typed(torch.from_numpy(_swapped(data, dtype) if big_endian else data), dtype)
    if column_major:
        return flat.reshape(shape[::-1]).permute(*reversed(range(len(shape))))
    return flat.reshape(shape)


def _typed(raw: torch.Tensor, dtype: str) -> torch.Tensor:
    """Bytes as numbers; a truth value that is neither 0 nor 1 would be neither true nor false."""
    if dtype == "bool":
        return raw.ne(0)
    kind = getattr(torch, dtype)
    return raw.view(kind) if raw.numel() else torch.empty(0, dtype=kind)


def _swapped(raw: np.ndarray, dtype: str) -> np.ndarray:
    """The bytes of big-endian numbers in the order of this machine."""
    width = WIDTHS[dtype] // (2 if dtype.startswith("complex") else 1)
    return raw.reshape(-1, width)[:, ::-1].reshape(-1).copy()


def too_large() -> MachineError:
    """The refusal of what this machine has no memory for."""
    return MachineError(
        "E_MEMORY",
        "the tensors do not fit into memory",
        hint="use a machine with more memory",
        stage="open",
    )


_SHOWN = 20


def read_torch(data: bytes, *, access: Access = SAFE) -> tuple[Any, tuple[str, ...]]:
    """The object in a torch file, zip or legacy, and what was made inert to open it.

    `torch.load(weights_only=True)` is not used: a hundred bytes make it allocate any amount of
    memory, colliding keys make it hang, and legacy tensors may come out uninitialised.
    """
    parts = torch_parts(data, access.limits)
    most = access.limits.max_tensors
    described = {} if access.allow_pickle else _described_here(parts.pickles, max_tensors=most)
    described = described or describe_in_child(parts.pickles, access)
    content = rebuild(described, parts, max_tensors=most)
    return content, tuple(_notes(described, allowed=access.allow_pickle))


def _described_here(pickles: Sequence[bytes], *, max_tensors: int) -> dict[str, Any]:
    """The description of pickles without foreign names; empty for known settings.

    The budget bounds time and memory.
    """
    try:
        return describe(pickles, inert=False, max_tensors=max_tensors)
    except RecursionError:
        raise damaged("the containers in the file are nested too deeply") from None
    except MemoryError:
        raise too_large() from None


def _notes(described: Mapping[str, Any], *, allowed: bool) -> Iterator[str]:
    """Which objects were made inert, and what is missing among the tensors."""
    kinds = [
        f"{name} ({count})" if count else name for name, count in _rows(described, "kinds", int)
    ]
    if kinds:
        noun = "1 kind of object was" if len(kinds) == 1 else f"{len(kinds)} kinds of objects were"
        how = f"allow-pickle: {noun} made inert" if allowed else f"settings: {noun} made plain"
        yield f"{how}: {listed(kinds, most=_SHOWN, limit=LONGEST_NAME)}"
    lost = [f"{name} ({kind})" for name, kind in _rows(described, "lost", str)]
    if lost:
        yield f"left out among the tensors: {listed(lost, most=_SHOWN, limit=LONGEST_NAME)}"


def _rows(described: Mapping[str, Any], field: str, kind: type) -> list[tuple[str, Any]]:
    """The rows of a table of names, as far as it is one."""
    table = described.get(field)
    rows = table if isinstance(table, list) else [None]
    good = [r for r in rows if isinstance(r, list | tuple) and len(r) == 2]
    if len(good) < len(rows) or not all(
        isinstance(name, str) and isinstance(value, kind) for name, value in good
    ):
        raise damaged()
    return [(name, value) for name, value in good]
