"""S4 as the versions 1 to 3 stored it: the reference checkpoints renamed, and numpy beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from memaudit.errors import SourceError
from memaudit.loading import parse_source
from memaudit_ssm.s4_old import length_of_nodes
from tests.plugins.s4_models import (
    H,
    N,
    State,
    bank_answer,
    draw,
    opened,
    pairs,
    require_close,
    saved,
)

T = 40
INPUT = draw(1, T, H, seed=9)
EXECUTIONS = ("chunks", "convolution", "stepping")


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


@pytest.mark.shared
def test_the_unused_matrix_of_version_3_is_known_and_does_not_matter(
    shared: Path, tmp_path: Path
) -> None:
    folder = shared / "fixtures" / "s4_v4_standalone" / "diag"
    checkpoint = parse_source(folder).checkpoint
    tensors = as_version_3(dict(checkpoint.tensors))
    for i in range(2):
        key = f"s4_layers.{i}.kernel.kernel."
        tensors[f"{key}A"] = torch.ones_like(tensors[f"{key}B"])
    older = opened(saved(tmp_path, tensors, dict(checkpoint.config)))
    fed = draw(1, 48, 1)
    torch.testing.assert_close(older.respond(fed), opened(folder).respond(fed), rtol=0, atol=1e-11)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rank", [1, 2])
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


@pytest.mark.parametrize("length", [2, 16, 1000, 65536])
def test_the_length_of_a_kernel_is_read_from_its_nodes(length: int) -> None:
    assert length_of_nodes(nodes(length).float()) == length


def test_one_node_is_a_kernel_that_was_never_run() -> None:
    assert length_of_nodes(nodes(1)) == 1


def test_nodes_of_an_odd_length_are_refused() -> None:
    with pytest.raises(SourceError) as caught:
        length_of_nodes(nodes(17))
    assert caught.value.code == "E_UNSUPPORTED"


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("rank", [1, 2])
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
