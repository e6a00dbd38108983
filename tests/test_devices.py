"""Where an audit computes, and that it leaves no trace there."""

from __future__ import annotations

import pytest
import torch

import memaudit
from memaudit import devices


def test_auto_prefers_accelerators(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.resolve_device("auto").type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert devices.resolve_device("auto").type == "mps"


def test_exact_math_is_put_back_even_after_an_error() -> None:
    owners = [(owner, name) for owner, name, _ in devices._tf32_switches()]
    owners.append((torch.backends.cudnn, "deterministic"))
    before = [getattr(owner, name) for owner, name in owners]
    seen = []

    def fail() -> None:
        seen.extend(getattr(owner, name) for owner, name in owners)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), devices.exact_math(torch.device("cuda")):
        fail()
    assert seen != before
    assert [getattr(owner, name) for owner, name in owners] == before


def test_the_cpu_path_touches_no_switch() -> None:
    before = torch.backends.cudnn.deterministic
    with devices.exact_math(torch.device("cpu")):
        assert torch.backends.cudnn.deterministic == before


@pytest.mark.gpu
def test_cuda_and_cpu_agree() -> None:
    on_cpu = memaudit.scan("demo:lstm", horizon=128, device="cpu")
    on_gpu = memaudit.scan("demo:lstm", horizon=128, device="cuda")
    for name, curve in on_cpu.memory.items():
        other = on_gpu.memory[name]
        assert abs(curve.values - other.values).max() <= 1e-9
        assert other.decay.kind == curve.decay.kind


@pytest.mark.gpu
def test_a_scan_on_cuda_leaves_tf32_as_it_was() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    memaudit.scan("demo:gru", horizon=32, device="cuda")
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_what_a_device_computes_is_tried() -> None:
    cpu = torch.device("cpu")
    assert devices.widest_dtype(cpu) == torch.float64
    assert devices.abilities(cpu)[:2] == ("float64", "float32")
    assert devices.abilities(cpu)[-2:] == ("fft", "eigenvalues")
    assert not devices.computes(torch.device("meta"), torch.float64)


def test_an_accelerator_that_torch_could_have_is_not_there() -> None:
    with pytest.raises(memaudit.MemauditError, match="not there"):
        devices.resolve_device("hpu")


def test_random_state_is_put_back_after_an_error() -> None:
    before = torch.get_rng_state()

    def fail() -> None:
        torch.rand(3)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), devices.random_state_kept([torch.ones(1)]):
        fail()
    assert torch.equal(torch.get_rng_state(), before)
