"""The class that a file belongs to: heads are neither made up nor silently dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from memaudit.errors import ArgumentError, SourceError
from tests.plugins.transformers_zoo import configured, ids, make, opened, rewritten, saved


def refusal(folder: Path, **options: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        opened(folder, **options)
    return caught.value


@pytest.mark.parametrize(
    "name", ["bert.encoder.layer.2.output.dense.bias", "bert.embeddings.pooler.weight"]
)
def test_another_layer_or_a_part_of_one_is_no_spare_head(name: str, tmp_path: Path) -> None:
    saved(make("bert"), tmp_path)
    error = refusal(rewritten(tmp_path, lambda t: t.update({name: torch.zeros(3)})))
    assert error.code == "E_WEIGHTS"
    assert name in error.fact


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


def test_a_fused_expert_that_is_missing_is_refused(tmp_path: Path) -> None:
    saved(make("mixtral"), tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    name = next(name for name in stored if "experts.1." in name)
    error = refusal(rewritten(tmp_path, lambda t: t.pop(name)))
    assert error.code == "E_WEIGHTS"


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
