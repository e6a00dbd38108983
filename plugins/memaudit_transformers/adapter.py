"""The adapter of transformers: folders, hub repositories, demos, and models in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.errors import MemauditError, SourceError, clean
from memaudit_transformers.library import is_model, known_types, uncompiled
from memaudit_transformers.settings import OPTIONS, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from memaudit.contracts import StoredDecay
    from memaudit.loading.source import Source

STRENGTH = 14
#: A Mamba in its first authors' format: its config does not say so, its keys do.
ORIGINAL = 12
#: A model of the library in memory: its own class says how it is run.
CERTAIN = 20
FILES = ("path", "demo", "hub")


class TransformersAdapter(AbstractAdapter):
    """Models of the transformers library, by their config or as modules."""

    name: ClassVar[str] = "transformers"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source is a model that the library knows; a refusal says why it is not."""
        if source.kind == "module":
            known = is_model(source.module)
            return Claim(_family(uncompiled(source.module).config), CERTAIN) if known else None
        if source.kind not in FILES:
            return None
        config = source.checkpoint.library_config
        if "model_type" not in config:
            from memaudit_transformers.original import family_of

            family = family_of(source.checkpoint.tensors)
            return None if family is None else Claim(family, ORIGINAL)
        named = config["model_type"]
        if isinstance(named, str) and named in known_types():
            return Claim(clean(named, limit=60), STRENGTH)
        from memaudit_transformers.remote import is_trusted, refuse_unknown

        if not is_trusted(source):
            raise refuse_unknown(source, str(named))
        return Claim(clean(named, limit=60), STRENGTH)

    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The subject, with the weights of the source and no others."""
        try:
            settings = read_settings(request.options)
            if source.kind == "module" and is_model(source.module):
                from memaudit_transformers.modules import open_module

                return open_module(source.text, uncompiled(source.module), request, settings)
            if source.kind not in FILES:
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"this {source.kind} source is no model of transformers",
                    hint="give a folder with config.json and weights, or a hub id org/name",
                )
            from memaudit_transformers.files import open_file

            return open_file(source, request, settings)
        except MemauditError as error:
            raise error.at(source.text) from None

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        """The recurrent layers of the library's kinds, inside any module."""
        from memaudit_transformers.recurrent.storing import stored_decays

        return tuple(stored_decays(module))


def _family(config: object) -> str:
    return clean(getattr(config, "model_type", "") or "transformers", limit=60)
