"""What a subject of transformers answers, hears and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from memaudit.errors import ArgumentError
from memaudit_transformers.structure import proved_limit
from tests.plugins.transformers_zoo import (
    PLACES,
    WIDTH,
    WORDS,
    ZOO,
    ids,
    make,
    noise,
    opened,
    saved,
    tiny,
)


@pytest.mark.parametrize("name", ZOO)
def test_an_answer_depends_on_its_own_row_and_on_nothing_before(name: str) -> None:
    subject = tiny(name)
    inputs = noise(3, 9, subject.input_size or 0)
    first = subject.respond(inputs)
    subject.respond(noise(1, 17, subject.input_size or 0))
    assert torch.equal(subject.respond(inputs), first)
    alone = subject.respond(inputs[1:2])
    torch.testing.assert_close(alone[0], first[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ZOO)
def test_running_a_model_moves_no_weight(name: str) -> None:
    subject = tiny(name)
    before = {key: tensor.clone() for key, tensor in subject.weights().items()}
    subject.respond(ids(2, 9))
    after = subject.weights()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize("name", ZOO)
def test_token_ids_are_answered_as_their_embeddings(name: str) -> None:
    subject = tiny(name)
    tokens = ids(2, 9)
    table = subject.embedding
    assert table is not None
    assert subject.vocabulary == WORDS
    by_ids, by_embeddings = subject.respond(tokens), subject.respond(table(tokens))
    torch.testing.assert_close(by_ids, by_embeddings, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ZOO)
def test_every_layer_is_heard_in_its_order(name: str) -> None:
    subject = tiny(name)
    inputs = noise(2, 9, subject.input_size or 0)
    heard: list[tuple[str, Tensor]] = []
    answer = subject.listen(inputs, lambda layer, state: heard.append((layer, state.clone())))
    assert torch.equal(answer, subject.respond(inputs))
    assert tuple(layer for layer, _ in heard) == subject.layers()
    layers = subject.model.config.num_hidden_layers
    assert len(heard) == layers
    assert all(state.shape[:2] == (2, 9) and state.ndim == 3 for _, state in heard)
    assert all(state.dtype == torch.float64 for _, state in heard)


def test_the_layers_heard_are_the_hidden_states_of_the_library(tmp_path: Path) -> None:
    model = make("bert words")
    subject = opened(saved(model, tmp_path), torch.float32)
    tokens, heard = ids(2, 9), []
    subject.listen(tokens, lambda layer, state: heard.append(state))
    with torch.no_grad():
        expected = model.bert(tokens, output_hidden_states=True).hidden_states[1:]
    for state, wanted in zip(heard, expected, strict=True):
        torch.testing.assert_close(state, wanted, rtol=0, atol=1e-6)


def test_a_shared_layer_is_heard_in_every_pass() -> None:
    subject = tiny("albert")
    assert subject.layers() == (
        "encoder.albert_layer_groups.0 (pass 1)",
        "encoder.albert_layer_groups.0 (pass 2)",
    )


def test_names_of_layers_are_those_of_the_bare_model() -> None:
    assert tiny("llama").layers() == ("layers.0", "layers.1")


def test_whoever_listens_may_convert_as_he_likes() -> None:
    subject = tiny("mamba")
    found: list[torch.dtype] = []
    subject.listen(ids(1, 4), lambda layer, state: found.append(state.float().dtype))
    assert set(found) == {torch.float32}


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("bert", PLACES),
        ("roberta", PLACES - 2),
        ("distilbert", PLACES),
        ("albert", PLACES),
        ("mpnet", PLACES - 2),
        ("gpt2", PLACES),
        ("opt", PLACES),
        ("bart", PLACES),
        ("gptneox", None),
        ("bloom", None),
        ("llama", None),
        ("t5", None),
        ("mamba", None),
        ("rwkv", None),
        ("recurrentgemma", None),
        ("modernbert", None),
    ],
)
def test_a_table_of_positions_is_a_hard_limit_and_nothing_else_is(
    name: str, longest: int | None
) -> None:
    subject = tiny(name)
    assert subject.longest == longest
    width = subject.input_size or 0
    if longest is None:
        assert subject.respond(noise(1, 3 * PLACES, width)).shape[0] == 1
        return
    assert subject.respond(noise(1, longest, width)).shape[0] == 1
    with pytest.raises(ArgumentError, match=f"longer than the {longest} positions"):
        subject.respond(noise(1, longest + 1, width))
    with pytest.raises(ArgumentError, match=f"longer than the {longest} positions"):
        subject.listen(ids(1, longest + 1), lambda layer, state: None)


@pytest.mark.parametrize(
    ("limits", "works", "expected"),
    [
        ((), 10**9, None),
        ((26, 24), 10**9, None),
        ((26, 24), 26, 26),
        ((26, 24), 24, 24),
        ((26, 24), 3, 24),
    ],
)
def test_a_limit_is_proved_by_running(
    limits: tuple[int, ...], works: int, expected: int | None
) -> None:
    assert proved_limit(limits, lambda steps: steps <= works) == expected


@pytest.mark.parametrize(
    ("name", "advertised"),
    [("bert", PLACES), ("gpt2", PLACES), ("llama", 64), ("rwkv", 1024), ("mamba", None)],
)
def test_the_advertised_length_is_that_of_the_config(name: str, advertised: int | None) -> None:
    assert tiny(name).advertised == advertised


def test_natural_inputs_are_embeddings_of_distinct_tokens() -> None:
    subject = tiny("gemma3")
    table = subject.embedding
    assert table is not None
    every = table(torch.arange(WORDS))
    found = subject.natural_inputs(10, torch.Generator().manual_seed(0))
    assert found is not None
    assert found.shape == (10, WIDTH)
    same = (found[:, None] == every[None]).all(dim=-1)
    assert same.sum(dim=1).tolist() == [1] * 10
    assert len(set(same.int().argmax(dim=1).tolist())) == 10
    rows = table.get_parameter("weight")
    torch.testing.assert_close(every, rows * WIDTH**0.5)  # this family scales what its table holds


def test_a_padding_row_of_zeros_is_no_natural_input(tmp_path: Path) -> None:
    model = make("bert bare")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[0].zero_()
    subject = opened(saved(model, tmp_path))
    found = subject.natural_inputs(WORDS, torch.Generator().manual_seed(0))
    assert found is not None
    assert len(found) == WORDS - 1
    assert found.abs().amax(dim=1).min() > 0


@pytest.mark.parametrize("name", ["gpt2 scores", "llama scores"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_decoders_that_classify_score_the_last_position(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = make(name)
    assert model.config.pad_token_id is None
    subject = opened(saved(model, tmp_path), dtype)
    assert subject.pooled
    tokens = ids(3, 9)
    with torch.no_grad():
        rows = [model(tokens[i : i + 1]).logits for i in range(3)]
    answer = subject.respond(tokens)
    torch.testing.assert_close(answer.float(), torch.cat(rows), rtol=0, atol=2e-6)
    assert model.config.pad_token_id is None
    assert subject.model.config.pad_token_id is None


def test_what_is_read_by_default_depends_on_the_head(tmp_path: Path) -> None:
    scores = opened(saved(make("bert"), tmp_path / "scores"))
    assert scores.pooled
    assert scores.identity.assumed["output"].startswith("logits (the scores of")
    hidden = opened(tmp_path / "scores", output="hidden")
    assert not hidden.pooled
    assert hidden.respond(ids(2, 9)).shape == (2, 9, WIDTH)
    tags = saved(make("bert tags"), tmp_path / "tags")
    assert opened(tags).respond(ids(2, 9)).shape == (2, 9, WIDTH)
    assert opened(tags, output="logits").respond(ids(2, 9)).shape == (2, 9, 2)
    words = saved(make("llama"), tmp_path / "words")
    assert opened(words).respond(ids(2, 9)).shape == (2, 9, WIDTH)
    assert opened(words, output="logits").respond(ids(2, 9)).shape == (2, 9, WORDS)


def test_a_head_without_logits_is_refused_on_request(tmp_path: Path) -> None:
    saved(make("bert answers"), tmp_path)
    assert opened(tmp_path).respond(ids(2, 9)).shape == (2, 9, WIDTH)
    with pytest.raises(ArgumentError, match="output=logits is not possible"):
        opened(tmp_path, output="logits")


def test_of_an_encoder_and_decoder_the_encoder_is_audited(tmp_path: Path) -> None:
    model = make("bart")
    subject = opened(saved(model, tmp_path), torch.float32)
    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model.get_encoder()(tokens).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=1e-6)
    assert any("only the encoder is audited" in note for note in subject.identity.notes)
    part = sum(p.numel() for p in model.get_encoder().parameters())
    assert subject.identity.coverage == pytest.approx(part / subject.identity.parameters)
    with pytest.raises(ArgumentError, match="only the encoder"):
        opened(tmp_path, output="logits")


def test_the_head_counts_as_unused_unless_it_is_read_or_tied(tmp_path: Path) -> None:
    words = saved(make("llama"), tmp_path / "llama")
    head = WORDS * WIDTH
    subject = opened(words)
    total = subject.identity.parameters
    assert subject.identity.coverage == pytest.approx(1 - head / total)
    assert opened(words, output="logits").identity.coverage == 1.0
    assert opened(saved(make("gpt2"), tmp_path / "gpt2")).identity.coverage == 1.0


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (torch.zeros(2, 3), r"floats of shape \(B, T, 32\)"),
        (torch.zeros(2, 3, 5), r"floats of shape \(B, T, 32\)"),
        (torch.zeros(2, 0, WIDTH), "at least one step"),
        (torch.zeros(2, 3, dtype=torch.bool), "floats or token ids"),
        (torch.zeros(3, dtype=torch.int64), r"shape \(B, T\)"),
        (torch.full((1, 2), WORDS), f"token id {WORDS} is out of range"),
        (torch.full((1, 2), -1), "token id -1 is out of range"),
        ("words", "must be a tensor"),
    ],
)
def test_inputs_of_another_form_are_refused(inputs: Tensor, sentence: str) -> None:
    subject = tiny("mamba")
    with pytest.raises(ArgumentError, match=sentence):
        subject.respond(inputs)


def test_spectra_and_decays_are_told_by_layer() -> None:
    subject = tiny("mamba")
    layers = [spectrum.layer for spectrum in subject.spectra(ids(2, 9))]
    assert layers == ["layers.0.mixer", "layers.1.mixer"]
    decays = subject.decays(ids(2, 9))
    assert list(decays) == layers
    assert all(decay.shape[:2] == (2, 9) for decay in decays.values())
    assert all(decay.min() > 0 and decay.max() < 1 for decay in decays.values())
