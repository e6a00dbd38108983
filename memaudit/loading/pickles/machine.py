"""A machine for pickles that has no instruction which imports or calls anything."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError
from memaudit.loading.pickles.consumed import Consumed
from memaudit.loading.pickles.inert import Made, Named, Pairs
from memaudit.loading.pickles.inert_objects import DICTS, LISTS
from memaudit.loading.pickles.names import canonical, is_blocked
from memaudit.loading.pickles.reading import damaged, instructions
from memaudit.loading.pickles.settings_objects import SETTINGS
from memaudit.loading.pickles.storage_types import Stored, stored

if TYPE_CHECKING:
    import io
    from collections.abc import Callable

    from memaudit.loading.pickles.reading import Budget

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
        return SourceError("E_UNSAFE_FORMAT", fact, hint=hint, stage="open")
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
