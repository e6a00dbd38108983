"""Settings are obeyed, told or refused, and fit the tensors: never ignored, never made up."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.loading import open_checkpoint
from memaudit_ssm import S4D
from memaudit_ssm.s4d import REAL_PART
from memaudit_ssm.s5 import S5, S5Block, S5Stack
from memaudit_ssm.settings import Hyperparameters
from tests.plugins import flax_models as flax
from tests.plugins.s4_models import H, N, State, draw, kernel_state, opened, saved
from tests.plugins.test_ssm_lru import CONFIG as LRU_CONFIG
from tests.plugins.test_ssm_lru import tree_of
from tests.plugins.test_ssm_s4_models import BLOCK, stack

S4_CONFIG: dict[str, Any] = {"layer": {"d_state": 2 * N}}


def s4_stack() -> State:
    return stack(kernel_state(f"{BLOCK}layer."), (2 * H, H))


def s5_stack(*, gated: bool = True) -> State:
    generator = torch.Generator().manual_seed(3)
    block = S5Block(S5(4, 6, generator=generator), hidden=5, gated=gated)
    return dict(S5Stack([block], ends=(1, 2)).state_dict())


def refusal(folder: Path, state: State, config: dict[str, Any] | None) -> SourceError:
    with pytest.raises(SourceError) as caught:
        opened(saved(folder, state, config))
    return caught.value


def test_a_second_kernel_that_nothing_explains_is_damage(tmp_path: Path) -> None:
    state = stack(kernel_state(f"{BLOCK}layer.", both=True), (2 * H, H))
    error = refusal(tmp_path / "silent", state, S4_CONFIG)
    assert error.code == "E_WEIGHTS"
    assert f"{BLOCK}layer.kernel.C" in error.fact
    said = {"layer": {"bidirectional": True}}
    assert opened(saved(tmp_path / "said", state, said)).identity.whole


def test_channels_are_those_of_the_config(tmp_path: Path) -> None:
    state = stack(kernel_state(f"{BLOCK}layer.", channels=2), (2 * H, 2 * H))
    error = refusal(tmp_path, state, {"layer": {"channels": 1}})
    assert (error.code, f"{BLOCK}layer.D" in error.fact) == ("E_CONFIG", True)


def test_a_rank_that_nothing_says_is_damage(tmp_path: Path) -> None:
    state = stack(kernel_state(f"{BLOCK}layer.", rank=2), (2 * H, H))
    error = refusal(tmp_path / "silent", state, S4_CONFIG)
    assert (error.code, f"{BLOCK}layer.kernel.P" in error.fact) == ("E_WEIGHTS", True)
    assert opened(saved(tmp_path / "said", state, {"layer": {"rank": 2}})).identity.whole


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8])
def test_a_length_in_few_bits_is_damage(tmp_path: Path, dtype: torch.dtype) -> None:
    key = "layer.kernel.l_kernel"
    state = kernel_state(rank=1) | {key: torch.tensor(1).to(dtype)}
    error = refusal(tmp_path, state, S4_CONFIG)
    assert (error.code, key in error.fact) == ("E_WEIGHTS", True)


@pytest.mark.parametrize("lost", ["inv_dt", "A_real"])
def test_a_layer_that_lost_a_tensor_is_not_left_out(tmp_path: Path, lost: str) -> None:
    state = s4_stack()
    del state[f"{BLOCK}layer.kernel.{lost}"]
    error = refusal(tmp_path, state, S4_CONFIG)
    assert (error.code, f"{BLOCK}layer.kernel.{lost}" in error.fact) == ("E_WEIGHTS", True)


@pytest.mark.parametrize("size", [0, 2 * H - 1, 2 * H + 1])
def test_a_bias_of_another_length_than_its_weight_is_damage(tmp_path: Path, size: int) -> None:
    key = f"{BLOCK}output_linear.0.bias"
    error = refusal(tmp_path, s4_stack() | {key: draw(size)}, S4_CONFIG)
    assert (error.code, key in error.fact) == ("E_WEIGHTS", True)


def test_a_gate_does_not_halve_an_odd_number_of_features(tmp_path: Path) -> None:
    state = stack(kernel_state(f"{BLOCK}layer."), (2 * H + 1, H))
    error = refusal(tmp_path, state, S4_CONFIG)
    assert (error.code, "output_linear.0.weight" in error.fact) == ("E_CONFIG", True)


@pytest.mark.parametrize("name", ["d_input", "d_output", "d_model", "n_layers"])
@pytest.mark.parametrize("kind", ["s4", "s5", "lru"])
def test_sizes_are_those_that_the_config_states(tmp_path: Path, kind: str, name: str) -> None:
    if kind == "lru":
        folder = flax.saved(tmp_path, tree_of(), {**LRU_CONFIG, name: 77})
    else:
        state, config = (s4_stack(), S4_CONFIG) if kind == "s4" else (s5_stack(), {})
        folder = saved(tmp_path, state, {**config, name: 77})
    with pytest.raises(SourceError, match=rf"E_CONFIG.*{name} = 77"):
        memaudit.load(folder)


@pytest.mark.parametrize("name", ["dim", "state_dim"])
def test_sizes_of_s5_are_those_that_the_config_states(tmp_path: Path, name: str) -> None:
    error = refusal(tmp_path, s5_stack(), {name: 77})
    assert (error.code, name in error.fact) == ("E_CONFIG", True)


@pytest.mark.parametrize("name", ["encoder.bias", "decoder.bias"])
def test_a_bias_may_be_missing_only_where_the_config_says_so(tmp_path: Path, name: str) -> None:
    state = {key: t for key, t in s5_stack().items() if key != name}
    error = refusal(tmp_path / "silent", state, {"n_layers": 1})
    assert (error.code, name in error.fact) == ("E_WEIGHTS", True)
    said = saved(tmp_path / "said", state, {"n_layers": 1, "bias": False})
    assert opened(said).identity.whole


def test_a_feed_forward_layer_without_its_gate_must_be_said(tmp_path: Path) -> None:
    error = refusal(tmp_path / "silent", s5_stack(gated=False), {"n_layers": 1})
    assert (error.code, "ff_enc.weight" in error.fact) == ("E_WEIGHTS", True)
    said = saved(tmp_path / "said", s5_stack(gated=False), {"glu": False})
    assert opened(said).identity.whole


def test_a_second_direction_of_s5_must_be_said(tmp_path: Path) -> None:
    state, key = s5_stack(), "layers.0.s5.seq.C"
    state[key] = torch.cat([state[key], state[key]], dim=1)
    error = refusal(tmp_path / "silent", state, {"n_layers": 1})
    assert (error.code, key in error.fact) == ("E_WEIGHTS", True)
    assert opened(saved(tmp_path / "said", state, {"bidir": True})).identity.whole


@pytest.mark.parametrize(
    "name",
    ["encoder/encoder/bias", "encoder/layers_1/out1/bias", "encoder/layers_0/normalization/scale"],
)
def test_a_missing_tensor_of_flax_has_its_name_of_the_file(tmp_path: Path, name: str) -> None:
    tree = {key: value for key, value in tree_of().items() if key != f"params/{name}"}
    with pytest.raises(SourceError, match=rf"E_WEIGHTS.*params/{name}"):
        memaudit.load(flax.saved(tmp_path, tree, LRU_CONFIG))


def test_statistics_of_another_norm_than_the_config_says_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"E_CONFIG.*norm = layer"):
        memaudit.load(flax.saved(tmp_path, tree_of(batch=True), LRU_CONFIG))


@pytest.mark.parametrize(
    ("word", "meant"), [("true", "mean"), ("false", "none"), (True, "mean"), ("last", "last")]
)
def test_the_words_for_pooling_are_the_same_everywhere(
    tmp_path: Path, word: str | bool, meant: str
) -> None:
    u = draw(2, 9, 1)
    every = {"s4": (s4_stack(), S4_CONFIG), "s5": (s5_stack(), {"n_layers": 1})}
    for name, (state, config) in every.items():
        folder = saved(tmp_path / name, state, config)
        steps = opened(folder, pool="none").respond(u)
        if meant == "last":
            wanted = steps[:, -1]
        else:
            # The decoder is affine, so it may stand before or behind the mean.
            wanted = steps.mean(dim=1) if meant == "mean" else steps
        torch.testing.assert_close(opened(folder, pool=word).respond(u), wanted)


def test_a_word_that_is_no_pooling_is_refused(tmp_path: Path) -> None:
    folder = flax.saved(tmp_path, {k: np.asarray(v) for k, v in tree_of().items()}, LRU_CONFIG)
    with pytest.raises(ArgumentError, match="pool is max"):
        memaudit.load(folder, pool="max")


def copied(shared: Path, name: str, folder: Path, **changes: Any) -> Path:
    """A fixture with a changed config.json."""
    origin = shared / "fixtures" / name
    for path in origin.iterdir():
        if path.name not in ("io.safetensors", "meta.json"):
            shutil.copy(path, folder)
    config = json.loads((folder / "config.json").read_text())
    config["layer"] = {**config.get("layer", {}), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_an_old_name_that_speaks_beats_a_new_one_that_is_null() -> None:
    facts = Hyperparameters({}, {"layer": {"final_act": None, "postact": "relu"}})
    assert facts.choice("final_act", ("none", "relu", "glu"), also=("postact",)) == "relu"


def test_references_inside_a_config_are_followed() -> None:
    model = {"size": "${dataset.size}", "cut": "${oc.select:a.b,null}"}
    config = {"dataset": {"size": 7}, "model": model}
    section = Hyperparameters({}, config).section("model")
    assert (section.get("size"), section.get("cut", 3)) == (7, None)


def test_a_reference_that_leads_nowhere_is_no_value() -> None:
    section = Hyperparameters({}, {"net": {"return_seq": "${x.y}"}}).section("net")
    with pytest.raises(SourceError, match="leaves return_seq open"):
        section.get("return_seq")


def test_a_flag_is_no_number() -> None:
    with pytest.raises(SourceError, match="bandlimit is true"):
        Hyperparameters({}, {"layer": {"bandlimit": True}}).number("bandlimit")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("s4d_standalone/small", {"disc": "bilinear"}),
        ("s4d_standalone/small", {"layers": "s4_layers.0"}),
        ("lru_jax/small", {"conj_sym": True}),
        ("s5_pytorch/small", {"bandlimit": 0.5}),
    ],
)
def test_an_option_that_nothing_reads_is_refused(shared: Path, name: str, options: dict) -> None:
    with pytest.raises(ArgumentError):
        memaudit.load(shared / "fixtures" / name, **options)


@pytest.mark.shared
def test_what_was_forced_stands_in_the_report(shared: Path) -> None:
    folder = shared / "fixtures" / "stablessm" / "best"
    forced = memaudit.load(folder, parameterization="exp", execution="stepping").identity
    assert "said by options: parameterization=exp (the config says best)" in forced.notes
    assert "linear layers were run by stepping" in forced.notes


@pytest.mark.shared
def test_torch_layers_beside_those_of_a_family_are_named(shared: Path, tmp_path: Path) -> None:
    state = load_checkpoint(shared / "fixtures" / "s4d_standalone" / "small" / "ckpt.pth")
    state |= {f"rnn.{name}": tensor for name, tensor in nn.LSTM(2, 3).state_dict().items()}
    save_file({name: tensor.clone() for name, tensor in state.items()}, tmp_path / "m.safetensors")
    with pytest.raises(SourceError, match=r"rnn\.weight_hh_l0"):
        memaudit.load(tmp_path / "m.safetensors")


def load_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(path, weights_only=True)["model"])


def test_a_layer_in_memory_has_its_spectrum_and_its_closed_form() -> None:
    layer = S4D(3, 4, generator=torch.Generator().manual_seed(0))
    report = memaudit.scan(layer, horizon=64, queries=["impulse"])
    assert [item.layer for item in report.spectrum] == ["layer"]
    assert [item.agrees for item in report.closed_form] == [True]
    assert layer.D.requires_grad


def test_a_rescaled_step_is_refused(tmp_path: Path) -> None:
    shapes = {"Lambda_im": (4,), "B": (4, 3, 2), "C": (3, 4, 2), "D": (3,), "log_step": (4, 1)}
    state = {f"seq.{name}": torch.ones(shape) for name, shape in shapes.items()}
    state["seq.Lambda_re"] = -torch.ones(4)
    save_file(state, tmp_path / "model.safetensors")
    settings = {"discretization": "zoh", "conj_sym": True, "step_rescale": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(SourceError, match="step_rescale"):
        memaudit.load(tmp_path)


@pytest.mark.shared
def test_a_gate_of_the_example_is_read_from_its_old_name(shared: Path, tmp_path: Path) -> None:
    folder = copied(shared, "s4_v4_standalone/diag", tmp_path, final_act=None, postact="glu")
    record = load_file(shared / "fixtures" / "s4_v4_standalone" / "diag" / "io.safetensors")
    found = memaudit.load(folder).respond(record["input"].double())
    torch.testing.assert_close(found, record["output64"], rtol=0, atol=1e-9)


FIXTURES = Path(__file__).parents[2].parent / "shared" / "fixtures"
recorded = pytest.mark.skipif(not FIXTURES.is_dir(), reason="no reference checkpoints beside it")


@pytest.mark.parametrize("parameterization", REAL_PART)
def test_the_kernel_is_the_formula_of_its_docstring(parameterization: str) -> None:
    layer = S4D(
        3, 8, parameterization=parameterization, generator=torch.Generator().manual_seed(2)
    ).double()
    kernel = layer.kernel
    dt, c = kernel.log_dt.exp(), torch.view_as_complex(kernel.C.detach())
    rates = torch.complex(torch.full_like(kernel.A_imag, -0.5), kernel.A_imag).detach()
    for lag in (0, 1, 50):
        grown = (torch.exp(dt[:, None] * rates) - 1) / rates * torch.exp(dt[:, None] * rates * lag)
        expected = 2.0 * (c * grown).sum(-1).real + (layer.D if lag == 0 else 0.0)
        found = layer.system().kernel(lag, lag + 1)[0, 0]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_training_starts_with_the_imaginary_parts_of_s4d_lin_and_the_rate_one_half() -> None:
    for parameterization in REAL_PART:
        generator = torch.Generator().manual_seed(0)
        layer = S4D(2, 6, parameterization=parameterization, generator=generator).double()
        rates = layer.rates()
        torch.testing.assert_close(rates.real, torch.full((2, 3), -0.5).double(), rtol=1e-6, atol=0)
        expected = math.pi * torch.arange(3.0).double().expand(2, 3)
        torch.testing.assert_close(rates.imag, expected, rtol=1e-6, atol=0)


def beside(folder: Path, name: str, state: dict[str, torch.Tensor], *, config: bool = True) -> Path:
    save_file({key: t.contiguous().clone() for key, t in state.items()}, folder / "w.safetensors")
    for file in FIXTURES.joinpath(name).glob("config.*") if config else ():
        shutil.copy(file, folder)
    return folder


def state_of(name: str) -> dict[str, torch.Tensor]:
    return dict(open_checkpoint(FIXTURES / name).tensors)


@pytest.mark.shared
def test_a_layer_that_is_gone_without_a_trace_is_missed_in_the_config(tmp_path: Path) -> None:
    name = "s4d_standalone/small"
    state = {
        key: t
        for key, t in state_of(name).items()
        if "layers.1." not in key and "norms.1" not in key
    }
    with pytest.raises(
        SourceError, match="n_layers = 2, but the layers in the file are 1"
    ) as caught:
        memaudit.load(beside(tmp_path, name, state))
    assert caught.value.code == "E_CONFIG"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "key", "word"),
    [
        ("s4d_standalone/small", "encoder.weight", "d_input = 1"),
        ("stablessm/best", "encoder.U.weight", "in_size = 1"),
    ],
)
def test_an_input_more_than_the_config_says_is_refused(
    tmp_path: Path, name: str, key: str, word: str
) -> None:
    state = state_of(name)
    state[key] = torch.cat([state[key], state[key]], dim=1)
    with pytest.raises(SourceError) as caught:
        memaudit.load(beside(tmp_path, name, state))
    assert key in caught.value.fact
    assert word in caught.value.fact


@pytest.mark.shared
@pytest.mark.parametrize("where", ["encoder", "decoder"])
def test_a_bias_that_was_lost_is_missed(tmp_path: Path, where: str) -> None:
    state = state_of("stablessm/best")
    del state[f"{where}.U.bias"]
    with pytest.raises(SourceError, match=rf"{where}\.U\.bias is not there"):
        memaudit.load(beside(tmp_path, "stablessm/best", state))


@pytest.mark.shared
def test_without_a_config_the_settings_are_asked_for_and_a_missing_bias_is_noted(
    tmp_path: Path,
) -> None:
    state = state_of("stablessm/best")
    del state["encoder.U.bias"]
    folder = beside(tmp_path, "stablessm/best", state, config=False)
    with pytest.raises(SourceError, match=r"parameterization, prenorm, pool") as caught:
        memaudit.load(folder)
    assert caught.value.code == "E_CONFIG"
    subject = memaudit.load(folder, parameterization="best", prenorm=False, pool=False)
    assert subject.identity.assumed["encoder bias"].startswith("none")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["s4d_standalone/small", "stablessm/best"])
def test_layers_alone_answer_as_they_do_inside_the_model(tmp_path: Path, name: str) -> None:
    whole = memaudit.load(FIXTURES / name)
    state = {key: t for key, t in state_of(name).items() if "coder" not in key}
    host = memaudit.load(beside(tmp_path, name, state))
    assert not host.identity.whole
    assert 0.0 < host.identity.coverage < 1.0
    inside, alone = list(whole.linear_parts().values()), list(host.linear_parts().values())
    assert len(inside) == len(alone)
    for one, other in zip(inside, alone, strict=True):
        torch.testing.assert_close(one.kernel(0, 40), other.kernel(0, 40), rtol=0, atol=0)
