"""Objects in an inert pickle that stand for something plain: settings, paths, containers."""

from __future__ import annotations

import re
from typing import Any

from memaudit.errors import SourceError
from memaudit.loading.formats.magic import SAFETENSORS_HINT
from memaudit.loading.pickles.inert import Made, Named, Pairs
from memaudit.loading.pickles.inert_numpy import numpy_value
from memaudit.loading.pickles.settings_objects import OMEGACONF

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
    raise SourceError("E_UNSUPPORTED", fact, hint=SAFETENSORS_HINT, stage="open")


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
