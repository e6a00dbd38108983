"""Mamba and Mamba-2 in the format of their first authors: opened as they are, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import memaudit
from memaudit.errors import SourceError
from memaudit.interfaces import AbstractSubject
from memaudit.loading.source import parse_source
from memaudit_transformers import TransformersAdapter
from memaudit_transformers.original import family_of, translate
from tests.plugins.original_mamba2 import (
    CONFIG,
    HEADS,
    INNER,
    LAYERS,
    MIXED,
    ROWS,
    STATES,
    WIDTH,
    State,
    drawn,
    eigenvalues,
    mixers,
    stepped,
    written,
)
from tests.plugins.transformers_zoo import ids, make, noise, opened

MambaChange = Callable[[dict[str, torch.Tensor]], object]
TABLE, HEAD = "backbone.embedding.weight", "lm_head.weight"


def mamba_folder(folder: Path, change: MambaChange = lambda tensors: None, **config: Any) -> Path:
    """A folder as the first authors' code writes it."""
    state = make("mamba").state_dict()
    tensors = {k.replace("embeddings.", "embedding."): v.clone() for k, v in state.items()}
    change(tensors)
    torch.save(tensors, folder / "pytorch_model.bin")
    stated = {"d_model": 32, "n_layer": 2, "vocab_size": 50, "ssm_cfg": {}, "rms_norm": True}
    stated = {k: v for k, v in {**stated, **config}.items() if v is not None}
    (folder / "config.json").write_text(json.dumps(stated))
    return folder


def mamba_refusal(folder: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        opened(folder)
    return caught.value


def test_it_is_the_same_model(tmp_path: Path) -> None:
    claim = TransformersAdapter().claim(parse_source(mamba_folder(tmp_path)))
    assert claim is not None
    assert (claim.family, claim.strength) == ("mamba", 12)
    model, tokens = make("mamba"), ids(2, 9)
    with torch.no_grad():
        expected = model.backbone(tokens, use_cache=False).last_hidden_state
    subject = memaudit.load(tmp_path, dtype="float32")
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=2e-6)


def test_mamba_needs_no_config(tmp_path: Path) -> None:
    mamba_folder(tmp_path)
    (tmp_path / "config.json").unlink()
    assert opened(tmp_path).identity.description.startswith("MambaForCausalLM, 2 layers, width 32")


def test_a_head_of_mamba_that_is_not_tied_is_kept(tmp_path: Path) -> None:
    head = torch.linspace(-1, 1, 50 * 32).reshape(50, 32)
    mamba_folder(tmp_path, lambda tensors: tensors.update({"lm_head.weight": head}))
    subject = opened(tmp_path, output="logits")
    assert any("it is not tied" in note for note in subject.identity.notes)
    hidden = opened(tmp_path).respond(ids(1, 4))
    torch.testing.assert_close(subject.respond(ids(1, 4)), hidden @ head.double().T)


def test_a_tied_head_need_not_be_stored(tmp_path: Path) -> None:
    mamba_folder(tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    assert opened(tmp_path, output="logits").respond(ids(1, 4)).shape == (1, 4, 50)


@pytest.mark.parametrize("config", [{"d_model": 64}, {"n_layer": 3}])
def test_a_config_that_contradicts_a_mamba_is_refused(
    config: dict[str, Any], tmp_path: Path
) -> None:
    error = mamba_refusal(mamba_folder(tmp_path, **config))
    assert error.code == "E_CONFIG"
    assert next(iter(config)) in error.fact


def test_layer_norms_are_refused(tmp_path: Path) -> None:
    error = mamba_refusal(mamba_folder(tmp_path, rms_norm=False))
    assert error.code == "E_UNSUPPORTED"
    assert "LayerNorm" in error.fact


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("backbone.layers.0.mixer.conv1d.weight"),
        lambda t: t.pop("backbone.layers.1.mixer.D"),
        lambda t: t.update({"backbone.layers.0.mixer.dt_proj.weight": torch.zeros(64)}),
        lambda t: t.update({"backbone.layers.1.mixer.extra": torch.zeros(64)}),
        lambda t: t.update({"backbone.layers.1.mixer.A_log": torch.zeros(64, 5)}),
    ],
)
def test_missing_extra_and_misshaped_tensors_are_refused(
    change: MambaChange, tmp_path: Path
) -> None:
    assert mamba_refusal(mamba_folder(tmp_path, change)).code == "E_WEIGHTS"


def test_a_high_number_of_a_layer_builds_no_layers(tmp_path: Path) -> None:
    far = {"backbone.layers.999999.norm.weight": torch.zeros(32)}
    error = mamba_refusal(mamba_folder(tmp_path, lambda tensors: tensors.update(far)))
    assert error.code == "E_WEIGHTS"
    assert "backbone.layers.2.* is missing" in error.fact


def test_attention_and_mlps_are_refused(tmp_path: Path) -> None:
    assert "attention ([1])" in mamba_refusal(mamba_folder(tmp_path, attn_layer_idx=[1])).fact
    assert "d_intermediate 64" in mamba_refusal(mamba_folder(tmp_path, d_intermediate=64)).fact


def test_rates_of_three_dimensions_are_not_claimed(tmp_path: Path) -> None:
    cubes = {f"backbone.layers.{i}.mixer.A_log": torch.zeros(4, 4, 4) for i in (0, 1)}
    mamba_folder(tmp_path, lambda tensors: tensors.update(cubes))
    with pytest.raises(SourceError, match="none of 23 tensors is recognised as recurrent"):
        TransformersAdapter().claim(parse_source(tmp_path))


def agree(
    subject: AbstractSubject, state: State, inputs: torch.Tensor, *, within: float, **limit: Any
) -> None:
    """The hidden states after every layer, and the answer, are those of the formulas."""
    told: list[torch.Tensor] = []
    answer = subject.respond_with_hook(
        inputs.to(subject.dtype), lambda _, h: told.append(h.clone())
    )
    expected = stepped(state, inputs.numpy(), **limit)
    assert len(expected) == LAYERS + 1
    for found, right in zip([*told, answer], expected, strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=0, atol=within)


@pytest.mark.parametrize("safe", [False, True], ids=["pytorch_model.bin", "model.safetensors"])
def test_its_hidden_states_are_those_of_the_formulas(tmp_path: Path, safe: bool) -> None:
    state = drawn()
    subject = memaudit.load(written(tmp_path, state, safe=safe))
    assert subject.dtype == torch.float64
    assert subject.identity.coverage == 1.0
    agree(subject, state, noise(2, 80, WIDTH), within=1e-9)


def test_half_precision_on_disk_is_half_precision_nowhere_else(tmp_path: Path) -> None:
    state = drawn(dtype=torch.float16)
    agree(memaudit.load(written(tmp_path, state)), state, noise(1, 40, WIDTH), within=1e-9)


@pytest.mark.parametrize(
    ("bias", "conv_bias", "stated"),
    [(False, False, True), (True, False, False), (True, True, True)],
)
def test_biases_are_read_where_there_are_some(
    tmp_path: Path, bias: bool, conv_bias: bool, stated: bool
) -> None:
    state = drawn(bias=bias, conv_bias=conv_bias)
    config = mixers(bias=bias, conv_bias=conv_bias) if stated else None
    subject = memaudit.load(written(tmp_path, state, config=config))
    agree(subject, state, noise(1, 20, WIDTH), within=1e-9)


@pytest.mark.parametrize("limit", [(0.1, 0.2), (0.15, float("inf")), (0.0, 0.12)])
def test_step_sizes_stay_inside_the_limits_that_the_config_states(
    tmp_path: Path, limit: tuple[float, float]
) -> None:
    state = drawn()
    subject = memaudit.load(written(tmp_path, state, config=mixers(dt_limit=list(limit))))
    agree(subject, state, noise(1, 40, WIDTH), within=1e-9, limit=limit)
    free = stepped(state, noise(1, 40, WIDTH).numpy())[-1]
    bound = stepped(state, noise(1, 40, WIDTH).numpy(), limit=limit)[-1]
    assert np.abs(free - bound).max() > 1e-3


def test_eigenvalues_are_those_of_the_heads_while_dt_is_at_its_bias(tmp_path: Path) -> None:
    state = drawn()
    spectra = memaudit.load(written(tmp_path, state)).spectra()
    assert len(spectra) == LAYERS
    for layer, spectrum in enumerate(spectra):
        expected = np.sort(eigenvalues(state, layer))
        assert spectrum.cell == "mamba2"
        np.testing.assert_allclose(np.sort(np.real(spectrum.eigenvalues)), expected, rtol=1e-12)
        assert not np.imag(spectrum.eigenvalues).any()


def test_it_says_what_was_taken_for_granted(tmp_path: Path) -> None:
    notes = memaudit.load(written(tmp_path, drawn())).identity.notes
    assert any("its norms, the gated one included, is not stored: it is 1e-5" in n for n in notes)
    assert any("does not state ngroups, norm_before_gate, dt_limit" in n for n in notes)
    assert "config.json states 37 tokens, the embedding has 40 rows" in notes


def test_a_head_that_is_not_tied_is_kept(tmp_path: Path) -> None:
    state = drawn()
    state[HEAD] = noise(ROWS, WIDTH)
    subject = opened(
        written(tmp_path, state, config={**CONFIG, "tie_embeddings": False}), output="logits"
    )
    assert any("it is not tied" in note for note in subject.identity.notes)
    inputs = noise(1, 9, WIDTH)
    expected = stepped(state, inputs.numpy())[-1] @ state[HEAD].numpy().T
    np.testing.assert_allclose(subject.respond(inputs).numpy(), expected, rtol=0, atol=1e-9)


def test_the_sizes_of_a_released_model_are_read_off_its_tensors() -> None:
    """Those of 130 million numbers: 24 heads of 64 channels with 128 states."""
    mixer = {
        **{"A_log": (24,), "dt_bias": (24,), "D": (24,), "norm.weight": (1536,)},
        **{"in_proj.weight": (3352, 768), "out_proj.weight": (768, 1536)},
        **{"conv1d.weight": (1792, 1, 4), "conv1d.bias": (1792,)},
    }
    shapes: dict[str, tuple[int, ...]] = {TABLE: (50288, 768), "backbone.norm_f.weight": (768,)}
    for number in range(24):
        shapes[f"backbone.layers.{number}.norm.weight"] = (768,)
        shapes |= {f"backbone.layers.{number}.mixer.{end}": form for end, form in mixer.items()}
    tensors = {name: torch.empty(form, device="meta") for name, form in shapes.items()}
    config = {**CONFIG, "d_model": 768, "n_layer": 24, "vocab_size": 50277}
    values = translate("mamba2", config, tensors).values
    sizes = {"num_heads": 24, "head_dim": 64, "state_size": 128, "expand": 2, "conv_kernel": 4}
    assert {name: values[name] for name in sizes} == sizes
    assert (values["vocab_size"], values["num_hidden_layers"]) == (50288, 24)


Change = Callable[[State], object]
MIXER = "backbone.layers.1.mixer."
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
def test_what_transformers_does_not_compute_is_refused_by_the_tensors(
    tmp_path: Path, change: Change, word: str
) -> None:
    for config in (CONFIG, None):
        error = refusal(tmp_path, changed(change), config)
        assert error.code == "E_UNSUPPORTED"
        assert word in error.fact


def test_a_config_distinguishes_lost_biases_from_a_convolution_without_any(tmp_path: Path) -> None:
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
