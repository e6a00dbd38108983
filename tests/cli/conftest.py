"""Fixtures that run the command line on a played audit."""

from __future__ import annotations

import sys
import types

import pytest

import memaudit
from memaudit.cli import main
from tests.cli.played import Interrupted, Stage
from tests.handmade import curve, identity, report


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


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    return made


@pytest.fixture
def saved(tmp_path):
    who = identity(source=str(tmp_path / "model"), sha256="ab12")
    return report(curve(), subject=who).save(tmp_path / "report.json")


@pytest.fixture
def card(capsys):
    def card(*words) -> tuple[int, str, str]:
        code = main(["card", *map(str, words)])
        return code, *capsys.readouterr()

    return card
