"""What the calls in a pickle of torch mean, without making any: tensors, arrays, settings."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from memaudit.errors import SourceError, clean
from memaudit.loading.formats import MOST_DIMENSIONS, SAFETENSORS_HINT, corrupt, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

# -- Inert values: what stands for the classes, calls and dictionaries of a pickle.


@dataclass(slots=True, eq=False)
class Named:
    """A class or function that the pickle names; it is not looked up."""

    name: str


@dataclass(slots=True, eq=False)
class Pairs:
    """A dictionary as its pairs: hostile keys are never hashed."""

    pairs: list[tuple[Any, Any]]


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made: who was to be called, with what, and what was put in later."""

    maker: Any
    arguments: Any
    state: Any = None
    pairs: list[tuple[Any, Any]] | None = None
    items: list[Any] | None = None

    @property
    def name(self) -> str:
        """The maker's name; one that was itself made has none."""
        return self.maker.name if isinstance(self.maker, Named) else ""


def damaged(fact: str = "the torch file is cut short or damaged") -> SourceError:
    """The refusal of a file that does not say what it should."""
    return corrupt(fact)


# -- The storages of torch files: what their persistent ids say, and how wide their numbers are.

#: Bytes of one number.
WIDTHS = {
    **{"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2},
    **{"float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1},
    **{"complex128": 16, "complex64": 8, "complex32": 4, "bool": 1},
    **{"int8": 1, "int16": 2, "int32": 4, "int64": 8},
    **{"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8},
}
_STORAGES = {
    **{"Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16"},
    **{"ComplexDouble": "complex128", "ComplexFloat": "complex64", "Bool": "bool"},
    **{"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8"},
    # An untyped storage counts bytes; the tensor says what they are.
    **{"Byte": "uint8", "Untyped": "uint8"},
}
#: No storage has more numbers than this.
MOST_NUMBERS = 1 << 60


@dataclass(frozen=True, slots=True)
class Stored:
    """A storage by its key in the file, with the type and the count of its numbers."""

    key: str
    dtype: str
    count: int


def stored(name: str, ident: tuple[Any, ...]) -> Stored:
    """The storage that a persistent id speaks of.

    The id is ("storage", class, key, place, count), in legacy files with None behind it: a view
    of another storage would stand there, which torch has not written for years.
    """
    if len(ident) not in (5, 6) or ident[0] not in ("storage", b"storage"):
        raise damaged()
    key, count = ident[2], ident[4]
    if not isinstance(key, str) or type(count) is not int or not 0 <= count < MOST_NUMBERS:
        raise damaged()
    if ident[5:] not in ((), (None,)):
        raise _unsupported("a storage that is a view of another one")
    kind = name.rpartition(".")[2].removesuffix("Storage")
    if not name.startswith("torch.") or kind not in _STORAGES:
        what = "quantized tensors" if kind.startswith("Q") else f"a storage of the kind {name}"
        raise _unsupported(what)
    return Stored(key, _STORAGES[kind], count)


def dtype_of(name: str) -> str:
    """The dtype behind a name such as `torch.float32`."""
    found = name.removeprefix("torch.")
    if found not in WIDTHS or found == name:
        raise _unsupported(f"a tensor of the dtype {name}")
    return found


def _unsupported(what: str) -> SourceError:
    hint = "save plain dense tensors of a common dtype"
    return refusal("E_UNSUPPORTED", f"the file holds {what}", hint=hint)


# -- Attributes that people give to tensors, and those that would turn a tensor into another one.

#: What torch itself keeps in a tensor: setting one of them is more than a remark.
TENSOR_FIELDS = frozenset(
    (
        *("H", "T", "_backward_hooks", "_base", "_cdata", "_grad", "_grad_fn"),
        *("_has_symbolic_sizes_strides", "_post_accumulate_grad_hooks", "_python_dispatch"),
        *("_version", "data", "device", "dtype", "grad", "grad_dtype", "grad_fn", "imag"),
        *("is_cpu", "is_cuda", "is_hpu", "is_ipu", "is_leaf", "is_maia", "is_meta", "is_mkldnn"),
        *("is_mps", "is_mtia", "is_nested", "is_ort", "is_quantized", "is_sparse"),
        *("is_sparse_csr", "is_vulkan", "is_xla", "is_xpu", "itemsize", "layout", "mH", "mT"),
        *("name", "names", "nbytes", "ndim", "output_nr", "real", "requires_grad"),
        *("retains_grad", "shape", "volatile"),
    )
)
#: More than anybody notes down at a tensor.
MOST_ATTRIBUTES = 100
_REBUILD = ("torch._utils._rebuild", "torch._tensor._rebuild")


def changes_tensor(states: tuple[Any, ...]) -> bool:
    """Whether a state holds more than remarks: fields of a tensor, tensors, or what is unknown."""
    found = [part for state in states for part in (state if _is_split(state) else (state,))]
    return any(map(_is_more_than_remarks, found))


def _is_split(state: Any) -> bool:
    """Whether a state is the pair of an object's dictionary and its slots."""
    return isinstance(state, tuple) and len(state) == 2


def _is_more_than_remarks(state: Any) -> bool:
    if state is None:
        return False
    if not isinstance(state, Pairs) or len(state.pairs) > MOST_ATTRIBUTES:
        return True
    return any(not _is_remark(key, value) for key, value in state.pairs)


def _is_remark(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or key in TENSOR_FIELDS or key.startswith("__"):
        return False
    return not (isinstance(value, Made) and value.name.startswith(_REBUILD))


# -- Tensors in an inert pickle: the call that would rebuild one says all there is to know.

DENSE = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
TYPED = "torch._utils._rebuild_tensor_v3"
SUBCLASS = "torch._tensor._rebuild_from_type_v2"
#: Calls whose first argument is the tensor itself.
_WITH_STATE = "torch._utils._rebuild_parameter_with_state"
_CONVERTED = "torch._utils._rebuild_device_tensor_from_cpu_tensor"
_WRAPPERS = ("torch._utils._rebuild_parameter", _WITH_STATE, _CONVERTED)
#: A parameter of a subclass of a tensor is wrapped twice.
DEEPEST_WRAPPING = 4
_ODD = {
    "torch._utils._rebuild_sparse_tensor": ("E_UNSUPPORTED", "is not strided (it is sparse)"),
    "torch._utils._rebuild_sparse_csr_tensor": ("E_UNSUPPORTED", "is not strided (it is sparse)"),
    "torch._utils._rebuild_qtensor": ("E_UNSUPPORTED", "is quantized"),
    "torch._utils._rebuild_nested_tensor": ("E_UNSUPPORTED", "is nested"),
    "torch._utils._rebuild_meta_tensor_no_storage": (
        "E_CORRUPT",
        "holds no numbers (device meta)",
    ),
}
_REBUILDERS = (*DENSE, TYPED, SUBCLASS, *_WRAPPERS)

#: Where in a tree something stands: the place of its container and its key there.
Place: TypeAlias = "tuple[Place, Any] | None"
_LONGEST_PATH = 8


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor as a view of a storage; nothing of it has been checked but the types."""

    key: str
    dtype: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    conjugate: bool = False
    negative: bool = False


def tensor_record(made: Made, path: Place) -> Record | None:
    """The tensor that a call would have rebuilt; None when the call is about something else."""
    dtypes: list[Any] = []
    for _ in range(DEEPEST_WRAPPING):
        name, arguments = made.name, made.arguments
        if name in _ODD:
            raise _odd(path, *_ODD[name])
        if name not in _REBUILDERS:
            return None
        if made.state is not None or made.pairs is not None or made.items is not None:
            raise _odd(path, "E_UNSUPPORTED", "changes after it was made")
        if name in DENSE or name == TYPED:
            record = _record(arguments, typed=name == TYPED)
            if any(dtype != record.dtype for dtype in dtypes):
                raise _odd(path, "E_UNSUPPORTED", "is to be converted to another dtype")
            return record
        if not isinstance(arguments, tuple) or not arguments:
            return None
        if name in (SUBCLASS, _WITH_STATE) and changes_tensor(arguments[3:]):
            raise _odd(path, "E_UNSUPPORTED", "has attributes that would change it")
        if name == _CONVERTED:
            dtypes.append(_target(arguments))
        inner = _as_plain(arguments) if name == SUBCLASS else arguments[0]
        if not isinstance(inner, Made):
            return None
        made = inner
    raise damaged()


def dotted(path: Place) -> str:
    """The name of a place, cleaned; only the end of a long one."""
    keys: list[str] = []
    while path is not None and len(keys) < _LONGEST_PATH:
        path, key = path
        keys.append(clean(key, limit=100))
    return ".".join(reversed(keys))


def _odd(path: Place, code: str, fact: str) -> SourceError:
    hint = "save plain dense tensors, e.g. tensor.to_dense().dequantize().contiguous()"
    return refusal(code, f"the tensor {dotted(path)!r} {fact}", hint=hint)


def _integers(value: Any) -> tuple[int, ...]:
    """A tuple of whole numbers, or a torch.Size that was to be made of one."""
    if isinstance(value, Made) and value.name == "torch.Size":
        match value.arguments:
            case (tuple(given),):
                value = given
    if not isinstance(value, tuple) or len(value) > MOST_DIMENSIONS:
        raise damaged("a tensor in the file has an impossible shape")
    if any(type(n) is not int for n in value):
        raise damaged()
    return value


def _target(arguments: tuple[Any, ...]) -> str:
    """The dtype in `_rebuild_device_tensor_from_cpu_tensor(tensor, dtype, device, grad)`."""
    if len(arguments) != 4 or not isinstance(arguments[1], Named):
        raise damaged()
    return dtype_of(arguments[1].name)


def _as_plain(arguments: tuple[Any, ...]) -> Made:
    """The call inside `_rebuild_from_type_v2(function, type, arguments, state)`."""
    if len(arguments) != 4 or not isinstance(arguments[0], Named):
        raise damaged()
    return Made(arguments[0], arguments[2])


def _record(arguments: Any, *, typed: bool) -> Record:
    """From (storage, offset, size, stride, requires_grad, hooks[, dtype][, metadata])."""
    if not isinstance(arguments, tuple) or not 4 <= len(arguments) <= 7 + typed:
        raise damaged()
    storage, offset = arguments[:2]
    if not isinstance(storage, Stored) or type(offset) is not int:
        raise damaged()
    dtype = storage.dtype
    if typed:
        if len(arguments) < 7 or not isinstance(arguments[6], Named):
            raise damaged()
        dtype = dtype_of(arguments[6].name)
    flags = _flags(arguments[6 + typed] if len(arguments) > 6 + typed else None)
    size, stride = _integers(arguments[2]), _integers(arguments[3])
    return Record(storage.key, dtype, offset, size, stride, "conj" in flags, "neg" in flags)


def _flags(metadata: Any) -> set[str]:
    """The lazy operations on complex tensors that are still to be done."""
    pairs = metadata.pairs if isinstance(metadata, Pairs) else []
    if metadata is not None and not isinstance(metadata, Pairs):
        raise damaged()
    if len(pairs) > 2 or any(
        key not in ("conj", "neg") or type(value) is not bool for key, value in pairs
    ):
        fact = "a tensor in the file has properties that memaudit does not know"
        raise refusal("E_UNSUPPORTED", fact, hint="save plain dense tensors")
    return {key for key, value in dict(pairs).items() if value}


# -- Numpy objects in an inert pickle: scalars become numbers, arrays keep their bytes.

_MODULE = re.compile(r"numpy\.(_core|core)\.(multiarray|numeric)\.(\w+)")
#: Code of a dtype → its name in torch, and its letter for `struct`.
_DTYPES = {
    **{"f2": ("float16", "e"), "f4": ("float32", "f"), "f8": ("float64", "d")},
    **{"i1": ("int8", "b"), "i2": ("int16", "h"), "i4": ("int32", "i"), "i8": ("int64", "q")},
    **{"u1": ("uint8", "B"), "u2": ("uint16", "H"), "u4": ("uint32", "I"), "u8": ("uint64", "Q")},
    **{"b1": ("bool", "?"), "c8": ("complex64", ""), "c16": ("complex128", "")},
}


@dataclass(frozen=True, slots=True)
class Array:
    """A dense array of numbers, with its bytes."""

    dtype: str
    shape: tuple[int, ...]
    big_endian: bool
    column_major: bool
    raw: bytes


def numpy_value(made: Made) -> Array | int | float | bool | None:
    """The array or number that was to be made; None for everything else."""
    known = _MODULE.fullmatch(made.name)
    if known is None or not isinstance(made.arguments, tuple):
        return None
    refilled = made.state is not None and known[3] != "_reconstruct"
    if refilled or made.pairs is not None or made.items is not None:
        raise damaged("an array in the file changes after it was made")
    if known[3] == "scalar" and len(made.arguments) == 2:
        return _scalar(*made.arguments)
    if known[3] == "_reconstruct" and isinstance(made.state, tuple) and len(made.state) == 5:
        _, shape, dtype, column_major, raw = made.state
        return _array(shape, dtype, raw, column_major=column_major is True)
    if known[3] == "_frombuffer" and len(made.arguments) == 4:
        raw, dtype, shape, order = made.arguments
        return _array(shape, dtype, raw, column_major=order == "F")
    return None


def raw_bytes(value: Any) -> bytes | None:
    """Bytes, which old protocols write as text that is to be encoded."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, Made) and value.name == "_codecs.encode":
        match value.arguments:
            case (str(text), "latin1" | "latin-1"):
                try:
                    return text.encode("latin-1")
                except UnicodeEncodeError:
                    return None
    if isinstance(value, Made) and value.name == "builtins.bytes" and value.arguments == ():
        return b""
    return None


def _dtype(value: Any) -> tuple[str, bool] | None:
    """The code of a dtype and whether it is big-endian."""
    if not isinstance(value, Made) or value.name != "numpy.dtype":
        return None
    match value.arguments, value.state:
        case (str(code), *_), (_, ("<" | ">" | "|" | "=") as order, *_):
            return (code, order == ">") if code in _DTYPES else None
    return None


def _scalar(dtype: Any, value: Any) -> int | float | bool | None:
    found, raw = _dtype(dtype), raw_bytes(value)
    if found is None or raw is None:
        return None
    code, big_endian = found
    letter = _DTYPES[code][1]
    if not letter or len(raw) != struct.calcsize(f"={letter}"):
        return None
    return struct.unpack(f"{'>' if big_endian else '<'}{letter}", raw)[0]


def _array(shape: Any, dtype: Any, value: Any, *, column_major: bool) -> Array | None:
    found, raw = _dtype(dtype), raw_bytes(value)
    if found is None or raw is None or not isinstance(shape, tuple):
        return None
    if len(shape) > MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        return None
    code, big_endian = found
    if math.prod(shape) * int(code[1:]) != len(raw):
        return None
    return Array(_DTYPES[code][0], shape, big_endian, column_major, raw)


# -- Objects that trainers keep settings in, known by their full names as long as they are data.
#
# OmegaConf's containers and Lightning's dictionaries lie beside the weights of many checkpoints.
# Nothing of them is imported or called here; what makes them is read for the plain values in it.

#: Hold values; they are made empty and given a dictionary of attributes.
OMEGACONF = frozenset(
    {
        "omegaconf.dictconfig.DictConfig",
        "omegaconf.listconfig.ListConfig",
        "omegaconf.base.UnionNode",
        *(
            f"omegaconf.nodes.{kind}Node"
            for kind in ("Any", "Boolean", "Bytes", "Enum", "Float", "Integer", "Path", "String")
        ),
        "omegaconf.nodes.InterpolationResultNode",
    }
)
#: Stand in the attributes of those, made in the same way; what they hold is not read.
_METADATA = frozenset({"omegaconf.base.ContainerMetadata", "omegaconf.base.Metadata"})
#: Dictionaries of Lightning, made empty and filled item by item.
_DICTIONARIES = frozenset(
    {
        "lightning.fabric.utilities.data.AttributeDict",
        "lightning.pytorch.utilities.parsing.AttributeDict",
        "lightning_fabric.utilities.data.AttributeDict",
        "pytorch_lightning.utilities.parsing.AttributeDict",
    }
)
#: Types in metadata, and classes by which Lightning names callbacks: mentioned, never called.
_MENTIONED = frozenset(
    {
        *(f"typing.{name}" for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")),
        "pytorch_lightning.callbacks.early_stopping.EarlyStopping",
        "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
    }
)
SETTINGS = OMEGACONF | _METADATA | _DICTIONARIES | _MENTIONED


def misused(made: Iterable[Made]) -> list[str]:
    """The names of settings among what was made that are no data in the way they were made."""
    found = (value.name for value in made if value.name in SETTINGS and not _is_data(value))
    return list(dict.fromkeys(found))


def _is_data(value: Made) -> bool:
    """Whether an object is what Python's pickles make of it: empty first, then filled."""
    if value.arguments != () or value.items is not None:
        return False
    if value.name in _DICTIONARIES:
        return value.state is None
    if value.name in _MENTIONED or value.pairs is not None:
        return False
    state = value.state
    return isinstance(state, Pairs) and all(isinstance(key, str) for key, _ in state.pairs)


# -- Objects in an inert pickle that stand for something plain: settings, paths, containers.

#: What has no plain meaning; it is left out.
LEFT_OUT = object()
#: Dictionaries and lists of Python, which are filled by being called or item by item.
DICTS = re.compile(r"collections\.(OrderedDict|defaultdict|Counter)|builtins\.dict")
LISTS = re.compile(r"builtins\.(list|tuple|set|frozenset)|collections\.deque")
_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace")
_PATHS = re.compile(r"pathlib\.(_local\.)?(Pure)?(Posix|Windows)?Path")
_DTYPE = re.compile(r"torch\.(float|bfloat|int|uint|complex|bool)\w*")


_MOST_DEVICES = 1 << 16


def plain_meaning(value: Made | Named) -> Any:
    """One layer of an object peeled off: an inert value that means the same, or LEFT_OUT."""
    if isinstance(value, Named):
        return value.name if _DTYPE.fullmatch(value.name) else LEFT_OUT
    name, arguments = value.name, value.arguments
    if _PATHS.fullmatch(name):
        return _path(arguments, "\\" if "Windows" in name else "/")
    if name in OMEGACONF:
        return _omegaconf(value.state)
    if name in _NAMESPACES:
        state = value.state[0] if isinstance(value.state, tuple) and value.state else value.state
        return state if isinstance(state, Pairs) else Pairs([])
    if name == "torch.Size":
        return arguments[0] if isinstance(arguments, tuple) and arguments else ()
    if name == "torch.device":
        return _device(arguments)
    number = numpy_value(value)
    if number is not None:
        return number
    return _container(value)


def reads_state(name: str) -> bool:
    """Whether the meaning of an object is in the state that it was given."""
    return name in _NAMESPACES or name in OMEGACONF


def _container(value: Made) -> Any:
    """Dictionaries and lists, and what was derived from them: they are filled item by item."""
    if DICTS.fullmatch(value.name):
        return Pairs([*_given_pairs(value), *(value.pairs or ())])
    given = value.arguments[0] if isinstance(value.arguments, tuple) and value.arguments else None
    if LISTS.fullmatch(value.name):
        return [*(given if isinstance(given, list | tuple) else ()), *(value.items or ())]
    if value.pairs is not None and value.items is None:
        return Pairs(value.pairs)
    return LEFT_OUT if value.items is None or value.pairs is not None else value.items


def _given_pairs(value: Made) -> list[tuple[Any, Any]]:
    """What a dictionary is made of: a dictionary, or a list of pairs; a default comes before."""
    given = value.arguments
    if value.name == "collections.defaultdict" and isinstance(given, tuple):
        given = given[1:]
    match given:
        case ():
            return []
        case (Pairs(pairs),):
            return pairs
        case ([*listed],) if value.name != "collections.Counter" and all(map(_is_pair, listed)):
            return [(key, part) for key, part in listed]
    fact = "a dictionary in the file is made in a way that memaudit does not know"
    raise refusal("E_UNSUPPORTED", fact, hint=SAFETENSORS_HINT)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _omegaconf(state: Any) -> Any:
    """The content of a container or the value of a node; parents and metadata are left out."""
    found = dict.fromkeys(("_content", "_val"), LEFT_OUT)
    for key, value in state.pairs if isinstance(state, Pairs) else ():
        if isinstance(key, str) and key in found:
            found[key] = value
    return found["_val"] if found["_content"] is LEFT_OUT else found["_content"]


def _path(arguments: Any, separator: str) -> Any:
    parts = arguments if isinstance(arguments, tuple) else ()
    if not parts or not all(isinstance(part, str) for part in parts):
        return LEFT_OUT
    first, *rest = parts
    return separator.join([first.removesuffix(separator), *rest]) if rest else first


def _device(arguments: Any) -> Any:
    parts = arguments if isinstance(arguments, tuple) else ()
    match parts:
        case (str(kind),):
            return kind
        case (str(kind), int(number)) if 0 <= number < _MOST_DEVICES:
            return f"{kind}:{number}"
    return LEFT_OUT
