"""The process in which pickles are read: it imports nothing they name, and may do next to nothing.

`python -I -S -B pickle_child.py` gets the torch file as stdin. Python's own Unpickler reads its
pickles; whatever they name or call becomes a record of that. The answer is one JSON object:
`nodes` describes containers and objects, `roots` what each pickle holds. Plain values stand for
themselves, [i] for the i-th node. `names` counts the calls of every name, `end` is the offset
behind the last pickle.
"""

import base64
import gc
import io
import json
import os
import pickle
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

try:
    import resource
except ImportError:  # not on this system: the parent's deadline is the only limit
    resource = None

#: More than any honest file names, by far.
MOST_NAMES = 10_000
#: Longer text is data: it can neither name a tensor nor be a setting.
LONGEST_TEXT = 20_000
#: What the Unpickler raises for pickles that are damaged, or written to break it.
DAMAGE = (
    *(pickle.UnpicklingError, EOFError, ArithmeticError, AttributeError, ImportError),
    *(LookupError, TypeError, ValueError, RecursionError),
)


#: How often every name was called, and calls of getattr that only code needs.
SEEN = {"names": {}, "gadgets": []}


class Exceeded(Exception):  # noqa: N818
    """The file says more than a model needs."""


class Made:
    """What a call would have made: with what, and what was put into it later."""

    __slots__ = ("arguments", "items", "pairs", "state")
    name = ""

    def __new__(cls, *arguments, **keywords):
        """Record the call."""
        made = object.__new__(cls)
        made.arguments = (arguments, keywords) if keywords else arguments
        made.state = made.pairs = made.items = None
        if cls.name:
            SEEN["names"][cls.name] += 1
        return made

    def __call__(self, *arguments):
        """Record that something made was called itself: it has no name."""
        return Made(*arguments)

    def __setstate__(self, state):
        """Keep the state; the dictionary that was given may change afterwards, an object not."""
        if self.state is not None:
            raise pickle.UnpicklingError("two states")
        self.state = dict(state) if type(state) is dict else state

    def __setitem__(self, key, value):
        """Keep a pair."""
        self.pairs = self.pairs or []
        self.pairs += (key, value)

    def append(self, item):
        """Keep an item."""
        self.items = self.items or []
        self.items.append(item)

    add = append


class Attribute(Made):
    """What getattr would have found: a public name of a class, or else a way to run code."""

    __slots__ = ()

    def __new__(cls, *arguments):
        """Record the call."""
        match arguments:
            case (type(), str(name)) if name.isidentifier() and not name.startswith("_"):
                pass
            case _:
                SEEN["gadgets"] = [cls.name]
        return Made.__new__(cls, *arguments)


class Dictionary(dict):
    """A dictionary of Python's library; its attributes do not matter."""

    __slots__ = ()
    name = "builtins.dict"

    def __setstate__(self, state):
        """Leave the attributes out."""


class DefaultDictionary(Dictionary):
    """A dictionary with a default, which does not matter either."""

    __slots__ = ()

    def __init__(self, factory=None, *given):
        super().__init__(*given)


class List(list):
    """A list, a tuple or a set that is made by a call."""

    __slots__ = ()
    name = "builtins.list"
    add = list.append

    def __setstate__(self, state):
        """Leave the attributes out."""


#: The class for every name; what Python's library fills in well-known ways is filled that way.
CLASSES = {
    **dict.fromkeys(("collections.OrderedDict", "collections.Counter"), Dictionary),
    **{"builtins.dict": Dictionary, "collections.defaultdict": DefaultDictionary},
    **{f"builtins.{kind}": List for kind in ("list", "tuple", "set", "frozenset")},
}


class Storage(tuple):
    """The storage that a persistent id speaks of."""

    __slots__ = ()


class Reader(pickle.Unpickler):
    """Python's Unpickler, with a record in the place of everything that it would import."""

    def find_class(self, module, name):
        """A class that only records how it is used, one for every name."""
        if (module, name) in NAME_MAPPING:  # where Python 3 has it, whatever the protocol
            module, name = NAME_MAPPING[module, name]
        full = f"{IMPORT_MAPPING.get(module, module)}.{name}"
        if full not in CLASSES:
            if len(CLASSES) == MOST_NAMES:
                raise Exceeded
            kind = Attribute if full == "builtins.getattr" else Made
            CLASSES[full] = type("Stub", (kind,), {"__slots__": (), "name": full})
        SEEN["names"].setdefault(full, 0)
        return CLASSES[full]

    def persistent_load(self, pid):
        """The storage, or for whole modules of old the class that stands beside its source."""
        if type(pid) is not tuple or len(pid) < 2 or not isinstance(pid[1], type):
            raise pickle.UnpicklingError("no persistent id of torch")
        return pid[1] if pid[0] == "module" else Storage((pid[0], pid[1].name, *pid[2:]))


def described(roots, most):
    """The nodes of a graph that may have cycles, and what stands at its roots."""
    order, places, nodes, parts = [], {}, [], 0

    def ref(value):
        nonlocal parts
        parts += 1
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int and -(1 << 63) < value < 1 << 63:
            return value
        if kind is str and len(value) <= LONGEST_TEXT:
            parts += len(value) // 8
            return value
        if id(value) not in places:
            places[id(value)] = len(order)
            order.append(value)
        return [places[id(value)]]

    found = [ref(root) for root in roots]
    for value in order:  # grows on the way
        kind = type(value)
        if isinstance(value, dict):
            nodes.append(["d", *(ref(part) for pair in value.items() for part in pair)])
        elif kind is tuple:
            nodes.append(["t", *map(ref, value)])
        elif isinstance(value, list):
            nodes.append(["l", *map(ref, value)])
        elif kind is set or kind is frozenset:
            nodes.append(["l", *map(ref, sorted(value, key=str))])
        elif kind is bytes or kind is bytearray:
            parts += len(value) // 8
            nodes.append(["b", base64.b64encode(value).decode("ascii")])
        elif kind is Storage:
            nodes.append(["s", *map(ref, value)])
        elif isinstance(value, Made):
            held = (kind, value.arguments, value.state, value.pairs, value.items)
            nodes.append(["o", *map(ref, held)])
        elif isinstance(value, type):
            nodes.append(["c", value.name])
        else:
            nodes.append(["x", "text of great length" if kind is str else kind.__name__])
        if parts > most:
            raise Exceeded
    return nodes, found


def told(data, count, most):
    """What the first pickles in the data say."""
    stream = io.BufferedReader(io.BytesIO(data))
    roots = [
        Reader(stream, encoding="utf-8", errors="surrogateescape").load() for _ in range(count)
    ]
    nodes, held = described(roots, most)
    return in_bytes({"nodes": nodes, "roots": held, "end": stream.tell()})


def in_bytes(found):
    """The answer, with what was seen on the way."""
    return json.dumps({**SEEN, **found}).encode("ascii")


def answer(data, count, most):
    """What the first pickles in the data say, or why that cannot be told."""
    try:
        return told(data, count, most)
    except Exceeded:
        failed = "parts"
    except MemoryError:
        failed = "memory"
    except DAMAGE as error:
        registry = str(error).startswith("unregistered extension code")
        failed = "registry" if registry else "damage"
    return in_bytes({"failed": failed})


def confine(memory, seconds):
    """Give up everything that reading a pickle does not need."""
    if resource is None:
        return
    limits = {
        **{"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0, "RLIMIT_NOFILE": 3},
        **{"RLIMIT_CPU": seconds, "RLIMIT_AS": occupied() + memory},
    }
    for name, most in limits.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # some systems know a limit and do not take it
            continue


def occupied():
    """The addresses that the interpreter itself takes, where the system tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def main():
    """Read, describe, answer, and end without any clean-up that an attacker could have a say in."""
    offset, length, count, most, memory, seconds = map(int, sys.argv[1:])
    gc.disable()  # cycles are part of an attack; nothing lives long enough to be collected
    confine(memory, seconds)
    os.lseek(0, offset, os.SEEK_SET)
    with open(0, "rb", closefd=False) as stream:
        rest = answer(stream.read(length), count, most)
    while rest:
        rest = rest[os.write(1, rest) :]
    os._exit(0)


if __name__ == "__main__":
    main()
