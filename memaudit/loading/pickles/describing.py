"""What the pickles of a torch file say, as plain JSON: a tree of values and tensor records."""

from __future__ import annotations

import base64
import io
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError
from memaudit.loading.pickles.inert import Made, Named, Pairs
from memaudit.loading.pickles.inert_numpy import Array
from memaudit.loading.pickles.inert_objects import LEFT_OUT, plain_meaning
from memaudit.loading.pickles.inert_tensors import dotted, tensor_record
from memaudit.loading.pickles.machine import Machine
from memaudit.loading.pickles.names import is_plain
from memaudit.loading.pickles.reading import Budget, damaged, unwarned
from memaudit.loading.pickles.refusals import foreign, refuse_code, refuse_empty, refuse_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.loading.pickles.inert_tensors import Place

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
            raise _limit(f"the file holds more than {self._most} tensors")

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise _limit("the containers in the file unfold into more parts than a model has")


def _is_small(value: int) -> bool:
    return -LARGEST_INTEGER < value < LARGEST_INTEGER


def _may_be_text(key: Made) -> bool:
    """Whether a call as a key may give text, without a foreign object being named."""
    return is_plain(key.name) and key.name not in ("_codecs.encode", "builtins.bytes")


def _kind(value: Any) -> str:
    return (value.name if isinstance(value, _OBJECTS) else "") or type(value).__name__


def _limit(fact: str) -> SourceError:
    hint = "is this a model? if so, raise the limit with --set max_tensors=N"
    return SourceError("E_LIMIT", fact, hint=hint, stage="open")
