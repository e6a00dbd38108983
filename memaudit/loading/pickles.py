"""What torch.save wrote, read without torch.load: nothing in the file is imported or called.

A confined process (`pickle_child`) reads the pickle and tells which calls it would make; here
these are judged, and tensors are made from the bytes of the file.
"""

from __future__ import annotations

import base64
import json
import math
import mmap
import os
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from memaudit.errors import MachineError, SourceError, clean, listed
from memaudit.loading.formats import (
    CODE_HINT,
    DTYPES,
    MOST_DIMENSIONS,
    SAFETENSORS_HINT,
    corrupt,
    count_bytes,
    refusal,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memaudit.loading.access import Access
    from memaudit.loading.files import RegularFile
    from memaudit.loading.formats import Archive

LONGEST_NAME = 120

# -- The names in a pickle: which belong to tensors, and which nobody but an attacker writes.

#: Names that belong to tensors and plain containers: what torch.save writes for a state dict.
_PLAIN = re.compile(
    r"collections\.(OrderedDict|defaultdict|Counter)"
    r"|builtins\.(dict|list|tuple|set|frozenset|int|float|str|bool|bytes|bytearray|complex)"
    r"|_codecs\.encode"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state"
    r"|device_tensor_from_cpu_tensor|sparse_tensor|sparse_csr_tensor|qtensor|nested_tensor"
    r"|meta_tensor_no_storage)"
    r"|torch\._tensor\._rebuild_from_type_v2|torch\.serialization\._get_layout"
    r"|torch\.nn\.parameter\.(Parameter|Buffer)|torch\.(Tensor|Size|device)"
    r"|torch\.(cuda\.|storage\.)?\w*Storage"
    r"|torch\.(float|bfloat|int|uint|qint|quint|complex|bool|per_)\w*"
)

#: Modules that start programs, load code or reach the network, and functions that do. Nothing in a
#: pickle is ever called here, so the list protects nobody; it tells code from an innocent object.
#: People's own modules may share a name with Python's: `code.model.Net` is a network.
_CODE = re.compile(
    r"(os|posix|nt|subprocess|pty|sys|importlib|_imp|imp|pkgutil|runpy|codeop|bdb|pdb|cProfile|pip"
    r"|socket|_socket|socketserver|ssl|http|urllib|ftplib|smtplib|webbrowser|requests|httpx|aiohttp"
    r"|asyncio|multiprocessing|concurrent|threading|_thread|shutil|tempfile|linecache|ctypes|_ctypes"
    r"|cffi|pickle|_pickle|dill|cloudpickle|marshal|shelve|sqlite3|distutils|setuptools|gc)\..*"
    r"|builtins\.(eval|exec|compile|open|__import__|apply|input|breakpoint|globals|locals|vars"
    r"|setattr|delattr|exit|quit|help)|_?io\.(open|open_code|FileIO)|codecs\.open"
    r"|code\.(interact|InteractiveInterpreter|InteractiveConsole)(\..*)?|timeit\.\w+|trace\.Trace"
    r"|signal\.\w+|operator\.(attrgetter|methodcaller|call)|functools\.reduce"
    r"|types\.(FunctionType|LambdaType|CodeType|MethodType|ModuleType)"
    r"|numpy\.(load|save|fromfile|(f2py|testing|distutils|lib\.npyio)\..*)"
    r"|pandas\.(read_\w+|eval|io\..*)|joblib\.(load|numpy_pickle\..*)"
    r"|torch\.(load|save|(hub|jit|package|fx|_inductor|utils\.cpp_extension)\..*"
    r"|(ops|classes)\.load_library|serialization\.(load|save))",
    re.DOTALL,
)
#: Modules that other modules import: `torch.serialization.os.system` is os.system.
_REACHED = re.compile(
    r"os|posix|nt|sys|subprocess|builtins|importlib|shutil|ctypes|pickle|socket|runpy|__.*",
    re.DOTALL,
)


def is_plain(name: str) -> bool:
    """Whether a name belongs to tensors and plain containers."""
    return _PLAIN.fullmatch(name) is not None


def is_blocked(name: str) -> bool:
    """Whether only a pickle with code names this: something that runs, imports, sends or writes."""
    if _CODE.fullmatch(name):
        return True
    # `torch.serialization.os.system`, `builtins.dict.__class__`: ways round the names above.
    first, *between, last = name.split(".")
    hidden = any(_REACHED.fullmatch(part) for part in between)
    return hidden or (first != "copyreg" and last.startswith("__"))


def shown(name: str) -> str:
    """A name as people know it: `posix.system` is os.system."""
    first, _, rest = name.partition(".")
    return f"os.{rest}" if first in ("posix", "nt") else name


# -- The confined process, and what it tells.

#: Magic number, version, facts about the machine, the object, the order of the storages.
LEGACY_PICKLES = 5
LEGACY_VERSION = 1001
#: A pickle also holds what trainers keep beside the weights, vocabularies and settings: it may
#: have this many times the bytes of a header.
HEADERS_PER_PICKLE = 4
#: Values in the pickle for every tensor that may be opened, and for a file with few of them.
PARTS_PER_TENSOR, FEWEST_TENSORS = 32, 10_000
#: Memory of the process beyond the interpreter, and for every byte of pickle.
ALLOWANCE, PER_BYTE = 256 << 20, 32
#: Seconds of computing, far more than any pickle within these limits takes.
CPU_SECONDS = 20
_CHILD = Path(__file__).with_name("pickle_child.py")
#: What a Python may need to find its own libraries; nothing else of the environment is passed on.
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "SystemRoot")


def _describe(
    file: RegularFile, access: Access, *, span: tuple[int, int], pickles: int
) -> dict[str, Any]:
    """What the pickles in a span of the file say, found out by a confined process."""
    if not sys.executable or getattr(sys, "frozen", False):
        fact, hint = "torch files need a Python interpreter to be read", "run memaudit from one"
        raise refusal("E_UNSUPPORTED", fact, hint=hint)
    most = HEADERS_PER_PICKLE * access.limits.max_header
    length = min(span[1] - span[0], most)
    parts = PARTS_PER_TENSOR * max(access.limits.max_tensors, FEWEST_TENSORS)
    timeout = access.seconds()
    seconds = max(1, min(CPU_SECONDS, math.ceil(timeout)))
    orders = (span[0], length, pickles, parts, ALLOWANCE + PER_BYTE * length, seconds)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-W", "ignore", str(_CHILD), *map(str, orders)],
            stdin=file.handle,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            timeout=timeout,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        hint = "allow more with --timeout S"
        raise _gave_up(f"took longer than {timeout:g} s", hint=hint) from None
    except OSError as error:
        fact = f"no process can be started to read the pickle: {clean(error.strerror)}"
        raise MachineError("E_MEMORY", fact, hint="close other programs", stage="open") from None
    if done.returncode < 0:
        raise _gave_up("was ended by the system for the time or the memory that it took")
    if done.returncode:
        fact = f"the process that reads pickles failed with status {done.returncode}"
        hint = "check the installation of memaudit"
        raise MachineError("E_MEMORY", fact, hint=hint, stage="open")
    answer = json.loads(done.stdout)
    _refuse_code([*filter(is_blocked, answer["names"]), *answer["gadgets"]])
    match answer.get("failed"):
        case "damage" if length == most:
            raise _too_long(span[1] - span[0], most)
        case "damage":
            raise damaged()
        case "registry":
            fact = "the pickle names objects by codes of a registry, which torch.save never does"
            hint = "get the weights as safetensors from whoever made the file"
            raise refusal("E_UNSAFE_FORMAT", fact, hint=hint)
        case "parts":
            raise too_many("the pickle in the file holds more values than a model has")
        case "memory":
            raise _gave_up("ran out of the memory that a model needs")
    return answer


def _refuse_code(names: Sequence[str]) -> None:
    """Refuse what would run code, whatever the user allows."""
    if names:
        found = listed(dict.fromkeys(map(shown, names)), limit=LONGEST_NAME)
        raise refusal(
            "E_UNSAFE_FORMAT",
            f"the file would run {found}: it carries code",
            hint="delete it unless you trust who made it, and ask them for safetensors",
        )


def _gave_up(fact: str, *, hint: str = "") -> SourceError:
    hint = hint or "the file is damaged or hostile; copy or download it again"
    return refusal("E_LIMIT", f"the process that read the pickle {fact}", hint=hint)


def _too_long(length: int, most: int) -> SourceError:
    needed = -(-length // HEADERS_PER_PICKLE)
    return refusal(
        "E_LIMIT",
        f"the pickle in the file has {length} bytes, more than {most}",
        hint=f"is this a model? if so, raise the limit with --set max_header={needed}",
    )


def damaged(fact: str = "the torch file is cut short or damaged") -> SourceError:
    """The refusal of a file that does not say what it should."""
    return corrupt(fact)


# -- Records of what a pickle holds besides plain values; they may refer to one another in circles.


class Tuple(list[Any]):
    """A tuple."""


class Pairs(list[Any]):
    """A dictionary: keys and values in turn, as hostile keys are never compared."""

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Each key with its value."""
        return zip(self[::2], self[1::2], strict=True)


@dataclass(slots=True, eq=False)
class Named:
    """A class or function that the pickle names; it is not looked up."""

    name: str


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made: who was to be called, with what, and what was put in later."""

    name: str
    arguments: Any = None
    state: Any = None
    pairs: list[Any] | None = None
    items: list[Any] | None = None


@dataclass(slots=True, eq=False)
class Stored:
    """A storage: what its persistent id says."""

    ident: tuple[Any, ...] = ()


@dataclass(slots=True, eq=False)
class Omitted:
    """A value that means nothing here, such as a number of a thousand digits."""

    kind: str


def _records(answer: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """What the pickles hold, and every record."""
    shells = {
        "d": lambda node: Pairs(),
        "t": lambda node: Tuple(),
        "l": lambda node: [],
        "b": lambda node: base64.b64decode(node[1]),
        "c": lambda node: Named(node[1]),
        "s": lambda node: Stored(),
        "o": lambda node: Made(answer["nodes"][node[1][0]][1]),
        "x": lambda node: Omitted(node[1]),
    }
    records = [shells[node[0]](node) for node in answer["nodes"]]

    def value(ref: Any) -> Any:
        return records[ref[0]] if isinstance(ref, list) else ref

    for record, node in zip(records, answer["nodes"], strict=True):
        if isinstance(record, list):
            record += map(value, node[1:])
        elif isinstance(record, Stored):
            record.ident = tuple(map(value, node[1:]))
        elif isinstance(record, Made):
            record.arguments, record.state, record.pairs, record.items = map(value, node[2:])
    return [value(root) for root in answer["roots"]], records


# -- Objects that trainers keep settings in, known by their full names.

#: OmegaConf's containers and values, Lightning's dictionaries, and what both mention beside them.
_SETTINGS = re.compile(
    r"omegaconf\.(dictconfig\.DictConfig|listconfig\.ListConfig|nodes\.\w+Node"
    r"|base\.(UnionNode|ContainerMetadata|Metadata))"
    r"|lightning(\.|_)fabric\.utilities\.data\.AttributeDict"
    r"|(lightning\.pytorch|pytorch_lightning)\.utilities\.parsing\.AttributeDict"
    r"|pytorch_lightning\.callbacks\.(early_stopping\.EarlyStopping"
    r"|model_checkpoint\.ModelCheckpoint)|typing\.\w+"
)
#: What a pickled nn.Module keeps its tensors and children in.
_MODULE_KEYS = ("_parameters", "_modules")
_REBUILD = ("torch._utils._rebuild", "torch._tensor._rebuild")


def _refuse_objects(answer: Mapping[str, Any], root: Any) -> None:
    """Refuse objects besides tensors and settings."""
    names = [name for name in answer["names"] if not is_plain(name)]
    if _holds_module(root) and not any(map(_holds_weights, _values(root))):
        raise _whole_module(names)
    odd = [name for name in names if not _SETTINGS.fullmatch(name)]
    if odd:
        raise refusal(
            "E_UNSAFE_FORMAT",
            f"the file needs Python objects besides tensors: {listed(odd, limit=LONGEST_NAME)}",
            hint="--allow-pickle (in Python allow_pickle=True) opens it with these objects made "
            f"inert; or {SAFETENSORS_HINT}",
        )


def _whole_module(names: Sequence[str]) -> SourceError:
    found = listed(names, limit=LONGEST_NAME)
    fact = f"the file holds a whole pickled module, not its weights: {found}"
    return refusal("E_UNSAFE_FORMAT", fact, hint=CODE_HINT)


def _values(root: Any) -> list[Any]:
    """The values of a dictionary."""
    pairs = root if isinstance(root, Pairs) else root.pairs if isinstance(root, Made) else None
    return (pairs or [])[1::2]


def _holds_module(root: Any) -> bool:
    made = [value for value in _values(root) if isinstance(value, Made)]
    return any(map(_is_module, {id(value.state): value for value in made}.values()))


def _is_module(value: Any) -> bool:
    state = value.state if isinstance(value, Made) else None
    return isinstance(state, Pairs) and any(
        isinstance(key, str) and key in _MODULE_KEYS for key in state[::2]
    )


def _holds_weights(value: Any) -> bool:
    return any(isinstance(v, Made) and v.name.startswith(_REBUILD) for v in _values(value))


# -- Objects that stand for something plain: settings, paths, containers, numbers of numpy.

#: What has no plain meaning; it is left out.
LEFT_OUT = object()
_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace")
_PATHS = re.compile(r"pathlib\.(_local\.)?(Pure)?(Posix|Windows)?Path")
_DTYPE = re.compile(r"torch\.(float|bfloat|int|uint|complex|bool)\w*")
_NUMPY = re.compile(r"numpy\.(_core|core)\.(multiarray|numeric)\.(scalar|_reconstruct|_frombuffer)")
_CODES = re.compile(r"f[248]|[iu][1248]|b1|c8|c16")


def _meaning(record: Made | Named) -> Any:
    """A record or a plain value that means the same as an object, or LEFT_OUT."""
    if isinstance(record, Named):
        return record.name if _DTYPE.fullmatch(record.name) else LEFT_OUT
    name, state = record.name, record.state
    arguments = record.arguments if isinstance(record.arguments, Tuple) else Tuple()
    if _NUMPY.fullmatch(name):
        return _numpy(record)
    if _PATHS.fullmatch(name) and arguments and all(isinstance(a, str) for a in arguments):
        separator = "\\" if "Windows" in name else "/"
        first, *rest = arguments
        return separator.join([first.removesuffix(separator), *rest]) if rest else first
    if name.startswith("omegaconf."):
        found = dict(state.pairs()) if isinstance(state, Pairs) else {}
        return found.get("_content", found.get("_val", LEFT_OUT))
    if name in _NAMESPACES:
        state = state[0] if isinstance(state, Tuple) and state else state
        return state if isinstance(state, Pairs) else Pairs()
    if name == "torch.Size" and arguments:
        return arguments[0]
    if name == "torch.device":
        match arguments:
            case [str(kind)]:
                return kind
            case [str(kind), int(number)]:
                return f"{kind}:{number}"
    if record.pairs is not None:  # classes that were derived from dictionaries and lists
        return Pairs(record.pairs) if record.items is None else LEFT_OUT
    return LEFT_OUT if record.items is None else record.items


def _numpy(record: Made) -> Any:
    """The array or number that a call of numpy would make."""
    match record.name.rpartition(".")[2], record.arguments, record.state:
        case "scalar", [dtype, raw], None:
            array = _array(dtype, [], raw)
            return LEFT_OUT if array is None or array.dtype.kind == "c" else array.item()
        case "_reconstruct", _, [_, [*shape], dtype, order, raw]:
            array = _array(dtype, shape, raw, order="F" if order is True else "C")
        case "_frombuffer", [raw, dtype, [*shape], order], None:
            array = _array(dtype, shape, raw, order="F" if order == "F" else "C")
        case _:
            return LEFT_OUT
    return LEFT_OUT if array is None else torch.from_numpy(array)


def _array(dtype: Any, shape: list[Any], raw: Any, *, order: Any = "C") -> np.ndarray | None:
    """A copy of the numbers, in this machine's byte order."""
    match dtype, raw:
        case Made("numpy.dtype", [str(code), *_], [_, str(end), *_]), _:
            pass
        case _:
            return None
    match raw:  # old protocols write bytes as text that is to be encoded
        case Made("_codecs.encode", [str(text), "latin1" | "latin-1"]):
            raw = text.encode("latin-1", "replace")
        case Made("builtins.bytes", []):
            raw = b""
    if not _CODES.fullmatch(code) or end not in "<>|=" or not isinstance(raw, bytes):
        return None
    kind = np.dtype(code).newbyteorder(">" if end == ">" else "<")
    if count_bytes(shape, kind.itemsize) != len(raw):
        return None
    flat = np.frombuffer(raw, np.uint8) != 0 if code == "b1" else np.frombuffer(raw, kind)
    return np.array(flat.reshape(shape, order=order), flat.dtype.newbyteorder("="))


# -- Tensors: the call that would rebuild one says which bytes of the file it needs.

_DENSE = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_TYPED = "torch._utils._rebuild_tensor_v3"
_SUBCLASS = "torch._tensor._rebuild_from_type_v2"
_WITH_STATE = "torch._utils._rebuild_parameter_with_state"
#: Calls whose first argument is the tensor itself.
_WRAPPERS = ("torch._utils._rebuild_parameter", _WITH_STATE)
_ODD = {
    "torch._utils._rebuild_sparse_tensor": ("E_UNSUPPORTED", "is not strided (it is sparse)"),
    "torch._utils._rebuild_sparse_csr_tensor": ("E_UNSUPPORTED", "is not strided (it is sparse)"),
    "torch._utils._rebuild_qtensor": ("E_UNSUPPORTED", "is quantized"),
    "torch._utils._rebuild_nested_tensor": ("E_UNSUPPORTED", "is nested"),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": ("E_UNSUPPORTED", "lay on a device"),
    "torch._utils._rebuild_meta_tensor_no_storage": (
        "E_CORRUPT",
        "holds no numbers (device meta)",
    ),
}
_STORAGES = {
    **{"Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16"},
    **{"ComplexDouble": "complex128", "ComplexFloat": "complex64", "Bool": "bool"},
    **{"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8"},
    # An untyped storage counts bytes; the tensor says what they are.
    **{"Byte": "uint8", "Untyped": "uint8"},
}
#: Deeper than any trainer nests: objects count twice, once for what they hold.
DEEPEST = 64
_MOST_LOST = 20
_COUNT = struct.Struct("<q")

#: Where in a tree something stands: the place of its container and its key there.
Place: TypeAlias = "tuple[Place, Any] | None"


class Unnamed:
    """A key that can name nothing: every one is another."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return f"({self.kind})"


@dataclass(frozen=True, slots=True)
class _Storage:
    """The numbers of a storage: where they begin in the file, and what the pickle says of them."""

    start: int
    dtype: str
    count: int


class _Builder:
    """Makes plain values and tensors of records, each of them once."""

    def __init__(self, file: RegularFile, storages: Mapping[str, _Storage], *, swap: bool) -> None:
        self.found_tensor = False
        #: What could not be opened among tensors, with its kind: it may have been a weight.
        self.lost: list[str] = []
        self._map = mmap.mmap(file.handle, 0, access=mmap.ACCESS_COPY)
        self._storages = storages
        self._swap = swap
        #: The bytes of each storage, and its truth values: each is made once.
        self._bytes: dict[tuple[str, bool], torch.Tensor] = {}
        #: What was made already, by identity: the record (kept, so that no other takes its
        #: identity), and what was made of it.
        self._known: dict[int, tuple[Any, Any]] = {}

    def value(self, record: Any, path: Place = None, depth: int = 0) -> Any:
        """What a record stands for; `path` names it in errors."""
        if record is None or isinstance(record, bool | int | float | str | torch.Tensor):
            return record
        if id(record) in self._known:
            return self._known[id(record)][1]
        if depth > DEEPEST:
            raise damaged("the containers in the file are nested too deeply, or in themselves")
        made = self._made(record, path, depth + 1)
        self._known[id(record)] = record, made
        return made

    def _made(self, record: Any, path: Place, depth: int) -> Any:
        if isinstance(record, Pairs):
            return self._dictionary(record, path, depth)
        if isinstance(record, list):
            items = [self.value(item, (path, i), depth) for i, item in enumerate(record)]
            return [None if item is LEFT_OUT else item for item in items]
        if not isinstance(record, Made | Named):
            return LEFT_OUT
        tensor = self._tensor(record, path) if isinstance(record, Made) else None
        found = _meaning(record) if tensor is None else tensor
        if isinstance(found, torch.Tensor):
            self.found_tensor = True
        return found if found is LEFT_OUT else self.value(found, path, depth)

    def _dictionary(self, record: Pairs, path: Place, depth: int) -> dict[Any, Any]:
        """The last value of a key counts: one that was left out takes the others with it."""
        found: dict[Any, Any] = {}
        lost: list[str] = []
        for key, part in record.pairs():
            if key is not None and not isinstance(key, str | int):
                key = Unnamed(_kind(key))
            value = self.value(part, (path, key), depth)
            found[key] = value
            if value is LEFT_OUT:
                del found[key]
                lost.append(f"{_dotted((path, key))} ({_kind(part)})")
        if any(isinstance(value, torch.Tensor) for value in found.values()):
            self.lost += lost[:_MOST_LOST]
        return found

    def _tensor(self, made: Made, path: Place) -> torch.Tensor | None:
        """The tensor that a call would have rebuilt; None when the call is about something else."""
        for _ in range(4):  # a parameter of a subclass of a tensor is wrapped twice
            name, arguments = made.name, made.arguments
            if name in _ODD:
                raise _odd(path, *_ODD[name])
            if name not in (*_DENSE, _TYPED, _SUBCLASS, *_WRAPPERS):
                return None
            if made.state is not None or made.pairs is not None or made.items is not None:
                raise _odd(path, "E_UNSUPPORTED", "changes after it was made")
            if name in _DENSE or name == _TYPED:
                return self._view(arguments, typed=name == _TYPED)
            if name in (_SUBCLASS, _WITH_STATE) and any(map(_changes, arguments[3:])):
                raise _odd(path, "E_UNSUPPORTED", "has attributes that would change it")
            match arguments:
                case [Named(inner), _, Tuple() as given, _] if name == _SUBCLASS:
                    made = Made(inner, given)
                case [Made() as made, *_] if name in _WRAPPERS:
                    pass
                case _:
                    return None
        raise damaged()

    def _view(self, arguments: list[Any], *, typed: bool) -> torch.Tensor:
        """From (storage, offset, size, stride, requires_grad, hooks[, dtype][, metadata])."""
        match arguments:
            case [Stored(ident), int(offset), size, stride, *rest]:
                key = str(ident[2])
            case _:
                raise damaged()
        dtype, flags = self._storages[key].dtype, rest[2 + typed : 4 + typed]
        if typed:
            match rest:
                case [_, _, Named(name), *_]:
                    dtype = _dtype_of(name)
                case _:
                    raise damaged()
        numbers = self._numbers(key, dtype)
        lengths, steps = _integers(size), _integers(stride)
        _require_inside(offset, lengths, steps, room=numbers.numel())
        found = torch.as_strided(numbers, lengths, steps, offset)
        match flags:
            case [] | [None]:
                return found
            case [Pairs(["conj", True])] if found.is_complex():
                return found.conj()
            case _:
                fact = "a tensor in the file has properties that memaudit does not know"
                raise refusal("E_UNSUPPORTED", fact, hint="save plain dense tensors")

    def _numbers(self, key: str, dtype: str) -> torch.Tensor:
        """The numbers of a storage, in the file itself unless they must be moved."""
        width = getattr(torch, dtype).itemsize
        place = key, dtype == "bool"
        if place not in self._bytes:
            raw = self._raw(self._storages[key])
            # A truth value that is neither 0 nor 1 would be neither.
            self._bytes[place] = raw.ne(0) if dtype == "bool" else raw
        if self._bytes[place].data_ptr() % width:
            self._bytes[place] = self._bytes[place].clone()
        raw = self._bytes[place]
        return raw[: raw.numel() // width * width].view(getattr(torch, dtype))

    def _raw(self, stored: _Storage) -> torch.Tensor:
        width = getattr(torch, stored.dtype).itemsize
        if not stored.count:
            return torch.empty(0, dtype=torch.uint8)
        count = width * stored.count
        raw = torch.frombuffer(self._map, dtype=torch.uint8, count=count, offset=stored.start)
        if not self._swap:
            return raw
        width //= 2 if stored.dtype.startswith("complex") else 1
        return raw.view(-1, width).flip(1).reshape(-1)


def _kind(value: Any) -> str:
    if isinstance(value, Omitted):
        return value.kind
    kinds = {Pairs: "dict", Tuple: "tuple"}
    return getattr(value, "name", "") or kinds.get(type(value), type(value).__name__)


def _dotted(path: Place) -> str:
    """The name of a place, cleaned; only the end of a long one."""
    keys: list[str] = []
    while path is not None and len(keys) < 8:
        path, key = path
        keys.append(clean(key, limit=100))
    return ".".join(reversed(keys))


def _odd(path: Place, code: str, fact: str) -> SourceError:
    hint = "save plain dense tensors, e.g. tensor.to_dense().dequantize().contiguous()"
    return refusal(code, f"the tensor {_dotted(path)!r} {fact}", hint=hint)


def _changes(state: Any) -> bool:
    """Whether a state holds more than remarks: fields of a tensor, tensors, or what is unknown."""
    if isinstance(state, Tuple) and len(state) == 2:  # an object's dictionary and its slots
        return any(map(_changes, state))
    if not isinstance(state, Pairs):
        return state is not None
    return any(
        not isinstance(key, str)
        or key.startswith("__")
        or hasattr(getattr(torch.Tensor, key, None), "__set__")
        or (isinstance(value, Made) and value.name.startswith(_REBUILD))
        for key, value in state.pairs()
    )


def _integers(value: Any) -> list[int]:
    """A tuple of whole numbers, or a torch.Size that was to be made of one."""
    match value:
        case Made("torch.Size", [Tuple() as given]):
            value = given
    if not isinstance(value, Tuple) or len(value) > MOST_DIMENSIONS:
        raise damaged("a tensor in the file has an impossible shape")
    if any(type(n) is not int or n < 0 for n in value):
        raise damaged("a tensor in the file has an impossible shape")
    return value


def _require_inside(offset: int, size: list[int], stride: list[int], *, room: int) -> None:
    """Refuse a view that would reach beyond the numbers of its storage."""
    if len(size) != len(stride) or offset < 0 or count_bytes(size, 16) is None:
        raise damaged("a tensor in the file has an impossible shape")
    last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if offset + (1 + last if 0 not in size else 0) > room:
        raise damaged("a tensor in the file is larger than its storage")


def _dtype_of(name: str) -> str:
    """The dtype behind a name such as `torch.float32`."""
    found = name.removeprefix("torch.")
    if found not in DTYPES or found == name:
        raise _unsupported(f"a tensor of the dtype {name}")
    return found


def _unsupported(what: str) -> SourceError:
    hint = "save plain dense tensors of a common dtype"
    return refusal("E_UNSUPPORTED", f"the file holds {what}", hint=hint)


# -- A torch file: a zip archive with one pickle, or five pickles with the numbers behind them.


def read_torch(
    file: RegularFile, archive: Archive | None, access: Access
) -> tuple[Any, tuple[str, ...]]:
    """The object in a torch file, and notes on what was made inert to open it.

    `torch.load(weights_only=True)` is not used: a hundred bytes make it allocate any amount of
    memory, and its restrictions were broken twice.
    """
    try:
        return _read_torch(file, archive, access)
    except (KeyError, IndexError, TypeError, ValueError, struct.error):
        raise damaged() from None


def _read_torch(
    file: RegularFile, archive: Archive | None, access: Access
) -> tuple[Any, tuple[str, ...]]:
    span, swap = (0, file.size), False
    spans = archive.spans if archive else {}
    if archive:
        pickles = [name for name in spans if name.endswith("/data.pkl")]
        if len(pickles) != 1 or pickles[0].count("/") != 1:
            raise damaged("the archive does not hold one pickle, as torch.save writes it")
        folder, span = pickles[0].removesuffix("data.pkl"), spans[pickles[0]]
        if span[1] - span[0] > HEADERS_PER_PICKLE * access.limits.max_header:
            raise _too_long(span[1] - span[0], HEADERS_PER_PICKLE * access.limits.max_header)
        order = spans.get(f"{folder}byteorder")
        word = file.read(order[0], order[1] - order[0]) if order else b"little"
        if word not in (b"little", b"big"):
            raise damaged()
        swap = word == b"big"
        below = f"{folder}data/"
        spans = {n.removeprefix(below): s for n, s in spans.items() if n.startswith(below)}
    answer = _describe(file, access, span=span, pickles=1 if archive else LEGACY_PICKLES)
    roots, records = _records(answer)
    root, keys = roots[0], None
    if not archive:
        _, version, _, root, keys = roots
        if version != LEGACY_VERSION or not isinstance(keys, list):
            raise damaged()
    foreign = {name: n for name, n in answer["names"].items() if not is_plain(name)}
    if _is_module(root):
        raise _whole_module(list(foreign))
    if not access.allow_pickle:
        _refuse_objects(answer, root)
    declared = _declared(records)
    storages = (
        _in_archive(declared, spans)
        if keys is None
        else _in_a_row(file, declared, keys, answer["end"])
    )
    builder = _Builder(file, storages, swap=swap)
    content = builder.value(root)
    if not builder.found_tensor:
        if _holds_module(root):
            raise _whole_module(list(foreign))
        if isinstance(root, Made) and root.name and not is_plain(root.name):
            what = clean(root.name, limit=LONGEST_NAME)
            fact = f"the file holds an object of the kind {what}, not a dictionary of named tensors"
            raise refusal("E_UNSUPPORTED", fact, hint=SAFETENSORS_HINT)
    return content, tuple(_notes(foreign, builder.lost, allowed=access.allow_pickle))


def _declared(records: Sequence[Any]) -> dict[str, tuple[str, int]]:
    """The dtype and the count of every storage by its key, from the persistent ids.

    An id is ("storage", class, key, place, count), in legacy files with None behind it: a view
    of another storage would stand there, which torch has not written for years.
    """
    found: dict[str, tuple[str, int]] = {}
    for record in records:
        match record:
            case Stored(("storage", str(name), str(key), _, int(count), *rest)) if count >= 0:
                kind = name.rpartition(".")[2].removesuffix("Storage")
            case Stored():
                raise damaged()
            case _:
                continue
        if rest not in ([], [None]):
            raise _unsupported("a storage that is a view of another one")
        if not name.startswith("torch.") or kind not in _STORAGES:
            quantized = kind.startswith("Q")
            raise _unsupported(
                "quantized tensors" if quantized else f"a storage of the kind {name}"
            )
        if found.setdefault(key, (_STORAGES[kind], count)) != (_STORAGES[kind], count):
            raise damaged("the file states two types or sizes for one of its tensors")
    return found


def _in_archive(
    declared: Mapping[str, tuple[str, int]], spans: Mapping[str, tuple[int, int]]
) -> dict[str, _Storage]:
    found: dict[str, _Storage] = {}
    for key, (dtype, count) in declared.items():
        start, end = spans.get(key, (0, -1))
        if end - start != count * getattr(torch, dtype).itemsize:
            raise damaged("a tensor in the file is not as large as its pickle says")
        found[key] = _Storage(start, dtype, count)
    return found


def _in_a_row(
    file: RegularFile, declared: Mapping[str, tuple[str, int]], keys: list[Any], at: int
) -> dict[str, _Storage]:
    """Storages one behind another, each of them behind the count of its numbers."""
    if sorted(keys) != sorted(declared):
        raise damaged("the file does not hold the storages that its pickle speaks of")
    found: dict[str, _Storage] = {}
    for key in keys:
        dtype, count = declared[key]
        start = at + _COUNT.size
        at = start + count * getattr(torch, dtype).itemsize
        if at > file.size or _COUNT.unpack(file.read(start - _COUNT.size, _COUNT.size)) != (count,):
            raise damaged("a tensor in the file is not as large as its pickle says")
        found[key] = _Storage(start, dtype, count)
    return found


def _notes(foreign: Mapping[str, int], lost: Sequence[str], *, allowed: bool) -> Iterator[str]:
    """Which objects were made inert, and what is missing among the tensors."""
    kinds = [f"{name} ({count})" if count else name for name, count in foreign.items()]
    if kinds:
        noun = "1 kind of object was" if len(kinds) == 1 else f"{len(kinds)} kinds of objects were"
        how = f"allow-pickle: {noun} made inert" if allowed else f"settings: {noun} made plain"
        yield f"{how}: {listed(kinds, most=20, limit=LONGEST_NAME)}"
    if lost:
        yield f"left out among the tensors: {listed(lost, most=20, limit=LONGEST_NAME)}"
