"""S4 of version 4 against its recurrence written out in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memaudit.errors import SourceError
from memaudit_ssm.s4 import S4, DplrBank, S4Recipe, restore_readout
from tests.plugins.s4_models import (
    H,
    N,
    bank_answer,
    draw,
    kernel_state,
    opened,
    parts_of,
    require_close,
    saved,
)

T = 40
INPUT = draw(1, T, H, seed=9)
EXECUTIONS = ("chunks", "convolution", "stepping")


def layer_config(**settings: Any) -> dict[str, Any]:
    return {"layer": {"d_state": 2 * N, **settings}}


def answer(folder: Path, **options: Any) -> np.ndarray[Any, Any]:
    return opened(folder, **options).respond(INPUT)[0].numpy()


def skip(state: dict[str, torch.Tensor]) -> np.ndarray[Any, Any]:
    """D u as (T,C,H)."""
    return INPUT[0].numpy()[:, None, :] * state["layer.D"].numpy()[None]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("disc", ["zoh", "bilinear", "dirac"])
def test_a_diagonal_layer_is_the_recurrence_of_its_discretization(
    tmp_path: Path, disc: str, execution: str
) -> None:
    state = kernel_state()
    folder = saved(tmp_path, state, layer_config(mode="diag", disc=disc))
    wanted = bank_answer(parts_of(state), INPUT[0].numpy(), how=disc) + skip(state)
    require_close(answer(folder, execution=execution), wanted[:, 0])


@pytest.mark.parametrize("copies", [1, 2])
def test_feature_h_takes_copy_h_modulo_the_copies(tmp_path: Path, copies: int) -> None:
    state = kernel_state(copies=copies)
    folder = saved(tmp_path, state, layer_config(mode="diag", n_ssm=copies))
    wanted = bank_answer(parts_of(state), INPUT[0].numpy(), how="zoh") + skip(state)
    require_close(answer(folder), wanted[:, 0])


@pytest.mark.parametrize("rank", [0, 1])
def test_every_mode_may_have_its_own_step_size(tmp_path: Path, rank: int) -> None:
    state = kernel_state(per_mode=True, rank=rank)
    folder = saved(tmp_path, state, layer_config())
    how = "bilinear" if rank else "zoh"
    wanted = bank_answer(parts_of(state), INPUT[0].numpy(), how=how) + skip(state)
    require_close(answer(folder), wanted[:, 0])


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 8, 50])
def test_a_low_rank_layer_is_the_dense_recurrence_with_its_readout_restored(
    tmp_path: Path, rank: int, length: int, execution: str
) -> None:
    state = kernel_state(rank=rank, length=length, copies=2)
    folder = saved(tmp_path, state, layer_config(mode="nplr", rank=rank))
    dense = bank_answer(parts_of(state), INPUT[0].numpy(), how="bilinear", length=length)
    wanted = dense + skip(state)
    require_close(answer(folder, execution=execution), wanted[:, 0])


@pytest.mark.parametrize("rank", [0, 1])
def test_the_backward_half_of_the_kernels_reads_the_future_alone(tmp_path: Path, rank: int) -> None:
    state = kernel_state(channels=2, both=True, rank=rank)
    folder = saved(tmp_path, state, layer_config(bidirectional=True))
    impulse = np.zeros((T, H))
    impulse[0] = 1.0
    kernels = bank_answer(parts_of(state), impulse, how="bilinear" if rank else "zoh")
    u, wanted = INPUT[0].numpy(), skip(state)
    for t in range(T):
        for s in range(T):
            # Channels 0 and 1 run forwards, 2 and 3 backwards from the next step on.
            wanted[t] += kernels[t - s, :2] * u[s] if s <= t else kernels[s - t - 1, 2:] * u[s]
    require_close(answer(folder), wanted.reshape(T, -1))
    subject = opened(folder)
    assert subject.identity.recurrences[0].directions == 2
    assert {name.rpartition(".")[2] for name in subject.linear_parts()} == {"forward", "backward"}


def test_real_modes_are_doubled_as_s4_doubles_them(tmp_path: Path) -> None:
    state = kernel_state(real=True)
    folder = saved(tmp_path, state, {"layer": {"d_state": N, "is_real": True}})
    rates = -np.exp(state["layer.kernel.A_real"].numpy())
    dt = np.exp(state["layer.kernel.inv_dt"].numpy())
    gains = np.expm1(dt * rates) / rates * state["layer.kernel.B"][0].numpy()
    u, x = INPUT[0].numpy(), np.zeros((H, N))
    wanted = np.zeros((T, H))
    for t in range(T):
        x = np.exp(dt * rates) * x + gains * u[t][:, None]
        wanted[t] = 2.0 * (state["layer.kernel.C"][0].numpy() * x).sum(-1)
    require_close(answer(folder), wanted + skip(state)[:, 0])
    assert opened(folder).identity.recurrences[0].size == H * N


def test_modes_above_half_the_band_limit_are_silent(tmp_path: Path) -> None:
    state = kernel_state()
    parts = parts_of(state)
    cycles = parts["dt"] * np.abs(parts["rates"].imag) / (2 * np.pi)
    limit = 2.0 * float(np.median(cycles))
    folder = saved(tmp_path, state, layer_config(bandlimit=limit))
    heard = {**parts, "readout": parts["readout"] * (cycles < limit / 2)}
    assert 0 < (cycles < limit / 2).sum() < cycles.size
    wanted = bank_answer(heard, INPUT[0].numpy(), how="zoh") + skip(state)
    require_close(answer(folder), wanted[:, 0])


def test_fast_step_sizes_pass_through_sinh_first(tmp_path: Path) -> None:
    state = kernel_state()
    folder = saved(tmp_path, state, layer_config(dt_fast=True))
    dt = np.exp(np.sinh(state["layer.kernel.inv_dt"].numpy()))
    wanted = bank_answer(parts_of(state, dt=dt), INPUT[0].numpy(), how="zoh") + skip(state)
    require_close(answer(folder), wanted[:, 0])


def test_transforms_are_those_that_the_config_names(tmp_path: Path) -> None:
    state = kernel_state()
    named = {"real_transform": "softplus", "imag_transform": "exp", "dt_transform": "sigmoid"}
    folder = saved(tmp_path, state, layer_config(**named))
    parts = parts_of(state, dt=torch.sigmoid(state["layer.kernel.inv_dt"]).numpy())
    real = np.log1p(np.exp(state["layer.kernel.A_real"].numpy()))
    parts["rates"] = -real - 1j * np.exp(state["layer.kernel.A_imag"].numpy())
    wanted = bank_answer(parts, INPUT[0].numpy(), how="zoh") + skip(state)
    require_close(answer(folder), wanted[:, 0])
    assert opened(folder).spectra()[0].parameterization == "softplus"


@pytest.mark.parametrize("rank", [0, 2])
def test_an_impulse_is_answered_by_the_kernel(tmp_path: Path, rank: int) -> None:
    folder = saved(
        tmp_path,
        kernel_state(rank=rank, length=12),
        layer_config(**({"rank": rank} if rank else {})),
    )
    part = next(iter(opened(folder).linear_parts().values()))
    impulse = torch.zeros(1, T, H, dtype=torch.float64)
    impulse[:, 0] = 1.0
    torch.testing.assert_close(part.respond(impulse)[0], part.kernel(0, T), rtol=0, atol=1e-12)
    torch.testing.assert_close(part.kernel(0, T)[7:19], part.kernel(7, 19), rtol=0, atol=1e-12)


def test_a_readout_that_nothing_can_restore_is_refused() -> None:
    # A quarter turn is back after four steps.
    turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.complex128)
    readout = torch.ones(1, 1, 2, dtype=torch.complex128)
    with pytest.raises(SourceError) as caught:
        restore_readout(turn, readout, 4)
    assert caught.value.code == "E_WEIGHTS"
    restored, condition = restore_readout(turn, readout, 2)
    # I - turn² is 2 I.
    torch.testing.assert_close(restored, readout / 2)
    assert condition == pytest.approx(1.0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_new_layer_decays_and_runs_both_ways_alike(rank: int) -> None:
    generator = torch.Generator().manual_seed(3)
    layer = S4(5, 8, rank=rank, channels=2, generator=generator).double()
    u = draw(2, 64, 5)
    with torch.no_grad():
        answers = []
        for execution in EXECUTIONS:
            layer.execution = execution
            answers.append(layer(u))
        assert float(layer.modes().abs().max()) < 1.0
    assert answers[0].shape == (2, 64, 10)
    torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=1e-12)
    assert layer.states == 5 * 8


@pytest.mark.parametrize("rank", [0, 1])
def test_a_layer_whose_weight_was_changed_answers_otherwise(rank: int) -> None:
    layer = S4(3, 4, rank=rank, generator=torch.Generator().manual_seed(0)).double()
    layer.requires_grad_(False)
    u = draw(1, 16, 3)
    before = layer(u)
    torch.testing.assert_close(layer(u), before, rtol=0, atol=0)
    layer.D.add_(1.0)
    torch.testing.assert_close(layer(u), before + u, rtol=0, atol=1e-12)


def test_gradients_reach_the_weights_of_a_layer_in_training() -> None:
    layer = S4(3, 4, rank=1, generator=torch.Generator().manual_seed(0)).double()
    layer.execution = "convolution"
    layer(draw(1, 16, 3)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in layer.parameters())


def test_the_condition_of_the_restored_readout_is_told() -> None:
    layer = S4(3, 4, rank=1, generator=torch.Generator().manual_seed(0)).double()
    layer.requires_grad_(False)
    assert layer.condition == 1.0
    layer.kernel.get_buffer("l_kernel").fill_(6)
    system = layer.systems()[""]
    assert isinstance(system, DplrBank)
    eye = torch.eye(4, dtype=torch.complex128)
    gap = eye - torch.linalg.matrix_power(system.matrix, 6)
    assert layer.condition == pytest.approx(float(torch.linalg.cond(gap).max()))


@pytest.mark.parametrize("wrong", [{"disc": "dss"}, {"real_transform": "cube"}])
def test_a_recipe_of_unknown_words_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is none of"):
        S4Recipe(**wrong)
