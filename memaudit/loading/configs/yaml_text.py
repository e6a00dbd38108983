"""The YAML of a trainer's settings: plain values, or one sentence on what is wrong.

The events of the text are all that is asked of the library: no tag is looked up, nothing is built
by it, and a text that would unfold, nest or refer to itself is refused on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import clean, listed
from memaudit.loading.configs.config_text import BadText, in_words, require_plain
from memaudit.loading.configs.yaml_events import Building

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The reader is written in Python and takes seconds for a megabyte; settings have kilobytes.
LARGEST_YAML = 1 << 18
_SHOWN = 6


def parse_yaml(data: bytes, *, name: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The mapping in a file called `name` and a note on what was left out, or E_CONFIG.

    Interpolations such as ${model.width} stay text, and so do dates. Values with a tag that is
    not plain YAML are left out. An empty file states nothing.
    """
    with in_words(name):
        building = Building()
        for event in _events(data):
            _take(building, event)
        content = building.documents[0] if building.documents else None
        if len(building.documents) > 1:
            raise BadText("holds several documents, not one")
        if not isinstance(content, dict | None):
            raise BadText(f"holds a {type(content).__name__}, not a mapping")
        require_plain(content or {})
    return content or {}, _left_out(building.left_out, name)


def _events(data: bytes) -> Iterator[Any]:
    import yaml

    try:
        yield from yaml.parse(data.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError:
        raise BadText("is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise BadText(f"is not YAML ({line}{clean(error.problem, limit=120)})") from None
    # Numbers in escapes and directives are converted without a look at them.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise BadText("is not YAML") from None


def _take(building: Building, event: Any) -> None:
    import yaml

    match event:
        case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
            is_map = isinstance(event, yaml.MappingStartEvent)
            building.begin(is_map=is_map, tag=event.tag, anchor=event.anchor)
        case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
            building.end()
        case yaml.ScalarEvent():
            plain = event.style is None
            building.scalar(event.value, tag=event.tag, plain=plain, anchor=event.anchor)
        case yaml.AliasEvent():
            building.alias(event.anchor)


def _left_out(places: list[str], name: str) -> tuple[str, ...]:
    if not places:
        return ()
    shown = listed(places, most=_SHOWN)
    return (f"{clean(name)}: left out, for a tag that is not plain YAML: {shown}",)
