"""What retrofit_config.json says: which weights stand behind which forms, and where from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from memaudit.errors import SourceError, clean
from memaudit.loading.access import ACCESS
from memaudit.retrofitting.form_text import bad_record, number_read, number_said
from memaudit.retrofitting.result import RefusedLayer
from memaudit.stored_decay import PARTS

#: What no folder may ask for: access to files and code, and how a model is opened.
NEVER_RECORDED = frozenset(
    {*ACCESS, "source", "adapter", "device", "dtype", "revision", "progress", "restored"}
)
SCHEMA = 1
KINDS = ("diagonal", "dense")
#: What the original was written as.
FORMATS = ("safetensors", "torch", "torch-legacy", "npz", "msgpack")


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One retrofitted weight of a checkpoint.

    `key` is its name in the checkpoint, `weight` that in the model that was retrofitted. `form`
    and `law` are in the words of `form_text`; of a matrix there is no law. `limits` are those of
    the raw numbers.
    """

    key: str
    weight: str
    layer: str
    cell: str
    kind: str
    form: dict[str, Any]
    law: dict[str, Any] | None
    part: str
    limits: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the key."""
        return {
            "weight": self.weight,
            "layer": self.layer,
            "cell": self.cell,
            "kind": self.kind,
            "form": self.form,
            "law": self.law,
            "part": self.part,
            "limits": [number_said(value) for value in self.limits],
        }


@dataclass(frozen=True, slots=True)
class Original:
    """What the checkpoint was: its file, its format, and where in it the weights are."""

    file: str = "model.safetensors"
    format: str = "safetensors"
    container: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """All of retrofit_config.json."""

    reparam: str
    entries: tuple[RawEntry, ...]
    refused: tuple[RefusedLayer, ...] = ()
    source: str = ""
    adapter: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    original: Original = Original()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, the schema first."""
        from memaudit import __version__

        first = self.original
        return {
            "schema": SCHEMA,
            "memaudit": __version__,
            "reparam": self.reparam,
            "source": self.source,
            "adapter": self.adapter,
            "options": self.options,
            "original": {
                "file": first.file,
                "format": first.format,
                "container": first.container,
                "sha256": first.sha256,
            },
            "weights": {entry.key: entry.to_dict() for entry in self.entries},
            "refused": [
                {"layer": one.layer, "cell": one.cell, "reason": one.reason} for one in self.refused
            ],
        }

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Record:
        """The record that plain values of a stranger spell, or a refusal."""
        if said.get("schema") != SCHEMA or type(said.get("schema")) is not int:
            raise SourceError(
                "E_UNSUPPORTED",
                f"the retrofit has schema {clean(said.get('schema'), limit=60)}, this memaudit "
                f"reads schema {SCHEMA}",
                hint="write the folder again with this version",
                stage="open",
            )
        weights = _a(dict, said, "weights")
        if not weights:
            raise bad_record("names no weights")
        first = {k: _a(str, _a(dict, said, "original"), k) for k in Original.__dataclass_fields__}
        if first["format"] not in FORMATS:
            raise bad_record(f"has an unknown format {clean(first['format'], limit=60)!r}")
        adapter = said.get("adapter")
        return cls(
            reparam=_a(str, said, "reparam"),
            entries=tuple(_entry(key, value) for key, value in weights.items()),
            refused=tuple(_refused(one) for one in _a(list, said, "refused")),
            source=_a(str, said, "source"),
            adapter=None if adapter is None else _a(str, said, "adapter"),
            options=_options(said),
            original=Original(**first),
        )


def _options(said: Any) -> dict[str, Any]:
    """The adapter's own options; what a source may do is for the user alone to say."""
    found = _a(dict, said, "options")
    odd = [name for name in found if name in NEVER_RECORDED]
    if odd:
        raise bad_record(f"sets the option {clean(odd[0], limit=60)!r}, which is the user's")
    return found


def _entry(key: str, said: Any) -> RawEntry:
    if not isinstance(said, dict):
        raise bad_record(f"says nothing of {clean(key, limit=120)!r}")
    words = {name: _a(str, said, name) for name in ("weight", "layer", "cell", "kind", "part")}
    law, limits = said.get("law"), _a(list, said, "limits")
    odd = words["kind"] not in KINDS or words["part"] not in PARTS or len(limits) != 2
    if odd or (law is not None and not isinstance(law, dict)):
        raise bad_record(f"describes {clean(key, limit=120)!r} by what is no form")
    low, high = map(number_read, limits)
    if not low <= high:
        raise bad_record(f"holds {clean(key, limit=120)!r} inside of limits that are none")
    return RawEntry(key=key, form=_a(dict, said, "form"), law=law, limits=(low, high), **words)


def _refused(said: Any) -> RefusedLayer:
    if not isinstance(said, dict):
        raise bad_record("has a refused layer that is none")
    return RefusedLayer(_a(str, said, "layer"), _a(str, said, "cell"), _a(str, said, "reason"))


def _a(kind: type, said: dict[str, Any], name: str) -> Any:
    """An entry of that type."""
    value = said.get(name)
    if not isinstance(value, kind):
        raise bad_record(f"has no {name!r}, or one that is no {kind.__name__}")
    return value
