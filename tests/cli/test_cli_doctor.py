"""`memaudit doctor`: versions, devices and adapters, and an exit code for what is missing."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

import memaudit
from memaudit import doctor, registry
from memaudit.cli import main
from memaudit.doctor import Check, environment
from memaudit.errors import MachineError


def test_the_doctor_shows_what_is_installed(capsys, monkeypatch):
    from memaudit.loading import torchvision_guard

    monkeypatch.setattr(torchvision_guard, "guard_torchvision", lambda: "absent")
    code = main(["doctor"])
    out = capsys.readouterr().out
    assert code == 0
    for name in ("torch", "numpy", "rich", "typer", "safetensors"):
        assert f" {name} " in out
        assert metadata.version(name) in out
    assert all(device in out for device in ("cpu", "cuda", "mps", "xpu"))
    assert "absent" in out


def test_a_missing_requirement_exits_with_five(capsys, monkeypatch):
    gone = Check("packages", "torch", "absent", fine=False, needed=True)
    monkeypatch.setattr(doctor, "diagnose", lambda: (gone,))
    assert main(["doctor"]) == 5
    assert capsys.readouterr().err == "memaudit: needs repair: torch\n"


def test_an_adapter_that_does_not_load_says_why(monkeypatch):
    def refuse(plugin):
        raise MachineError("E_PLUGIN", "does not import: because")

    monkeypatch.setattr(registry, "load", refuse)
    checks = list(doctor._adapters())
    assert checks
    assert all(not check.fine and "because" in check.state for check in checks)


def test_a_torchvision_that_cannot_be_imported_is_a_line_not_a_crash(monkeypatch):
    from memaudit.loading import torchvision_guard

    def refuse():
        raise MachineError("E_PLUGIN", "torchvision is installed but cannot be imported: x")

    monkeypatch.setattr(torchvision_guard, "guard_torchvision", refuse)
    check = doctor._torchvision()
    assert not check.fine
    assert not check.needed


def test_the_environment_of_a_report_holds_versions_only():
    found = environment()
    assert found["memaudit"] == memaudit.__version__
    assert found["torch"] == metadata.version("torch")
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert list(found) == ["memaudit", "python", "torch", "numpy", "platform", "torchvision"]
    assert all(isinstance(value, str) for value in found.values())


def test_required_packages_are_those_of_the_distribution():
    names = doctor.required()
    assert {"torch", "numpy", "rich", "typer", "safetensors"} <= set(names)
    assert "pytest" not in names


@pytest.mark.parametrize("name", ["no-such-distribution-anywhere"])
def test_an_absent_distribution_has_no_version(name):
    assert doctor.version(name) == "absent"
