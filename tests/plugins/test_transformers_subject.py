"""What a subject of transformers answers, in every family, in memory and from files."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import Status
from memaudit.loading.source import parse_source
from memaudit.numerics.wide_floats import really_float64, without_widening
from memaudit_transformers import TransformersAdapter
from tests.module_laws import check_perturbable
from tests.plugins.transformers_families import FAMILIES, Family
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


def test_the_hooked_layers_are_the_hidden_states_of_the_library(tmp_path: Path) -> None:
    model = make("bert words")
    subject = opened(saved(model, tmp_path), torch.float32)
    tokens, heard = ids(2, 9), []
    subject.respond_with_hook(tokens, lambda layer, state: heard.append(state))
    with torch.no_grad():
        expected = model.bert(tokens, output_hidden_states=True).hidden_states[1:]
    for state, wanted in zip(heard, expected, strict=True):
        torch.testing.assert_close(state, wanted, rtol=0, atol=1e-6)


def test_a_shared_layer_is_hooked_in_every_pass() -> None:
    subject = tiny("albert")
    assert subject.layers() == (
        "encoder.albert_layer_groups.0 (pass 1)",
        "encoder.albert_layer_groups.0 (pass 2)",
    )


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
        subject.respond_with_hook(ids(1, longest + 1), lambda layer, state: None)


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


def test_a_model_in_training_is_run_without_its_dropout() -> None:
    model = make("bert bare", hidden_dropout_prob=0.5).train()
    tokens = ids(2, 9)
    answer = opened(model).respond(tokens)
    with torch.no_grad():
        expected = copy.deepcopy(model).eval()(tokens).last_hidden_state
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-6)


def test_load_makes_no_trial_pass() -> None:
    model = make("mamba")
    claim = TransformersAdapter().claim(parse_source(model))
    assert claim is not None
    assert claim.strength >= 15
    subject = memaudit.load(model)
    assert subject.identity.adapter == "transformers"
    assert subject.identity.family == "mamba"
    assert subject.dtype == torch.float32


def test_other_modules_are_left_to_others() -> None:
    assert TransformersAdapter().claim(parse_source(torch.nn.LSTM(3, 4))) is None
    with pytest.raises(SourceError, match="no model of transformers"):
        opened(torch.nn.LSTM(3, 4))


def test_weights_that_are_rescaled_for_half_precision_stay_where_they_are() -> None:
    """RWKV divides weights in place when it is first evaluated; an audit must not."""
    model = make("rwkv").double()
    tokens = ids(2, 9)
    kept = copy.deepcopy(model.state_dict())
    answer = opened(model).respond(tokens)
    assert all(torch.equal(model.state_dict()[key], kept[key]) for key in kept)
    plain = make("rwkv", rescale_every=0).double()
    with torch.no_grad():
        expected = plain.rwkv(tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-6)


def test_weights_that_are_rescaled_already_are_run_as_they_were_trained() -> None:
    model = make("rwkv")
    tokens = ids(2, 9)
    expected = opened(model).respond(tokens)
    with torch.no_grad():
        model.rwkv(tokens, use_cache=False)
    assert model.rwkv.layers_are_rescaled
    kept = copy.deepcopy(model.state_dict())
    assert torch.equal(opened(model).respond(tokens), expected)
    assert all(torch.equal(model.state_dict()[key], kept[key]) for key in kept)


SMALL = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2}


STEPS = 13
LAGS = 24


def built(kind: str, config: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return getattr(transformers, kind)(config).eval()


def test_a_model_that_scales_its_input_in_place_scales_a_copy():
    config = transformers.CTRLConfig(**SMALL, dff=32, n_positions=64)
    subject = memaudit.load(built("CTRLModel", config), dtype="float64")
    inputs = torch.linspace(-1, 1, 96, dtype=torch.float64).reshape(1, 6, 16)
    kept = inputs.clone()
    first, second = subject.respond(inputs), subject.respond(inputs)
    assert torch.equal(inputs, kept)
    assert torch.equal(first, second)


def test_parts_of_layers_in_a_list_of_their_own_are_no_layers():
    config = transformers.XLMConfig(
        vocab_size=50, emb_dim=16, n_layers=3, n_heads=2, max_position_embeddings=40
    )
    assert memaudit.load(built("XLMModel", config)).layers() == ()


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("GPTJ", {**SMALL, "rotary_dim": 4, "n_positions": 100}),
        ("CTRL", {**SMALL, "dff": 32, "n_positions": 100}),
        ("Mpt", {"vocab_size": 50, "d_model": 16, "n_heads": 2, "n_layers": 1, "max_seq_len": 100}),
    ],
    ids=["GPT-J", "CTRL", "MPT"],
)
def test_positions_that_are_no_table_of_weights_end_as_well(family, sizes):
    config = getattr(transformers, f"{family}Config")(**sizes)
    subject = memaudit.load(built(f"{family}Model", config), dtype="float64")
    assert subject.longest == 100
    report = memaudit.scan(subject, horizon=128, level="quick", amplitudes=(1.0,))
    assert len(report.memory["impulse"].values) == 100
    assert "MA005" in {finding.code for finding in report.findings}


def rwkv() -> Any:
    config = transformers.RwkvConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=4, rescale_every=2, context_length=64
    )
    return built("RwkvModel", config)


def test_a_state_that_was_left_behind_with_gradients_does_not_stop_a_copy():
    config = transformers.RecurrentGemmaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        lru_width=16,
        block_types=("recurrent", "recurrent"),
    )
    model = built("RecurrentGemmaModel", config)
    model(input_ids=torch.arange(6)[None])
    assert memaudit.load(model, dtype="float64").dtype == torch.float64


@pytest.mark.shared
def test_the_token_in_front_is_repeated_behind_itself(shared):
    folder = shared / "fixtures" / "bert_hf" / "small"
    subject = memaudit.load(folder, output="hidden")
    front, back = subject.framed(torch.zeros(1, 0, dtype=torch.long))[0].tolist()
    curve = memaudit.scan(
        subject, queries=["repeat"], words=[subject.word_of(front)], horizon=8, probes=[]
    ).memory["repeat"]
    states = [
        subject.respond(torch.tensor([[front] * (n + 1) + [back]]))[0, n] for n in range(1, 9)
    ]
    expected = [float((b - a).abs().max()) for a, b in pairwise(states)]
    assert np.allclose(curve.values, expected, rtol=1e-12)


@pytest.mark.shared
def test_a_text_of_one_letter_leaves_nothing_to_replace(shared):
    folder = shared / "fixtures" / "llama_hf" / "small"
    report = memaudit.scan(folder, queries=["context"], text="a" * 400, horizon=32, probes=[])
    assert report.memory["context"].status is Status.TOO_SHORT


FIXTURES = ("mamba1_hf", "mamba2_hf", "mamba1_original", "recurrentgemma_hf", "rwkv_hf", "xlstm_hf")


@pytest.mark.shared
@pytest.mark.parametrize("name", [*FIXTURES, "llama_hf", "bert_hf"])
def test_every_fixture_obeys_the_laws(shared: Path, name: str) -> None:
    check_perturbable(memaudit.load(shared / "fixtures" / name / "small", dtype="float64"))


@pytest.mark.shared
@pytest.mark.parametrize("name", FIXTURES)
def test_recurrent_layers_give_how_their_modes_follow_the_weights(shared: Path, name: str) -> None:
    subject = memaudit.load(shared / "fixtures" / name / "small", dtype="float64")
    model = subject.perturbable()
    assert model is not None
    layers = {role.layer for role in model.roles.values() if role.group == "recurrent"}
    assert layers == {spectrum.layer for spectrum in subject.spectra()} == set(model.modes({}))


def test_the_modes_of_mamba_follow_a_moved_rate_as_the_formula_says() -> None:
    model = tiny("mamba").perturbable()
    (name, *_) = (name for name in model.weights if name.endswith("A_log"))
    layer = model.roles[name].layer
    raw = model.weights[name]
    before, after = model.modes({name: torch.stack([raw, raw + 0.5])})[layer].abs()
    torch.testing.assert_close(after, before ** float(torch.tensor(0.5).double().exp()))


def test_attention_runs_in_one_batch_and_scans_join_calls() -> None:
    for name, wanted in (("llama", "vmap"), ("mamba", "one after the other")):
        subject = tiny(name)
        model: Any = subject.perturbable()
        moved = {key: torch.stack([w, w]) for key, w in model.weights.items()}
        model.respond(noise(1, 5, subject.input_size or 1), moved)
        assert model.execution == wanted


def test_the_table_of_tokens_is_not_moved_and_positions_are() -> None:
    names = set(tiny("gpt2").perturbable().weights)
    assert not any(name.endswith("wte.weight") for name in names)
    assert any(name.endswith("wpe.weight") for name in names)


@pytest.mark.shared
def test_the_head_of_a_classifier_is_its_readout(shared: Path) -> None:
    model = memaudit.load(shared / "fixtures" / "bert_hf" / "small").perturbable()
    assert model is not None
    readout = {name for name, role in model.roles.items() if role.group == "readout"}
    assert readout == {"classifier.weight", "classifier.bias"}


def require_every_digit(subject: Any) -> None:
    """A step of 1e-10 and one of 1e-5 have the same slope, which float32 would round away."""
    x = 0.5 * noise(2, STEPS, subject.input_size)
    direction = torch.zeros_like(x)
    direction[:, 2] = noise(subject.input_size)

    def slope(step: float) -> Tensor:
        ahead, back = subject.respond(x + step * direction), subject.respond(x - step * direction)
        return (ahead - back) / (2 * step)

    wide, fine = slope(1e-5), slope(1e-10)
    # Answers of size one to ten, rounded at 1e-15, over a step of 1e-10.
    assert (wide - fine).abs().max() < 1e-4 * wide.abs().max() + 1e-4
    assert wide.abs().max() > 1e-4


@pytest.mark.parametrize("name", ZOO)
def test_a_model_answers_row_by_row_by_ids_or_embeddings_in_every_digit(name: str) -> None:
    subject, tokens = tiny(name), ids(3, 9)
    table = subject.embedding
    assert table is not None
    assert subject.vocabulary == WORDS
    heard: dict[str, Tensor] = {}
    answer = subject.respond_with_hook(tokens, lambda layer, state: heard.update({layer: state}))
    assert tuple(heard) == subject.layers()
    assert len(heard) == subject.model.config.num_hidden_layers
    assert {(*state.shape[:2], state.dtype) for state in heard.values()} == {(3, 9, torch.float64)}
    subject.respond(noise(1, 17, subject.input_size or 0))
    assert torch.equal(subject.respond(tokens), answer)
    torch.testing.assert_close(subject.respond(tokens[1:2])[0], answer[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(subject.respond(table(tokens)), answer, rtol=0, atol=1e-12)
    require_every_digit(subject)


#: Of every way to run: attention with and without a table of positions, experts, scans, hybrids.
DIFFERENT = ("bert", "albert", "gpt2 scores", "llama", "mixtral", "t5", "mamba", "mamba2", "rwkv")
DIFFERENT += ("recurrentgemma", "xlstm", "jamba")


@pytest.mark.parametrize("name", DIFFERENT)
def test_moved_weights_of_a_small_model_obey_the_laws(name: str) -> None:
    check_perturbable(tiny(name))


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_module_in_memory_is_left_as_it_was(name: str) -> None:
    model = make(name).train()

    def seen() -> list[dict[str, Any]]:
        """Attributes, buffers and hooks of every part."""
        hidden = ("_parameters", "_modules")
        return [
            {k: v for k, v in vars(part).items() if k not in hidden}
            | {f"buffer {k}": v for k, v in part._buffers.items()}
            | {f"hook {k}": v for k, v in part._forward_hooks.items()}
            for part in model.modules()
        ]

    weights, config = copy.deepcopy(model.state_dict()), copy.deepcopy(vars(model.config))
    before = seen()
    subject = opened(model)
    subject.respond_with_hook(ids(2, 9), lambda layer, state: None)
    assert subject.model is model
    after = seen()
    assert all(old.keys() == new.keys() for old, new in zip(before, after, strict=True))
    assert all(old[key] is new[key] for old, new in zip(before, after, strict=True) for key in old)
    assert all(part.training for part in model.modules())
    assert {k: v for k, v in vars(model.config).items() if k in config} == config
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    wide = opened(model, torch.float64)
    assert wide.model is not model
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_folder_of_a_recurrent_family_is_scanned(family: Family, tmp_path: Path) -> None:
    subject = opened(saved(family.build(), tmp_path))
    assert subject.identity.family == family.model_type
    require_every_digit(subject)
    report = memaudit.scan(
        subject, horizon=LAGS, level="quick", amplitudes=(1.0,), queries=["impulse", "repeat"]
    )
    assert report.complete
    layers = family.config().num_hidden_layers
    assert len(report.layers) == len(subject.layers()) == layers
    for curves in (report.memory, *report.layers.values()):
        assert all(len(c.values) in (LAGS, LAGS - 1) for c in curves.values())
    cells = [family.cell] * len(family.recurrent_layers())
    assert [item.cell for item in report.spectrum] == cells
    assert [item.cell for item in report.subject.recurrences] == cells
    for item in report.spectrum:
        assert item.time_scale > 0
        assert (abs(item.eigenvalues) <= 1).all()
        assert item.count == len(item.eigenvalues)


#: Every way in which the library asks for float32.
REQUESTS: dict[str, Callable[[Tensor], Tensor]] = {
    "float": lambda x: x.float(),
    "to": lambda x: x.to(torch.float32),
    "to by name": lambda x: x.to(dtype=torch.float32),
    "to device and dtype": lambda x: x.to("cpu", torch.float32),
    "type": lambda x: x.type(torch.float32),
    "type by text": lambda x: x.type("torch.FloatTensor"),
    "softmax": lambda x: functional.softmax(x, dim=-1, dtype=torch.float32),
    "method softmax": lambda x: x.softmax(-1, dtype=torch.float32),
    "cumsum": lambda x: x.cumsum(0, dtype=torch.float32),
    "sum": lambda x: torch.sum(x, dtype=torch.float32),
    "zeros": lambda x: torch.zeros(3, dtype=torch.float32),
    "zeros by default": lambda x: torch.zeros(3),
    "new": lambda x: x.new_zeros(3, dtype=torch.float32),
    "like": lambda x: torch.ones_like(x, dtype=torch.float32),
    "arange": lambda x: torch.arange(3, dtype=torch.float32),
    "tensor": lambda x: torch.tensor([1.0], dtype=torch.float32),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_for_float32_is_read_as_float64_in_a_model_of_float64_alone(name: str) -> None:
    def asked() -> torch.dtype:
        return REQUESTS[name](noise(3)).dtype

    with really_float64(torch.float64):
        assert asked() == torch.float64
        with without_widening():
            assert asked() == torch.float32
        assert noise(3).to(torch.complex64).dtype == torch.complex128
        assert noise(3).to(torch.int32).view(torch.float32).dtype == torch.float32
        assert noise(3).to(torch.bfloat16).dtype == torch.bfloat16
    with really_float64(torch.bfloat16):
        assert asked() == torch.float32
    assert asked() == torch.float32


def test_a_module_without_numbers_is_refused() -> None:
    with pytest.raises(SourceError, match="E_WEIGHTS"):
        opened(make("mamba").to("meta"))


def test_a_compiled_model_is_the_model_that_was_compiled() -> None:
    model, inputs = make("rwkv"), noise(1, 3, WIDTH).float()
    answer = memaudit.load(torch.compile(model, backend="eager")).respond(inputs)
    assert torch.equal(answer, memaudit.load(model).respond(inputs))


def test_a_file_in_another_encoding_is_no_text(tmp_path: Path) -> None:
    for data in (bytes(range(256)) * 20, ("text " * 500).encode("utf-16")):
        (tmp_path / "text").write_bytes(data)
        with pytest.raises(ArgumentError, match="no text in UTF-8"):
            memaudit.scan("demo:mamba", queries=["context"], text=tmp_path / "text")
