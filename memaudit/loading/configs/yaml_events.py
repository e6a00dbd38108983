"""From the events of a YAML text to plain values, built step by step and within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from memaudit.errors import clean
from memaudit.loading.configs.config_text import DEEPEST, BadText, put
from memaudit.loading.configs.yaml_scalars import plain_scalar

#: Hydra's configs have some hundred values; a reference counts for all that it repeats.
MOST_PARTS = 100_000
#: Characters of text that count as one part.
_PER_PART = 32
_PREFIX = "tag:yaml.org,2002:"
_TEXT = (f"{_PREFIX}str", "!")
_SCALARS = tuple(_PREFIX + kind for kind in ("int", "float", "bool", "null"))
_MAPS = (None, "!", f"{_PREFIX}map")
#: Lightning writes tuples by a name of Python; they are lists.
_LISTS = (None, "!", f"{_PREFIX}seq", f"{_PREFIX}python/tuple")
_LEFT_OUT = object()
_MERGE = object()


@dataclass(slots=True)
class _Frame:
    """A mapping or a list that is not finished."""

    is_map: bool
    known: bool
    anchor: str | None
    left: int
    items: list[Any] = field(default_factory=list)
    merged: dict[str, Any] = field(default_factory=dict)


class Building:
    """Takes the events of one document; `left_out` names values of foreign tags."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.documents: list[Any] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._left = MOST_PARTS

    def begin(self, *, is_map: bool, tag: str | None, anchor: str | None) -> None:
        """A mapping or a list begins."""
        if len(self._frames) >= DEEPEST:
            raise BadText(f"is nested more than {DEEPEST} deep")
        if self._expects_key():
            raise BadText("has a key that is no text")
        known = tag in (_MAPS if is_map else _LISTS)
        self._frames.append(_Frame(is_map, known, anchor, self._left))
        self._spend(1)

    def end(self) -> None:
        """The innermost mapping or list ends."""
        frame = self._frames.pop()
        value: Any = frame.items
        if frame.is_map:
            value = {}
            for key, part in zip(frame.items[::2], frame.items[1::2], strict=True):
                put(value, key, part)
            value = {**frame.merged, **value}
        value = value if frame.known else _LEFT_OUT
        self._remember(frame.anchor, value, frame.left - self._left)
        self._add(value)

    def scalar(self, text: str, *, tag: str | None, plain: bool, anchor: str | None) -> None:
        """One value, which stands for itself or for a number; as a key it is always text."""
        parts = 1 + len(text) // _PER_PART
        self._spend(parts)
        value: Any = text
        if self._expects_key():
            value = _MERGE if plain and text == "<<" else text
        elif tag in _SCALARS or (tag is None and plain):
            value = plain_scalar(text)
        elif tag not in (None, *_TEXT):
            value = _LEFT_OUT
        self._remember(anchor, value, parts)
        self._add(value)

    def alias(self, anchor: str) -> None:
        """What was written before, once more."""
        if anchor not in self._anchors:
            raise BadText("refers to something that is not finished or not there")
        value, parts = self._anchors[anchor]
        if self._expects_key() and not isinstance(value, str):
            raise BadText("has a key that is no text")
        self._spend(parts)
        self._add(value)

    def _expects_key(self) -> bool:
        frame = self._frames[-1] if self._frames else None
        return frame is not None and frame.is_map and len(frame.items) % 2 == 0

    def _add(self, value: Any) -> None:
        if not self._frames:
            self.documents.append(None if value is _LEFT_OUT else value)
            return
        frame = self._frames[-1]
        if frame.is_map and len(frame.items) % 2 and frame.items[-1] is _MERGE:
            frame.items.pop()
            self._merge(frame, value)
        elif value is _LEFT_OUT:
            self.left_out.append(self._place())
            if frame.is_map:
                frame.items.pop()
            else:
                frame.items.append(None)
        else:
            frame.items.append(value)

    def _merge(self, frame: _Frame, value: Any) -> None:
        """Take over the entries of other mappings; the first one that has a key wins."""
        for other in value if isinstance(value, list) else [value]:
            if not isinstance(other, dict):
                raise BadText("merges what is no mapping")
            self._spend(len(other))
            frame.merged = {**other, **frame.merged}

    def _remember(self, anchor: str | None, value: Any, parts: int) -> None:
        if anchor is not None and value is not _MERGE:
            self._anchors[anchor] = value, parts

    def _place(self) -> str:
        """The dotted name of the value that comes next."""
        keys = [f.items[-1] for f in self._frames if f.is_map and f.items]
        return ".".join(clean(key, limit=60) for key in keys if isinstance(key, str))

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise BadText("unfolds into more values than settings have")
