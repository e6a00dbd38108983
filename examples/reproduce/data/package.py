"""A package of a registry, by name and version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["wheel", "sdist", "npm", "deb"]

# No leading hyphen: the words go to command lines, where that would be an option.
_NAME = re.compile(r"(@[a-z0-9][\w.-]*/)?[A-Za-z0-9][\w.+-]*")
_VERSION = re.compile(r"[A-Za-z0-9][\w.+~:-]*")


@dataclass(frozen=True, slots=True)
class Package:
    """One archive of a registry; `version` may be missing for `deb` alone.

    A `sdist` needs the `sha256` of its archive: pip runs the set-up code inside to learn its
    metadata, so the archive must be known before.
    """

    kind: Kind
    name: str
    version: str | None
    sha256: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not the name of a package")
        if self.version is not None and not _VERSION.fullmatch(self.version):
            raise ValueError(f"{self.version!r} is not a version")
        if self.version is None and self.kind != "deb":
            raise ValueError(f"{self.name}: a version is needed for kind {self.kind}")
        if self.kind == "sdist" and not self.sha256:
            raise ValueError(f"{self.name}: a source archive needs the sha256 of the archive")

    @property
    def folder(self) -> str:
        """Its name in the cache."""
        return f"{self.kind}-{self.name}-{self.version or 'any'}".replace("/", "+")
