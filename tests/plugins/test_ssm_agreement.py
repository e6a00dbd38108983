"""Whatever a model always has must be in its file, and fit what else the file and config say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit_ssm.s5 import S5, S5Block, S5Stack
from tests.plugins import flax_models as flax
from tests.plugins.s4_models import H, N, State, draw, kernel_state, opened, saved
from tests.plugins.test_ssm_lru import CONFIG as LRU_CONFIG
from tests.plugins.test_ssm_lru import tree_of
from tests.plugins.test_ssm_s4_blocks import BLOCK, stack
from tests.plugins.test_ssm_s4_trainer import trainer_config, trainer_state

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


def test_a_config_in_json_says_which_encoder_a_trainer_had(tmp_path: Path) -> None:
    config = trainer_config()
    as_json = opened(saved(tmp_path / "json", trainer_state(), config))
    as_yaml = opened(saved(tmp_path / "yaml", trainer_state(), config, name="config.yaml"))
    assert as_json.identity.whole
    assert as_json.identity.assumed == as_yaml.identity.assumed


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


@pytest.mark.parametrize("name", ["decoder/bias", "encoder/layers_0/out2/kernel"])
def test_a_cut_tensor_of_flax_has_its_name_of_the_file(tmp_path: Path, name: str) -> None:
    tree = tree_of()
    tree[f"params/{name}"] = tree[f"params/{name}"][:-1]
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
