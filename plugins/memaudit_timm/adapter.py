"""The adapter of timm: its names, folders, hub repositories and modules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, nearest
from memaudit.interfaces import AbstractAdapter, AbstractSubject, Claim, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.loading.source import Source

FAMILY = "timm"
#: The source itself says that it is timm's: stronger than the LSTMs that may be inside.
CERTAIN = 20
#: Weights by timm's names without a config: whoever knows more about them goes first.
BY_NAMES = 5
FILES = ("path", "hub")
OPTIONS: Final[dict[str, str]] = {
    "pretrained": "true or false, for timm:NAME: trained weights or random ones (default true)",
    "model": "the timm name of the architecture, for weights without a timm config beside them",
    "model_args": 'sizes that differ from the architecture\'s own, such as {"img_size": 64}',
    "layers": "ends, all, or names or numbers of recurrent layers, blocks or stages, with commas; "
    "ends takes the first and the last block of every stage (default ends)",
    "shorter": "cut or fill: how fewer patches than the model has are run, by themselves or with "
    "zeros up to the whole grid (default cut, where the model can)",
}
CHOICES: Final = {"pretrained": ("true", "false"), "shorter": ("cut", "fill")}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as given; None where the user left the choice to the adapter."""

    pretrained: bool | None = None
    model: str | None = None
    model_args: dict[str, Any] = field(default_factory=dict)
    layers: str | None = None
    shorter: str | None = None


class TimmAdapter(AbstractAdapter):
    """Vision transformers through their patch embeddings, Sequencer2D through its LSTMs."""

    name: ClassVar[str] = "timm"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source is a timm model, without importing timm."""
        if source.kind == "timm":
            return Claim(FAMILY, CERTAIN)
        if source.kind == "module":
            homes = [kind.__module__ for kind in type(source.module).__mro__]
            whole = hasattr(source.module, "forward_features")
            known = whole and any(home.startswith("timm.models.") for home in homes)
            return Claim(FAMILY, CERTAIN) if known else None
        if source.kind not in FILES:
            return None
        from memaudit_timm.building import is_timm_config, looks_like_patches

        config = source.checkpoint.library_config
        if is_timm_config(config):
            return Claim(FAMILY, CERTAIN)
        bare = not config and looks_like_patches(source.checkpoint.tensors)
        return Claim(FAMILY, BY_NAMES) if bare else None

    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The subject, with the weights of the source and no others."""
        from memaudit_timm.building import load_module, load_source
        from memaudit_timm.patches import patch_subject
        from memaudit_timm.recurrent import make_host, recurrent_layers

        try:
            settings = _read_settings(request.options)
            if source.kind == "module":
                model, identity = load_module(source.text, source.module, request)
            elif source.kind in (*FILES, "timm"):
                model, identity = load_source(source, settings, request)
            else:
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"the timm adapter opens names, files and modules, not a {source.kind} source",
                    hint="give timm:NAME, a folder, a hub id or a module",
                )
            if recurrent_layers(model):
                if settings.shorter is not None:
                    raise ArgumentError(
                        "shorter is for models of patches; this one has recurrent layers"
                    )
                return make_host(model, identity, settings.layers)
            if settings.layers is not None:
                raise ArgumentError("layers is for recurrent layers; this model has none")
            return patch_subject(model, identity, settings.shorter)
        except MemauditError as error:
            raise error.at(source.text) from None


def _read_settings(options: Mapping[str, Any]) -> Settings:
    """The settings behind the user's options; unknown names and values are refused."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
        if name == "model_args":
            values[name] = _read_sizes(value)
            continue
        # Several names of layers may be given as a list.
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        choices = CHOICES.get(name)
        if choices is not None:
            text = text.lower()
            if text not in choices:
                hint = "give " + " or ".join(choices)
                raise ArgumentError(f"{name}={clean(value)!r} is not possible", hint=hint)
        values[name] = text == "true" if name == "pretrained" else text
    return Settings(**values)


def _read_sizes(value: Any) -> dict[str, Any]:
    """A dictionary, which the command line gives as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = clean(value)  # text, which is refused below
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        hint = 'give a dictionary, such as {"img_size": 64}'
        raise ArgumentError(f"model_args={clean(value)!r} is not possible", hint=hint)
    return dict(value)
