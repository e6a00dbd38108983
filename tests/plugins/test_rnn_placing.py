"""A layer is placed by shape, by its own name where that fits both sides, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter
from memaudit_rnn.placement import BACK_SIDE, FRONT_SIDE, clear_side, likely_side
from memaudit_rnn.subject import RnnHost, RnnSubject


def opened(folder: Path, layers: dict[str, nn.Module], **options: object) -> AbstractSubject:
    tensors = {
        f"{name}.{key}": value.contiguous()
        for name, layer in layers.items()
        for key, value in layer.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors")
    request = Request(torch.device("cpu"), torch.float32, None, options=options)
    return RnnAdapter().load(parse_source(folder), request)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def states(gru: nn.Module, inputs: Tensor) -> Tensor:
    return gru(inputs.transpose(0, 1))[0].transpose(0, 1).detach()


def both_fit() -> tuple[nn.Linear, nn.GRU]:
    """A linear layer of 5 → 4 and a GRU of 4 → 5: either may be first."""
    return nn.Linear(5, 4), nn.GRU(4, 5)


@pytest.mark.parametrize("name", ["embed_proj", "input_fc", "in_projection", "encoder", "preNet.0"])
def test_a_name_in_front_makes_an_encoder_although_a_head_would_fit(
    tmp_path: Path, name: str
) -> None:
    linear, gru = both_fit()
    subject = opened(tmp_path, {name: linear, "gru": gru})
    assert subject.input_size == 5
    expected = states(gru, linear(noise(2, 6, 5)))
    torch.testing.assert_close(subject.respond(noise(2, 6, 5)), expected)
    assert "by name and shape" in subject.identity.assumed["encoder"]


@pytest.mark.parametrize("name", ["head", "to_out", "pre.score", "hidden2tag", "decoder.1", "fc"])
def test_a_name_behind_makes_a_head_although_an_encoder_would_fit(
    tmp_path: Path, name: str
) -> None:
    linear, gru = both_fit()
    subject = opened(tmp_path, {name: linear, "gru": gru})
    assert subject.input_size == 4
    expected = linear(states(gru, noise(2, 6, 4))).detach()
    torch.testing.assert_close(subject.respond(noise(2, 6, 4)), expected)
    assert "by name and shape" in subject.identity.assumed["head"]


@pytest.mark.parametrize(
    "name",
    [
        "features",
        "mlp",
        "mix",
        "classifier.mix",
        "intent",
        "prefix",
        "headless",
        "encoder_out",
        "embed_out",
        "0",
        "encoder.proj",
    ],
)
def test_without_a_telling_name_only_the_recurrent_layer_is_run(tmp_path: Path, name: str) -> None:
    linear, gru = both_fit()
    host = opened(tmp_path, {name: linear, "encoder.gru": gru})
    assert isinstance(host, RnnHost)
    assert host.input_size == 4
    torch.testing.assert_close(host.respond(noise(2, 6, 4)), states(gru, noise(2, 6, 4)))
    assert host.identity.coverage < 1.0
    assert any(name in note and "unknown" in note for note in host.identity.notes)
    assert not {"encoder", "head"} & set(host.identity.assumed)


def test_a_prefix_shared_with_the_stack_tells_nothing(tmp_path: Path) -> None:
    linear, gru = both_fit()
    subject = opened(tmp_path, {"encoder.head": linear, "encoder.gru": gru})
    assert "head" in subject.identity.assumed
    assert isinstance(opened(tmp_path, {"encoder.0": linear, "encoder.1": gru}), RnnHost)
    assert isinstance(opened(tmp_path, {"dec_mix": linear, "dec_rnn": gru}), RnnHost)


@pytest.mark.parametrize(
    ("name", "layer"),
    [("decoder", nn.Linear(7, 4)), ("encoder", nn.Linear(5, 2)), ("logits", nn.Embedding(9, 4))],
)
def test_a_name_against_the_only_fitting_side_is_unclear(
    tmp_path: Path, name: str, layer: nn.Module
) -> None:
    host = opened(tmp_path, {name: layer, "gru": nn.GRU(4, 5)})
    assert isinstance(host, RnnHost)
    assert any(name in note and "unknown" in note for note in host.identity.notes)


def test_the_shape_alone_is_given_as_the_reason_when_no_name_says_so(tmp_path: Path) -> None:
    layers = {"mix": nn.Linear(7, 4), "gru": nn.GRU(4, 5), "blend": nn.Linear(5, 2)}
    assumed = opened(tmp_path, layers).identity.assumed
    for option in ("encoder", "head"):
        assert "by shape" in assumed[option]
        assert "by name" not in assumed[option]


def test_layers_named_after_their_kind_stand_where_their_shapes_fit(tmp_path: Path) -> None:
    layers = {"fc1": nn.Linear(7, 4), "gru": nn.GRU(4, 5), "fc2": nn.Linear(5, 2)}
    subject = opened(tmp_path, layers)
    assert subject.input_size == 7
    assert subject.respond(noise(1, 3, 7)).shape == (1, 3, 2)
    assert "by shape" in subject.identity.assumed["encoder"]


def test_two_layers_named_after_their_kind_may_stand_on_either_side(tmp_path: Path) -> None:
    layers = {"fc1": nn.Linear(4, 4), "gru": nn.GRU(4, 4), "fc2": nn.Linear(4, 2)}
    host = opened(tmp_path, layers)
    assert isinstance(host, RnnHost)
    assert any("fc1" in note and "unknown" in note for note in host.identity.notes)


@pytest.mark.parametrize("name", ["intent", "mix", "scaled"])
def test_a_head_without_bias_is_no_embedding(tmp_path: Path, name: str) -> None:
    subject = opened(tmp_path, {"gru": nn.GRU(5, 5), name: nn.Linear(5, 3, bias=False)})
    assert isinstance(subject, RnnHost)
    assert "embedding" not in subject.identity.description


@pytest.mark.parametrize("name", ["tok", "wte", "char_emb", "wordEmbeddings", "input", "emb.0"])
def test_a_table_is_an_embedding_by_its_own_words(tmp_path: Path, name: str) -> None:
    subject = opened(tmp_path, {name: nn.Embedding(3, 5), "gru": nn.GRU(5, 5)})
    assert isinstance(subject, RnnSubject)
    assert subject.vocabulary == 3


@pytest.mark.parametrize("name", ["attention", "attn.proj", "gate", "skip", "out_norm"])
@pytest.mark.parametrize("rows", [1, 5])
def test_layers_beside_the_path_are_never_taken(tmp_path: Path, name: str, rows: int) -> None:
    gru = nn.GRU(5, 5)
    layers = {"gru": gru, name: nn.Linear(5, rows, bias=False)}
    host = opened(tmp_path, layers)
    assert isinstance(host, RnnHost)
    torch.testing.assert_close(host.respond(noise(1, 6, 5)), states(gru, noise(1, 6, 5)))
    asked = opened(tmp_path, layers, head=name)
    assert asked.respond(noise(1, 6, 5)).shape == (1, 6, rows)


def test_a_skip_over_the_stack_is_not_run_in_series(tmp_path: Path) -> None:
    gru = nn.GRU(4, 5)
    host = opened(tmp_path, {"gru": gru, "skip": nn.Linear(4, 4, bias=False)})
    torch.testing.assert_close(host.respond(noise(1, 6, 4)), states(gru, noise(1, 6, 4)))
    assert "encoder" not in host.identity.assumed


def test_the_description_names_only_what_is_run(tmp_path: Path) -> None:
    layers = {"emb": nn.Embedding(9, 4), "gru": nn.GRU(4, 5), "decoder": nn.Linear(5, 9)}
    hidden = opened(tmp_path, layers).identity
    assert hidden.description == "1-layer GRU, 4 → 5, embedding of 9 tokens"
    logits = opened(tmp_path, layers, output="logits").identity
    assert logits.description == "1-layer GRU, 4 → 5, embedding of 9 tokens, head to 9"


@pytest.mark.parametrize(
    ("name", "prefix", "clear", "likely"),
    [
        ("proj_in", "gru.", FRONT_SIDE, FRONT_SIDE),
        ("model.input2hidden", "model.gru.", FRONT_SIDE, FRONT_SIDE),
        ("enc_emb", "enc_", FRONT_SIDE, FRONT_SIDE),
        ("lm_head", "lm_rnn.", BACK_SIDE, BACK_SIDE),
        ("linear", "gru.", None, BACK_SIDE),
        ("in_linear", "gru.", FRONT_SIDE, FRONT_SIDE),
        ("in_out", "gru.", None, None),
        ("proj", "gru.", None, None),
        ("", "", None, None),
    ],
)
def test_whole_words_of_the_last_component_say_the_side(
    name: str, prefix: str, clear: str | None, likely: str | None
) -> None:
    assert clear_side(name, prefix) == clear
    assert likely_side(name, prefix) == likely
