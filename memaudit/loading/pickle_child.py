"""What pickles say, as plain JSON, and the confined process in which foreign ones are read."""

from __future__ import annotations

import base64
import codecs
import gc
import io
import json
import os
import sys
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, NoReturn

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.formats import CODE_HINT, SAFETENSORS_HINT, refusal, too_many
from memaudit.loading.pickle_machine import Budget, Machine, is_blocked, is_plain, shown, unwarned
from memaudit.loading.pickle_objects import (
    LEFT_OUT,
    SETTINGS,
    Array,
    Made,
    Named,
    Pairs,
    damaged,
    dotted,
    misused,
    plain_meaning,
    tensor_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memaudit.loading.pickle_objects import Place

# -- Which pickles are refused for what they name, and how that is said.

LONGEST_NAME = 120
#: What a pickled nn.Module keeps its tensors and children in.
_MODULE_KEYS = ("_parameters", "_modules")


def foreign(machine: Machine) -> dict[str, int]:
    """The names that tensors do not need, with the number of calls; 0 is a mere mention."""
    return {name: machine.made[name] for name in machine.named if not is_plain(name)}


def refuse_code(machine: Machine) -> None:
    """Refuse what would run code, whatever the user allows."""
    found = dict.fromkeys([*filter(is_blocked, machine.named), *machine.gadgets])
    if found:
        raise SourceError(
            "E_UNSAFE_FORMAT",
            f"the file would run {listed(map(shown, found), limit=LONGEST_NAME)}: it carries code",
            hint="delete it unless you trust who made it, and ask them for safetensors",
            stage="open",
        )


def refuse_objects(machine: Machine, root: Any, *, inert: bool) -> None:
    """Refuse objects besides tensors and settings unless they may become inert.

    Modules are refused always. Settings are known by their names, and must be nothing but data.
    """
    names = list(foreign(machine))
    if (isinstance(root, Made) and _is_module_state(root.state)) or (
        not inert and _beside_no_state(root)
    ):
        raise _whole_module(names)
    odd = _no_settings(machine)
    if odd and not inert:
        raise SourceError(
            "E_UNSAFE_FORMAT",
            f"the file needs Python objects besides tensors: {listed(odd, limit=LONGEST_NAME)}",
            hint="--allow-pickle (in Python allow_pickle=True) opens it with these objects made "
            f"inert; or {SAFETENSORS_HINT}",
            stage="open",
        )


def _no_settings(machine: Machine) -> list[str]:
    """What neither tensors need nor is a known setting, made as such and never called."""
    names = list(foreign(machine))
    if names and machine.indirect:
        return names
    wrong = set(misused(machine.settings))
    return [name for name in names if name not in SETTINGS or name in wrong]


def refuse_empty(machine: Machine, root: Any) -> None:
    """Say what stands where the weights should be; called when no tensor was found."""
    if _holds_module(root):
        raise _whole_module(list(foreign(machine)))
    if isinstance(root, Made) and root.name and not is_plain(root.name):
        what = clean(root.name, limit=LONGEST_NAME)
        raise SourceError(
            "E_UNSUPPORTED",
            f"the file holds an object of the kind {what}, not a dictionary of named tensors",
            hint=SAFETENSORS_HINT,
            stage="open",
        )


def _whole_module(names: Sequence[str]) -> SourceError:
    shown_names = listed(names, limit=LONGEST_NAME)
    fact = f"the file holds a whole pickled module, not its weights: {shown_names}"
    return refusal("E_UNSAFE_FORMAT", fact, hint=CODE_HINT)


def _beside_no_state(root: Any) -> bool:
    """Whether a dictionary holds a module and no weights beside it."""
    return _holds_module(root) and not any(map(_is_state, _values(root)))


def _holds_module(root: Any) -> bool:
    """Whether a dictionary holds a module; objects may share one state, which is read once."""
    states = [v.state for v in _values(root) if isinstance(v, Made)]
    return any(map(_is_module_state, {id(state): state for state in states}.values()))


def _values(root: Any) -> Iterable[Any]:
    """The values of a dictionary, each of them once."""
    pairs = root.pairs if isinstance(root, Pairs | Made) else None
    return {id(value): value for _, value in pairs or ()}.values()


def _is_module_state(state: Any) -> bool:
    pairs = state.pairs if isinstance(state, Pairs) else ()
    return any(isinstance(key, str) and key in _MODULE_KEYS for key, _ in pairs)


def _is_state(value: Any) -> bool:
    return any(
        isinstance(v, Made) and v.name.startswith("torch._utils._rebuild") for v in _values(value)
    )


# -- What the pickles of a torch file say, as plain JSON: a tree of values and tensor records.

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
#: Deeper than any trainer nests: objects count twice, once for what they hold.
DEEPEST = 64
#: Longer text is data: it can neither name a tensor nor be a setting.
LONGEST_TEXT = 20_000
LARGEST_INTEGER = 1 << 63
#: Parts of the content per tensor that may be opened, and for how many of them a container or
#: an object counts; lists that double run out of them.
PARTS_PER_TENSOR = 16
PARTS_PER_CONTAINER = 4
MOST_LOST = 20
LONGEST_KIND = 200
_OBJECTS = (Made, Named)
_NESTED = (*_OBJECTS, Pairs, list, tuple, Array)


def describe(pickles: Sequence[bytes], *, inert: bool, max_tensors: int) -> dict[str, Any]:
    """The content of a torch file: `pickles` is the one of a zip, or the five of a legacy file.

    Foreign objects are refused unless `inert`; what would run code is refused always. Known
    settings are neither: without `inert` the answer is empty, and a process of its own reads them.

    In the tree a value stands for itself, ["d", pairs] is a dictionary, ["l", items] a list,
    ["t", i] the i-th tensor, ["a", i] the i-th array, and ["x"] something that was left out. A key
    that is neither text nor a number is ["k", kind].
    """
    machine = Machine(Budget(max_tensors))
    try:
        with unwarned():
            values = [machine.run(io.BytesIO(pickle)) for pickle in pickles]
    except SourceError:
        refuse_code(machine)
        raise
    refuse_code(machine)
    root, keys = _content(values)
    refuse_objects(machine, root, inert=inert)
    if not inert and foreign(machine):
        return {}
    writer = _Writer(max_tensors)
    tree = writer.node(root, None, 0)
    if not writer.tensors and not writer.arrays:
        refuse_empty(machine, root)
    return {
        "tree": tree,
        "tensors": writer.tensors,
        "arrays": writer.arrays,
        "storages": [list(astuple(found)) for found in machine.storages.values()],
        "keys": keys,
        "kinds": list(foreign(machine).items()),
        "lost": writer.lost[:MOST_LOST],
    }


def _content(values: list[Any]) -> tuple[Any, list[str] | None]:
    """The object in the file and, for a legacy file, the order of its storages."""
    if len(values) == 1:
        return values[0], None
    magic, version, _, root, keys = values
    if magic != LEGACY_MAGIC or version != LEGACY_VERSION:
        raise damaged()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise damaged()
    return root, keys


class _Writer:
    """Writes inert values as a tree, within a budget."""

    def __init__(self, max_tensors: int) -> None:
        self.tensors: list[list[Any]] = []
        self.arrays: list[list[Any]] = []
        #: What could not be opened among tensors, with its kind: it may have been a weight.
        self.lost: list[list[str]] = []
        self._most = max_tensors
        self._left = PARTS_PER_TENSOR * max_tensors
        #: What was written already, by identity: the value (kept, so that no other takes its
        #: identity), the node, and the parts that it unfolds into.
        self._known: dict[int, tuple[Any, Any, int]] = {}
        #: Containers that are being written.
        self._open: set[int] = set()

    def node(self, value: Any, path: Place, depth: int) -> Any:
        """One value; `path` names it in errors."""
        self._spend(1)
        if value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            return value if _is_small(value) else ["x"]
        if isinstance(value, str):
            self._spend(min(len(value), LONGEST_TEXT) // 8)
            return value if len(value) <= LONGEST_TEXT else ["x"]
        if not isinstance(value, _NESTED):
            return ["x"]
        if id(value) in self._known:
            _, node, parts = self._known[id(value)]
            self._spend(parts)
            return node
        before = self._left
        node = self._nested(value, path, depth)
        self._known[id(value)] = value, node, before - self._left
        return node

    def _nested(self, value: Any, path: Place, depth: int) -> Any:
        self._spend(PARTS_PER_CONTAINER - 1)
        if isinstance(value, Array):
            return self._array(value)
        if isinstance(value, Made) and (record := tensor_record(value, path)) is not None:
            return self._tensor(list(astuple(record)))
        if id(value) in self._open:
            raise damaged("a container in the file holds itself")
        if depth >= DEEPEST:
            raise damaged("the containers in the file are nested too deeply")
        self._open.add(id(value))
        node = self._container(value, path, depth + 1)
        self._open.discard(id(value))
        return node

    def _container(self, value: Any, path: Place, depth: int) -> Any:
        if isinstance(value, Pairs):
            return self._dictionary(value, path, depth)
        if isinstance(value, _OBJECTS):
            meaning = plain_meaning(value)
            return ["x"] if meaning is LEFT_OUT else self.node(meaning, path, depth)
        return ["l", [self.node(v, (path, i), depth) for i, v in enumerate(value)]]

    def _dictionary(self, value: Pairs, path: Place, depth: int) -> list[Any]:
        pairs: list[list[Any]] = []
        lost: list[list[str]] = []
        for given, part in value.pairs:
            key = self._key(given)
            named = not isinstance(key, list)
            node = self.node(part, (path, key if named else f"({key[1]})"), depth)
            if named or (isinstance(node, list) and node != ["x"]):
                pairs.append([key, node])
            if named and node == ["x"] and len(lost) < MOST_LOST:
                lost.append([dotted((path, key)), _kind(part)])
        if any(isinstance(node, list) and node[0] in ("t", "a") for _, node in pairs):
            self.lost += lost
            if any(isinstance(key, Made) and _may_be_text(key) for key, _ in value.pairs):
                raise damaged("a name of a tensor in the file is to be computed")
        return ["d", pairs]

    def _key(self, key: Any) -> Any:
        """A key that can name a tensor or a setting; of any other one, ["k", kind] remains."""
        if isinstance(key, str):
            self._spend(min(len(key), LONGEST_TEXT) // 8)
            return key if len(key) <= LONGEST_TEXT else ["k", "text of great length"]
        if key is None or (isinstance(key, int) and _is_small(key)):
            return key
        return ["k", _kind(key)[:LONGEST_KIND]]

    def _tensor(self, record: list[Any]) -> list[Any]:
        self.tensors.append(record)
        self._require_few()
        return ["t", len(self.tensors) - 1]

    def _array(self, value: Array) -> list[Any]:
        self._spend(len(value.raw) // 8)
        raw = base64.b64encode(value.raw).decode("ascii")
        shape = list(value.shape)
        self.arrays.append([value.dtype, shape, value.big_endian, value.column_major, raw])
        self._require_few()
        return ["a", len(self.arrays) - 1]

    def _require_few(self) -> None:
        if len(self.tensors) + len(self.arrays) > self._most:
            raise too_many(f"the file holds more than {self._most} tensors")

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise too_many("the containers in the file unfold into more parts than a model has")


def _is_small(value: int) -> bool:
    return -LARGEST_INTEGER < value < LARGEST_INTEGER


def _may_be_text(key: Made) -> bool:
    """Whether a call as a key may give text, without a foreign object being named."""
    return is_plain(key.name) and key.name not in ("_codecs.encode", "builtins.bytes")


def _kind(value: Any) -> str:
    return (value.name if isinstance(value, _OBJECTS) else "") or type(value).__name__


# -- The process in which pickles are read that name foreign objects: it may do next to nothing.
#
# It is started with its limits and reads the pickles from stdin, each behind its length. Its answer
# is one JSON object on stdout: a description, or the refusal.

try:
    import resource
except ImportError:  # not on this system: the clock of the parent is the only limit
    resource = None

#: Bytes of a pickle's length.
LENGTH = 8


def main() -> NoReturn:
    """Read, describe, answer, and end without any clean-up that an attacker could have a say in."""
    order = json.loads(sys.argv[-1])
    codecs.lookup("raw-unicode-escape")  # loaded now: no file can be opened later
    gc.disable()  # cycles are part of an attack; nothing lives long enough to be collected
    confine(order)
    try:
        answer = _answer(order)
    except (MemoryError, RecursionError):
        answer = {"exhausted": True}
    _write(json.dumps(answer).encode("ascii"))
    os._exit(0)


def confine(order: Mapping[str, Any]) -> None:
    """Give up everything that reading a pickle does not need."""
    if resource is None:
        return
    limits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NPROC": 0,
        "RLIMIT_NOFILE": 3,
        "RLIMIT_CPU": order["seconds"],
        "RLIMIT_AS": _occupied() + order["memory"],
    }
    for name, most in limits.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # some systems know a limit and do not take it
            continue


def _occupied() -> int:
    """The addresses that the interpreter itself takes, where the system tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[0]) * resource.getpagesize() if resource else 0
    except (OSError, ValueError, IndexError):
        return 0


def _answer(order: Mapping[str, Any]) -> dict[str, Any]:
    pickles = [_read(int.from_bytes(_read(LENGTH), "little")) for _ in range(order["pickles"])]
    try:
        return describe(pickles, inert=True, max_tensors=order["max_tensors"])
    except SourceError as error:
        return {"refused": {"code": error.code, "fact": error.fact, "hint": error.hint}}


def _read(length: int) -> bytes:
    found = sys.stdin.buffer.read(length)
    if len(found) != length:  # whoever started this process is gone
        os._exit(1)
    return found


def _write(answer: bytes) -> None:
    while answer:
        answer = answer[os.write(1, answer) :]
