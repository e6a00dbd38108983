"""From a name, a file or a module to a model of timm that holds these weights and no others."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.devices import widest_dtype
from memaudit.errors import ArgumentError, MachineError, SourceError, clean, listed, nearest
from memaudit.loading import fill, guard_torchvision, require_finite
from memaudit.loading.filling import digest_tensors
from memaudit.loading.source import HUB_ID, Source, parse_source
from memaudit.report import Identity
from memaudit_timm.patches import TIMM_ERRORS, first_weight, require_blocks
from memaudit_timm.recurrent import recurrent_layers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from memaudit.interfaces import Request
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit_timm.adapter import Settings

#: timm's file of a family → what people call it.
FAMILIES = {"vision_transformer": "vit", "vision_transformer_relpos": "vit", "deit": "vit"}
RANDOM_HINT = "--set pretrained=false audits the random initialisation"
#: The random initialisation that `pretrained=false` asks for.
SEED = 0
#: More parameters than this are run in float32 unless another dtype is requested.
LARGEST_DOUBLE = 2**25
#: Numbers that a model may hold beyond those of the file: tables of positions.
FREE_NUMBERS = 1 << 26
#: What of a stated pretrained_cfg decides how the model is built; addresses are not among it.
_BUILDING = ("input_size", "fixed_input_size", "num_classes", "first_conv", "classifier")
#: Arguments of a model's class that move it instead of giving a size.
_MOVING = ("device", "dtype")
_DEPTHS = re.compile(r"depths?|layers|num_\w*layers|\w*_depth")
#: What trainers put before every name.
_PREFIXES = ("module.", "_orig_mod.", "model.")
#: Sizes that need no tensor of that side, such as the number of classes or pixels.
FREE_SIDE = 1 << 14
FREE_LAYERS = 256
LONGEST_LIST = 64
LONGEST_WORD = 64


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a model is built from; without a checkpoint its weights are random.

    `config` is what timm calls pretrained_cfg: a tag, or plain values; `sizes` are arguments.
    """

    architecture: str
    config: dict[str, Any] | str | None
    sizes: dict[str, Any]
    checkpoint: Checkpoint | None = None
    assumed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_source(source: Source, settings: Settings, request: Request) -> tuple[nn.Module, Identity]:
    """The model behind a name, a file, a folder or a hub repository."""
    if source.kind == "timm" and source.text.startswith("timm:"):
        spec = _spec_of_name(source, settings)
    elif settings.pretrained is False:
        raise ArgumentError("pretrained=false is for timm:NAME; this source has weights")
    else:
        spec = _spec_of_files(_with_files(source), settings)
    model = _create_blank(spec)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    dtype, notes = torch.float64, ()
    if request.dtype is not None:
        dtype = request.dtype
    elif widest_dtype(request.device) == torch.float32:
        dtype = torch.float32
    elif parameters > LARGEST_DOUBLE:
        dtype = torch.float32
        notes = (f"run in float32: it has {parameters:,} parameters; --dtype float64 shows more",)
    if spec.checkpoint is None:
        model = _create_random(spec)
        sha256 = digest_tensors(model.state_dict())
        model = model.to(dtype)
        notes = (f"random initialisation by timm (seed {SEED}): no trained weights", *notes)
    else:
        model = _filled(source.text, model, spec, spec.checkpoint, dtype)
        sha256 = spec.checkpoint.sha256
        notes = (*spec.checkpoint.notes, *spec.notes, *notes)
    model = model.to(request.device).eval().requires_grad_(False)
    identity = _identity(source.text, model, spec.architecture, sha256)
    return model, replace(identity, assumed=spec.assumed, notes=notes)


def load_module(text: str, module: object, request: Request) -> tuple[nn.Module, Identity]:
    """A copy of a module, in the requested dtype or its own; the module is left alone."""
    if not isinstance(module, nn.Module) or not any(True for _ in module.parameters()):
        raise SourceError("E_UNSUPPORTED", f"{clean(text)} is no model with weights")
    state = dict(module.state_dict())
    require_finite(state, source=text)
    model = copy.deepcopy(module).eval().requires_grad_(False)
    if request.dtype is not None:
        model = model.to(request.dtype)
    config = getattr(module, "pretrained_cfg", None)
    stated = config.get("architecture") if isinstance(config, dict) else None
    name = clean(stated) if stated else type(module).__name__
    return model, _identity(text, model, name, digest_tensors(state))


def _identity(text: str, model: nn.Module, architecture: str, sha256: str) -> Identity:
    """What is known before the model was run; its family is the file of timm of its class."""
    homes = [kind.__module__ for kind in type(model).__mro__]
    home = next((x for x in homes if x.startswith("timm.models.")), "timm").rpartition(".")[2]
    weight = first_weight(model)
    return Identity(
        source=text,
        adapter="timm",
        family=FAMILIES.get(home, home),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        dtype=str(weight.dtype).removeprefix("torch."),
        device=str(weight.device),
        sha256=sha256,
        description=architecture,
    )


# Which architecture and which weights a source means.


def timm_library() -> Any:
    """The package timm, imported late; beside a torchvision of another torch it needs the guard."""
    guard_torchvision()
    import timm

    return timm


def _known_architecture(name: str) -> tuple[str, str]:
    """The architecture and the tag of a timm name, or an error with its nearest neighbours."""
    timm = timm_library()
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        hint = nearest(architecture, timm.list_models())
        if not hint.startswith("did you"):  # more than a thousand names are no hint
            hint = "timm.list_models() gives the names"
        raise ArgumentError(f"timm has no model {clean(architecture)!r}", hint=hint)
    if tag:
        trained = timm.list_models(f"{architecture}.*", pretrained=True)
        tags = [known.partition(".")[2] for known in trained]
        if tag not in tags:
            fact = f"timm knows no weights {clean(tag)!r} of {architecture}"
            raise ArgumentError(fact, hint=nearest(tag, tags))
    return architecture, tag


def _trained_config(architecture: str, tag: str) -> Any:
    """What timm knows about trained weights: where they are, and the size of the images."""
    return timm_library().get_pretrained_cfg(f"{architecture}.{tag}" if tag else architecture)


def _spec_of_name(source: Source, settings: Settings) -> ModelSpec:
    if settings.model is not None:
        raise ArgumentError(f"model={clean(settings.model)!r} beside {clean(source.text)!r}")
    name = source.text.removeprefix("timm:").partition("@")[0]
    architecture, tag = _known_architecture(name)
    sizes = _stated_sizes(architecture, settings.model_args, {})
    random = ModelSpec(architecture, tag or None, sizes)
    blank = _create_blank(random)
    if not recurrent_layers(blank):  # refused before anything is fetched
        require_blocks(blank, name=architecture)
    if settings.pretrained is False:
        return random
    config = _trained_config(architecture, tag)
    if config is None or not config.hf_hub_id:
        fact, hint = f"timm has no trained weights of {architecture}", RANDOM_HINT
        if config is not None and config.url:
            fact = f"the trained weights of {architecture} are on no hub, only at a web address"
            hint = f"download them and give the file with --set model={architecture}; {RANDOM_HINT}"
        raise SourceError("E_UNSUPPORTED", fact, hint=hint, stage="open")
    where = _on_hub(str(config.hf_hub_id), source)
    try:
        checkpoint = where.checkpoint
    except MachineError as error:
        hint = f"{error.hint}; {RANDOM_HINT}" if error.hint else RANDOM_HINT
        raise MachineError(
            error.code, error.fact, hint=hint, source=error.source, stage=error.stage
        ) from None
    taken = f"true, the weights {where.text} (a name does not say it; {RANDOM_HINT})"
    assumed = {} if settings.pretrained else {"pretrained": taken}
    return replace(random, checkpoint=checkpoint, assumed=assumed)


def _spec_of_files(source: Source, settings: Settings) -> ModelSpec:
    checkpoint = source.checkpoint
    config = checkpoint.library_config if is_timm_config(checkpoint.library_config) else {}
    name = settings.model or config.get("architecture") or checkpoint.metadata.get("arch")
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            "the weights do not say which model of timm they belong to",
            hint="name it with --set model=NAME, or put timm's config.json beside them",
        )
    architecture, tag = _known_architecture(name)
    tensors = checkpoint.tensors
    stated = _stated_config(config) if config else {}
    classifier = stated.get("classifier")
    if not classifier:
        classifier = getattr(_trained_config(architecture, tag), "classifier", None)
    args, notes = _declared_sizes(architecture, config.get("model_args", {}))
    sizes = _stated_sizes(architecture, {**args, **settings.model_args}, tensors)
    if classifier and "num_classes" not in settings.model_args:
        sizes["num_classes"] = _class_count(classifier, tensors)
    return ModelSpec(architecture, stated or tag or None, sizes, checkpoint, notes=notes)


def _with_files(source: Source) -> Source:
    """The folder or the repository behind a prefix of timm."""
    if source.kind != "timm":
        return source
    prefix, _, rest = source.text.partition(":")
    if prefix == "hf-hub":
        return _on_hub(rest.partition("@")[0], source)
    folder = parse_source(Path(rest).expanduser(), access=source.access)
    return source.opened_from(folder)


def _on_hub(name: str, source: Source) -> Source:
    """A repository, never the folder that may have its name."""
    if not HUB_ID.match(name):
        raise ArgumentError(f"{clean(name)!r} is no hub id", hint="write hf-hub:org/name")
    inside = Source("hub", name, revision=source.revision, access=source.access)
    return source.opened_from(inside)


# What timm writes beside its weights, read as plain data: the architecture and its sizes.


def is_timm_config(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is timm's; one with a model_type belongs to transformers."""
    stated = isinstance(config.get("architecture"), str) and "model_type" not in config
    return stated and ("pretrained_cfg" in config or "num_features" in config)


def looks_like_patches(tensors: Mapping[str, Tensor]) -> bool:
    """Whether weights have the names that timm gives to a vision transformer."""
    names = set(_short_names(tensors).values())
    return "patch_embed.proj.weight" in names and any(x.startswith("blocks.0.") for x in names)


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """The names without what a trainer put before all of them."""
    short = {name: name for name in names}
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in short.values()):
            short = {full: name.removeprefix(prefix) for full, name in short.items()}
    return short


def _stated_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a timm config that timm builds a model from; older ones have one level."""
    inner = config.get("pretrained_cfg", config)
    if not isinstance(inner, dict):
        raise _config_error("pretrained_cfg", inner)
    found = {key: inner[key] for key in _BUILDING if inner.get(key) is not None}
    if "num_classes" in config:
        found["num_classes"] = config["num_classes"]
    size = found.get("input_size", [1, 1, 1])
    whole = isinstance(size, list | tuple) and all(type(x) is int and x > 0 for x in size)
    if not whole or len(size) != 3:
        raise _config_error("input_size", size, "not channels, height and width")
    if not isinstance(found.get("num_classes", 0), int):
        raise _config_error("num_classes", found["num_classes"])
    return {key: _plain(key, value) for key, value in found.items()}


@cache
def _arguments(architecture: str) -> frozenset[str]:
    """What the class of a model takes to be built, in itself and in what it derives from."""
    kind = type(_create_blank(ModelSpec(architecture, None, {})))
    homes = [own for own in kind.__mro__ if own.__module__.startswith("timm.")]
    names = {name for own in homes for name in inspect.signature(own.__init__).parameters}
    return frozenset(names.difference(_MOVING))


def _declared_sizes(architecture: str, stated: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What of a config's model_args the model takes, and a note on the rest."""
    if not isinstance(stated, dict):
        raise _config_error("model_args", stated)
    known = _arguments(architecture) if stated else frozenset()
    left_out = [f"model_args.{key}" for key in stated if key not in known]
    kept = {key: value for key, value in stated.items() if key in known}
    shown = listed(left_out, most=6, limit=80)
    note = f"config.json: left out, what {architecture} does not take: {shown}"
    return kept, (note,) if left_out else ()


def _stated_sizes(
    architecture: str, sizes: dict[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The arguments of a model as sizes, flags and words that its weights can fill."""
    known = _arguments(architecture) if sizes else frozenset()
    most = max([FREE_SIDE, *(side for t in tensors.values() for side in t.shape)])
    deepest = max(FREE_LAYERS, len(tensors))
    plain: dict[str, Any] = {}
    for key, value in sizes.items():
        if key not in known:
            raise _config_error(f"model_args.{key}", value, "which is no size of a model")
        plain[key] = _plain(f"model_args.{key}", value)
        numbers = [x for x in _flat(plain[key]) if isinstance(x, int | float)]
        layers = _DEPTHS.fullmatch(key) is not None
        if numbers and (max(numbers) > most or (layers and sum(numbers) > deepest)):
            raise _config_error(f"model_args.{key}", value, "more than the weights can fill")
    return plain


def _class_count(classifier: Any, tensors: Mapping[str, Tensor]) -> int:
    """The number of classes by the shape of the head; 0 when the file has no head."""
    full = {short: name for name, short in _short_names(tensors).items()}
    for head in classifier if isinstance(classifier, list | tuple) else [classifier]:
        weight = tensors.get(full.get(f"{head}.weight", ""))
        if weight is not None and weight.ndim >= 1:
            return int(weight.shape[0])
    return 0


def _plain(key: str, value: Any) -> Any:
    """A number, a word, or a short list of them; timm takes tuples."""
    if isinstance(value, list | tuple):
        if len(value) > LONGEST_LIST:
            raise _config_error(key, value, "a list too long")
        return tuple(_plain(key, item) for item in value)
    if isinstance(value, str) and len(value) <= LONGEST_WORD:
        return value
    if value is None or isinstance(value, int | float):
        return value
    raise _config_error(key, value)


def _flat(value: Any) -> list[Any]:
    return [x for item in value for x in _flat(item)] if isinstance(value, tuple) else [value]


def _config_error(
    key: str, value: Any, why: str = "which timm cannot be built from"
) -> SourceError:
    return SourceError(
        "E_CONFIG",
        f"{clean(key, limit=80)} is {clean(repr(value), limit=80)}, {why}",
        hint="put the right config beside the weights, or remove it and give --set model=NAME",
        stage="config",
    )


# Building, without timm's loaders and without moving the global random numbers.


def _create_blank(spec: ModelSpec) -> nn.Module:
    """The model without memory for its numbers."""
    with torch.device("meta"):
        return _create(spec)


def _create_random(spec: ModelSpec) -> nn.Module:
    """The model with timm's own initialisation, the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(SEED).get_state())
        return _create(spec)


def _create(spec: ModelSpec) -> nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated names are mapped to the present ones
            return timm_library().create_model(
                spec.architecture, pretrained=False, pretrained_cfg=spec.config, **spec.sizes
            )
    except TIMM_ERRORS as error:
        sizes = ", ".join(f"{key}={value}" for key, value in spec.sizes.items())
        raise SourceError(
            "E_CONFIG",
            f"timm cannot build {spec.architecture} with {clean(sizes or 'its own sizes')}: "
            f"{type(error).__name__}: {clean(error)}",
            hint="look at model_args in the config, or give them with --set model_args=...",
            stage="config",
        ) from error


def _filled(
    text: str, blank: nn.Module, spec: ModelSpec, checkpoint: Checkpoint, dtype: torch.dtype
) -> nn.Module:
    """The model with the weights of the file, proven by `fill` to be these and no others.

    Buffers that no file holds, such as tables of positions, are computed by building: such a model
    is built with memory, once its size is known to be the file's.
    """
    tensors = checkpoint.tensors
    require_finite(tensors, source=text)
    saved = blank.state_dict()
    unsaved = [name for name, _ in blank.named_buffers() if name not in saved]
    model = blank
    if unsaved:
        held = sum(tensor.numel() for tensor in tensors.values())
        wanted = sum(t.numel() for t in (*blank.parameters(), *blank.buffers()))
        if wanted > held + FREE_NUMBERS:
            raise SourceError(
                "E_LIMIT",
                f"{clean(spec.architecture)} asks for {wanted} numbers, the file holds {held}",
                hint="put the right config beside the weights",
                stage="config",
            )
        model = _create_random(spec)
    model = model.to(dtype)
    fill(model, tensors, names=_short_names(tensors), optional=unsaved, source=text)
    return model
