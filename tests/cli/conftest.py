"""Fixtures that run the command line on a played audit."""

from __future__ import annotations

import sys
import types

import pytest

import memaudit
from memaudit.cli import main
from tests.cli.played import Interrupted, Stage


@pytest.fixture
def stage(monkeypatch):
    played = Stage()
    module = types.ModuleType("memaudit.audit")
    module.scan, module.Interrupted = played.scan, Interrupted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "memaudit.audit", module)
    monkeypatch.setattr(memaudit, "audit", module, raising=False)
    return played


@pytest.fixture
def run(stage, capsys):
    def run(*words: str, source: str = "demo:lstm") -> tuple[int, str, str]:
        code = main(["scan", source, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run
