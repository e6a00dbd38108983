"""Every registered adapter keeps the laws of its contract, on sources of its zoo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from memaudit import registry
from memaudit.testing import check_adapter
from tests.plugins.ssm_models import mixer, picture_scan, written
from tests.plugins.timm_models import SCANNING, SMALL, saved, sequencer, vit
from tests.plugins.transformers_zoo import make


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A module with weights of its own, the global generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return make()


def demo(name: str) -> Callable[[Path], Any]:
    return lambda folder: f"demo:{name}"


def file_of(make: Callable[[], nn.Module]) -> Callable[[Path], Any]:
    def write(folder: Path) -> Path:
        save_file(seeded(make).state_dict(), folder / "model.safetensors")
        return folder / "model.safetensors"

    return write


def two_stacks() -> nn.Module:
    return nn.ModuleDict({"encoder": nn.LSTM(3, 4), "decoder": nn.GRU(5, 6)})


#: adapter → label → what makes a source of its zoo in an empty folder.
SOURCES: dict[str, dict[str, Callable[[Path], Any]]] = {
    "rnn": {
        "demo lstm": demo("lstm"),
        "demo gru": demo("gru"),
        "demo rnn": demo("rnn"),
        "bidirectional file": file_of(lambda: nn.GRU(3, 4, 2, bidirectional=True)),
        "host file": file_of(two_stacks),
        "module": lambda folder: seeded(lambda: nn.LSTM(3, 4, batch_first=True)),
        "host module": lambda folder: seeded(two_stacks),
    },
    "ssm": {
        "host file": lambda folder: written(picture_scan("ss.", k=2) | mixer("m."), folder),
    },
    "timm": {
        "vision transformer folder": lambda folder: saved(vit(), folder, SMALL),
        "sequencer folder": lambda folder: saved(sequencer(), folder, SCANNING),
        "module": lambda folder: vit(),
    },
    "transformers": {
        "demo mamba": demo("mamba"),
        "demo bert": demo("bert"),
        "module": lambda folder: make("gpt2"),
    },
}
CASES = [
    pytest.param(name, make, id=f"{name}: {label}")
    for name, sources in SOURCES.items()
    for label, make in sources.items()
]


def test_every_adapter_has_a_source_here():
    missing = set(registry.available("adapters")) - set(SOURCES)
    assert not missing, f"add a source for {sorted(missing)} to SOURCES"


@pytest.mark.parametrize(("name", "make"), CASES)
def test_the_adapter_keeps_the_laws(name, make, tmp_path):
    adapter = registry.build("adapters", name)
    assert adapter.name == name
    check_adapter(adapter, make(tmp_path))
