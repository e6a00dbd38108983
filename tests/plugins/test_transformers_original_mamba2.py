"""A Mamba-2 in its first authors' format answers as the formulas of its paper do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import memaudit
from memaudit.contracts import AbstractSubject
from memaudit.loading.source import parse_source
from memaudit_transformers import TransformersAdapter
from memaudit_transformers.original import translate
from tests.plugins.original_mamba2 import (
    CONFIG,
    LAYERS,
    ROWS,
    WIDTH,
    State,
    drawn,
    eigenvalues,
    mixers,
    stepped,
    written,
)
from tests.plugins.transformers_zoo import ids, noise, opened

TABLE, HEAD = "backbone.embedding.weight", "lm_head.weight"


def agree(
    subject: AbstractSubject, state: State, inputs: torch.Tensor, *, within: float, **limit: Any
) -> None:
    """The hidden states after every layer, and the answer, are those of the formulas."""
    told: list[torch.Tensor] = []
    answer = subject.listen(inputs.to(subject.dtype), lambda _, h: told.append(h.clone()))
    expected = stepped(state, inputs.numpy(), **limit)
    assert len(expected) == LAYERS + 1
    for found, right in zip([*told, answer], expected, strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=0, atol=within)


def test_it_is_claimed_as_a_mamba2(tmp_path: Path) -> None:
    claim = TransformersAdapter().claim(parse_source(written(tmp_path, drawn())))
    assert claim is not None
    assert (claim.family, claim.strength) == ("mamba2", 12)


@pytest.mark.parametrize("safe", [False, True], ids=["pytorch_model.bin", "model.safetensors"])
def test_its_hidden_states_are_those_of_the_formulas(tmp_path: Path, safe: bool) -> None:
    state = drawn()
    subject = memaudit.load(written(tmp_path, state, safe=safe))
    assert subject.dtype == torch.float64
    assert subject.identity.coverage == 1.0
    agree(subject, state, noise(2, 300, WIDTH), within=1e-9)


def test_in_float32_they_are_too(tmp_path: Path) -> None:
    state = drawn()
    subject = memaudit.load(written(tmp_path, state), dtype="float32")
    agree(subject, state, noise(2, 300, WIDTH), within=1e-4)


def test_half_precision_on_disk_is_half_precision_nowhere_else(tmp_path: Path) -> None:
    state = drawn(dtype=torch.float16)
    agree(memaudit.load(written(tmp_path, state)), state, noise(1, 40, WIDTH), within=1e-9)


def test_tokens_are_looked_up_in_the_table(tmp_path: Path) -> None:
    state, tokens = drawn(), ids(2, 9, words=ROWS)
    answer = memaudit.load(written(tmp_path, state)).respond(tokens)
    expected = stepped(state, state[TABLE][tokens].numpy())[-1]
    np.testing.assert_allclose(answer.numpy(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("conv_bias", [False, True])
@pytest.mark.parametrize("stated", [False, True])
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


def test_no_config_is_needed(tmp_path: Path) -> None:
    subject = memaudit.load(written(tmp_path, drawn(), config=None))
    assert subject.identity.description == "Mamba2ForCausalLM, 2 layers, width 12, 40 tokens"


def test_it_says_what_was_taken_for_granted(tmp_path: Path) -> None:
    notes = memaudit.load(written(tmp_path, drawn())).identity.notes
    assert any("its norms, the gated one included, is not stored: it is 1e-5" in n for n in notes)
    assert any("does not state ngroups, norm_before_gate, dt_limit" in n for n in notes)
    assert "config.json states 37 tokens, the embedding has 40 rows" in notes


def test_it_does_not_speak_of_what_the_config_states(tmp_path: Path) -> None:
    config = mixers(ngroups=1, dt_limit=[0.0, 1.0])
    notes = memaudit.load(written(tmp_path, drawn(), config=config)).identity.notes
    (said,) = [note for note in notes if "does not state" in note]
    assert said == (
        "config.json does not state norm_before_gate; as in the original code by default, "
        "the gate comes before the norm"
    )


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


def test_a_tied_head_gives_the_scores_of_the_table(tmp_path: Path) -> None:
    state, inputs = drawn(), noise(1, 9, WIDTH)
    subject = opened(written(tmp_path, state, safe=True), output="logits")
    expected = stepped(state, inputs.numpy())[-1] @ state[TABLE].numpy().T
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
