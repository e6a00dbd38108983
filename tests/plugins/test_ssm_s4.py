"""S4 of every version against its recurrence written out in numpy, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from memaudit.errors import SourceError
from memaudit.loading import parse_source
from memaudit_ssm.s4 import S4, DplrBank, restore_readout
from memaudit_ssm.s4_old import length_of_nodes
from tests.plugins.s4_models import (
    H,
    N,
    State,
    bank_answer,
    draw,
    kernel_state,
    opened,
    pairs,
    parts_of,
    require_close,
    saved,
)

T = 40
INPUT = draw(1, T, H, seed=9)


def layer_config(**settings: Any) -> dict[str, Any]:
    return {"layer": {"d_state": 2 * N, **settings}}


def answer(folder: Path, **options: Any) -> np.ndarray[Any, Any]:
    return opened(folder, **options).respond(INPUT)[0].numpy()


def skip(state: dict[str, torch.Tensor]) -> np.ndarray[Any, Any]:
    """D u as (T,C,H)."""
    return INPUT[0].numpy()[:, None, :] * state["layer.D"].numpy()[None]


@pytest.mark.parametrize(
    ("disc", "execution"),
    [("zoh", "chunks"), ("bilinear", "convolution"), ("dirac", "stepping")],
)
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


@pytest.mark.parametrize(
    ("rank", "length", "execution"),
    [(1, 0, "chunks"), (1, 8, "convolution"), (2, 50, "stepping"), (3, 8, "chunks")],
)
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


def test_modes_above_half_the_band_limit_do_not_reach_the_output(tmp_path: Path) -> None:
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


def test_the_condition_of_the_restored_readout_is_reported() -> None:
    layer = S4(3, 4, rank=1, generator=torch.Generator().manual_seed(0)).double()
    layer.requires_grad_(False)
    assert layer.condition == 1.0
    layer.kernel.get_buffer("l_kernel").fill_(6)
    system = layer.systems()[""]
    assert isinstance(system, DplrBank)
    eye = torch.eye(4, dtype=torch.complex128)
    gap = eye - torch.linalg.matrix_power(system.matrix, 6)
    assert layer.condition == pytest.approx(float(torch.linalg.cond(gap).max()))


def as_version_3(tensors: dict[str, Tensor]) -> State:
    """The tensors of version 4 under the names and in the forms of version 3."""
    diagonal = not any(name.endswith("kernel.P") for name in tensors)
    renamed = {"inv_dt": "log_dt", "l_kernel": "L"}
    renamed |= (
        {"A_real": "inv_A_real"} if diagonal else {"A_real": "inv_w_real", "A_imag": "w_imag"}
    )
    found: State = {}
    for name, tensor in tensors.items():
        start, is_kernel, last = name.partition(".layer.kernel.")
        if is_kernel:
            tensor = -tensor if last == "A_imag" else tensor
            tensor = tensor.squeeze(-1) if last == "inv_dt" else tensor
            tensor = tensor[0] if last == "B" and diagonal else tensor
            name = f"{start}.kernel.kernel.{renamed.get(last, last)}"
        found[name.replace(".layer.D", ".D")] = tensor
    return found


def nodes(length: int) -> Tensor:
    """exp(-2 pi i k / L) up to half the circle, as the versions 1 and 2 store them."""
    angles = -2.0 * torch.pi * torch.arange(length // 2 + 1, dtype=torch.float64) / length
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def version_2(
    prefix: str = "layer.", *, tied: bool, rank: int = 1, kernels: int = 1, length: int | None = 16
) -> State:
    inside = f"{prefix}kernel.kernel."
    copies = 1 if tied else H
    state = {
        f"{prefix}D": draw(1, H, seed=1),
        f"{inside}C": draw(kernels, H, N, 2, seed=2),
        f"{inside}B": draw(1, copies, N, 2, seed=3),
        f"{inside}log_dt": 0.5 * draw(H, seed=4) - 1.5,
        f"{inside}P": 0.5 * draw(rank, copies, N, 2, seed=7),
    }
    if tied:
        state[f"{inside}log_w_real"] = 0.5 * draw(copies, N, seed=5) - 0.5
        state[f"{inside}w_imag"] = 2.0 * draw(copies, N, seed=6)
    else:
        slow = -draw(copies, N, seed=5).abs() - 0.2
        state[f"{inside}w"] = torch.stack([slow, 2.0 * draw(copies, N, seed=6)], dim=-1)
        state[f"{inside}Q"] = 0.3 * draw(rank, copies, N, 2, seed=8)
    if length is not None:
        made = nodes(length)
        state[f"{inside}omega"] = made
        # Its last value divides by zero.
        state[f"{inside}z"] = torch.full_like(made, torch.inf)
    return state


def version_2_answer(state: State, length: int, prefix: str = "layer.") -> np.ndarray[Any, Any]:
    inside = f"{prefix}kernel.kernel."
    left = pairs(state[f"{inside}P"])
    if f"{inside}w" in state:
        rates, right = pairs(state[f"{inside}w"]), pairs(state[f"{inside}Q"])
    else:
        real = -np.exp(state[f"{inside}log_w_real"].numpy())
        rates, right = real + 1j * state[f"{inside}w_imag"].numpy(), left.conj()
    copies = np.arange(H) % len(rates)
    parts = {
        "rates": rates[copies],
        "inputs": pairs(state[f"{inside}B"])[0][copies],
        "readout": pairs(state[f"{inside}C"]),
        "left": left[:, copies],
        "right": right[:, copies],
        "dt": np.exp(state[f"{inside}log_dt"].numpy())[:, None],
    }
    u = INPUT[0].numpy()
    return (
        bank_answer(parts, u, how="bilinear", length=length)[:, 0]
        + u * state[f"{prefix}D"][0].numpy()
    )


def version_1(*, own: bool, rank: int = 1, length: int = 16) -> State:
    inside = "layer.kernel.krylov."
    each = (H,) if own else ()
    slow = -draw(*each, N, seed=5).abs() - 0.2
    made = nodes(length)
    return {
        "layer.D": draw(H, seed=1),
        f"{inside}log_dt": 0.5 * draw(H, seed=4) - 1.5,
        f"{inside}w": torch.stack([slow, 2.0 * draw(*each, N, seed=6)], dim=-1),
        f"{inside}B": 0.5 * draw(*each, 1 + rank, N, 2, seed=3),
        f"{inside}C": 0.5 * draw(H, 1 + rank, N, 2, seed=2),
        f"{inside}nodes": made,
        f"{inside}z": torch.full_like(made, torch.nan),
    }


@pytest.mark.shared
@pytest.mark.parametrize("name", ["standalone/diag", "standalone/dplr", "lightning/nplr_omegaconf"])
def test_a_checkpoint_of_version_4_answers_alike_under_the_names_of_version_3(
    shared: Path, tmp_path: Path, name: str
) -> None:
    folder = shared / "fixtures" / f"s4_v4_{name}"
    checkpoint = parse_source(folder).checkpoint
    config = json.loads(json.dumps(dict(checkpoint.config)))
    layer = config["model"]["layer"] if "model" in config else config["layer"]
    tensors = as_version_3(dict(checkpoint.tensors))
    if layer.pop("dt_transform", "exp") == "softplus":
        # Version 3 knows exp alone.
        for key, tensor in tensors.items():
            if key.endswith("log_dt"):
                tensors[key] = torch.nn.functional.softplus(tensor.double()).log()
    older = opened(saved(tmp_path, tensors, config))
    newer = opened(folder)
    assert older.identity.family == "s4-v3"
    assert older.identity.whole
    fed = draw(1, 48, 1)
    torch.testing.assert_close(older.respond(fed), newer.respond(fed), rtol=0, atol=1e-11)
    for old, new in zip(older.spectra(), newer.spectra(), strict=True):
        by_size = [
            sorted(s.eigenvalues, key=lambda v: (round(abs(v), 9), v.imag)) for s in (old, new)
        ]
        np.testing.assert_allclose(by_size[0], by_size[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("tied", "rank", "execution"),
    [(True, 1, "chunks"), (True, 2, "stepping"), (False, 1, "convolution"), (False, 2, "chunks")],
)
def test_version_2_is_the_dense_recurrence(
    tmp_path: Path, tied: bool, rank: int, execution: str
) -> None:
    state = version_2(tied=tied, rank=rank)
    subject = opened(saved(tmp_path, state), execution=execution)
    assert subject.identity.family == "s4-v2"
    wanted = version_2_answer(state, 16)
    require_close(subject.respond(INPUT)[0].numpy(), wanted)


def test_the_length_that_version_2_did_not_store_comes_from_the_config_or_is_asked_for(
    tmp_path: Path,
) -> None:
    state = version_2(tied=True, length=None)
    said = opened(saved(tmp_path / "said", state, {"layer": {"l_max": 24}}))
    require_close(said.respond(INPUT)[0].numpy(), version_2_answer(state, 24))
    with pytest.raises(SourceError) as caught:
        opened(saved(tmp_path / "unsaid", state))
    assert caught.value.code == "E_CONFIG"
    assert "--set l_kernel" in caught.value.hint


def test_the_length_of_a_kernel_is_read_from_its_nodes() -> None:
    for length in (1, 2, 16, 1000, 65536):
        assert length_of_nodes(nodes(length).float()) == length
    with pytest.raises(SourceError, match="E_UNSUPPORTED"):
        length_of_nodes(nodes(17))


@pytest.mark.parametrize(
    ("own", "rank", "execution"),
    [(True, 1, "chunks"), (True, 2, "stepping"), (False, 1, "convolution"), (False, 2, "chunks")],
)
def test_version_1_is_the_dense_recurrence(
    tmp_path: Path, own: bool, rank: int, execution: str
) -> None:
    state = version_1(own=own, rank=rank)
    inside = "layer.kernel.krylov."
    rows, read = pairs(state[f"{inside}B"]), pairs(state[f"{inside}C"]).conj()
    rows = rows if own else np.broadcast_to(rows, (H, *rows.shape))
    parts = {
        "rates": np.broadcast_to(pairs(state[f"{inside}w"]), (H, N)),
        "inputs": rows[:, 0],
        "readout": read[None, :, 0],
        "left": rows[:, 1:].transpose(1, 0, 2),
        "right": read[:, 1:].transpose(1, 0, 2),
        "dt": np.exp(state[f"{inside}log_dt"].numpy())[:, None],
    }
    u = INPUT[0].numpy()
    wanted = bank_answer(parts, u, how="bilinear", length=16)[:, 0] + u * state["layer.D"].numpy()
    subject = opened(saved(tmp_path, state), execution=execution)
    assert subject.identity.family == "s4-v1"
    require_close(subject.respond(INPUT)[0].numpy(), wanted)


def test_a_stack_of_version_2_runs_as_a_whole_though_its_z_is_not_finite(tmp_path: Path) -> None:
    state = {
        "encoder.weight": draw(H, 1, seed=20),
        "encoder.bias": draw(H, seed=21),
        "decoder.weight": torch.eye(H, dtype=torch.float64),
        "decoder.bias": torch.zeros(H, dtype=torch.float64),
        "norms.0.weight": torch.ones(H, dtype=torch.float64),
        "norms.0.bias": torch.zeros(H, dtype=torch.float64),
        **version_2("s4_layers.0.", tied=True),
        "s4_layers.0.output_linear.weight": draw(H, H, seed=22),
        # The transposed layers of these versions have a bias with two axes.
        "s4_layers.0.output_linear.bias": draw(H, 1, seed=23),
    }
    config = {"prenorm": False, "pool": False, "layer": {"activation": "tanh"}}
    subject = opened(saved(tmp_path, state, config))
    assert subject.identity.whole
    assert subject.identity.coverage == 1.0
    fed = draw(1, T, 1, seed=30)
    inside = fed[0] @ state["encoder.weight"].mT + state["encoder.bias"]
    layer = opened(saved(tmp_path / "alone", version_2(tied=True)))
    mixed = layer.respond(inside[None])[0].tanh() @ state["s4_layers.0.output_linear.weight"].mT
    mixed = mixed + state["s4_layers.0.output_linear.bias"][:, 0]
    wanted = torch.nn.functional.layer_norm(inside + mixed, (H,))
    torch.testing.assert_close(subject.respond(fed)[0], wanted, rtol=0, atol=1e-11)


CONFIG: dict[str, Any] = {"layer": {"d_state": 2 * N}}


def refusal(folder: Path, state: State, config: dict[str, Any] | None) -> SourceError:
    with pytest.raises(SourceError) as caught:
        opened(saved(folder, state, config))
    return caught.value


def test_settings_that_nothing_says_are_asked_for_by_name(tmp_path: Path) -> None:
    error = refusal(tmp_path, kernel_state(), None)
    assert error.code == "E_CONFIG"
    for name in ("real_transform", "imag_transform", "dt_transform", "disc"):
        assert f"--set {name}=" in error.hint


def test_settings_that_are_said_as_options_are_those_of_a_config(tmp_path: Path) -> None:
    said = {"real_transform": "softplus", "imag_transform": "none", "dt_transform": "exp"}
    said |= {"disc": "bilinear", "dt_fast": "true"}
    bare = saved(tmp_path / "bare", kernel_state(), None)
    beside = saved(tmp_path / "beside", kernel_state(), {"layer": said})
    u = draw(1, 20, H)
    found, wanted = opened(bare, **said).respond(u), opened(beside).respond(u)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_settings_of_a_stack_are_asked_for_before_they_are_compared(tmp_path: Path) -> None:
    state = kernel_state("s4_layers.0.layer.") | {
        # Half as many rows as glu, which is the question's example, would need.
        "s4_layers.0.output_linear.0.weight": draw(H, H),
        "s4_layers.0.output_linear.0.bias": draw(H),
        "encoder.weight": draw(H, 1),
        "encoder.bias": draw(H),
        "norms.0.weight": draw(H),
        "norms.0.bias": draw(H),
        "decoder.weight": draw(1, H),
        "decoder.bias": draw(1),
    }
    error = refusal(tmp_path / "unsaid", state, None)
    assert error.code == "E_CONFIG"
    assert "--set final_act=" in error.hint
    error = refusal(tmp_path / "said", state, {"layer": {"final_act": "glu"}})
    assert error.code == "E_CONFIG"
    assert "final_act glu" in error.fact
    fine = saved(tmp_path / "fine", state, {"layer": {"final_act": "id"}})
    assert opened(fine).identity.whole


def test_the_discretization_whose_kernel_depends_on_the_length_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, kernel_state(), {"layer": {"disc": "dss"}})
    assert error.code == "E_UNSUPPORTED"
    assert "every length" in error.fact


@pytest.mark.parametrize(
    ("settings", "rank"),
    [
        ({"mode": "dplr"}, 0),
        ({"mode": "nplr"}, 0),
        ({"mode": "diag"}, 1),
        ({"d_state": 64}, 0),
        ({"n_ssm": 2}, 0),
        ({"is_real": True}, 0),
        ({"bidirectional": True}, 0),
        ({"rank": 2}, 1),
    ],
)
def test_a_config_of_another_layer_is_refused(
    tmp_path: Path, settings: dict[str, Any], rank: int
) -> None:
    error = refusal(tmp_path, kernel_state(rank=rank), {"layer": settings})
    assert error.code == "E_CONFIG"
    assert next(iter(settings)) in error.fact


def test_a_band_limit_of_real_modes_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, kernel_state(real=True), {"layer": {"bandlimit": 0.5}})
    assert error.code == "E_CONFIG"


@pytest.mark.parametrize("name", ["C", "B", "A_real", "A_imag", "P", "l_kernel"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    state = kernel_state(rank=1)
    del state[f"layer.kernel.{name}"]
    error = refusal(tmp_path, state, CONFIG)
    assert error.code == "E_WEIGHTS"
    assert f"layer.kernel.{name}" in error.fact


@pytest.mark.parametrize("old", [False, True])
def test_an_unknown_tensor_inside_a_kernel_is_named(tmp_path: Path, old: bool) -> None:
    state = version_2(tied=True) if old else kernel_state()
    inside = "layer.kernel.kernel." if old else "layer.kernel."
    state[f"{inside}twist"] = draw(H)
    error = refusal(tmp_path, state, CONFIG)
    assert error.code == "E_UNSUPPORTED"
    assert f"{inside}twist" in error.fact


@pytest.mark.parametrize("settings", [{"resample": True}, {"stride": 2}])
def test_kernels_that_follow_the_length_of_the_sequence_are_refused(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    error = refusal(tmp_path, version_2(tied=True), {"layer": settings})
    assert error.code == "E_UNSUPPORTED"


@pytest.mark.parametrize("settings", [{"gate": 2}, {"bottleneck": 4}])
def test_a_block_that_the_public_code_cannot_run_is_left_out(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    state = kernel_state("s4_layers.0.layer.") | {"encoder.weight": draw(H, 1)}
    subject = opened(saved(tmp_path, state, {"layer": settings}))
    assert not subject.identity.whole
    assert any("cannot run" in note for note in subject.identity.notes)


@pytest.mark.parametrize(
    ("made", "misfits"),
    [
        (
            lambda: kernel_state(rank=1),
            {
                "D": [(3, H)],
                "kernel.inv_dt": [(H, 2)],
                "kernel.A_real": [(3, N)],
                "kernel.A_imag": [(H, N + 1)],
                "kernel.B": [(1, H, N, 3)],
                "kernel.C": [(1, H, N + 1, 2), (0, H, N, 2)],
                "kernel.P": [(H, N, 2)],
            },
        ),
        (
            lambda: version_2(tied=True),
            {
                "D": [(H,), (3, H), ()],
                "kernel.kernel.C": [(1, H, N, 3), ()],
                "kernel.kernel.log_dt": [(H, 1)],
                "kernel.kernel.B": [(1, 1, N + 1, 2)],
                "kernel.kernel.P": [(1, 3, N, 2)],
                "kernel.kernel.w_imag": [(N,)],
                "kernel.kernel.omega": [(9,)],
            },
        ),
        (
            lambda: version_1(own=True),
            {
                "D": [(1, H)],
                "kernel.krylov.B": [(2, N, 2, 2)],
                "kernel.krylov.w": [(N + 1, 2)],
            },
        ),
    ],
    ids=["version 4", "version 2", "version 1"],
)
def test_a_tensor_that_does_not_fit_is_refused(
    tmp_path: Path, made: Callable[[], State], misfits: dict[str, list[tuple[int, ...]]]
) -> None:
    for name, shapes in misfits.items():
        for shape in shapes:
            state = made() | {f"layer.{name}": torch.zeros(shape)}
            assert refusal(tmp_path, state, CONFIG).code == "E_WEIGHTS", (name, shape)
    negative = refusal(tmp_path, kernel_state(rank=1, length=-4), CONFIG)
    assert negative.code == "E_WEIGHTS"
