"""What a case is: how to arrange it, and what must come of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The interpreter with torch in it takes 300 to 400 MB before anything is opened.
MEGABYTES = 700.0
SECONDS = 15.0


@dataclass(frozen=True)
class Scene:
    """The folders of one case.

    `inputs` holds what is opened, `output` is the working directory and the only place where files
    may appear. Hostile code, if it ran, would create `canary`.
    """

    root: Path

    @property
    def inputs(self) -> Path:
        return self.root / "in"

    @property
    def output(self) -> Path:
        return self.root / "out"

    @property
    def canary(self) -> Path:
        return self.root / "canary"


@dataclass(frozen=True)
class Outcome:
    """What was seen."""

    scene: Scene
    status: int
    stdout: str
    stderr: str
    seconds: float
    megabytes: float

    @property
    def code(self) -> str:
        """The code of the first error line."""
        lines = [line for line in self.stderr.splitlines() if "error[" in line]
        return lines[0].partition("error[")[2].partition("]")[0] if lines else ""

    def report(self, name: str = "report.json") -> dict[str, Any]:
        """A JSON report that the case wrote into its output."""
        return json.loads((self.scene.output / name).read_text())

    def curves(self, name: str = "report.json") -> dict[str, Any]:
        """The memory functions of that report, by query."""
        return self.report(name)["results"]["memory"]["curves"]


@dataclass(frozen=True)
class Case:
    """One hostile file or bad day.

    `arrange` makes the inputs and gives back the arguments of `memaudit`. `check` raises an
    AssertionError when something else is wrong with the outcome. `command` replaces the run of
    memaudit altogether: it gets the arguments and the environment and gives back the exit status;
    its output goes to the same places. `unprivileged` drops root's rights, which hide the fault.
    """

    group: str
    name: str
    arrange: Callable[[Scene], list[str]]
    exit: int
    code: str = ""
    says: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Outcome], None] | None = None
    command: Callable[[list[str]], int] | None = None
    unprivileged: bool = False
    writes: tuple[str, ...] = ()
    seconds: float = SECONDS
    megabytes: float = MEGABYTES

    @property
    def title(self) -> str:
        """The name under which the case stands in the table."""
        return f"{self.group}: {self.name}"
