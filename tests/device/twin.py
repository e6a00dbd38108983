"""The test accelerator "twin": built once for this source and this torch, then registered.

Registering changes torch for the rest of the process; only a child process may call `register`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

NAME = "twin"
CARDS = 2
SOURCE = Path(__file__).with_name("twin.cpp")


def build(folder: Path) -> Path:
    """The library in this folder; whoever builds at the same time puts the same file there.

    cpp_extension loads what it has built: registering from its final place takes a new process.
    """
    from torch.utils import cpp_extension

    told = SOURCE.read_bytes() + torch.__version__.encode()
    library = folder / f"{NAME}-{hashlib.sha256(told).hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            made = cpp_extension.load(
                NAME,
                [str(SOURCE)],
                extra_cflags=["-O0"],
                build_directory=fresh,
                is_python_module=False,
            )
            os.replace(made, library)
    return library


def _card(device: Any) -> int:
    if device is None:
        return torch.accelerator.current_device_index()
    if isinstance(device, int):
        return device
    return torch.device(device).index or 0


def _draws(device: Any = None) -> torch.Generator:
    return torch.ops.twin.draws_of(_card(device))


class _Selected:
    """`with torch.twin.device(1)`."""

    def __init__(self, device: Any) -> None:
        self.card = _card(device)

    def __enter__(self) -> None:
        self.before = torch.accelerator.current_device_index()
        torch.accelerator.set_device_index(self.card)

    def __exit__(self, *_: object) -> None:
        torch.accelerator.set_device_index(self.before)


def _seed_all(seed: int) -> None:
    for card in range(CARDS):
        _draws(card).manual_seed(seed)


def _module() -> ModuleType:
    """What `torch.twin` has to know; torch.random and fork_rng ask for it."""
    module: Any = ModuleType(f"torch.{NAME}")
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: CARDS
    module.current_device = torch.accelerator.current_device_index
    module.set_device = lambda device: torch.accelerator.set_device_index(_card(device))
    module.device = _Selected
    module.synchronize = lambda device=None: None
    module.empty_cache = lambda: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module.manual_seed = lambda seed: _draws().manual_seed(seed)
    module.manual_seed_all = _seed_all
    module.get_rng_state = lambda device=None: _draws(device).get_state()
    module.set_rng_state = lambda state, device=None: _draws(device).set_state(state)
    return module


def _keep_parameters() -> None:
    """`module.to` changes the parameters in place, as for CUDA: tied weights stay tied."""
    plain, future = nn.Module._apply, torch.__future__

    def apply(self: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        before = future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)
        try:
            return plain(self, fn, recurse)
        finally:
            future.set_swap_module_params_on_conversion(before)

    nn.Module._apply = apply


def register(library: Path) -> Tensor:
    """Make the device known to this process; a first tensor of it."""
    torch.ops.load_library(str(library))
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _keep_parameters()
    return torch.arange(3.0, device=NAME)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
