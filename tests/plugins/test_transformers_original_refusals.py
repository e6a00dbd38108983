"""An original Mamba-2 that is damaged, or of another build, is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import memaudit
from memaudit.errors import SourceError
from memaudit_transformers.original import family_of, translate
from tests.plugins.original_mamba2 import (
    CONFIG,
    HEADS,
    INNER,
    LAYERS,
    MIXED,
    STATES,
    WIDTH,
    State,
    drawn,
    mixers,
    written,
)

Change = Callable[[State], object]
MIXER = "backbone.layers.1.mixer."
HEAD = "lm_head.weight"
NAMES = sorted(drawn().keys() - {HEAD})


def refusal(folder: Path, state: State, config: dict[str, Any] | None = CONFIG) -> SourceError:
    with pytest.raises(SourceError) as caught:
        memaudit.load(written(folder, state, config=config))
    return caught.value


def changed(change: Change, **options: Any) -> State:
    state = drawn(**options)
    change(state)
    return state


def in_every_layer(state: State, end: str, tensor: torch.Tensor | None) -> None:
    for number in range(LAYERS):
        name = f"backbone.layers.{number}.{end}"
        if tensor is None:
            state.pop(name, None)
        else:
            state[name] = tensor.clone()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (f"{MIXER}D", lambda t: t.pop(f"{MIXER}D")),
        (f"{MIXER}A_log", lambda t: t.pop(f"{MIXER}A_log")),
        (f"{MIXER}conv1d.bias", lambda t: t.pop(f"{MIXER}conv1d.bias")),
        ("backbone.norm_f.weight", lambda t: t.pop("backbone.norm_f.weight")),
        (f"{MIXER}A_log", lambda t: t.update({f"{MIXER}A_log": torch.zeros(HEADS + 1)})),
        (f"{MIXER}A_log", lambda t: t.update({f"{MIXER}A_log": torch.zeros(HEADS, 4)})),
        (f"{MIXER}norm.weight", lambda t: t.update({f"{MIXER}norm.weight": torch.ones(2)})),
        (f"{MIXER}init_states", lambda t: t.update({f"{MIXER}init_states": torch.zeros(3, 8, 5)})),
        (f"{MIXER}B_bias", lambda t: t.update({f"{MIXER}B_bias": torch.zeros(HEADS)})),
        ("backbone.layers.2.*", lambda t: t.update({"backbone.layers.999999.A": torch.zeros(1)})),
    ],
)
def test_what_is_missing_unknown_or_misshaped_is_named(
    tmp_path: Path, name: str, change: Change
) -> None:
    error = refusal(tmp_path, changed(change))
    assert error.code == "E_WEIGHTS"
    assert name in error.fact


@pytest.mark.parametrize("name", [name for name in NAMES if "embedding" not in name])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_one_tensor_of_another_form_is_named_and_no_other(name: str, layers: int) -> None:
    state = drawn(layers=layers)
    if name not in state:
        name = name.replace("layers.1.", "layers.0.")
    whole = state[name]
    state[name] = torch.cat([whole, whole[:1]])
    with pytest.raises(SourceError) as caught:
        translate("mamba2", {"ssm_cfg": {}}, state)
    assert caught.value.code == "E_WEIGHTS"
    assert caught.value.fact.endswith(
        f"of another form: {name} {tuple(state[name].shape)} instead of {tuple(whole.shape)}"
    )


@given(
    name=st.sampled_from(NAMES),
    how=st.sampled_from(["drop", "rename", "grow", "shrink", "flatten", "stack", "empty"]),
    axis=st.integers(0, 2),
    layers=st.integers(1, LAYERS),
)
def test_no_single_damage_goes_unnoticed(name: str, how: str, axis: int, layers: int) -> None:
    state = drawn(layers=layers)
    if name not in state:
        return
    whole = state.pop(name)
    axis = min(axis, whole.ndim - 1)
    forms: dict[str, Callable[[], torch.Tensor]] = {
        "grow": lambda: torch.cat([whole, whole.narrow(axis, 0, 1)], axis),
        "shrink": lambda: whole.narrow(axis, 0, whole.shape[axis] - 1),
        "flatten": lambda: whole.flatten() if whole.ndim > 1 else whole[None],
        "stack": lambda: torch.stack([whole, whole]),
        "empty": lambda: whole.flatten()[:0],
    }
    if how in forms:
        state[name] = forms[how]()
    if how == "rename":
        state[f"{name}_"] = whole
    if family_of(state) != "mamba2":
        return  # nobody claims it as one, then
    config = {**CONFIG, "n_layer": layers, "vocab_size": 40}
    with pytest.raises(SourceError) as caught:
        translate("mamba2", config, state)
    assert caught.value.code in ("E_WEIGHTS", "E_CONFIG", "E_UNSUPPORTED")


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({**CONFIG, "d_model": 24}, "d_model 24"),
        ({**CONFIG, "n_layer": 3}, "n_layer 3"),
        ({**CONFIG, "vocab_size": 48}, "vocab_size 48"),
        ({**CONFIG, "ssm_cfg": "Mamba2"}, "no dictionary"),
        (mixers(layer="Mamba1"), "the layer Mamba1"),
        (mixers(d_state=6), "ssm_cfg d_state 6"),
        (mixers(d_conv=3), "ssm_cfg d_conv 3"),
        (mixers(headdim=4), "ssm_cfg headdim 4"),
        (mixers(expand=4), "ssm_cfg expand 4"),
        (mixers(d_ssm=12), "ssm_cfg d_ssm 12"),
        (mixers(window=7), "ssm_cfg window"),
        (mixers(dt_limit=[0.2, 0.1]), "dt_limit"),
        (mixers(dt_limit=[-0.2, 0.1]), "dt_limit"),
        (mixers(dt_limit="none"), "dt_limit"),
        (mixers(dt_limit=[0.0, True]), "dt_limit"),
    ],
)
def test_a_config_that_contradicts_the_tensors_is_refused(
    tmp_path: Path, config: dict[str, Any], word: str
) -> None:
    error = refusal(tmp_path, drawn(), config)
    assert error.code == "E_CONFIG"
    assert word in error.fact


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (mixers(ngroups=5), "ngroups 5: its gated norm is taken group by group"),
        (mixers(norm_before_gate=True), "norm_before_gate True"),
        (mixers(rmsnorm=False), "rmsnorm False"),
        (mixers(D_has_hdim=True), "D_has_hdim True"),
        ({**CONFIG, "attn_layer_idx": [1]}, "attention ([1])"),
        ({**CONFIG, "d_intermediate": 48}, "MLP beside its mixers (d_intermediate 48)"),
        ({**CONFIG, "rms_norm": False}, "LayerNorm"),
    ],
)
def test_what_transformers_does_not_compute_is_refused_by_the_config(
    tmp_path: Path, config: dict[str, Any], word: str
) -> None:
    error = refusal(tmp_path, drawn(), config)
    assert error.code == "E_UNSUPPORTED"
    assert word in error.fact


def to_attention(state: State, number: int) -> None:
    prefix = f"backbone.layers.{number}.mixer."
    for name in [name for name in state if name.startswith(prefix)]:
        del state[name]
    state[f"{prefix}in_proj.weight"] = torch.zeros(3 * WIDTH, WIDTH)
    state[f"{prefix}out_proj.weight"] = torch.zeros(WIDTH, WIDTH)


def to_partial(state: State) -> None:
    """Half of the channels are scanned, the others belong to a gated MLP (d_ssm)."""
    half, heads, rest = INNER // 2, HEADS, 2 * STATES
    for end in ("A_log", "dt_bias", "D"):
        in_every_layer(state, f"mixer.{end}", torch.zeros(heads))
    in_every_layer(state, "mixer.norm.weight", torch.ones(half))
    in_every_layer(state, "mixer.conv1d.weight", torch.zeros(half + rest, 1, 4))
    in_every_layer(state, "mixer.conv1d.bias", torch.zeros(half + rest))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: to_attention(t, 1), "attention ([1])"),
        (lambda t: to_attention(t, 0), "attention ([0])"),
        (lambda t: in_every_layer(t, "mlp.fc1.weight", torch.zeros(2, WIDTH)), "MLP beside"),
        (lambda t: in_every_layer(t, "norm.bias", torch.zeros(WIDTH)), "LayerNorm"),
        (lambda t: in_every_layer(t, "mixer.norm.weight", None), "no norm.weight"),
        (lambda t: in_every_layer(t, "mixer.D", torch.zeros(INNER)), "D_has_hdim"),
        (to_partial, "scan 12 of their 24 channels (d_ssm)"),
    ],
)
@pytest.mark.parametrize("config", [CONFIG, None])
def test_what_transformers_does_not_compute_is_refused_by_the_tensors(
    tmp_path: Path, change: Change, word: str, config: dict[str, Any] | None
) -> None:
    error = refusal(tmp_path, changed(change), config)
    assert error.code == "E_UNSUPPORTED"
    assert word in error.fact


def test_a_config_tells_lost_biases_from_a_convolution_without_any(tmp_path: Path) -> None:
    error = refusal(tmp_path, drawn(conv_bias=False))
    assert error.code == "E_WEIGHTS"
    assert "missing in the file: backbone.layers.0.mixer.conv1d.bias" in error.fact


def test_a_head_that_contradicts_the_config_is_refused(tmp_path: Path) -> None:
    state = changed(lambda t: t.update({HEAD: t[HEAD] + 1.0}))
    assert refusal(tmp_path, state).code == "E_CONFIG"
    state = changed(lambda t: t.pop(HEAD))
    error = refusal(tmp_path, state, {**CONFIG, "tie_embeddings": False})
    assert error.code == "E_WEIGHTS"
    assert HEAD in error.fact


def test_heads_that_do_not_share_the_channels_are_refused(tmp_path: Path) -> None:
    state = drawn()
    for end in ("A_log", "dt_bias", "D"):
        in_every_layer(state, f"mixer.{end}", torch.zeros(HEADS + 2))
    rows = torch.zeros(INNER + MIXED + HEADS + 2, WIDTH)
    in_every_layer(state, "mixer.in_proj.weight", rows)
    error = refusal(tmp_path, state)
    assert error.code == "E_WEIGHTS"
    assert "A_log has 5 heads, which do not share 24 channels" in error.fact


@pytest.mark.parametrize("name", ["backbone.embedding.weight", f"{MIXER}A_log"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, name: str) -> None:
    state = changed(lambda t: t.update({name: torch.full_like(t[name], torch.nan)}))
    assert name in refusal(tmp_path, state).fact
