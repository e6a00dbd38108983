"""The command line: `memaudit.cli:main` is the console entry point."""

from __future__ import annotations

from memaudit.cli.app import main

__all__ = ["main"]
