"""Code that lies in a model's repository: refused, unless the user trusts it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit.loading.configs import code_map
from memaudit_transformers.library import TROUBLE, hushed, library

if TYPE_CHECKING:
    from pathlib import Path

    from memaudit.loading.source import Source

#: A class in a module at the top of the repository; `org/name--module.Class` is another's code.
_PLACE = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*", re.ASCII)
_MODELS = (
    *("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModelForMaskedLM"),
    *("AutoModelForTokenClassification", "AutoModelForSeq2SeqLM", "AutoModel"),
)


@dataclass(frozen=True, slots=True)
class Remote:
    """The classes of a repository's own code; `config` None when the library has the config."""

    config: type[Any] | None
    model: type[Any]
    notes: tuple[str, ...]


def folder_of(source: Source) -> Path:
    """Where the files of a source lie."""
    path = source.checkpoint.path
    return path if path.is_dir() else path.parent


def is_trusted(source: Source) -> bool:
    """Whether the source brings code of its own, and the user said that it may be run."""
    return source.access.trust_remote_code and bool(code_map(folder_of(source)))


def refuse_unknown(source: Source, model_type: str) -> SourceError:
    """Why a model type that the library does not know is not opened."""
    named = clean(model_type, limit=60)
    if not source.access.trust_remote_code and code_map(folder_of(source)):
        return SourceError(
            "E_UNSUPPORTED",
            f"{named!r} is a model whose code lies in its repository (auto_map), and "
            "trust_remote_code is off",
            hint="--trust-remote-code runs that code; only for code that you have read",
            stage="recognise",
        )
    return SourceError(
        "E_UNSUPPORTED",
        f"the installed transformers does not know the model type {named!r}",
        hint="update transformers, or build the model in Python and pass the module",
        stage="recognise",
    )


def remote_classes(source: Source, architecture: str | None) -> Remote:
    """The classes that the repository's own code defines; this runs it."""
    folder = folder_of(source)
    stated = code_map(folder)
    roles = [role for role in _MODELS if role in stated]
    named = [role for role in roles if stated[role].rpartition(".")[2] == architecture]
    if not roles:
        raise _trouble("its auto_map names no model that can be audited")
    model = _class(folder, stated[(named or roles)[0]])
    config = _class(folder, stated["AutoConfig"]) if "AutoConfig" in stated else None
    base = library("transformers.modeling_utils").PreTrainedModel
    if not issubclass(model, base):
        raise _trouble(f"{clean(model.__name__)} is no PreTrainedModel")
    note = f"trust_remote_code: {clean(model.__name__)} is code of the repository, and was run"
    return Remote(config, model, (note,))


def _class(folder: Path, place: str) -> type[Any]:
    if not _PLACE.fullmatch(place):
        raise _trouble(f"{clean(place, limit=80)!r} is not a class in a file of the repository")
    tools = library("transformers.dynamic_module_utils")
    try:
        with hushed():
            found = tools.get_class_from_dynamic_module(place, str(folder), local_files_only=True)
    except (*TROUBLE, SyntaxError) as error:
        raise _trouble(f"{clean(place)} cannot be imported: {error}") from None
    if not isinstance(found, type):
        raise _trouble(f"{clean(place)} is no class")
    return found


def _trouble(fact: str) -> SourceError:
    return SourceError(
        "E_UNSUPPORTED",
        f"the code in the repository cannot be used: {fact}",
        hint="build the model in Python and pass the module to memaudit.scan",
        stage="recognise",
    )
