"""Timm itself, imported late, and its names."""

from __future__ import annotations

from typing import Any

from memaudit.errors import ArgumentError, clean, nearest


def timm_library() -> Any:
    """The package timm; beside a torchvision of another torch it needs the guard first."""
    from memaudit.loading import guard_torchvision

    guard_torchvision()
    import timm

    return timm


def known_architecture(name: str) -> tuple[str, str]:
    """The architecture and the tag of a timm name, or an error with its nearest neighbours."""
    timm = timm_library()
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise ArgumentError(
            f"timm has no model {clean(architecture)!r}",
            hint=_close(architecture, timm.list_models()),
        )
    if tag and tag not in tags_of(architecture):
        hint = nearest(tag, tags_of(architecture))
        raise ArgumentError(f"timm knows no weights {clean(tag)!r} of {architecture}", hint=hint)
    return architecture, tag


def tags_of(architecture: str) -> list[str]:
    """The tags of the trained weights that timm knows of an architecture."""
    found = timm_library().list_models(f"{architecture}.*", pretrained=True)
    return [name.partition(".")[2] for name in found]


def trained_config(architecture: str, tag: str) -> Any:
    """What timm knows about trained weights: where they are, and the size of the images."""
    name = f"{architecture}.{tag}" if tag else architecture
    return timm_library().get_pretrained_cfg(name)


def _close(name: str, known: list[str]) -> str:
    """The nearest names; more than a thousand names are no hint."""
    hint = nearest(name, known)
    return hint if hint.startswith("did you") else "timm.list_models() gives the names"
