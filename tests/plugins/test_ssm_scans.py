"""Selective scans: recognised by their tensors, run as their recurrence, with their eigenvalues."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import Claim
from memaudit.loading import parse_source
from memaudit.testing import check_adapter
from memaudit_ssm import SsmAdapter
from memaudit_ssm.scans import MOST_SCANS
from tests.plugins.ssm_models import (
    State,
    draw,
    mixer,
    one_channel,
    opened,
    picture_scan,
    stepped,
    written,
)


class Holder(nn.Module):
    """A module whose state dict is what it was given."""

    config: Any = None

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in state.items():
            room, _, leaf = name.rpartition(".")
            owner: nn.Module = self
            for step in room.split(".") if room else ():
                if step not in owner._modules:
                    owner.add_module(step, nn.Module())
                owner = owner.get_submodule(step)
            owner.register_parameter(leaf, nn.Parameter(tensor.float()))


def claimed(source: object) -> Claim | None:
    return SsmAdapter().claim(parse_source(source))


def language_model() -> dict[str, Tensor]:
    layers = mixer("backbone.layers.0.mixer.") | mixer("backbone.layers.1.mixer.")
    return {
        "backbone.embedding.weight": draw(5, 3),
        **layers,
        "backbone.layers.0.norm.weight": draw(3),
        "backbone.norm_f.weight": draw(3),
    }


@pytest.mark.parametrize(
    "state",
    [
        mixer(),
        mixer("blocks.0.mamba."),
        picture_scan("a.b."),
        picture_scan(k=1),
        one_channel([0.5]),
    ],
    ids=["bare", "under a prefix", "four directions", "one direction", "one channel"],
)
def test_scans_are_claimed_below_the_zoos_that_run_a_whole_model(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    assert claimed(written(state, tmp_path)) == Claim("selective-scan", 8)
    assert claimed(Holder(state)) == Claim("selective-scan", 8)


@pytest.mark.parametrize(
    "without", ["A_log", "D", "dt_proj.weight", "dt_proj.bias", "x_proj.weight"]
)
def test_a_mixer_that_lacks_a_tensor_is_not_claimed_and_says_which(
    tmp_path: Path, without: str
) -> None:
    state = mixer()
    del state[without]
    path = written(state, tmp_path)
    assert claimed(path) is None
    with pytest.raises(SourceError, match="no selective scan") as caught:
        opened(path)
    assert caught.value.code == "E_UNSUPPORTED"
    assert without == "A_log" or f"(without {without})" in caught.value.fact


def test_models_of_transformers_are_left_to_their_own_adapter(tmp_path: Path) -> None:
    path = written(mixer("layers.0.mixer."), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    assert claimed(path) is None
    module = Holder(mixer())
    module.config = SimpleNamespace(model_type="mamba")
    assert claimed(module) is None


def test_the_original_language_model_is_left_to_who_runs_it_whole(tmp_path: Path) -> None:
    assert claimed(written(language_model(), tmp_path)) is None
    assert claimed(Holder(language_model())) is not None


def test_a_hybrid_with_other_blocks_is_no_original_language_model(tmp_path: Path) -> None:
    state = language_model() | {"backbone.layers.2.mixer.Wqkv.weight": draw(9, 3)}
    assert claimed(written(state, tmp_path)) is not None


@pytest.mark.shared
def test_the_reference_language_models_are_not_claimed(shared: Path) -> None:
    for name in ("mamba1_hf", "mamba1_original", "mamba2_hf"):
        assert claimed(shared / "fixtures" / name / "small") is None


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("A_logs", (11, 4)),
        ("A_logs", (12, 4, 1)),
        ("Ds", (3,)),
        ("dt_projs_weight", (4, 2, 3)),
        ("dt_projs_weight", (12, 2)),
        ("dt_projs_bias", (12,)),
        ("x_proj_weight", (4, 9, 3)),
        ("x_proj_bias", (4, 9)),
    ],
)
def test_shapes_that_contradict_each_other_are_named(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    state = picture_scan("net.ss.") | {f"net.ss.{name}": draw(*shape)}
    with pytest.raises(SourceError) as caught:
        opened(state, tmp_path)
    assert caught.value.code == "E_WEIGHTS"
    assert f"{name} {shape}" in caught.value.fact
    assert "net.ss" in caught.value.fact


def test_an_empty_scan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="filled axes"):
        opened(mixer(d=0), tmp_path)


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    state = mixer() | {"dt_proj.weight": torch.ones(3, 2, dtype=torch.int8)}
    with pytest.raises(SourceError, match=r"dt_proj\.weight holds int8"):
        opened(state, tmp_path)


def test_numbers_that_are_not_finite_are_refused_where_they_would_be_run(tmp_path: Path) -> None:
    state = mixer("good.") | mixer("bad.")
    state["bad.D"][0] = float("nan")
    with pytest.raises(SourceError, match=r"bad\.D \(1 NaN\)") as caught:
        opened(state, tmp_path)
    assert caught.value.code == "E_NONFINITE"
    assert list(opened(state, tmp_path, layers="good").parts()) == ["good"]


def test_scans_between_norms_are_named_and_not_run(tmp_path: Path) -> None:
    state = mixer("plain.") | mixer("normed.") | {"normed.dt_layernorm.weight": draw(2)}
    host = opened(state, tmp_path)
    assert list(host.parts()) == ["plain"]
    unmatched = next(note for note in host.identity.notes if "not matched" in note)
    assert "normed.A_log (dt_layernorm.weight stands between x_proj and the scan)" in unmatched


def test_the_identity_counts_scans_directions_and_parameters(tmp_path: Path) -> None:
    state = picture_scan("ss.") | mixer("m.") | {"head.weight": draw(10, 10)}
    who = opened(state, tmp_path).identity
    own = 12 + 3 + 6 + 3 + 30
    records = [(r.layer, r.cell, r.size, r.parameters, r.directions) for r in who.recurrences]
    assert records == [("m", "mamba1", 12, own, 1), ("ss", "mamba1", 12, 4 * own, 4)]
    assert who.parameters == 5 * own + 100
    assert who.coverage == pytest.approx(5 * own / (5 * own + 100))
    assert who.description == "host of 5 selective scans (3 channels of 4 states) in 2 modules"
    assert who.sha256
    assert (who.adapter, who.family, who.dtype) == ("ssm", "selective-scan", "float64")


@pytest.mark.parametrize(
    ("layers", "run"),
    [
        ("all", ["a.ss.scan0", "a.ss.scan1", "b.m"]),
        ("b.m", ["b.m"]),
        ("b", ["b.m"]),
        ("a.ss", ["a.ss.scan0", "a.ss.scan1"]),
        ("a.ss.scan1, b.m", ["a.ss.scan1", "b.m"]),
        (["a.ss.scan0"], ["a.ss.scan0"]),
    ],
)
def test_the_option_layers_limits_what_is_run(
    tmp_path: Path, layers: object, run: list[str]
) -> None:
    state = picture_scan("a.ss.", k=2) | mixer("b.m.")
    host = opened(state, tmp_path, layers=layers)
    assert sorted(host.parts()) == run
    assert len(host.identity.recurrences) == 2
    assert host.identity.coverage == pytest.approx(len(run) / 3)
    idle = [note for note in host.identity.notes if "left out" in note]
    assert len(idle) == (0 if len(run) == 3 else 1)
    assert all(f"{3 - len(run)} of 3 scans" in note for note in idle)


@pytest.mark.parametrize(("layers", "hint"), [("b.mm", "b.m"), ("", "all"), ("b.m,,", "all")])
def test_layers_that_do_not_exist_are_refused(tmp_path: Path, layers: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        opened(mixer("b.m."), tmp_path, layers=layers)
    assert hint in caught.value.hint


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="unknown option 'layer'"):
        opened(mixer(), tmp_path, layer="all")


def test_wrappers_do_not_enter_the_names_unless_they_distinguish_two(tmp_path: Path) -> None:
    assert list(opened(mixer("module.model.enc.0."), tmp_path).parts()) == ["enc.0"]
    twins = mixer("model.enc.") | mixer("net.enc.")
    assert sorted(opened(twins, tmp_path).parts()) == ["model.enc", "net.enc"]


def test_more_scans_than_anybody_reads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{MOST_SCANS + 1} selective scans") as caught:
        opened(picture_scan(k=MOST_SCANS + 1, d=1, n=1, rank=1), tmp_path)
    assert caught.value.code == "E_LIMIT"


def test_a_module_is_copied_and_keeps_its_dtype() -> None:
    module = Holder(mixer("m.") | {"head.weight": draw(2, 2)})
    host = opened(module)
    before = host.respond(draw(1, 5, 3))
    assert before.dtype == torch.float32
    with torch.no_grad():
        module.get_parameter("m.A_log").zero_()
    assert torch.equal(host.respond(draw(1, 5, 3)), before)
    assert opened(module, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_adapter_keeps_the_laws(tmp_path: Path, in_memory: bool) -> None:
    state = picture_scan("ss.", k=2) | mixer("m.")
    check_adapter(SsmAdapter(), Holder(state) if in_memory else written(state, tmp_path))


def test_a_mixer_of_mamba2_that_lacks_a_tensor_is_called_by_its_name(tmp_path: Path) -> None:
    state = {f"encoder.mamba.{end}": draw(4) for end in ("A_log", "dt_bias", "D")}
    state["encoder.mamba.in_proj.weight"] = draw(8, 4)
    with pytest.raises(SourceError, match=r"A_log \(Mamba-2, without conv1d"):
        opened(state, tmp_path)


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
    curve = memaudit.scan(host.parts()["mixer"], horizon=64, **options).memory["heaviside"]
    expected = np.sum([DT * lam ** (np.arange(64) + 1.0) for lam in MODES], axis=0)
    np.testing.assert_allclose(curve.values, expected, atol=1e-13)


def test_without_input_a_scan_shows_nothing_of_its_state(tmp_path: Path) -> None:
    """C is linear in the input: the state is there, and nobody reads it."""
    host = opened(mixer("m."), tmp_path)
    inputs = draw(1, 20, 3)
    inputs[:, 10:] = 0.0
    assert not host.respond(inputs)[:, 10:].any()
    quick = {"horizon": 16, "level": "quick", "queries": ["impulse"]}
    assert memaudit.scan(host, **quick).memory["impulse"].decay.kind == "memoryless"
    at_work = memaudit.scan(host, **quick, baseline=0.25)
    assert at_work.memory["impulse"].decay.kind != "memoryless"


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


def test_a_host_of_several_scans_does_not_answer_as_a_whole(tmp_path: Path) -> None:
    host = opened(picture_scan(), tmp_path)
    assert host.input_size is None
    with pytest.raises(SourceError, match=r"how the recurrent layers mixer\.scan0") as caught:
        host.respond(draw(1, 5, 3))
    assert caught.value.code == "E_UNSUPPORTED"


def test_an_infinite_rate_is_refused_although_its_logarithm_is_finite(tmp_path: Path) -> None:
    state = mixer("m.")
    state["m.A_log"][1, 2] = 800.0
    assert math.isfinite(float(state["m.A_log"].max()))
    with pytest.raises(SourceError, match=r"m\.A_log reaches 800") as caught:
        opened(state, tmp_path)
    assert caught.value.code == "E_NONFINITE"


def test_at_rest_the_eigenvalues_are_those_of_the_bias(tmp_path: Path) -> None:
    state = mixer("m.")
    (found,) = opened(state, tmp_path).spectra()
    dt = softplus(state["m.dt_proj.bias"])
    expected = torch.exp(-dt[:, None] * state["m.A_log"].exp()).flatten().numpy()
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-14)
    assert (found.layer, found.cell, found.parameterization) == ("m", "mamba1", "exp")
    assert found.count == 12
    assert found.points == ()


def test_margin_and_time_scale_are_those_of_the_slowest_mode(tmp_path: Path) -> None:
    (found,) = opened(one_channel([0.99, 0.5]), tmp_path).spectra()
    assert found.margin == pytest.approx(0.01)
    assert found.time_scale == pytest.approx(-1 / math.log(0.99))


def test_a_bias_of_the_projection_moves_the_rest(tmp_path: Path) -> None:
    state = mixer()
    state["x_proj.bias"] = draw(10, seed=9)
    (found,) = opened(state, tmp_path).spectra()
    low = state["dt_proj.weight"] @ state["x_proj.bias"][:2]
    dt = softplus(low + state["dt_proj.bias"])
    expected = torch.exp(-dt[:, None] * state["A_log"].exp()).flatten().numpy()
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-14)


def test_over_data_the_eigenvalues_follow_the_quantiles_of_dt(tmp_path: Path) -> None:
    state, inputs = mixer(), draw(3, 50, 3, seed=5)
    (found,) = opened(state, tmp_path).spectra(inputs)
    low = inputs @ state["x_proj.weight"][:2].T
    dt = softplus(low @ state["dt_proj.weight"].T + state["dt_proj.bias"]).flatten(0, 1).numpy()
    assert [point.at for point in found.points] == ["dt 5 %", "dt 50 %", "dt 95 %"]
    for share, point in zip((0.05, 0.5, 0.95), found.points, strict=True):
        steps = np.quantile(dt, share, axis=0)
        expected = np.exp(-steps[:, None] * np.exp(state["A_log"].numpy())).ravel()
        np.testing.assert_allclose(point.eigenvalues, expected, rtol=1e-13)
    scales = [point.time_scale for point in found.points]
    assert scales == sorted(scales, reverse=True)


def test_a_host_gives_the_spectra_of_all_its_scans(tmp_path: Path) -> None:
    host = opened(picture_scan("ss.") | mixer("m."), tmp_path)
    assert [found.layer for found in host.spectra()] == list(host.parts())
    with pytest.raises(ArgumentError, match="no input in common"):
        host.spectra(draw(1, 5, 3))


def slow_mixer(seed: int) -> State:
    """Rates of 1 to n as models start with, and steps small enough for a long memory."""
    state = mixer("m.", d=4, n=3, rank=2, seed=seed)
    state["m.A_log"] = torch.log(torch.arange(1.0, 4.0, dtype=torch.float64)).repeat(4, 1)
    state["m.A_log"] += 0.1 * draw(4, 3, seed=seed + 7)
    state["m.dt_proj.weight"] *= 0.3
    return state


@pytest.mark.parametrize("seed", range(2))
def test_the_slowest_predicted_mode_is_the_measured_rate(tmp_path: Path, seed: int) -> None:
    """A constant input holds dt, B and C still: the scan is linear and time-invariant then."""
    part = opened(slow_mixer(seed), tmp_path).parts()["m"]
    (found,) = part.spectra(torch.ones(1, 4, 4, dtype=torch.float64))
    (time_scale,) = {point.time_scale for point in found.points}
    # The faster modes must have died away: twenty time scales are nine decades of the slowest.
    horizon = math.ceil(20 * time_scale)
    report = memaudit.scan(part, horizon=horizon, queries=["heaviside"], normalization="universal")
    decay = report.memory["heaviside"].decay
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(1 / time_scale, rel=0.05)
    # What the input sets is what counts: the bias alone would have been wrong.
    assert found.time_scale != pytest.approx(time_scale, rel=0.05)


def test_a_module_without_numbers_is_refused() -> None:
    with pytest.raises(SourceError, match="no numbers yet"):
        opened(Holder(mixer()).to("meta"))
