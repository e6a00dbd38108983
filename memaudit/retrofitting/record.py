"""What is stored of a retrofit: the record in JSON, and raw weights out of a module and back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit import registry
from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.loading.access import ACCESS
from memaudit.loading.retrofit_files import (
    RAW_NAME,
    RECORD_NAME,
    is_retrofit,
    read_raw_tensors,
    read_record,
    write_retrofit_files,
)
from memaudit.reparam import TIMES, AbstractReparam
from memaudit.reparams import Stepped
from memaudit.results import RefusedLayer
from memaudit.retrofitting.weights import DenseWeight, retrofitted_names, weight_of
from memaudit.stored_decay import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from memaudit.retrofitting.weights import RetrofittedWeight


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


_KEYS = {"name", "time", "constants", "inner"}


def form_said(form: AbstractReparam) -> dict[str, Any]:
    """A form as plain values; infinity is a word."""
    given = {f.name: getattr(form, f.name) for f in fields(form) if f.name != "time"}
    constants = {n: number_said(v) for n, v in given.items() if isinstance(v, bool | int | float)}
    said: dict[str, Any] = {"name": form.name, "time": form.time, "constants": constants}
    inner = given.get("inner")
    if isinstance(inner, AbstractReparam):
        said["inner"] = form_said(inner)
    return said


def form_built(said: Any) -> AbstractReparam:
    """The form that the words name, by the registry and nothing else."""
    name, time, constants = _checked(said)
    if name == Stepped.name and "inner" in said:
        inner = form_built(said["inner"])
        if inner.time != "continuous" or isinstance(inner, Stepped):
            raise bad_record("steps a form that has no continuous time")
        return Stepped(inner=inner)
    if name not in registry.available("reparams"):
        raise SourceError(
            "E_UNSUPPORTED",
            f"the form {clean(name, limit=60)!r} is not known here: the plugin that brings it is "
            "not installed",
            hint="install it; memaudit list reparams shows what there is",
            stage="open",
        )
    kind = registry.load(registry.find("reparams", name))
    known = set(getattr(kind, "__dataclass_fields__", ())) - {"time"}
    odd = [one for one in constants if one not in known]
    if odd or time not in getattr(kind, "times", ()):
        what = f"a constant {clean(odd[0], limit=60)!r}" if odd else f"{time} time"
        raise bad_record(f"gives the form {name} {what}, which it does not have")
    try:
        return registry.build("reparams", name, time=time, **constants)
    except ArgumentError as error:
        raise bad_record(f"gives the form {name} what it does not take: {error.fact}") from None


def number_said(value: float) -> float | str:
    """A number for JSON, which has no infinity."""
    return value if math.isfinite(value) else str(float(value))


def number_read(said: Any) -> float:
    """A number out of JSON."""
    if isinstance(said, int | float):
        return said
    if said in ("inf", "-inf"):
        return float(said)
    raise bad_record(f"has {clean(said, limit=60)!r} in the place of a number")


def bad_record(fact: str) -> SourceError:
    """The refusal of a retrofit_config.json that nobody of ours wrote."""
    return SourceError(
        "E_CONFIG", f"{RECORD_NAME} {fact}", hint="write the folder again", stage="open"
    )


def _checked(said: Any) -> tuple[str, str, dict[str, float]]:
    if not isinstance(said, dict) or not set(said) <= _KEYS:
        raise bad_record("has a form that is none")
    name, time, constants = said.get("name"), said.get("time"), said.get("constants", {})
    if not isinstance(name, str) or time not in TIMES or not isinstance(constants, dict):
        raise bad_record("has a form that is none")
    return name, time, {key: number_read(value) for key, value in constants.items()}


def numbers_out(owner: nn.Module, name: str, key: str) -> dict[str, Tensor]:
    """`KEY.raw0`, … are the raw weights as they are, the others what they began with."""
    weight = weight_of(owner, name)
    found = {f"{key}.raw{k}": raw for k, raw in enumerate(_raws(owner, name, weight))}
    found |= {f"{key}.{buffer}": value for buffer, value in weight.named_buffers()}
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def entry_of(
    owner: nn.Module, name: str, key: str, *, weight: str, layer: str, cell: str
) -> RawEntry:
    """What is to be said of a retrofitted weight."""
    inner = weight_of(owner, name)
    dense = isinstance(inner, DenseWeight)
    return RawEntry(
        key=key,
        weight=weight,
        layer=layer,
        cell=cell,
        kind="dense" if dense else "diagonal",
        form=form_said(inner.form),
        law=None if dense else form_said(inner.law),
        part="all" if dense else inner.part,
        limits=inner.limits,
    )


def numbers_in(owner: nn.Module, name: str, entry: RawEntry, tensors: Mapping[str, Tensor]) -> None:
    """Put the numbers of a file into a weight that has the same form already."""
    weight = weight_of(owner, name)
    _require_same(weight, entry)
    raws = _raws(owner, name, weight)
    given = {f"raw{k}": _taken(tensors, entry.key, f"raw{k}", raw) for k, raw in enumerate(raws)}
    kept = {n: _taken(tensors, entry.key, n, value) for n, value in weight.named_buffers()}
    _require_shapes(weight, entry, given, kept)
    with torch.no_grad():
        for k, raw in enumerate(raws):
            # An optimizer may hold the parameter: it stays the same object.
            raw.data = given[f"raw{k}"]
        for buffer, value in kept.items():
            setattr(weight, buffer, value)
    weight.limits = entry.limits


def _raws(owner: nn.Module, name: str, weight: RetrofittedWeight) -> list[nn.Parameter]:
    listed = owner.get_submodule(f"parametrizations.{name}")
    return [listed.get_parameter(f"original{k}") for k in range(weight.count)]


def _taken(tensors: Mapping[str, Tensor], key: str, end: str, now: Tensor) -> Tensor:
    """One tensor of the file, in the dtype and on the device of what is there."""
    found = tensors.get(f"{key}.{end}")
    if found is None:
        raise _damaged(key, f"{end} is missing")
    if not found.is_complex() and now.is_complex():  # complex128 is written in pairs
        if found.ndim == 0 or found.shape[-1] != 2 or found.dtype is not torch.float64:
            raise _damaged(key, f"{end} holds no complex numbers")
        found = torch.view_as_complex(found.contiguous())
    if found.is_complex() != now.is_complex() or not (
        found.is_complex() or found.is_floating_point()
    ):
        raise _damaged(key, f"{end} has the dtype {found.dtype}")
    taken = found.detach().to(now.device, now.dtype, copy=True)
    if not bool(torch.isfinite(taken).all()):
        raise _damaged(key, f"{end} holds numbers that are not finite in {now.dtype}")
    return taken


def _require_same(weight: Any, entry: RawEntry) -> None:
    """Refuse raw weights of another form."""
    dense = isinstance(weight, DenseWeight)
    here = (
        "dense" if dense else "diagonal",
        form_said(weight.form),
        None if dense else form_said(weight.law),
        "all" if dense else weight.part,
    )
    there = (entry.kind, entry.form, entry.law, entry.part)
    for what, one, other in zip(("kind", "form", "law", "part"), here, there, strict=True):
        if one != other:
            raise SourceError(
                "E_WEIGHTS",
                f"the raw weights of {clean(entry.key)} have another {what} than the model: "
                f"{clean(other, limit=150)}, not {clean(one, limit=150)}",
                hint="retrofit the model with the same form, or open the folder with memaudit.load",
                stage="open",
            )


def _require_shapes(
    weight: RetrofittedWeight, entry: RawEntry, raw: Mapping[str, Tensor], kept: dict[str, Tensor]
) -> None:
    """Refuse numbers that are not those of such a weight; a matrix may have other pairs by now."""
    wrong = [k for k in range(weight.count) if raw[f"raw{k}"].shape != kept[f"start{k}"].shape]
    fits = not wrong and kept["anchor"].shape == weight.anchor.shape
    if isinstance(weight, DenseWeight):
        singles, pairs = kept["signs"].numel(), kept["start1"].numel()
        fits = fits and kept["signs"].ndim == 1 and bool((kept["signs"].abs() == 1.0).all())
        size = singles + 2 * pairs
        square = (len(weight.basis),) * 2
        fits = fits and kept["start0"].shape == (singles + pairs,) and size == square[0]
        fits = fits and kept["start3"].shape == weight.start3.shape
        squares = ("basis", "inverse_basis", "witness", "start2")
        fits = fits and all(tuple(kept[name].shape) == square for name in squares)
    else:
        fits = fits and kept["start0"].shape == weight.start0.shape
    if not fits:
        raise _damaged(entry.key, "the shapes are not those of the weight")


def _damaged(key: str, fact: str) -> SourceError:
    return SourceError(
        "E_CORRUPT",
        f"{RAW_NAME} does not fit {clean(key, limit=200)}: {fact}",
        hint="write the folder again",
        stage="open",
    )


def write_raw(model: nn.Module, folder: Path) -> None:
    """Write retrofit.safetensors and retrofit_config.json beside the model's saved state dict.

    The keys are those of the state dict, in which every retrofitted weight has its plain name.
    """
    tensors: dict[str, Tensor] = {}
    entries = []
    for path, owner, name in _retrofitted(model):
        key = f"{path}.{name}" if path else name
        tensors |= numbers_out(owner, name, key)
        cell = type(owner).__name__.removeprefix("Parametrized")
        entries.append(entry_of(owner, name, key, weight=key, layer=path or cell, cell=cell))
    if not entries:
        raise ArgumentError(
            "nothing in the model is retrofitted", hint="memaudit.retrofit(model) comes first"
        )
    form = entries[0].form
    reparam = form.get("inner", form)["name"]
    record = Record(reparam=reparam, entries=tuple(entries))
    write_retrofit_files(Path(folder), record.to_dict(), tensors)


def read_raw(model: nn.Module, folder: Path) -> bool:
    """Put the raw weights of a folder into a retrofitted model, exactly; False without any.

    The model must stand behind the same forms. Its parameters stay the same objects, so that an
    optimizer that was built already goes on training them.
    """
    folder = Path(folder)
    if not is_retrofit(folder):
        return False
    record = Record.from_dict(read_record(folder))
    tensors = read_raw_tensors(folder)
    here = {f"{path}.{name}" if path else name: (o, name) for path, o, name in _retrofitted(model)}
    there = {entry.key: entry for entry in record.entries}
    alone = sorted(set(here) ^ set(there))
    if alone:
        places = ("the model", "the folder")
        one, other = places if alone[0] in here else places[::-1]
        raise SourceError(
            "E_WEIGHTS",
            f"{clean(alone[0])} is retrofitted in {one}, but not in {other}",
            hint=f"retrofit the model as it was when {RAW_NAME} was written",
            source=folder,
            stage="open",
        )
    for key, (owner, name) in here.items():
        numbers_in(owner, name, there[key], tensors)
    return True


def _retrofitted(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, owner in model.named_modules():
        for name in retrofitted_names(owner):
            yield path, owner, name


def is_retrofitted(model: nn.Module) -> bool:
    """Whether any weight of the model stands behind a form."""
    return any(True for _ in _weights(model))


def raw_state(model: nn.Module) -> dict[str, Any]:
    """The raw weights by their plain names, and what they mean: dicts, tensors and words."""
    tensors: dict[str, Tensor] = {}
    entries = []
    for key, owner, name in _weights(model):
        tensors |= numbers_out(owner, name, key)
        layer, cell = key.rpartition(".")[0] or name, type(owner).__name__
        entries.append(entry_of(owner, name, key, weight=key, layer=layer, cell=cell))
    reparam = entries[0].form.get("name", "") if entries else ""
    return {"record": Record(reparam=reparam, entries=tuple(entries)).to_dict(), "raw": tensors}


def load_raw_state(model: nn.Module, state: dict[str, Any]) -> None:
    """Put them back into a model that stands behind the same forms."""
    entries = {entry.key: entry for entry in Record.from_dict(state["record"]).entries}
    here = {key: (owner, name) for key, owner, name in _weights(model)}
    alone = sorted(set(here) ^ set(entries))
    if alone:
        raise SourceError(
            "E_WEIGHTS",
            f"{clean(alone[0])} is retrofitted in the model or in the checkpoint, but not in both",
            hint="retrofit the model as it was when the checkpoint was written",
            stage="training",
        )
    for key, (owner, name) in here.items():
        numbers_in(owner, name, entries[key], state["raw"])


class RawWeights:
    """The raw weights of a model for whoever checkpoints objects by their state dicts.

    `accelerator.register_for_checkpointing(RawWeights(model))` makes `load_state` exact.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """The raw weights, as they are."""
        return raw_state(self._model)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put them back, after the plain ones were."""
        load_raw_state(self._model, state)


def read_if_it_fits(model: nn.Module, folder: Path) -> bool:
    """Read the raw weights of a folder, if they make the weights that the model has now."""
    before = {key: getattr(owner, name).detach().clone() for key, owner, name in _weights(model)}
    kept = raw_state(model)
    if not read_raw(model, folder):
        return False
    now = {key: getattr(owner, name).detach() for key, owner, name in _weights(model)}
    if all(torch.equal(now[key], value) for key, value in before.items()):
        return True
    load_raw_state(model, kept)
    return False


def _weights(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, owner in model.named_modules():
        for name in retrofitted_names(owner):
            yield (f"{path}.{name}" if path else name), owner, name
