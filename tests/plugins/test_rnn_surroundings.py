"""Encoders and heads are run when names and shapes make them certain, and never else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter
from memaudit_rnn.subject import RnnHost, RnnSubject


class Model(nn.Module):
    """Named layers around an LSTM of 3 → 4."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.double()

    def states(self, inputs: Tensor) -> Tensor:
        return self.lstm(inputs)[0].detach()


def opened(folder: Path, model: nn.Module, **options: object) -> AbstractSubject:
    save_file(model.state_dict(), folder / "model.safetensors")
    return RnnAdapter().load(
        parse_source(folder), Request(torch.device("cpu"), None, None, options=options)
    )


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_linear_encoder_widens_the_input_space(tmp_path: Path) -> None:
    model = Model(embed_in=nn.Linear(6, 3), fc=nn.Linear(4, 2))
    subject = opened(tmp_path, model)
    assert subject.input_size == 6
    assert isinstance(model.embed_in, nn.Linear)
    assert isinstance(model.fc, nn.Linear)
    expected = model.fc(model.states(model.embed_in(noise(2, 5, 6))))
    torch.testing.assert_close(subject.respond(noise(2, 5, 6)), expected.detach())
    assert subject.identity.description == "1-layer LSTM, 3 → 4, linear encoder from 6, head to 2"
    assert {"encoder", "head", "pool"} <= set(subject.identity.assumed)


def test_token_ids_and_their_embeddings_give_the_same_answer(tmp_path: Path) -> None:
    model = Model(emb=nn.Embedding(9, 3), fc=nn.Linear(4, 2))
    subject = opened(tmp_path, model)
    ids = torch.tensor([[0, 8, 3, 3]])
    assert isinstance(model.emb, nn.Embedding)
    floats = model.emb(ids).detach()
    assert subject.input_size == 3
    assert torch.equal(subject.respond(ids), subject.respond(floats))


def test_natural_inputs_are_rows_of_the_embedding_without_its_padding(tmp_path: Path) -> None:
    model = Model(emb=nn.Embedding(9, 3, padding_idx=0))
    rows = opened(tmp_path, model).natural_inputs(20, torch.Generator().manual_seed(0))
    assert rows is not None
    assert isinstance(model.emb, nn.Embedding)
    expected = model.emb.weight.detach()[1:]
    assert torch.equal(rows.sort(dim=0).values, expected.sort(dim=0).values)
    few = opened(tmp_path, model).natural_inputs(2, torch.Generator().manual_seed(0))
    assert few is not None
    assert few.shape == (2, 3)


def test_a_model_without_embedding_has_no_natural_inputs(tmp_path: Path) -> None:
    assert opened(tmp_path, Model()).natural_inputs(5, torch.Generator()) is None


@pytest.mark.parametrize("name", ["fc", "projection"])
def test_a_forecaster_in_the_width_of_its_input_has_a_head(tmp_path: Path, name: str) -> None:
    subject = opened(tmp_path, Model(**{name: nn.Linear(4, 3)}))
    assert subject.input_size == 3
    assert subject.respond(noise(1, 5, 3)).shape == (1, 5, 3)
    assert subject.identity.coverage == 1.0


def test_a_language_model_answers_its_hidden_state_unless_logits_are_asked(tmp_path: Path) -> None:
    model = Model(emb=nn.Embedding(9, 3), decoder=nn.Linear(4, 9))
    hidden = opened(tmp_path, model)
    assert torch.equal(hidden.respond(noise(1, 5, 3)), model.states(noise(1, 5, 3)))
    assert hidden.identity.coverage < 1.0
    assert "output=logits" in hidden.identity.assumed["output"]
    assert any("decoder.weight" in note for note in hidden.identity.notes)
    logits = opened(tmp_path, model, output="logits")
    assert logits.respond(noise(1, 5, 3)).shape == (1, 5, 9)


def test_a_table_called_encoder_is_an_embedding_when_all_widths_are_equal(tmp_path: Path) -> None:
    model = nn.ModuleDict({"encoder": nn.Embedding(9, 4), "rnn": nn.GRU(4, 4)})
    model["decoder"] = nn.Linear(4, 9, bias=False)
    subject = opened(tmp_path, model)
    assert isinstance(subject, RnnSubject)
    assert subject.vocabulary == 9
    assert subject.respond(torch.tensor([[8, 0]])).shape == (1, 2, 4)
    assert opened(tmp_path, model, output="logits").identity.coverage == 1.0


def test_a_chain_of_linear_layers_behind_is_left_out_and_named(tmp_path: Path) -> None:
    model = Model(emb=nn.Embedding(9, 3), fc1=nn.Linear(4, 7), fc2=nn.Linear(7, 2))
    subject = opened(tmp_path, model)
    assert isinstance(subject, RnnSubject)
    assert torch.equal(subject.respond(noise(1, 5, 3)), model.states(noise(1, 5, 3)))
    assert any("fc1, fc2" in note and "hidden state" in note for note in subject.identity.notes)


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
    model = Model(**layers)
    host = opened(tmp_path, model)
    assert isinstance(host, RnnHost)
    assert list(host.parts()) == ["lstm"]
    assert host.input_size == 3
    assert torch.equal(host.respond(noise(1, 5, 3)), model.states(noise(1, 5, 3)))
    lstm = sum(p.numel() for p in model.lstm.parameters())
    assert host.identity.coverage == lstm / sum(p.numel() for p in model.parameters())
    assert any("unknown" in note for note in host.identity.notes)


def test_the_user_may_place_a_head_among_uncertain_layers(tmp_path: Path) -> None:
    model = Model(norm=nn.LayerNorm(4), fc=nn.Linear(4, 2))
    subject = opened(tmp_path, model, head="fc")
    assert isinstance(model.fc, nn.Linear)
    expected = model.fc(model.states(noise(1, 5, 3))).detach()
    torch.testing.assert_close(subject.respond(noise(1, 5, 3)), expected)
    assert "head" not in subject.identity.assumed


def test_encoder_none_feeds_the_recurrent_layer_itself(tmp_path: Path) -> None:
    model = Model(embed_in=nn.Linear(6, 3))
    subject = opened(tmp_path, model, encoder="none")
    assert torch.equal(subject.respond(noise(1, 5, 3)), model.states(noise(1, 5, 3)))


@pytest.mark.parametrize("pool", ["final", "last", "mean", "max"])
def test_pooling_reduces_the_states_before_the_head(tmp_path: Path, pool: str) -> None:
    model = Model(fc=nn.Linear(4, 2))
    states = model.states(noise(2, 5, 3))
    pooled = {"mean": states.mean(1), "max": states.amax(1)}.get(pool, states[:, -1])
    subject = opened(tmp_path, model, pool=pool)
    assert subject.pooled
    assert isinstance(model.fc, nn.Linear)
    torch.testing.assert_close(subject.respond(noise(2, 5, 3)), model.fc(pooled).detach())


@pytest.mark.parametrize("key", ["classes", "num_classes", "num_labels"])
def test_classes_in_the_config_pool_the_answer(tmp_path: Path, key: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({key: 2}))
    model = Model(fc=nn.Linear(4, 2))
    assert opened(tmp_path, model).respond(noise(3, 5, 3)).shape == (3, 2)
    assert opened(tmp_path, model, pool="none").respond(noise(3, 5, 3)).shape == (3, 5, 2)


def test_classes_that_no_head_answers_do_not_pool(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"classes": 7}))
    subject = opened(tmp_path, Model(fc=nn.Linear(4, 2)))
    assert not subject.pooled
    assert any("7 classes" in note for note in subject.identity.notes)


def test_at_most_eight_unused_tensors_are_named(tmp_path: Path) -> None:
    convolutions = {f"conv{i}": nn.Conv1d(2, 2, 3) for i in range(10)}
    notes = opened(tmp_path, Model(**convolutions)).identity.notes
    assert any("not run:" in note and "and 12 more" in note for note in notes)


def test_logits_without_a_head_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="needs a head"):
        opened(tmp_path, Model(), output="logits")


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (torch.zeros(1, 4, 2), r"\(B, T, 3\), not \(1, 4, 2\)"),
        (torch.zeros(4, 3), r"not \(4, 3\)"),
        (torch.zeros(1, 0, 3), "at least one step"),
        (torch.zeros(1, 4, dtype=torch.int64) + 9, "token id 9 is out of range"),
        (torch.zeros(1, 4, dtype=torch.int64) - 1, "token id -1 is out of range"),
        (torch.zeros(1, 4, 3, dtype=torch.int64), r"token ids have shape \(B, T\)"),
        (torch.zeros(1, 4, 3, dtype=torch.complex64), "not torch.complex64"),
        ([[0.0]], "must be a tensor, not list"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_with_a_sentence(
    tmp_path: Path, inputs: Tensor, said: str
) -> None:
    subject = opened(tmp_path, Model(emb=nn.Embedding(9, 3)))
    with pytest.raises(ArgumentError, match=said):
        subject.respond(inputs)


def test_token_ids_without_an_embedding_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no embedding"):
        opened(tmp_path, Model()).respond(torch.zeros(1, 4, dtype=torch.int64))
