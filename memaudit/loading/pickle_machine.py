"""Reads pickles by instructions of its own: nothing is imported or called."""

from __future__ import annotations

import io
import pickletools
import re
import struct
import warnings
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError
from memaudit.loading.formats import refusal, too_many
from memaudit.loading.pickle_objects import (
    DEEPEST_WRAPPING,
    DENSE,
    DICTS,
    LISTS,
    SETTINGS,
    SUBCLASS,
    TYPED,
    Made,
    Named,
    Pairs,
    Stored,
    damaged,
    reads_state,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

#: Modules that start programs, load code, reach the network or write files. Nothing in a pickle is
#: ever called here, so the list protects nobody; it tells code from an innocent object.
_MODULES = re.compile(
    r"(os|posix|nt|subprocess|_posixsubprocess|popen2|pty|sys|importlib|_imp|imp|pkgutil|runpy"
    r"|zipimport|codeop|bdb|pdb|cProfile|doctest|pydoc|socket|_socket|socketserver|ssl|http|urllib"
    r"|urllib2|httplib|ftplib|smtplib|telnetlib|poplib|imaplib|xmlrpc|webbrowser|requests|httpx"
    r"|aiohttp|paramiko|asyncio|multiprocessing|concurrent|threading|_thread|_winapi|winreg|msvcrt"
    r"|shutil|tempfile|fileinput|linecache|ctypes|_ctypes|cffi|pickle|_pickle|cPickle|dill"
    r"|cloudpickle|marshal|shelve|sqlite3|pip|ensurepip|setuptools|distutils|venv|gc|idlelib)\..*",
    re.DOTALL,
)
#: Single names out of modules that are harmless otherwise, or that share their name with
#: people's own: `code.model.Net` is a network.
_NAMES = re.compile(
    r"builtins\.(eval|exec|execfile|compile|open|file|__import__|reload|apply|input|raw_input"
    r"|breakpoint|globals|locals|vars|setattr|delattr|exit|quit|help)"
    r"|_?io\.(open|open_code|FileIO)|codecs\.open"
    r"|code\.(interact|InteractiveInterpreter|InteractiveConsole|compile_command)(\..*)?"
    r"|profile\.(run|runctx|Profile)(\..*)?|trace\.Trace(\..*)?"
    r"|timeit\.(timeit|repeat|main|Timer)(\..*)?"
    r"|signal\.(signal|alarm|setitimer|raise_signal|pthread_kill)"
    r"|operator\.(attrgetter|methodcaller|call)|functools\.reduce"
    r"|types\.(FunctionType|LambdaType|CodeType|MethodType|ModuleType)"
    r"|copyreg\.(add_extension|pickle|constructor)"
    r"|numpy\.(load|save|fromfile)|numpy\.(f2py|testing|distutils)\..*"
    r"|numpy\.lib\.(npyio|_npyio_impl|_datasource)\..*|pandas\.(read_\w+|eval)|pandas\.io\..*"
    r"|joblib\.load|joblib\.(numpy_pickle|externals)\..*"
    r"|torch\.(load|save)|torch\.(hub|jit|package|fx|multiprocessing|_inductor)\..*"
    r"|torch\.(ops|classes)\.load_library|torch\.serialization\.(load|save|_load|_legacy_load)"
    r"|torch\.utils\.(cpp_extension|model_zoo|bottleneck|collect_env)\..*"
    r"|torch\.distributed\.(rpc|run|launch|elastic)\..*",
    re.DOTALL,
)
#: Modules that other modules import: `torch.serialization.os.system` is os.system.
_REACHED = re.compile(
    r"os|posix|nt|sys|subprocess|builtins|importlib|shutil|ctypes|pickle|socket|runpy|__.*",
    re.DOTALL,
)


def canonical(module: str, name: str) -> str:
    """The dotted name of a class or function, where Python 3 has it."""
    if (module, name) in NAME_MAPPING:
        module, name = NAME_MAPPING[module, name]
    else:
        module = IMPORT_MAPPING.get(module, module)
    return f"{module}.{name}"


def is_plain(name: str) -> bool:
    """Whether a name belongs to tensors and plain containers."""
    return _PLAIN.fullmatch(name) is not None


def is_blocked(name: str) -> bool:
    """Whether only a pickle with code names this: something that runs, imports, sends or writes."""
    if _MODULES.fullmatch(name) or _NAMES.fullmatch(name):
        return True
    # `torch.serialization.os.system`, `builtins.dict.__class__`: ways round the names above.
    first, *between, last = name.split(".")
    hidden = any(_REACHED.fullmatch(part) for part in between)
    return hidden or (first != "copyreg" and last.startswith("__"))


def shown(name: str) -> str:
    """A name as people know it: `posix.system` is os.system."""
    first, _, rest = name.partition(".")
    return f"os.{rest}" if first in ("posix", "nt") else name


# -- The instructions of a pickle, one after another, as far as a budget goes.

#: What Python's own reader of pickle instructions was seen to raise.
_DAMAGE = (ValueError, OverflowError, EOFError, struct.error)
#: What an instruction costs in memory, beside the one that every one of them costs: containers
#: and calls take about 140 bytes, a new place in the memo 100.
_COSTS = {
    **dict.fromkeys(("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "DICT", "LIST", "FROZENSET"), 3),
    **dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), 3),
    **dict.fromkeys(("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST"), 3),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), 1),
}
#: A tensor in a state dict costs about 60: 35 instructions, six containers, nine memos.
PER_TENSOR = 70
#: What a trainer saves beside a few tensors must not count against them.
FEWEST_TENSORS = 10_000


class Budget:
    """How much may still be read."""

    def __init__(self, max_tensors: int) -> None:
        self.left = PER_TENSOR * max(max_tensors, FEWEST_TENSORS)


def instructions(stream: io.BytesIO, budget: Budget) -> Iterator[tuple[str, Any]]:
    """The name and the argument of every instruction up to STOP; nothing is done with them."""
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            budget.left -= 1 + _COSTS.get(opcode.name, 0)
            if budget.left < 0:
                raise too_many("the pickle in the file has more instructions than a model needs")
            yield opcode.name, argument
    except _DAMAGE:
        raise damaged() from None


@contextmanager
def unwarned() -> Iterator[None]:
    """No warnings about odd escapes in damaged text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def split_pickles(data: bytes, count: int, budget: Budget) -> tuple[tuple[bytes, ...], int]:
    """The first pickles in a file, and where the bytes behind them begin."""
    stream = io.BytesIO(data)
    found: list[bytes] = []
    with unwarned():
        for _ in range(count):
            start = stream.tell()
            for _ in instructions(stream, budget):
                pass
            found.append(data[start : stream.tell()])
    return tuple(found), stream.tell()


# -- What a call copies out of its arguments: changing that later would change nothing in Python.

_NUMPY = re.compile(r"numpy\.(_core|core)\.(multiarray|numeric)\.\w+")
#: No call that is known here has more arguments.
_MOST_ARGUMENTS = 8


class Consumed:
    """Remembers what calls have taken; no honest pickle changes it afterwards."""

    def __init__(self) -> None:
        #: By identity; kept, so that no other object takes the identity.
        self._kept: dict[int, Any] = {}

    def call(self, maker: Named, arguments: Any) -> int:
        """Take the arguments of a call; the answer is how much there was to look at."""
        name, found = _innermost(maker.name, arguments)
        if DICTS.fullmatch(name):
            given = [value for value in found if isinstance(value, list)]
            self._keep(found, list, Pairs)
            for value in given:  # pairs may be lists too
                self._keep(value, list)
            return sum(map(len, given))
        if LISTS.fullmatch(name) or name == "torch.Size":
            self._keep(found, list, Pairs)
        elif name in DENSE or name == TYPED:
            self._keep(found, Pairs)
        elif _NUMPY.fullmatch(name):
            self._keep(found, Made)
        return 0

    def build(self, target: Made, state: Any) -> None:
        """Take the state that an object is given."""
        parts = state[:_MOST_ARGUMENTS] if isinstance(state, tuple) else (state,)
        if reads_state(target.name):
            self._keep(parts, Pairs)
        elif _NUMPY.fullmatch(target.name):
            self._keep(parts, Made)

    def require_free(self, target: Any) -> None:
        """Refuse to change what a call has taken."""
        if id(target) in self._kept:
            raise damaged("a container in the file changes after it was used")

    def _keep(self, values: tuple[Any, ...] | list[Any], *kinds: type) -> None:
        self._kept.update((id(value), value) for value in values if isinstance(value, kinds))


def _innermost(name: str, arguments: Any) -> tuple[str, tuple[Any, ...]]:
    """The call that is made in the end: `_rebuild_from_type_v2` passes its own on."""
    for _ in range(DEEPEST_WRAPPING):
        match arguments:
            case (Named(inner), _, passed, _) if name == SUBCLASS:
                name, arguments = inner, passed
            case _:
                break
    return name, arguments[:_MOST_ARGUMENTS] if isinstance(arguments, tuple) else ()


# -- A machine for pickles that has no instruction which imports or calls anything.

#: More than any honest file names, by far.
MOST_NAMES = 10_000


class Machine:
    """Runs pickles over inert values.

    `made` counts the calls that were asked for by name, `named` holds every name, `storages` the
    storages that persistent ids speak of, `gadgets` the calls that only code needs, `settings`
    the known objects that hold settings, and `indirect` whether something made was called itself.
    """

    def __init__(self, budget: Budget) -> None:
        self.named: dict[str, Named] = {}
        self.made: Counter[str] = Counter()
        self.storages: dict[str, Stored] = {}
        self.gadgets: list[str] = []
        self.settings: list[Made] = []
        self.indirect = False
        self._budget = budget
        self._consumed = Consumed()
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, stream: io.BytesIO) -> Any:
        """What the next pickle in the stream describes; every pickle starts from nothing."""
        self._stack, self._marks, self._memo = [], [], {}
        for name, argument in instructions(stream, self._budget):
            do = _DO.get(name)
            if do is None:
                raise _unsupported(name)
            do(self, argument)
        return self._pop()

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise damaged()
        return self._stack.pop()

    def _top(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise damaged()
        return self._stack[-1]

    def _slice(self) -> list[Any]:
        """Everything above the last mark."""
        if not self._marks:
            raise damaged()
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def _mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _discard(self, _: Any) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def _discard_slice(self, _: Any) -> None:
        self._slice()

    def _text(self, argument: str) -> None:
        """A string of Python 2, which torch reads as UTF-8."""
        raw = argument.encode("latin-1")
        try:
            self._push(raw.decode("utf-8"))
        except UnicodeDecodeError:
            self._push(raw)

    def _get(self, place: Any) -> None:
        if place not in self._memo:
            raise damaged()
        self._push(self._memo[place])

    def _put(self, place: Any) -> None:
        self._memo[place] = self._top()

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def _name(self, module: Any, name: Any) -> Named:
        if not isinstance(module, str) or not isinstance(name, str):
            raise damaged()
        text = canonical(module, name)
        if text not in self.named and len(self.named) >= MOST_NAMES:
            raise damaged("the pickle in the file names more classes than there are")
        return self.named.setdefault(text, Named(text))

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push(self._name(module, name))

    def _stack_global(self, _: Any) -> None:
        name = self._pop()
        self._push(self._name(self._pop(), name))

    def _make(self, maker: Any, arguments: Any) -> None:
        if isinstance(maker, Named):
            self.made[maker.name] += 1
            self._budget.left -= self._consumed.call(maker, arguments)
            if maker.name == "builtins.getattr" and not _is_member(arguments):
                self.gadgets.append(maker.name)
        else:
            self.indirect = True
        found = Made(maker, arguments)
        if found.name in SETTINGS:
            self.settings.append(found)
        self._push(found)

    def _reduce(self, _: Any) -> None:
        arguments = self._pop()
        self._make(self._pop(), arguments)

    def _newobj(self, _: Any) -> None:
        arguments = self._pop()
        _require_bare(self._top(), arguments)
        self._make(self._pop(), arguments)

    def _newobj_ex(self, _: Any) -> None:
        keywords, arguments = self._pop(), self._pop()
        _require_bare(self._top(), (arguments, keywords))
        self._make(self._pop(), (arguments, keywords))

    def _inst(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._make(self._name(module, name), tuple(self._slice()))

    def _obj(self, _: Any) -> None:
        maker, *arguments = self._slice() or [None]
        self._make(maker, tuple(arguments))

    def _build(self, _: Any) -> None:
        state, target = self._pop(), self._top()
        # Python would merge a second state into the first; no honest pickle has one, or gives None.
        if not isinstance(target, Made) or target.state is not None or state is None:
            raise damaged()
        self._consumed.require_free(target)
        self._consumed.build(target, state)
        target.state = state

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        self._consumed.require_free(target)
        if isinstance(target, Made):
            target.items = target.items or []
            target = target.items
        if not isinstance(target, list):
            raise damaged()
        target.extend(items)

    def _set(self, items: list[Any]) -> None:
        target = self._top()
        self._consumed.require_free(target)
        if isinstance(target, Made):
            target.pairs = target.pairs or []
        if not isinstance(target, Made | Pairs) or target.pairs is None:
            raise damaged()
        target.pairs.extend(_paired(items))

    def _set_one(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set([key, value])

    def _tuple(self, length: int) -> None:
        found = [self._pop() for _ in range(length)]
        self._push(tuple(reversed(found)))

    def _persistent(self, _: Any) -> None:
        ident = self._pop()
        if not isinstance(ident, tuple) or len(ident) < 2 or not isinstance(ident[1], Named):
            raise damaged()
        if ident[0] == "module":
            self._push(ident[1])  # a class beside its source, in whole modules of old
            return
        found = stored(ident[1].name, ident)
        if self.storages.setdefault(found.key, found) != found:
            raise damaged("the file tells two stories about one of its tensors")
        self._push(found)


def _paired(items: list[Any]) -> list[tuple[Any, Any]]:
    if len(items) % 2:
        raise damaged()
    return list(zip(items[::2], items[1::2], strict=True))


def _require_bare(maker: Any, arguments: Any) -> None:
    """Refuse arguments for a container that is made without being filled: Python ignores them."""
    name = maker.name if isinstance(maker, Named) and arguments != () else ""
    if DICTS.fullmatch(name) or LISTS.fullmatch(name):
        raise damaged()


def _is_member(arguments: Any) -> bool:
    """Whether getattr is asked for a public name of a class, as for the members of an enum."""
    match arguments:
        case (Named(name), str(member)):
            return member.isidentifier() and not member.startswith("_") and not is_blocked(name)
    return False


def _unsupported(name: str) -> SourceError:
    if name.startswith("EXT"):
        fact = "the pickle names objects by codes of a registry, which torch.save never does"
        hint = "get the weights as safetensors from whoever made the file"
        return refusal("E_UNSAFE_FORMAT", fact, hint=hint)
    return damaged(f"the pickle in the file needs what no file has ({name})")


def _constant(value: Any) -> Callable[[Machine, Any], None]:
    return lambda machine, _: machine._push(value)


#: What each instruction does; one that is missing here is refused.
_DO: dict[str, Callable[[Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda machine, argument: None),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2"), Machine._push),
    **dict.fromkeys(("LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"), Machine._push),
    **dict.fromkeys(("STRING", "UNICODE", "BINUNICODE"), Machine._push),
    **dict.fromkeys(("SHORT_BINUNICODE", "BINUNICODE8"), Machine._push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), Machine._push),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), Machine._text),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine._get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Machine._put),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda machine, _: machine._push(machine._slice())),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda machine, _: machine._push([])),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda machine, _: machine._append(machine._slice())),
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "EMPTY_TUPLE": _constant(()),
    "TUPLE": lambda machine, _: machine._push(tuple(machine._slice())),
    "TUPLE1": lambda machine, _: machine._tuple(1),
    "TUPLE2": lambda machine, _: machine._tuple(2),
    "TUPLE3": lambda machine, _: machine._tuple(3),
    "EMPTY_DICT": lambda machine, _: machine._push(Pairs([])),
    "DICT": lambda machine, _: machine._push(Pairs(_paired(machine._slice()))),
    "APPEND": lambda machine, _: machine._append([machine._pop()]),
    "SETITEM": Machine._set_one,
    "SETITEMS": lambda machine, _: machine._set(machine._slice()),
    "MARK": Machine._mark,
    "POP": Machine._discard,
    "POP_MARK": Machine._discard_slice,
    "DUP": lambda machine, _: machine._push(machine._top()),
    "MEMOIZE": Machine._memoize,
    "GLOBAL": Machine._global,
    "STACK_GLOBAL": Machine._stack_global,
    "INST": Machine._inst,
    "OBJ": Machine._obj,
    "REDUCE": Machine._reduce,
    "NEWOBJ": Machine._newobj,
    "NEWOBJ_EX": Machine._newobj_ex,
    "BUILD": Machine._build,
    "BINPERSID": Machine._persistent,
}
