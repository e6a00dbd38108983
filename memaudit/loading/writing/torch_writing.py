"""Writes a torch file: a dictionary of tensors and plain values, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from memaudit.loading.writing.failing import writing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_torch(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    *,
    container: str = "",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the tensors under the dotted path of their dictionary, plain values where they were."""
    root: dict[str, Any] = {}
    node, levels = root, [("", root)]
    path_so_far = ""
    for key in container.split(".") if container else ():
        node = node.setdefault(key, {})
        path_so_far += f"{key}."
        levels.append((path_so_far, node))
    for name, text in (metadata or {}).items():
        prefix, level = next(one for one in reversed(levels) if name.startswith(one[0]))
        level.setdefault(name.removeprefix(prefix), plain_value(text))
    node.update({name: value.detach().clone() for name, value in tensors.items()})
    with writing(path), path.open("wb") as stream:
        torch.save(root, stream)


def plain_value(text: str) -> Any:
    """The value that a text stands for: what JSON says, or the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
