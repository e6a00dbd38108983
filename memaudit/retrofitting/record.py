"""What is stored of a retrofit: the record in JSON, and raw weights out of a module and back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit import __version__, registry
from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.interfaces import PARTS, AbstractReparam
from memaudit.loading.access import ACCESS, SAFE
from memaudit.loading.checkpoint import read_weight_file
from memaudit.loading.configs import LARGEST_CONFIG
from memaudit.loading.files import open_within, read_beside
from memaudit.loading.formats import parse_object
from memaudit.loading.saving import RECORD_NAME, WRITTEN_BY, is_retrofit, write_weights
from memaudit.records import INFINITE, Record, Unbounded, plain
from memaudit.reparams import Stepped
from memaudit.report_files import WRONG, write_json
from memaudit.retrofitting.result import RefusedLayer
from memaudit.retrofitting.weights import BEHIND, DenseWeight, retrofitted_weights, weight_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from memaudit.retrofitting.weights import RetrofittedWeight

#: What no folder may ask for: access to files and code, and how a model is opened.
NEVER_RECORDED = frozenset(
    {*ACCESS, "source", "adapter", "device", "dtype", "revision", "progress", "restored"}
)
SCHEMA = 1
#: The raw weights, beside the record.
RAW_NAME = "retrofit.safetensors"
KINDS = ("diagonal", "dense")
#: What the original was written as.
FORMATS = ("safetensors", "torch", "torch-legacy", "npz", "msgpack")


@dataclass(frozen=True, slots=True, eq=False)
class FormConfig(Record):
    """A form by its name, its time and its constants; of one that is stepped, the one `inner`."""

    name: str
    time: str
    constants: dict[str, Any] = field(default_factory=dict)
    inner: FormConfig | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RawEntry(Record):
    """One retrofitted weight of a checkpoint.

    `weight` is its name in the model that was retrofitted; of a matrix there is no law. `limits`
    are those of the raw numbers.
    """

    weight: str
    layer: str
    cell: str
    kind: str
    form: FormConfig
    law: FormConfig | None
    part: str
    limits: tuple[Unbounded, Unbounded]

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.part not in PARTS:
            raise ValueError("describes what is no form")
        if not self.limits[0] <= self.limits[1]:
            raise ValueError("has limits that are none")


@dataclass(frozen=True, slots=True, eq=False)
class Original(Record):
    """What the checkpoint was: its file, its format, and where in it the weights are."""

    file: str = "model.safetensors"
    format: str = "safetensors"
    container: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"is of the unknown format {self.format!r}")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RetrofitConfig(Record):
    """All of retrofit_config.json; `weights` by their names in the checkpoint."""

    schema: int = SCHEMA
    memaudit: str = __version__
    reparam: str
    source: str = ""
    adapter: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    original: Original = field(default_factory=Original)
    weights: dict[str, RawEntry]
    refused: tuple[RefusedLayer, ...] = ()

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("names no weights")
        # What a source may do is for the user alone to say.
        for name in self.options:
            if name in NEVER_RECORDED:
                raise ValueError(f"sets the option {name!r}, which is the user's")


def read_config(data: dict[str, Any]) -> RetrofitConfig:
    """What JSON of unknown origin describes, or a refusal."""
    if data.get("schema") != SCHEMA or type(data.get("schema")) is not int:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the retrofit has schema {clean(data.get('schema'), limit=60)}, this memaudit "
            f"reads schema {SCHEMA}",
            hint="write the folder again with this version",
            stage="open",
        )
    try:
        return RetrofitConfig.from_dict(data)
    except WRONG as error:
        raise bad_record(f"does not fit: {clean(error)}") from None


def read_record(folder: Path) -> dict[str, Any]:
    """What retrofit_config.json says, as strict JSON of a bounded size."""
    data = read_beside(folder, RECORD_NAME, most=LARGEST_CONFIG)
    if data is None:
        raise SourceError(
            "E_UNSUPPORTED",
            f"{folder.name or folder} is no retrofit folder: it has no {RECORD_NAME}",
            hint="memaudit retrofit SOURCE --reparam NAME --out DIR writes one",
            source=folder,
            stage="open",
        )
    try:
        return parse_object(data)
    except ValueError as error:
        raise bad_record(str(error) or "holds more values than any retrofit") from None


def read_raw_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of retrofit.safetensors."""
    with open_within(folder, RAW_NAME) as file:
        found = read_weight_file(file, SAFE)
    if found.format != "safetensors":
        fact = f"{RAW_NAME} is no safetensors file"
        raise SourceError("E_CORRUPT", fact, hint="write the folder again", stage="open")
    return found.weights.tensors


def write_retrofit_files(folder: Path, record: dict[str, Any], raw: Mapping[str, Tensor]) -> None:
    """Write the record and the raw weights; complex128 as pairs of float64, for safetensors."""
    wide = {n: torch.view_as_real(v) if v.dtype is torch.complex128 else v for n, v in raw.items()}
    write_weights(folder / RAW_NAME, wide, WRITTEN_BY)
    write_json(record, folder / RECORD_NAME)


def form_config(form: AbstractReparam) -> FormConfig:
    """A form as plain values."""
    given = {f.name: getattr(form, f.name) for f in fields(form) if f.name != "time"}
    constants = {n: plain(v) for n, v in given.items() if isinstance(v, bool | int | float)}
    inner = given.get("inner")
    within = form_config(inner) if isinstance(inner, AbstractReparam) else None
    return FormConfig(form.name, form.time, constants, within)


def make_form(config: FormConfig) -> AbstractReparam:
    """The form that plain values describe, by the registry and nothing else."""
    name, time = config.name, config.time
    if name == Stepped.name and config.inner is not None:
        inner = make_form(config.inner)
        if inner.time != "continuous" or isinstance(inner, Stepped):
            raise bad_record("steps a form that has no continuous time")
        return Stepped(inner=inner)
    words = {INFINITE: math.inf, f"-{INFINITE}": -math.inf}
    constants = {
        n: words.get(v, v) if isinstance(v, str) else v for n, v in config.constants.items()
    }
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


def bad_record(fact: str) -> SourceError:
    """The refusal of a retrofit_config.json that memaudit did not write."""
    return SourceError(
        "E_CONFIG", f"{RECORD_NAME} {fact}", hint="write the folder again", stage="open"
    )


def raw_tensors(owner: nn.Module, name: str, key: str) -> dict[str, Tensor]:
    """`KEY.raw0`, … are the raw weights as they are, the others what they began with."""
    weight = weight_of(owner, name)
    found = {f"{key}.raw{k}": raw for k, raw in enumerate(_raws(owner, name, weight))}
    found |= {f"{key}.{buffer}": value for buffer, value in weight.named_buffers()}
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def raw_entry(owner: nn.Module, name: str, *, weight: str, layer: str, cell: str) -> RawEntry:
    """The entry of a retrofitted weight."""
    inner = weight_of(owner, name)
    return RawEntry(weight=weight, layer=layer, cell=cell, limits=inner.limits, **_described(inner))


def load_raw_tensors(
    owner: nn.Module, name: str, key: str, entry: RawEntry, tensors: Mapping[str, Tensor]
) -> None:
    """Put the raw weights under a key of a file, to the last bit, into a weight of that form."""
    weight = weight_of(owner, name)
    for what, here in _described(weight).items():
        there = getattr(entry, what)
        if there != here:
            raise SourceError(
                "E_WEIGHTS",
                f"the raw weights of {clean(key)} have another {what} than the model: "
                f"{clean(there, limit=150)}, not {clean(here, limit=150)}",
                hint="retrofit the model with the same form, or open the folder with memaudit.load",
                stage="open",
            )
    raws = _raws(owner, name, weight)
    given = [_like(tensors, key, f"raw{k}", raw) for k, raw in enumerate(raws)]
    kept = {n: _like(tensors, key, n, value) for n, value in weight.named_buffers()}
    if not _fits(weight, given, kept):
        raise _damaged(key, "the shapes are not those of the weight")
    with torch.no_grad():
        for raw, value in zip(raws, given, strict=True):
            # An optimizer may hold the parameter: it stays the same object.
            raw.data = value
        for buffer, value in kept.items():
            setattr(weight, buffer, value)
    weight.limits = entry.limits


def _described(weight: Any) -> dict[str, Any]:
    """What must be the same of two weights that exchange raw ones."""
    dense = isinstance(weight, DenseWeight)
    return {
        "kind": "dense" if dense else "diagonal",
        "form": form_config(weight.form),
        "law": None if dense else form_config(weight.law),
        "part": "all" if dense else weight.part,
    }


def _raws(owner: nn.Module, name: str, weight: RetrofittedWeight) -> list[nn.Parameter]:
    behind = owner.get_submodule(f"{BEHIND}.{name}")
    return [behind.get_parameter(f"original{k}") for k in range(weight.count)]


def _like(tensors: Mapping[str, Tensor], key: str, end: str, now: Tensor) -> Tensor:
    """One tensor of the file, in the dtype and on the device of the tensor that it replaces."""
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
    value = found.detach().to(now.device, now.dtype, copy=True)
    if not bool(torch.isfinite(value).all()):
        raise _damaged(key, f"{end} holds numbers that are not finite in {now.dtype}")
    return value


def _fits(weight: RetrofittedWeight, raw: list[Tensor], kept: dict[str, Tensor]) -> bool:
    """Whether the shapes are those of such a weight; a matrix may have other pairs by now."""
    if any(value.shape != kept[f"start{k}"].shape for k, value in enumerate(raw)):
        return False
    if kept["anchor"].shape != weight.anchor.shape:
        return False
    if not isinstance(weight, DenseWeight):
        return kept["start0"].shape == weight.start0.shape
    signs, pairs, size = kept["signs"], kept["start1"].numel(), len(weight.basis)
    squares = ("basis", "inverse_basis", "witness", "start2")
    return (
        signs.ndim == 1
        and bool((signs.abs() == 1.0).all())
        and signs.numel() + 2 * pairs == size
        and kept["start0"].shape == (signs.numel() + pairs,)
        and kept["start3"].shape == weight.start3.shape
        and all(tuple(kept[name].shape) == (size, size) for name in squares)
    )


def _damaged(key: str, fact: str) -> SourceError:
    return SourceError(
        "E_CORRUPT",
        f"{RAW_NAME} does not fit {clean(key, limit=200)}: {fact}",
        hint="write the folder again",
        stage="open",
    )


def raw_state(model: nn.Module) -> dict[str, Any]:
    """The raw weights of a model under the plain keys of its state dict, and their record."""
    tensors: dict[str, Tensor] = {}
    entries: dict[str, RawEntry] = {}
    for key, (owner, name) in retrofitted_weights(model).items():
        tensors |= raw_tensors(owner, name, key)
        cell = type(owner).__name__.removeprefix("Parametrized")
        layer = key.rpartition(".")[0] or cell
        entries[key] = raw_entry(owner, name, weight=key, layer=layer, cell=cell)
    if not entries:
        raise ArgumentError(
            "nothing in the model is retrofitted", hint="memaudit.retrofit(model) comes first"
        )
    form = next(iter(entries.values())).form
    config = RetrofitConfig(reparam=(form.inner or form).name, weights=entries)
    return {"record": config.to_dict(), "raw": tensors}


def load_raw_state(model: nn.Module, state: dict[str, Any]) -> None:
    """Put raw weights into a model that stands behind the same forms, exactly.

    Its parameters stay the same objects, so that an optimizer that was built already goes on
    training them.
    """
    here = retrofitted_weights(model)
    there = read_config(state["record"]).weights
    alone = sorted(set(here) ^ set(there))
    if alone:
        places = ("the model", "the checkpoint")
        one, other = places if alone[0] in here else places[::-1]
        raise SourceError(
            "E_WEIGHTS",
            f"{clean(alone[0])} is retrofitted in {one}, but not in {other}",
            hint="retrofit the model as it was when the checkpoint was written",
            stage="open",
        )
    for key, (owner, name) in here.items():
        load_raw_tensors(owner, name, key, there[key], state["raw"])


def write_raw(model: nn.Module, folder: str | Path) -> None:
    """Write retrofit.safetensors and retrofit_config.json beside the model's saved state dict."""
    state = raw_state(model)
    write_retrofit_files(Path(folder), state["record"], state["raw"])


def read_raw(model: nn.Module, folder: str | Path) -> bool:
    """Put the raw weights of a folder into a retrofitted model; False without any."""
    folder = Path(folder)
    if not is_retrofit(folder):
        return False
    try:
        load_raw_state(model, {"record": read_record(folder), "raw": read_raw_tensors(folder)})
    except SourceError as error:
        raise error.at(folder) from None
    return True


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
