"""Which class is built for a checkpoint, and that its weights are those of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import memaudit
from memaudit.errors import ArgumentError, SourceError
from tests.plugins.transformers_zoo import configured, ids, make, noise, opened, rewritten, saved


def refusal(folder: Path, **options: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        opened(folder, **options)
    return caught.value


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mamba", "rwkv", "jamba", "t5"])
def test_a_saved_model_answers_as_it_did(name: str, tmp_path: Path) -> None:
    model = make(name, **({"rescale_every": 0} if name == "rwkv" else {}))
    tokens = ids(2, 11)
    inputs = {"input_ids": tokens, "use_cache": False}
    part = model
    if name == "t5":
        part = model.get_encoder()
    if name != "bert":
        part = getattr(part, "base_model", part)
    else:
        inputs.pop("use_cache")
    with torch.no_grad():
        output = part(**inputs)
    expected = output.logits if name == "bert" else output.last_hidden_state
    answer = opened(saved(model, tmp_path), torch.float32).respond(tokens)
    torch.testing.assert_close(answer, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["gpt2", "mamba"])  # tied to its embedding; a recurrence
def test_a_model_does_not_live_in_the_file(name: str, tmp_path: Path) -> None:
    subject = opened(saved(make(name), tmp_path), torch.float32)
    before = subject.respond(ids(2, 9))
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert torch.equal(subject.respond(ids(2, 9)), before)


def test_load_opens_a_saved_folder(tmp_path: Path) -> None:
    subject = memaudit.load(saved(make("mamba"), tmp_path))
    assert subject.identity.adapter == "transformers"
    assert subject.dtype == torch.float64
    assert subject.identity.assumed["dtype"].startswith("float64 (up to 33554432 numbers")


def test_loading_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    saved(make("bert"), tmp_path)
    before = torch.random.get_rng_state()
    opened(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_loading_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    saved(make("mamba"), tmp_path)
    capfd.readouterr()
    opened(tmp_path).respond(ids(2, 5))
    assert capfd.readouterr() == ("", "")


DENSE, BIAS = "bert.pooler.dense.weight", "bert.encoder.layer.1.output.dense.bias"


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        (lambda t: t.pop(BIAS), "E_WEIGHTS", f"1 tensor is missing in the file: {BIAS}"),
        (lambda t: t.update({DENSE: torch.zeros(5)}), "E_WEIGHTS", f"{DENSE} (5,) instead of"),
        (
            lambda t: t.update({DENSE: t[DENSE].to(torch.int8)}),
            "E_WEIGHTS",
            f"{DENSE} (32, 32) int8",
        ),
        (lambda t: t["classifier.bias"].fill_(torch.nan), "E_NONFINITE", "classifier.bias"),
        (lambda t: (t.clear(), t.update({"conv.weight": torch.zeros(3, 3)})), "E_WEIGHTS", ""),
        *[
            (lambda t, name=name: t.update({name: torch.zeros(3)}), "E_WEIGHTS", name)
            for name in (
                "bert.encoder.layer.1.output.gate.bias",
                "bert.encoder.layer.2.output.dense.bias",
                "bert.embeddings.pooler.weight",
            )
        ],
    ],
)
def test_damaged_weights_are_refused_by_name(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], code: str, named: str
) -> None:
    error = refusal(rewritten(saved(make("bert"), tmp_path), change))
    assert error.code == code
    assert named in error.fact


def test_a_quantized_config_is_refused(tmp_path: Path) -> None:
    saved(make("bert"), tmp_path)
    error = refusal(configured(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4}))
    assert error.code == "E_UNSUPPORTED"
    assert "quantized (gptq)" in error.fact


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 33},
        {"num_attention_heads": 5},
        {"hidden_act": "no such function"},
        {"num_attention_heads": "four"},
        {"layer_norm_eps": "small"},
    ],
)
def test_a_config_that_the_library_refuses_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    error = refusal(configured(saved(make("bert"), tmp_path), **change))
    assert error.code == "E_CONFIG"
    assert "config.json" in error.fact


def test_a_config_of_another_size_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    saved(make("bert"), tmp_path)
    error = refusal(configured(tmp_path, vocab_size=1_500_000, intermediate_size=600_000))
    assert error.code == "E_WEIGHTS"
    assert "config.json describes a model of" in error.fact


def test_an_unknown_model_type_is_refused(tmp_path: Path) -> None:
    saved(make("bert"), tmp_path)
    configured(tmp_path, model_type="nobody_knows_it")
    with pytest.raises(SourceError) as caught:
        memaudit.load(tmp_path)
    assert caught.value.code == "E_UNSUPPORTED"
    assert "does not know the model type 'nobody_knows_it'" in caught.value.fact


def test_the_class_that_a_config_names_stands_for_a_type(tmp_path: Path) -> None:
    whole = opened(saved(make("bert"), tmp_path)).respond(ids(2, 5))
    subject = memaudit.load(configured(tmp_path, model_type=None))
    assert torch.equal(subject.respond(ids(2, 5)), whole)
    assert subject.identity.assumed["model_type"].startswith("bert (that of BertForSequence")


def test_a_config_without_a_type_and_a_class_asks_for_the_class(tmp_path: Path) -> None:
    whole = opened(saved(make("bert"), tmp_path)).respond(ids(2, 5))
    configured(tmp_path, model_type=None, architectures=None)
    with pytest.raises(SourceError) as caught:
        memaudit.load(tmp_path)
    assert "config.json states no model_type" in caught.value.fact
    assert "--set architecture=BertModel" in caught.value.hint
    assert "--set architecture=BertModel" in refusal(tmp_path).hint
    subject = memaudit.load(tmp_path, architecture="BertForSequenceClassification")
    assert torch.equal(subject.respond(ids(2, 5)), whole)


def test_an_architecture_that_contradicts_the_config_names_the_remedy(tmp_path: Path) -> None:
    saved(make("gpt2"), tmp_path)
    with pytest.raises(ArgumentError) as caught:
        opened(tmp_path, architecture="BertModel")
    assert "states the model_type 'gpt2', and BertModel is a class of 'bert'" in caught.value.fact
    assert 'write "model_type": "bert" into config.json' in caught.value.hint


def test_a_misspelt_architecture_names_its_neighbours(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as caught:
        opened(saved(make("bert"), tmp_path), architecture="BertModle")
    assert "did you mean BertModel" in caught.value.hint


def test_weights_without_a_config_ask_for_it(tmp_path: Path) -> None:
    (saved(make("bert"), tmp_path) / "config.json").unlink()
    with pytest.raises(SourceError) as caught:
        memaudit.load(tmp_path, architecture="BertModel")
    assert "there is no config.json" in caught.value.fact


def test_weights_of_another_model_say_which_config_to_correct(tmp_path: Path) -> None:
    saved(make("bert"), tmp_path)
    error = refusal(configured(tmp_path, model_type="gpt2", architectures=["GPT2Model"]))
    assert error.code == "E_WEIGHTS"
    assert "config.json describes another model" in error.hint
    assert "model_type 'gpt2'" in error.hint


@pytest.mark.parametrize(
    ("name", "attention"),
    [("bert", "both ways"), ("t5", "both ways"), ("gpt2", "causal"), ("mamba", ""), ("jamba", "")],
)
def test_a_model_says_whether_attention_alone_carries_the_past(
    name: str, attention: str, tmp_path: Path
) -> None:
    identity = opened(saved(make(name), tmp_path)).identity
    assert identity.attention == attention
    assert ("encoder only" in identity.description) == (name == "t5")


def test_a_model_of_pictures_is_refused_with_what_it_takes(tmp_path: Path) -> None:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=16,
        patch_size=8,
    )
    with torch.random.fork_rng(devices=[]):
        model = transformers.ViTModel(config)
    error = refusal(saved(model, tmp_path))
    assert error.code == "E_UNSUPPORTED"
    assert "takes pixel_values" in error.fact


def test_of_a_model_of_pictures_and_words_the_words_are_audited(tmp_path: Path) -> None:
    import transformers

    text = make("llama").config
    pictures = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        image_size=16,
        patch_size=8,
    )
    config = transformers.LlavaConfig(text_config=text, vision_config=pictures)
    with torch.random.fork_rng(devices=[]):
        model = transformers.LlavaForConditionalGeneration(config).eval()
    subject = opened(saved(model, tmp_path), torch.float32)
    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model.model.language_model(tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=1e-6)
    note = "of LlavaForConditionalGeneration only the text model is audited (model.language_model)"
    assert note in subject.identity.notes
    part = sum(p.numel() for p in model.model.language_model.parameters())
    assert subject.identity.coverage == pytest.approx(part / subject.identity.parameters)
    assert subject.advertised == 64


def test_options_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    saved(make("bert bare"), tmp_path)
    with pytest.raises(ArgumentError, match="unknown option"):
        opened(tmp_path, pool="mean")
    with pytest.raises(ArgumentError, match="not possible"):
        opened(tmp_path, output="everything")
    with pytest.raises(ArgumentError, match="has no head"):
        opened(tmp_path, output="logits")


def test_a_file_of_another_dtype_is_cast_exactly(tmp_path: Path) -> None:
    model = make("llama").to(torch.bfloat16)
    saved(model, tmp_path)
    subject = opened(tmp_path)
    assert subject.dtype == torch.float64
    wanted = {name: tensor.double() for name, tensor in model.state_dict().items()}
    held = subject.weights()
    assert all(torch.equal(held[name], tensor) for name, tensor in wanted.items())
    assert subject.respond(noise(1, 4, 32)).dtype == torch.float64


def test_a_head_that_is_missing_in_the_file_is_not_made_up(tmp_path: Path) -> None:
    model = make("bert")
    saved(model, tmp_path)

    def behead(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["classifier.weight"], tensors["classifier.bias"]

    subject = opened(rewritten(tmp_path, behead), torch.float32)
    assert type(subject.model).__name__ == "BertModel"
    assert any("names BertForSequenceClassification" in note for note in subject.identity.notes)
    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model.bert(tokens).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=1e-6)


def test_a_head_that_the_config_does_not_name_is_not_dropped(tmp_path: Path) -> None:
    saved(make("bert words"), tmp_path)
    subject = opened(configured(tmp_path, architectures=["BertModel"]), output="logits")
    assert type(subject.model).__name__ == "BertForMaskedLM"
    assert subject.respond(ids(2, 9)).shape == (2, 9, 50)


@pytest.mark.parametrize("architectures", [None, ["NobodyKnowsIt"], ["GPT2Model"], [7]])
def test_without_a_class_in_the_config_the_tensors_decide(
    architectures: Any, tmp_path: Path
) -> None:
    saved(make("bert words"), tmp_path)
    subject = opened(configured(tmp_path, architectures=architectures))
    assert type(subject.model).__name__ == "BertForMaskedLM"
    assert subject.identity.assumed["architecture"].startswith("BertForMaskedLM (by the names")


def test_a_pooler_that_the_class_does_without_is_said_and_counted(tmp_path: Path) -> None:
    """Published encoders come with the pooler and the head of their pretraining."""
    model = make("bert pretraining")
    saved(model, tmp_path)
    rewritten(
        tmp_path,
        lambda t: (t.pop("cls.seq_relationship.weight"), t.pop("cls.seq_relationship.bias")),
    )
    subject = opened(configured(tmp_path, architectures=["BertForMaskedLM"]), torch.float32)
    assert type(subject.model).__name__ == "BertForMaskedLM"
    unread = next(note for note in subject.identity.notes if note.startswith("not run"))
    assert unread == "not run: bert.pooler.dense.bias, bert.pooler.dense.weight"
    total = sum(t.numel() for t in load_file(tmp_path / "model.safetensors").values())
    assert subject.identity.parameters == total
    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model.bert(tokens).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=1e-6)


def test_a_pooler_that_is_not_in_the_file_is_not_made_up(tmp_path: Path) -> None:
    model = make("bert bare")
    saved(model, tmp_path)
    drop = ("pooler.dense.weight", "pooler.dense.bias")
    subject = opened(rewritten(tmp_path, lambda t: [t.pop(k) for k in drop]), torch.float32)
    assert subject.model.pooler is None
    assert "the file has no pooler: the model was built without one" in subject.identity.notes
    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model(tokens).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=1e-6)


def test_what_the_class_itself_calls_dispensable_may_be_missing(tmp_path: Path) -> None:
    """Files of BART have a bias of zeros for the logits, or do without it."""
    saved(make("bart"), tmp_path)
    whole = opened(tmp_path).respond(ids(2, 9))
    rewritten(tmp_path, lambda t: t.pop("final_logits_bias"))
    assert torch.equal(opened(tmp_path).respond(ids(2, 9)), whole)


def test_experts_that_the_library_fuses_are_counted(tmp_path: Path) -> None:
    """Mixtral is published with one matrix per expert, and kept as one block."""
    model = make("mixtral")
    saved(model, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    own = model.state_dict()
    assert set(stored) != set(own)
    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model.model(tokens, use_cache=False).last_hidden_state
    answer = opened(tmp_path, torch.float32).respond(tokens)
    torch.testing.assert_close(answer, expected, rtol=0, atol=2e-6)
    name = next(name for name in stored if "experts.1." in name)
    assert refusal(rewritten(tmp_path, lambda t: t.pop(name))).code == "E_WEIGHTS"


def test_a_head_tied_in_the_config_and_different_in_the_file_is_not_lost(tmp_path: Path) -> None:
    model = make("gpt2", tie_word_embeddings=False)
    saved(model, tmp_path)
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")
    configured(tmp_path, tie_word_embeddings=True)
    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model(tokens).logits
    answer = opened(tmp_path, torch.float32, output="logits").respond(tokens)
    torch.testing.assert_close(answer, expected, rtol=0, atol=2e-6)


def test_old_names_of_norms_are_understood(tmp_path: Path) -> None:
    """The first BERT checkpoints call the weight of a norm gamma, and its bias beta."""
    model = make("bert bare")
    saved(model, tmp_path)

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            old = name.replace("weight", "gamma").replace("bias", "beta")
            tensors[old] = tensors.pop(name)

    tokens = ids(2, 9)
    with torch.no_grad():
        expected = model(tokens).last_hidden_state
    answer = opened(rewritten(tmp_path, rename), torch.float32).respond(tokens)
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-6)


def test_the_user_may_name_the_class(tmp_path: Path) -> None:
    saved(make("bert words"), tmp_path)
    subject = opened(tmp_path, architecture="BertModel")
    assert type(subject.model).__name__ == "BertModel"
    assert any(note.startswith("not run: cls.predictions") for note in subject.identity.notes)
    assert refusal(tmp_path, architecture="BertForSequenceClassification").code == "E_WEIGHTS"
    for odd in ("GPT2Model", "AutoModel", "pipeline", "BertConfig", "os.path"):
        with pytest.raises(ArgumentError, match="class"):
            opened(tmp_path, architecture=odd)
    with pytest.raises(ArgumentError, match="option of files"):
        opened(make("bert bare"), architecture="BertModel")
