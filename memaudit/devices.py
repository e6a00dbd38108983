"""Choosing where and how precisely an audit computes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import ArgumentError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
#: What the allocators of the CPU and of MPS say in a plain RuntimeError.
_NO_MEMORY = (
    *("DefaultCPUAllocator", "not enough memory", "out of memory", "can't allocate memory"),
    "bad_alloc",
)
SHORT = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def present_devices() -> list[str]:
    """The device types this machine has, in the order in which `auto` prefers them."""
    found = []
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        found.append("xpu")
    return [*found, "cpu"]


def resolve_device(name: str | torch.device) -> torch.device:
    """The device behind a name; `auto` takes CUDA, then MPS or XPU, then the CPU."""
    present = present_devices()
    if str(name) == "auto":
        return torch.device(present[0])
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ArgumentError(
            f"unknown device {clean(name)!r}", hint=f"this machine has: auto, {', '.join(present)}"
        ) from error
    known = device.type in present
    if known and device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        known = False
    if not known:
        raise ArgumentError(
            f"device {clean(name)!r} is not there", hint=f"this machine has: {', '.join(present)}"
        )
    return device


def resolve_dtype(name: str | torch.dtype) -> torch.dtype | None:
    """The dtype behind a name; None for `auto`."""
    if isinstance(name, torch.dtype):
        name = str(name).removeprefix("torch.")
    if name == "auto":
        return None
    full = SHORT.get(name, name)
    if full not in DTYPES:
        raise ArgumentError(
            f"unknown dtype {clean(name)!r}", hint=f"known are: auto, {', '.join(DTYPES)}"
        )
    return DTYPES[full]


@contextmanager
def computing_threads(count: int | None) -> Iterator[None]:
    """Let torch compute on so many threads; None leaves it as it is."""
    if count is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def shortage() -> Iterator[None]:
    """Raise MemoryError whenever memory runs out; only CUDA's allocator has a type of its own."""
    try:
        yield
    except RuntimeError as error:
        known = isinstance(error, torch.OutOfMemoryError)
        if known or any(words in str(error) for words in _NO_MEMORY):
            raise MemoryError(str(error)) from None
        raise


def release_memory(device: torch.device) -> None:
    """Give back what the device's allocator keeps for later."""
    if device.type in ("cuda", "xpu", "mps"):
        getattr(torch, device.type).empty_cache()


@contextmanager
def exact_math(device: torch.device) -> Iterator[None]:
    """Full float32 products and deterministic kernels on CUDA; both are put back afterwards."""
    if device.type != "cuda":
        yield
        return
    switches = [*_tf32_switches(), (torch.backends.cudnn, "deterministic", True)]
    switches.append((torch.backends.cudnn, "benchmark", False))
    before = [getattr(owner, name) for owner, name, _ in switches]
    try:
        for owner, name, value in switches:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(switches, before, strict=True):
            setattr(owner, name, value)


def _tf32_switches() -> list[tuple[Any, str, Any]]:
    """The switches of this torch; the newer names must not be mixed with the older ones."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(cudnn, "rnn"):
        return [(owner, "fp32_precision", "ieee") for owner in (matmul, cudnn.conv, cudnn.rnn)]
    return [(matmul, "allow_tf32", False), (cudnn, "allow_tf32", False)]
