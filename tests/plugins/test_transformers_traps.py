"""Models that change their input, their weights or their lists, audited all the same."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import memaudit
from memaudit.errors import ArgumentError
from memaudit.memory.result import Status

SMALL = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2}


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


def test_positions_that_only_advertise_a_length_do_not_end():
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    subject = memaudit.load(built("LlamaModel", config), dtype="float64")
    assert (subject.longest, subject.advertised) == (None, 64)


def rwkv() -> Any:
    config = transformers.RwkvConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=4, rescale_every=2, context_length=64
    )
    return built("RwkvModel", config)


def test_an_rwkv_that_was_run_before_is_audited_with_the_weights_it_was_trained_with():
    model = rwkv()
    options = {"horizon": 8, "level": "quick", "queries": ["impulse"], "probes": []}
    before = memaudit.scan(model, **options)
    model(input_ids=torch.arange(6)[None])
    rescaled = {name: value.clone() for name, value in model.state_dict().items()}
    after = memaudit.scan(model, **options)
    for layer, curves in before.layers.items():
        values = after.layers[layer]["impulse"].values
        assert np.allclose(values, curves["impulse"].values, rtol=1e-4)
    assert all(torch.equal(value, rescaled[name]) for name, value in model.state_dict().items())


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


def test_a_compiled_model_is_the_model_that_was_compiled():
    model = rwkv()
    compiled = torch.compile(model, backend="eager")
    inputs = torch.zeros(1, 3, 16)
    assert torch.equal(
        memaudit.load(compiled).respond(inputs), memaudit.load(model).respond(inputs)
    )


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


def test_a_file_in_another_encoding_is_no_text(tmp_path):
    for name, data in {"a": bytes(range(256)) * 20, "b": ("text " * 500).encode("utf-16")}.items():
        file = tmp_path / name
        file.write_bytes(data)
        with pytest.raises(ArgumentError, match="no text in UTF-8"):
            memaudit.scan("demo:mamba", queries=["context"], text=file)
