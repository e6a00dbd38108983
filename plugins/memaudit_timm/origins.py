"""Where a model comes from: which architecture, which weights, and who said so."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, MachineError, SourceError, clean
from memaudit.loading.source import HUB_ID, Source, parse_source
from memaudit_timm.building import build_blank
from memaudit_timm.configs import class_count, is_timm_config, stated_config, stated_sizes
from memaudit_timm.finding import require_blocks
from memaudit_timm.library import known_architecture, trained_config
from memaudit_timm.recurrent import recurrent_layers

if TYPE_CHECKING:
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit_timm.settings import Settings

RANDOM_HINT = "--set pretrained=false audits the random initialisation"
_BY_NAME = "timm:"
_ON_HUB = "hf-hub:"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a model is built from; without a checkpoint its weights are random.

    `config` is what timm calls pretrained_cfg: a tag, or plain values; `sizes` are arguments.
    """

    architecture: str
    config: dict[str, Any] | str | None
    sizes: dict[str, Any]
    checkpoint: Checkpoint | None
    assumed: dict[str, str] = field(default_factory=dict)


def find_origin(source: Source, settings: Settings) -> Origin:
    """The origin of a name, a file, a folder or a hub repository."""
    if source.kind == "timm" and source.text.startswith(_BY_NAME):
        return _by_name(source, settings)
    if settings.pretrained is False:
        raise ArgumentError("pretrained=false is for timm:NAME; this source has weights")
    return _by_files(_with_files(source), settings)


def _by_name(source: Source, settings: Settings) -> Origin:
    name = source.text.removeprefix(_BY_NAME).partition("@")[0]
    if settings.model is not None:
        raise ArgumentError(f"model={clean(settings.model)!r} beside {clean(source.text)!r}")
    architecture, tag = known_architecture(name)
    random = Origin(architecture, tag or None, stated_sizes(settings.model_args, {}), None)
    blank = build_blank(random)
    if not recurrent_layers(blank):  # refused before anything is fetched
        require_blocks(blank, name=architecture)
    if settings.pretrained is False:
        return random
    config = trained_config(architecture, tag)
    if config is None or not config.hf_hub_id:
        raise _no_weights(architecture, config)
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


def _by_files(source: Source, settings: Settings) -> Origin:
    checkpoint = source.checkpoint
    config = checkpoint.library_config if is_timm_config(checkpoint.library_config) else {}
    name = settings.model or config.get("architecture") or checkpoint.metadata.get("arch")
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            "the weights do not say which model of timm they belong to",
            hint="name it with --set model=NAME, or put timm's config.json beside them",
        )
    architecture, tag = known_architecture(name)
    tensors = checkpoint.tensors
    stated = stated_config(config) if config else None
    known = trained_config(architecture, tag)
    classifier = (stated or {}).get("classifier") or getattr(known, "classifier", None)
    sizes = stated_sizes({**config.get("model_args", {}), **settings.model_args}, tensors)
    if classifier and "num_classes" not in settings.model_args:
        sizes["num_classes"] = class_count(classifier, tensors)
    return Origin(architecture, stated or tag or None, sizes, checkpoint)


def _with_files(source: Source) -> Source:
    """The folder or the repository behind a prefix of timm."""
    if source.kind != "timm":
        return source
    prefix, _, rest = source.text.partition(":")
    if f"{prefix}:" == _ON_HUB:
        return _on_hub(rest.partition("@")[0], source)
    folder = parse_source(Path(rest).expanduser(), access=source.access)
    return source.opened_from(folder)


def _on_hub(name: str, source: Source) -> Source:
    """A repository, never the folder that may have its name."""
    if not HUB_ID.match(name):
        raise ArgumentError(f"{clean(name)!r} is no hub id", hint="write hf-hub:org/name")
    inside = Source("hub", name, revision=source.revision, access=source.access)
    return source.opened_from(inside)


def _no_weights(architecture: str, config: Any) -> SourceError:
    if config is not None and config.url:
        fact = f"the trained weights of {architecture} are on no hub, only at a web address"
        hint = f"download them and give the file with --set model={architecture}; {RANDOM_HINT}"
    else:
        fact, hint = f"timm has no trained weights of {architecture}", RANDOM_HINT
    return SourceError("E_UNSUPPORTED", fact, hint=hint, stage="open")
