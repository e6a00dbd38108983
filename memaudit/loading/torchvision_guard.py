"""Lets timm and transformers be imported beside a torchvision without its compiled operators."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

from memaudit.errors import MachineError

_MISSING_OPERATOR = "operator torchvision::nms does not exist"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_WARNING = (
    "the compiled operators of torchvision are unavailable: it was built for another torch; "
    "models that need them (object detection) will not run"
)
#: A library's definitions vanish with it, so it is kept for the life of the process.
_KEPT: list[Any] = []
#: The answer of the first call; torchvision cannot be imported anew.
_FOUND: list[str] = []


def guard_torchvision() -> str:
    """Import torchvision before timm or transformers do: `native`, `schema-only` or `absent`.

    A torchvision built for another torch registers shapes for operators that it could not load,
    and fails. The schemas of these operators are enough for its pure Python parts.
    """
    if not _FOUND:
        _FOUND.append(_import())
        if _FOUND[0] == "schema-only":
            warnings.warn(_WARNING, UserWarning, stacklevel=2)
    return _FOUND[0]


def torchvision_state() -> str:
    """What is known about torchvision without importing it."""
    if _FOUND:
        return _FOUND[0]
    return "native" if "torchvision" in sys.modules else "not loaded"


def _import() -> str:
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        if error.name == "torchvision":
            return "absent"
        raise _broken(error) from error
    except (ImportError, OSError) as error:
        raise _broken(error) from error
    except RuntimeError as error:
        if str(error) != _MISSING_OPERATOR:
            raise _broken(error) from error
    else:
        return "native"
    _define_schemas()
    try:
        importlib.import_module("torchvision")
    except (ImportError, OSError, RuntimeError) as error:
        raise _broken(error) from error
    return "schema-only"


def _define_schemas() -> None:
    from torch.library import Library

    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]
    fragment = Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        fragment.define(operator + _SCHEMA)
    _KEPT.append(fragment)


def _broken(error: BaseException) -> MachineError:
    return MachineError(
        "E_PLUGIN",
        f"torchvision is installed but cannot be imported: {error}",
        hint="install the torchvision that belongs to this torch, or uninstall it",
        stage="import",
    )
