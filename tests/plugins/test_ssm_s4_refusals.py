"""Checkpoints of S4 that are damaged, unknown or contradict their config are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from memaudit.errors import SourceError
from tests.plugins.s4_models import H, N, State, draw, kernel_state, opened, saved
from tests.plugins.test_ssm_s4_old import version_1, version_2

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


@pytest.mark.parametrize("old", [False, True])
def test_a_config_with_several_layers_does_not_pass_for_a_silent_one(
    tmp_path: Path, old: bool
) -> None:
    state = version_2(tied=True) if old else kernel_state()
    several = {"model": {"layer": [{"real_transform": "softplus"}, {"_name_": "ff"}]}}
    error = refusal(tmp_path, state, several)
    assert error.code == "E_CONFIG"
    assert "--set real_transform=" in error.hint


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


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("D", (3, H)),
        ("kernel.inv_dt", (H, 2)),
        ("kernel.A_real", (3, N)),
        ("kernel.A_imag", (H, N + 1)),
        ("kernel.B", (1, H, N, 3)),
        ("kernel.C", (1, H, N + 1, 2)),
        ("kernel.P", (H, N, 2)),
        ("kernel.C", (0, H, N, 2)),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    state = kernel_state(rank=1) | {f"layer.{name}": torch.zeros(shape)}
    assert refusal(tmp_path, state, CONFIG).code == "E_WEIGHTS"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("D", (H,)),
        ("D", (3, H)),
        ("D", ()),
        ("kernel.kernel.C", (1, H, N, 3)),
        ("kernel.kernel.C", ()),
        ("kernel.kernel.log_dt", (H, 1)),
        ("kernel.kernel.B", (1, 1, N + 1, 2)),
        ("kernel.kernel.P", (1, 3, N, 2)),
        ("kernel.kernel.w_imag", (N,)),
        ("kernel.kernel.omega", (9,)),
    ],
)
def test_an_old_tensor_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    state = version_2(tied=True) | {f"layer.{name}": torch.zeros(shape)}
    assert refusal(tmp_path, state, None).code == "E_WEIGHTS"


@pytest.mark.parametrize(
    ("name", "shape"),
    [("D", (1, H)), ("kernel.krylov.B", (2, N, 2, 2)), ("kernel.krylov.w", (N + 1, 2))],
)
def test_a_tensor_of_version_1_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    state = version_1(own=True) | {f"layer.{name}": torch.zeros(shape)}
    assert refusal(tmp_path, state, None).code == "E_WEIGHTS"


def test_a_negative_length_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, kernel_state(rank=1, length=-4), CONFIG)
    assert error.code == "E_WEIGHTS"


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
