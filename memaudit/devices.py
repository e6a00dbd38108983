"""Choosing where and how precisely an audit computes, and leaving no trace there."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import ArgumentError, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    """The device types this machine has, in the order in which `auto` prefers them.

    torch's own come first, then the accelerator that another package has brought to torch.
    """
    found = []
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        found.append("xpu")
    other = torch.accelerator.current_accelerator()
    if torch.accelerator.is_available() and other is not None and other.type not in found:
        found.append(other.type)
    return [*found, "cpu"]


def resolve_device(name: str | torch.device) -> torch.device:
    """The device behind a name; `auto` takes CUDA, then MPS or XPU or another, then the CPU."""
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
    if known and device.type != "cpu":
        known = (device.index or 0) < torch.get_device_module(device.type).device_count()
    if not known:
        raise ArgumentError(
            f"device {clean(name)!r} is not there", hint=f"this machine has: {', '.join(present)}"
        )
    return device


@cache
def widest_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device computes in it, else float32, as on MPS."""
    if device.type in ("cpu", "cuda", "meta"):
        return torch.float64
    return torch.float64 if computes(device, torch.float64) else torch.float32


def abilities(device: torch.device) -> tuple[str, ...]:
    """What audits use of a device and it has: dtypes, and operators beyond matrix products."""
    kinds = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex128]
    found = [str(kind).removeprefix("torch.") for kind in kinds if computes(device, kind)]
    for name, operator in (("fft", torch.fft.rfft), ("eigenvalues", torch.linalg.eigvals)):
        try:
            operator(torch.eye(2).to(device))
        except (RuntimeError, TypeError):
            continue
        found.append(name)
    return tuple(found)


def computes(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device multiplies matrices of a dtype, by a trial."""
    try:
        same = torch.eye(2).to(dtype).to(device)
        return bool(((same @ same).to("cpu") == torch.eye(2)).all())
    except (RuntimeError, TypeError):  # MPS says TypeError of float64
        return False


@contextmanager
def random_state_kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Put back the global random state of the CPU, and of every device that holds one of these."""
    cards: dict[str, set[int]] = {}
    for tensor in tensors:
        if tensor.device.type not in ("cpu", "meta"):
            index = tensor.device.index
            known = torch.accelerator.current_device_index() if index is None else index
            cards.setdefault(tensor.device.type, set()).add(known)
    with ExitStack() as kept:
        kept.enter_context(torch.random.fork_rng(devices=[]))
        for kind, indices in cards.items():
            kept.enter_context(torch.random.fork_rng(sorted(indices), device_type=kind))
        yield


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
    if device.type not in ("cpu", "meta"):
        door = torch.get_device_module(device.type)
        if hasattr(door, "empty_cache"):  # an accelerator of another package may have none
            door.empty_cache()


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
