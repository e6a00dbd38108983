"""Selective scans answer as their recurrence does, in closed form and step by step."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from memaudit.audit import scan
from memaudit.errors import ArgumentError, SourceError
from tests.plugins.ssm_models import draw, mixer, one_channel, opened, picture_scan, stepped

MODES = [0.9, 0.6, 0.2]
DT = 0.5
#: Sums of a few dozen terms of size one.
ROUNDING = 1e-12


def close(answer: Tensor, expected: Tensor | np.ndarray) -> None:
    wanted = torch.as_tensor(expected, dtype=answer.dtype)
    torch.testing.assert_close(answer, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_a_step_of_ones_gives_sums_of_geometric_series(tmp_path: Path) -> None:
    host = opened(one_channel(MODES, dt=DT, skip=0.25), tmp_path)
    answer = host.respond(torch.ones(1, 40, 1, dtype=torch.float64))[0, :, 0]
    t = np.arange(40)
    series = np.sum([DT * (1 - lam ** (t + 1)) / (1 - lam) for lam in MODES], axis=0)
    close(answer, series + 0.25)


def test_constant_b_and_c_give_a_linear_kernel(tmp_path: Path) -> None:
    state = one_channel(MODES, dt=DT)
    state["x_proj.bias"] = state["x_proj.weight"][:, 0].clone()
    state["x_proj.weight"].zero_()
    inputs = draw(2, 30, 1)
    kernel = np.sum([DT * lam ** np.arange(30) for lam in MODES], axis=0)
    expected = [np.convolve(row, kernel)[:30] for row in inputs[:, :, 0].numpy()]
    close(opened(state, tmp_path).respond(inputs)[:, :, 0], np.stack(expected))


def test_the_measured_memory_of_a_step_is_the_sum_of_the_modes(tmp_path: Path) -> None:
    host = opened(one_channel(MODES, dt=DT), tmp_path)
    options = {"normalization": "universal", "queries": ["heaviside"]}
    curve = scan(host.parts()["mixer"], horizon=64, **options).memory["heaviside"]
    expected = np.sum([DT * lam ** (np.arange(64) + 1.0) for lam in MODES], axis=0)
    np.testing.assert_allclose(curve.values, expected, atol=1e-13)


def test_without_input_a_scan_shows_nothing_of_its_state(tmp_path: Path) -> None:
    """C is linear in the input: the state is there, and nobody reads it."""
    host = opened(mixer("m."), tmp_path)
    inputs = draw(1, 20, 3)
    inputs[:, 10:] = 0.0
    assert not host.respond(inputs)[:, 10:].any()
    assert scan(host, horizon=16, level="quick").memory["impulse"].decay.kind == "memoryless"


def test_under_a_baseline_the_state_is_read(tmp_path: Path) -> None:
    host = opened(mixer("m."), tmp_path)
    curve = scan(host, horizon=16, level="quick", baseline=0.25).memory["impulse"]
    assert curve.decay.kind != "memoryless"


@pytest.mark.parametrize("length", [1, 2, 37])
def test_a_mixer_answers_as_its_recurrence_step_by_step(tmp_path: Path, length: int) -> None:
    state = mixer()
    expected = stepped(
        draw(2, length, 3).numpy(),
        a_log=state["A_log"].numpy(),
        skip=state["D"].numpy(),
        dt_weight=state["dt_proj.weight"].numpy(),
        dt_bias=state["dt_proj.bias"].numpy(),
        x_weight=state["x_proj.weight"].numpy(),
    )
    close(opened(state, tmp_path).respond(draw(2, length, 3)), expected)


@pytest.mark.parametrize("merged", [True, False])
def test_every_direction_runs_its_own_weights(tmp_path: Path, merged: bool) -> None:
    state = picture_scan("ss.")
    rates, skips = state["ss.A_logs"].reshape(4, 3, 4), state["ss.Ds"].reshape(4, 3)
    if not merged:
        state |= {"ss.A_logs": rates, "ss.Ds": skips}
    parts = opened(state, tmp_path).parts()
    assert list(parts) == ["ss.scan0", "ss.scan1", "ss.scan2", "ss.scan3"]
    inputs = draw(2, 11, 3)
    for k, part in enumerate(parts.values()):
        expected = stepped(
            inputs.numpy(),
            a_log=rates[k].numpy(),
            skip=skips[k].numpy(),
            dt_weight=state["ss.dt_projs_weight"][k].numpy(),
            dt_bias=state["ss.dt_projs_bias"][k].numpy(),
            x_weight=state["ss.x_proj_weight"][k].numpy(),
        )
        close(part.respond(inputs), expected)


def test_a_second_direction_by_letter_equals_that_mixer_alone(tmp_path: Path) -> None:
    both = mixer("vim.") | mixer("vim.", way="b", seed=10)
    parts = opened(both, tmp_path).parts()
    assert list(parts) == ["vim.scan", "vim.scan_b"]
    inputs = draw(1, 9, 3)
    for seed, name in ((0, "vim.scan"), (10, "vim.scan_b")):
        alone = opened(mixer(seed=seed), tmp_path)
        assert torch.equal(parts[name].respond(inputs), alone.respond(inputs))


def test_files_run_in_float64_unless_another_dtype_is_asked_for(tmp_path: Path) -> None:
    small = {name: tensor.float() for name, tensor in mixer().items()}
    assert opened(small, tmp_path).respond(draw(1, 5, 3)).dtype == torch.float64
    host = opened(small, tmp_path, dtype=torch.float32)
    assert host.identity.dtype == "float32"
    assert host.respond(draw(1, 5, 3)).dtype == torch.float32


def test_a_host_of_several_scans_does_not_answer_as_a_whole(tmp_path: Path) -> None:
    host = opened(picture_scan(), tmp_path)
    assert host.input_size is None
    with pytest.raises(SourceError, match=r"how the selective scans mixer\.scan0") as caught:
        host.respond(draw(1, 5, 3))
    assert caught.value.code == "E_UNSUPPORTED"


@pytest.mark.parametrize(
    "inputs",
    [
        [1.0],
        torch.zeros(2, 0, 3),
        torch.zeros(2, 5),
        torch.zeros(2, 5, 4),
        torch.zeros(2, 5).long(),
    ],
    ids=["a list", "empty", "two axes", "too wide", "tokens"],
)
def test_what_is_no_sequence_of_the_right_width_is_refused(tmp_path: Path, inputs: Tensor) -> None:
    with pytest.raises(ArgumentError, match=r"the input|floats of shape"):
        opened(mixer(), tmp_path).respond(inputs)


def test_an_infinite_rate_is_refused_although_its_logarithm_is_finite(tmp_path: Path) -> None:
    state = mixer("m.")
    state["m.A_log"][1, 2] = 800.0
    assert math.isfinite(float(state["m.A_log"].max()))
    with pytest.raises(SourceError, match=r"m\.A_log reaches 800") as caught:
        opened(state, tmp_path)
    assert caught.value.code == "E_NONFINITE"
