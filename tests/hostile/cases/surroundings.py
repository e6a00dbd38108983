"""The folder in which memaudit is started: what lies there is not imported."""

from __future__ import annotations

import os
import sys

from tests.hostile.case import Case, Scene

MODULES = ("typer", "torch", "rich", "numpy", "json", "huggingface_hub", "memaudit_rnn")


def evil_modules(scene: Scene) -> list[str]:
    """A working directory with modules of well-known names."""
    for name in MODULES:
        code = f"open({str(scene.canary)!r}, 'w').close()\nraise SystemExit(0)\n"
        (scene.output / f"{name}.py").write_text(code)
    return ["scan", "demo:rnn", "--quick", "--horizon", "16", "--json", "report.json"]


def as_a_module(arguments: list[str]) -> int:
    """`python -m memaudit`, in an interpreter of its own."""
    os.execv(sys.executable, [sys.executable, "-m", "memaudit", *arguments])


def through_python(arguments: list[str]) -> int:
    """The console script, which Python starts without the working directory."""
    code = "import sys; sys.path.pop(0); from memaudit.cli import main; sys.exit(main())"
    os.execv(sys.executable, [sys.executable, "-c", code, *arguments])


CASES = [
    Case(
        "environment",
        f"{name} in a folder of evil modules",
        evil_modules,
        exit=0,
        command=command,
        writes=tuple(f"{module}.py" for module in MODULES),
        seconds=60,
    )
    for name, command in (("python -m memaudit", as_a_module), ("the command", through_python))
]
