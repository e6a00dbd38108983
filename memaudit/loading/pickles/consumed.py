"""What a call copies out of its arguments: changing that later would change nothing in Python."""

from __future__ import annotations

import re
from typing import Any

from memaudit.loading.pickles.inert import Made, Named, Pairs
from memaudit.loading.pickles.inert_objects import DICTS, LISTS, reads_state
from memaudit.loading.pickles.inert_tensors import DEEPEST_WRAPPING, DENSE, SUBCLASS, TYPED
from memaudit.loading.pickles.reading import damaged

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
