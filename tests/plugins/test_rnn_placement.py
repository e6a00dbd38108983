"""Layers around a recurrent stack: placed by shape, by name where both sides fit, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractSubject


def opened(folder: Path, layers: dict[str, nn.Module], **options: Any) -> AbstractSubject:
    """A file with an LSTM of 3 → 4, unless a recurrent layer is given, and these layers."""
    if not any(isinstance(layer, nn.RNNBase) for layer in layers.values()):
        layers["lstm"] = nn.LSTM(3, 4)
    tensors = {
        f"{name}.{key}": value.contiguous()
        for name, layer in layers.items()
        for key, value in layer.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors")
    return memaudit.load(folder, adapter="rnn", dtype="float32", **options)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def states(layer: nn.Module, inputs: Tensor) -> Tensor:
    return layer(inputs.transpose(0, 1))[0].transpose(0, 1).detach()


def require_only_the_stack(host: AbstractSubject, gru: nn.Module, named: str) -> None:
    """The recurrent layer alone is run, and the other one is named as what it is: unknown."""
    assert len(host.parts()) == 1
    inputs = noise(2, 6, gru.input_size)  # type: ignore[arg-type]
    torch.testing.assert_close(host.respond(inputs), states(gru, inputs))
    assert host.identity.coverage < 1.0
    assert any(named in note and "unknown" in note for note in host.identity.notes)
    assert not {"encoder", "head"} & set(host.identity.assumed)


# -- Names and shapes.


@pytest.mark.parametrize("name", ["embed_proj", "in_projection", "encoder", "preNet.0", "proj_in"])
def test_a_name_in_front_makes_an_encoder_although_a_head_would_fit(
    tmp_path: Path, name: str
) -> None:
    linear, gru = nn.Linear(5, 4), nn.GRU(4, 5)
    subject = opened(tmp_path, {name: linear, "gru": gru})
    assert subject.input_size == 5
    expected = states(gru, linear(noise(2, 6, 5)))
    torch.testing.assert_close(subject.respond(noise(2, 6, 5)), expected)
    assert "by name and shape" in subject.identity.assumed["encoder"]


@pytest.mark.parametrize("name", ["head", "to_out", "pre.score", "hidden2tag", "decoder.1", "fc"])
def test_a_name_behind_makes_a_head_although_an_encoder_would_fit(
    tmp_path: Path, name: str
) -> None:
    linear, gru = nn.Linear(5, 4), nn.GRU(4, 5)
    subject = opened(tmp_path, {name: linear, "gru": gru})
    assert subject.input_size == 4
    expected = linear(states(gru, noise(2, 6, 4))).detach()
    torch.testing.assert_close(subject.respond(noise(2, 6, 4)), expected)
    assert "by name and shape" in subject.identity.assumed["head"]


@pytest.mark.parametrize(
    "name", ["features", "classifier.mix", "intent", "headless", "embed_out", "0", "encoder.proj"]
)
def test_without_a_telling_name_only_the_recurrent_layer_is_run(tmp_path: Path, name: str) -> None:
    linear, gru = nn.Linear(5, 4), nn.GRU(4, 5)
    require_only_the_stack(opened(tmp_path, {name: linear, "encoder.gru": gru}), gru, name)


def test_a_prefix_shared_with_the_stack_proves_nothing(tmp_path: Path) -> None:
    linear, gru = nn.Linear(5, 4), nn.GRU(4, 5)
    subject = opened(tmp_path, {"encoder.head": linear, "encoder.gru": gru})
    assert "head" in subject.identity.assumed
    for layers in ({"encoder.0": linear, "encoder.1": gru}, {"dec_mix": linear, "dec_rnn": gru}):
        require_only_the_stack(opened(tmp_path, layers), gru, next(iter(layers)))


@pytest.mark.parametrize(
    ("name", "layer"),
    [("decoder", nn.Linear(7, 4)), ("encoder", nn.Linear(5, 2)), ("logits", nn.Embedding(9, 4))],
)
def test_a_name_against_the_only_fitting_side_is_unclear(
    tmp_path: Path, name: str, layer: nn.Module
) -> None:
    gru = nn.GRU(4, 5)
    require_only_the_stack(opened(tmp_path, {name: layer, "gru": gru}), gru, name)


@pytest.mark.parametrize("names", [("mix", "blend"), ("fc1", "fc2")])
def test_the_shape_alone_is_the_reason_when_no_name_says_so(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    layers = {names[0]: nn.Linear(7, 4), "gru": nn.GRU(4, 5), names[1]: nn.Linear(5, 2)}
    subject = opened(tmp_path, layers)
    assert subject.respond(noise(1, 3, 7)).shape == (1, 3, 2)
    assert "by shape" in subject.identity.assumed["encoder"]
    assert "by name" not in subject.identity.assumed["encoder"]


def test_two_layers_named_after_their_kind_may_stand_on_either_side(tmp_path: Path) -> None:
    gru = nn.GRU(4, 4)
    layers = {"fc1": nn.Linear(4, 4), "gru": gru, "fc2": nn.Linear(4, 2)}
    require_only_the_stack(opened(tmp_path, layers), gru, "fc1")


@pytest.mark.parametrize("name", ["tok", "wte", "char_emb", "wordEmbeddings", "input", "emb.0"])
def test_a_table_is_an_embedding_by_its_own_words(tmp_path: Path, name: str) -> None:
    subject = opened(tmp_path, {name: nn.Embedding(3, 5), "gru": nn.GRU(5, 5)})
    assert (subject.parts(), subject.vocabulary) == ({}, 3)


def test_a_head_without_bias_is_no_embedding(tmp_path: Path) -> None:
    gru = nn.GRU(5, 5)
    host = opened(tmp_path, {"gru": gru, "intent": nn.Linear(5, 3, bias=False)})
    require_only_the_stack(host, gru, "intent")
    assert "embedding" not in host.identity.description


@pytest.mark.parametrize("name", ["attention", "attn.proj", "gate", "skip", "out_norm"])
@pytest.mark.parametrize("rows", [1, 5])
def test_layers_beside_the_path_are_taken_only_when_asked_for(
    tmp_path: Path, name: str, rows: int
) -> None:
    gru = nn.GRU(5, 5)
    layers = {"gru": gru, name: nn.Linear(5, rows, bias=False)}
    require_only_the_stack(opened(tmp_path, layers), gru, name)
    asked = opened(tmp_path, layers, head=name)
    assert asked.respond(noise(1, 6, 5)).shape == (1, 6, rows)


@pytest.mark.parametrize(
    "layers",
    [
        {"conv": nn.Conv1d(2, 3, 3)},
        {"norm": nn.LayerNorm(4), "fc": nn.Linear(4, 2)},
        {"in1": nn.Linear(6, 5), "in2": nn.Linear(5, 3)},
        {"left": nn.Linear(11, 12)},
        {"fc": nn.Linear(4, 2), "weights": nn.ParameterList([torch.ones(2, 2)])},
    ],
)
def test_uncertain_surroundings_make_a_host_of_the_recurrent_layer(
    tmp_path: Path, layers: dict[str, nn.Module]
) -> None:
    lstm = nn.LSTM(3, 4)
    host = opened(tmp_path, {**layers, "lstm": lstm})
    assert list(host.parts()) == ["lstm"]
    torch.testing.assert_close(host.respond(noise(1, 5, 3)), states(lstm, noise(1, 5, 3)))
    own, all_of_them = (
        sum(p.numel() for layer in some for p in layer.parameters())
        for some in ([lstm], [lstm, *layers.values()])
    )
    assert host.identity.coverage == own / all_of_them
    assert any("unknown" in note for note in host.identity.notes)


@pytest.mark.parametrize("alias", ["fc_weight", "fc.w", "fc.b"])
def test_a_layer_with_two_names_for_one_parameter_is_not_run(tmp_path: Path, alias: str) -> None:
    head = nn.Linear(4, 1)
    shape = head.bias.shape if alias.endswith("b") else head.weight.shape
    tensors = {f"fc.{k}": v for k, v in head.state_dict().items()} | {alias: torch.ones(shape)}
    tensors |= {f"lstm.{k}": v for k, v in nn.LSTM(3, 4).state_dict().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    notes = memaudit.load(tmp_path).identity.notes
    assert any("the place of" in note and "fc" in note for note in notes)
    with pytest.raises(ArgumentError, match="names no linear layer"):
        memaudit.load(tmp_path, head="fc")


def test_at_most_eight_unused_tensors_are_named(tmp_path: Path) -> None:
    notes = opened(tmp_path, {f"conv{i}": nn.Conv1d(2, 2, 3) for i in range(10)}).identity.notes
    assert any("not run:" in note and "and 12 more" in note for note in notes)


# -- Encoders, embeddings, heads and pooling.


def test_encoder_and_head_are_run_and_named(tmp_path: Path) -> None:
    encoder, lstm, head = nn.Linear(6, 3), nn.LSTM(3, 4), nn.Linear(4, 2)
    layers = {"embed_in": encoder, "lstm": lstm, "fc": head}
    subject = opened(tmp_path, layers)
    assert subject.input_size == 6
    expected = head(states(lstm, encoder(noise(2, 5, 6)))).detach()
    torch.testing.assert_close(subject.respond(noise(2, 5, 6)), expected)
    assert subject.identity.description == "1-layer LSTM, 3 → 4, linear encoder from 6, head to 2"
    assert {"encoder", "head", "pool"} <= set(subject.identity.assumed)
    fed = opened(tmp_path, layers, encoder="none").respond(noise(1, 5, 3))
    torch.testing.assert_close(fed, head(states(lstm, noise(1, 5, 3))).detach())


def test_token_ids_and_their_embeddings_give_the_same_answer(tmp_path: Path) -> None:
    table = nn.Embedding(9, 3, padding_idx=0)
    subject = opened(tmp_path, {"emb": table, "fc": nn.Linear(4, 2)})
    ids = torch.tensor([[0, 8, 3, 3]])
    assert subject.input_size == 3
    assert torch.equal(subject.respond(ids), subject.respond(table(ids).detach()))
    rows = subject.natural_inputs(20, torch.Generator().manual_seed(0))
    assert rows is not None
    wanted = table.weight.detach()[1:]  # without the padding
    assert torch.equal(rows.sort(dim=0).values, wanted.sort(dim=0).values)
    few = subject.natural_inputs(2, torch.Generator().manual_seed(0))
    assert few is not None
    assert few.shape == (2, 3)
    assert opened(tmp_path, {}).natural_inputs(5, torch.Generator()) is None


@pytest.mark.parametrize("name", ["fc", "projection"])
def test_a_forecaster_in_the_width_of_its_input_has_a_head(tmp_path: Path, name: str) -> None:
    subject = opened(tmp_path, {name: nn.Linear(4, 3)})
    assert subject.input_size == 3
    assert subject.respond(noise(1, 5, 3)).shape == (1, 5, 3)
    assert subject.identity.coverage == 1.0


def test_a_language_model_answers_its_hidden_state_unless_logits_are_asked(tmp_path: Path) -> None:
    lstm = nn.LSTM(3, 4)
    layers = {"emb": nn.Embedding(9, 3), "lstm": lstm, "decoder": nn.Linear(4, 9)}
    hidden = opened(tmp_path, layers)
    torch.testing.assert_close(hidden.respond(noise(1, 5, 3)), states(lstm, noise(1, 5, 3)))
    assert hidden.identity.coverage < 1.0
    assert hidden.identity.description == "1-layer LSTM, 3 → 4, embedding of 9 tokens"
    assert "output=logits" in hidden.identity.assumed["output"]
    assert any("decoder.weight" in note for note in hidden.identity.notes)
    logits = opened(tmp_path, layers, output="logits")
    assert logits.respond(noise(1, 5, 3)).shape == (1, 5, 9)
    assert logits.identity.description.endswith("embedding of 9 tokens, head to 9")
    with pytest.raises(ArgumentError, match="needs a head"):
        opened(tmp_path, {}, output="logits")


def test_a_table_called_encoder_is_an_embedding_when_all_widths_are_equal(tmp_path: Path) -> None:
    layers = {"encoder": nn.Embedding(9, 4), "rnn": nn.GRU(4, 4)}
    layers["decoder"] = nn.Linear(4, 9, bias=False)
    subject = opened(tmp_path, layers)
    assert (subject.parts(), subject.vocabulary) == ({}, 9)
    assert subject.respond(torch.tensor([[8, 0]])).shape == (1, 2, 4)
    assert opened(tmp_path, layers, output="logits").identity.coverage == 1.0


def test_a_chain_of_linear_layers_behind_is_left_out_and_named(tmp_path: Path) -> None:
    lstm = nn.LSTM(3, 4)
    chain = {"fc1": nn.Linear(4, 7), "fc2": nn.Linear(7, 2)}
    subject = opened(tmp_path, {"emb": nn.Embedding(9, 3), "lstm": lstm, **chain})
    assert not subject.parts()
    torch.testing.assert_close(subject.respond(noise(1, 5, 3)), states(lstm, noise(1, 5, 3)))
    assert any("fc1, fc2" in note and "hidden state" in note for note in subject.identity.notes)


def test_the_user_may_place_a_head_among_uncertain_layers(tmp_path: Path) -> None:
    lstm, head = nn.LSTM(3, 4), nn.Linear(4, 2)
    layers = {"norm": nn.LayerNorm(4), "lstm": lstm, "fc": head}
    subject = opened(tmp_path, layers, head="fc")
    expected = head(states(lstm, noise(1, 5, 3))).detach()
    torch.testing.assert_close(subject.respond(noise(1, 5, 3)), expected)
    assert "head" not in subject.identity.assumed


@pytest.mark.parametrize("pool", ["final", "last", "mean", "max"])
def test_pooling_reduces_the_states_before_the_head(tmp_path: Path, pool: str) -> None:
    lstm, head = nn.LSTM(3, 4), nn.Linear(4, 2)
    out = states(lstm, noise(2, 5, 3))
    pooled = {"mean": out.mean(1), "max": out.amax(1)}.get(pool, out[:, -1])
    subject = opened(tmp_path, {"lstm": lstm, "fc": head}, pool=pool)
    assert subject.pooled
    torch.testing.assert_close(subject.respond(noise(2, 5, 3)), head(pooled).detach())


@pytest.mark.parametrize("key", ["classes", "num_classes", "num_labels"])
def test_classes_in_the_config_pool_the_answer_of_a_head_that_has_them(
    tmp_path: Path, key: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({key: 2}))
    layers: dict[str, nn.Module] = {"fc": nn.Linear(4, 2)}
    assert opened(tmp_path, layers).respond(noise(3, 5, 3)).shape == (3, 2)
    assert opened(tmp_path, layers, pool="none").respond(noise(3, 5, 3)).shape == (3, 5, 2)
    (tmp_path / "config.json").write_text(json.dumps({key: 7}))
    subject = opened(tmp_path, layers)
    assert not subject.pooled
    assert any("7 classes" in note for note in subject.identity.notes)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (torch.zeros(1, 4, 2), r"\(B, T, 3\), not \(1, 4, 2\)"),
        (torch.zeros(4, 3), r"not \(4, 3\)"),
        (torch.zeros(1, 0, 3), "at least one step"),
        (torch.full((1, 4), 9), "token id 9 is out of range"),
        (torch.full((1, 4), -1), "token id -1 is out of range"),
        (torch.zeros(1, 4, 3, dtype=torch.int64), r"token ids have shape \(B, T\)"),
        (torch.zeros(1, 4, 3, dtype=torch.complex64), "not torch.complex64"),
        ([[0.0]], "must be a tensor, not list"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_with_a_sentence(
    tmp_path: Path, inputs: Tensor, said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        opened(tmp_path, {"emb": nn.Embedding(9, 3)}).respond(inputs)
    with pytest.raises(ArgumentError, match="no embedding"):
        opened(tmp_path, {}).respond(torch.zeros(1, 4, dtype=torch.int64))
