"""The transformers library: imported late, beside any torchvision, and without its log lines."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memaudit.errors import MachineError
from memaudit.loading import guard_torchvision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: What goes wrong in the library when a config or a tensor is not as it expects.
LIBRARY_ERRORS = (
    *(ValueError, TypeError, KeyError, AttributeError, IndexError, RuntimeError, ArithmeticError),
    *(AssertionError, ImportError, OSError, RecursionError),
)


def library(name: str = "transformers") -> Any:
    """A module of transformers, imported when it is needed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # First: the user may have imported the library already, and its parts come later.
            guard_torchvision()
            return sys.modules.get(name) or importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise MachineError(
            "E_PLUGIN",
            f"{name} cannot be imported: {error}",
            hint="install it again: pip install transformers",
            stage="import",
        ) from error


def known_types() -> frozenset[str]:
    """The model types that the installed version knows."""
    return frozenset(library("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES)


def first_class(config: Mapping[str, Any]) -> str:
    """The class that a config names, "" where it names none."""
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def is_model(module: object) -> bool:
    """Whether this is a model of the library; one cannot be before the library was imported."""
    home = sys.modules.get("transformers.modeling_utils")
    return home is not None and isinstance(uncompiled(module), home.PreTrainedModel)


def uncompiled(module: Any) -> Any:
    """The module that torch.compile was given."""
    return getattr(module, "_orig_mod", module)


def config_errors() -> tuple[type[BaseException], ...]:
    """Everything that building a config raises, the errors of strict dataclasses included."""
    return (*LIBRARY_ERRORS, library("huggingface_hub.errors").StrictDataclassError)


def text_config(config: Any) -> Any:
    """The part of a config that describes the text model; the config itself if there is one."""
    try:
        return config.get_text_config()
    except config_errors():
        return config


@contextmanager
def quiet() -> Iterator[None]:
    """While open, the library logs errors only and no warning of Python escapes.

    A model is run thousands of times: changing the level would clear the caches of all loggers.
    """
    library("transformers.utils.logging").get_logger()  # it makes its handler when it is first used
    handlers = list(logging.getLogger("transformers").handlers)

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    for handler in handlers:
        handler.addFilter(is_error)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_error)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """While open, the library draws no progress bars."""
    log = library("transformers.utils.logging")
    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            log.enable_progress_bar()
