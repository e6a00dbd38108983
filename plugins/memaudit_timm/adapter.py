"""The adapter of timm: its names, folders, hub repositories and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.errors import MemauditError, SourceError
from memaudit_timm.configs import is_timm_config, looks_like_patches
from memaudit_timm.settings import OPTIONS, read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.loading.source import Source

FAMILY = "timm"
#: The source itself says that it is timm's: stronger than the LSTMs that may be inside.
CERTAIN = 20
#: Weights by timm's names without a config: whoever knows more about them goes first.
BY_NAMES = 5
FILES = ("path", "hub")


class TimmAdapter(AbstractAdapter):
    """Vision transformers through their patch embeddings, Sequencer2D through its LSTMs."""

    name: ClassVar[str] = "timm"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source is a timm model, without importing timm."""
        if source.kind == "timm":
            return Claim(FAMILY, CERTAIN)
        if source.kind == "module":
            return Claim(FAMILY, CERTAIN) if _is_timm_model(source.module) else None
        if source.kind not in FILES:
            return None
        checkpoint = source.checkpoint
        if is_timm_config(checkpoint.library_config):
            return Claim(FAMILY, CERTAIN)
        bare = not checkpoint.library_config and looks_like_patches(checkpoint.tensors)
        return Claim(FAMILY, BY_NAMES) if bare else None

    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The subject, with the weights of the source and no others."""
        from memaudit_timm.audible import make_audible
        from memaudit_timm.files import load_origin
        from memaudit_timm.modules import load_module
        from memaudit_timm.origins import find_origin

        try:
            settings = read_settings(request.options)
            if source.kind == "module":
                return make_audible(load_module(source.text, source.module, request), settings)
            if source.kind not in (*FILES, "timm"):
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"the timm adapter opens names, files and modules, not a {source.kind} source",
                    hint="give timm:NAME, a folder, a hub id or a module",
                )
            origin = find_origin(source, settings)
            return make_audible(load_origin(source.text, origin, request), settings)
        except MemauditError as error:
            raise error.at(source.text) from None


def _is_timm_model(module: object) -> bool:
    """Whether a module is a whole model of timm, or of a class made from one."""
    homes = (kind.__module__ for kind in type(module).__mro__)
    return hasattr(module, "forward_features") and any(x.startswith("timm.models.") for x in homes)
