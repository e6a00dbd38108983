"""The state of the machine as far as an audit cares: versions, devices, adapters."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from memaudit import __version__, registry
from memaudit.errors import MachineError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = ("versions", "packages", "devices", "torchvision", "adapters")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `needed` when no audit works without it."""

    group: str
    name: str
    state: str
    fine: bool = True
    needed: bool = False


def environment() -> dict[str, str]:
    """What a report says about the machine; imports neither torch nor torchvision."""
    from memaudit.loading.torchvision_guard import torchvision_state

    return {
        "memaudit": __version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "platform": platform.platform(terse=True),
        "torchvision": torchvision_state(),
    }


def version(distribution: str) -> str:
    """The installed version of a distribution, or `absent`."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


def diagnose() -> tuple[Check, ...]:
    """Everything that `memaudit doctor` shows."""
    return (*_versions(), *_packages(), *_devices(), _torchvision(), *_adapters())


def _versions() -> Iterator[Check]:
    yield Check("versions", "memaudit", __version__)
    yield Check("versions", "python", platform.python_version())
    yield Check("versions", "platform", platform.platform())


def _packages() -> Iterator[Check]:
    for name in required():
        state = version(name)
        yield Check("packages", name, state, fine=state != "absent", needed=True)


def required() -> list[str]:
    """The distributions that memaudit asks for, without those of its extras."""
    try:
        wanted = metadata.requires("memaudit") or []
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return ["torch", "numpy", "rich", "typer", "safetensors"]
    found = (re.match(r"[\w.-]+", line) for line in wanted if "extra ==" not in line)
    return [match.group() for match in found if match]


def _devices() -> Iterator[Check]:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        state = f"torch does not import: {clean(error)}"
        yield Check("devices", "cpu", state, fine=False, needed=True)
        return
    from memaudit.devices import present_devices

    present = present_devices()
    for name in dict.fromkeys(["cpu", "cuda", "mps", "xpu", *present]):
        state = _device(torch, name) if name in present else "not available"
        yield Check("devices", name, state)


def _device(torch: Any, name: str) -> str:
    """Its processors by name, and what the first of them can do."""
    from memaudit.devices import abilities

    parts = f"{torch.get_num_threads()} threads"
    if name != "cpu":
        door = torch.get_device_module(name)
        called = getattr(door, "get_device_name", lambda index: f"{name}:{index}")
        parts = ", ".join(clean(called(index)) for index in range(door.device_count()))
    can = abilities(torch.device(name))
    return f"available: {parts}; {', '.join(can) or 'computes nothing'}"


def _torchvision() -> Check:
    from memaudit.loading.torchvision_guard import guard_torchvision

    try:
        state = guard_torchvision()
    except MachineError as error:
        return Check("torchvision", "torchvision", error.fact, fine=False)
    return Check("torchvision", "torchvision", f"{version('torchvision')}, {state}")


def _adapters() -> Iterator[Check]:
    for name, rivals in registry.available("adapters").items():
        ours = any(plugin.built_in for plugin in rivals)
        try:
            plugin = registry.find("adapters", name)
            registry.load(plugin)
        except MachineError as error:
            yield Check("adapters", name, error.fact, fine=False, needed=ours)
        else:
            yield Check("adapters", name, f"loads ({clean(plugin.distribution)})")
