"""Files whose names collide, or are far more than a model has, opened by the rnn adapter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError, SourceError
from memaudit_rnn import recognition
from memaudit_rnn.adapter import count, unused_notes
from memaudit_rnn.placement import Layer, layers_among, likely_side, surround
from memaudit_rnn.recognition import Place, find_stacks, lookalikes, originals, read_config
from tests.plugins.test_rnn_files import opened, prefixed

HIDDEN = 3


def plain() -> dict[str, Tensor]:
    return prefixed("rnn.", nn.RNN(HIDDEN, HIDDEN))


@pytest.mark.parametrize("alias", ["weight_hh_l00", "weight_hh_l0\n", "weight_hh_l\u0660"])
def test_another_spelling_of_a_layer_replaces_nothing(tmp_path: Path, alias: str) -> None:
    tensors = plain()
    subject = opened(tmp_path, {**tensors, f"rnn.{alias}": torch.eye(HIDDEN)})
    (part,) = subject.parts().values()
    run = part.weights()
    stored = tensors["rnn.weight_hh_l0"].double()
    assert any(torch.equal(weight, stored) for weight in run.values())
    assert any("recurrent-looking tensors" in note for note in subject.identity.notes)


def test_two_names_for_one_place_are_refused_and_named(tmp_path: Path) -> None:
    pair = ["rnn.weight_hh_l0", "rnn.w_hh_l0"]
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, {**plain(), "rnn.w_hh_l0": torch.eye(HIDDEN)})
    assert caught.value.code == "E_WEIGHTS"
    assert all(name in caught.value.fact for name in pair)


def test_two_names_for_one_place_keep_the_first_and_remember_both() -> None:
    (stack,) = find_stacks(["a.w_hh_l0", "a.weight_hh_l0", "a.weight_hh_l10"])
    assert stack.keys[Place("weight", "hh", 0)] == "a.w_hh_l0"
    assert stack.keys[Place("weight", "hh", 10)] == "a.weight_hh_l10"
    assert stack.rivals == [("a.w_hh_l0", "a.weight_hh_l0")]


@pytest.mark.parametrize(
    "others", [("rnn.", "rnn_"), ("a\u200b.", "a."), ("x" * 400 + ".", "x" * 401 + ".")]
)
def test_layers_whose_printed_names_are_alike_are_all_kept(
    tmp_path: Path, others: tuple[str, str]
) -> None:
    first, second = others
    tensors = {**prefixed(first, nn.RNN(2, 2)), **prefixed(second, nn.RNN(2, 4))}
    subject = opened(tmp_path, tensors)
    sizes = sorted(part.identity.recurrences[0].size for part in subject.parts().values())
    assert sizes == [2, 4]


@pytest.mark.parametrize("alias", ["fc_weight", "fc.w", "fc.b"])
def test_a_layer_with_two_names_for_one_parameter_is_not_run(tmp_path: Path, alias: str) -> None:
    tensors = {**plain(), **prefixed("fc.", nn.Linear(HIDDEN, 1))}
    shape = tensors["fc.bias" if alias.endswith("b") else "fc.weight"].shape
    tensors[alias] = torch.ones(shape)
    subject = opened(tmp_path, tensors)
    assert any("the place of" in note and "fc" in note for note in subject.identity.notes)
    with pytest.raises(ArgumentError, match="names no linear layer"):
        opened(tmp_path, tensors, head="fc")


class Once(list[str]):
    """Names that may be walked through once."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def test_lookalikes_are_walked_through_once_for_all_stacks() -> None:
    tensors = {
        f"s{i}.weight_{gate}_l0": torch.ones(1, 1) for i in range(50) for gate in ("ih", "hh")
    }
    alike = Once(f"q{i}.weight_hh_l0_raw" for i in range(50))
    assert len(recognition.read_stacks(find_stacks(tensors), tensors, alike)) == 50
    assert alike.walks == 1


def test_an_original_is_found_beside_its_key_and_in_the_module_around() -> None:
    names = ["a.weight_hh_l0_raw", "b.parametrizations.weight_ih_l1.original0"]
    found = originals(lookalikes(names))
    assert found["a.weight_hh_l0"] == found["a.module.weight_hh_l0"] == [names[0]]
    assert found["b.weight_ih_l1"] == [names[1]]


def test_more_recurrent_layers_than_any_model_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognition, "MOST_STACKS", 2)
    tensors = {k: v for i in range(2) for k, v in prefixed(f"r{i}.", nn.RNN(1, 1)).items()}
    assert len(opened(tmp_path, tensors).parts()) == 2
    with pytest.raises(SourceError, match="3 recurrent layers stand side by side") as caught:
        opened(tmp_path, {**tensors, **prefixed("r2.", nn.RNN(1, 1))})
    assert caught.value.code == "E_LIMIT"


def test_a_host_of_many_layers_names_eight_of_them(tmp_path: Path) -> None:
    tensors = {k: v for i in range(12) for k, v in prefixed(f"r{i}.", nn.RNN(1, 1)).items()}
    subject = opened(tmp_path, tensors)
    assert len(subject.parts()) == len(subject.identity.recurrences) == 12
    texts = [subject.identity.description, next(n for n in subject.identity.notes if "joined" in n)]
    for text in texts:
        assert sum(f"r{i}" in re.findall(r"r\d+", text) for i in range(12)) == 8
        assert "and 4 more" in text


def test_the_count_of_one_stack_looks_at_its_own_tensors_only() -> None:
    tensors = {"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(4, dtype=torch.int32)}
    assert count(tensors) == 5
    assert count(tensors, ["b", "b", "c"]) == 3


def test_a_recurrent_looking_tensor_is_not_named_twice() -> None:
    names = ["a.weight_hh_l0_raw", "a.scale", "a.used"]
    notes = unused_notes({n: torch.ones(1) for n in names}, names[2:], names[:1])
    assert [note.rsplit(": ")[-1] for note in notes] == names[:2]


def test_a_long_chain_of_layers_behind_is_followed_to_its_end() -> None:
    names = ["rnn.weight_ih_l0", "rnn.weight_hh_l0"]
    tensors = {names[0]: torch.ones(3, 2), names[1]: torch.ones(3, 3)}
    stack = recognition.read_stacks(find_stacks(names), tensors, ())[0]
    chain = [Layer(f"fc{i}", f"fc{i}.weight", i + 1, i, f"fc{i}.bias") for i in range(3, 2000)]
    found = surround(stack, chain[::-1], [])
    assert found.whole
    assert found.head is None
    assert "stand behind" in found.notes[0]
    lost = Layer("other", "other.weight", 9000, 9001)
    assert not surround(stack, [*chain, lost], []).whole


def test_layers_of_one_name_keep_their_own_shapes() -> None:
    tensors = {"embedding": torch.ones(7, 3), "embedding.weight": torch.ones(5, 2)}
    layers, others = layers_among(tensors, ())
    assert [(x.weight, x.rows) for x in layers] == [("embedding", 7), ("embedding.weight", 5)]
    assert others == []


def test_a_name_of_a_million_separators_is_read_in_one_pass() -> None:
    name = "._" * 500_000 + "head"
    assert likely_side(name, "rnn.") == likely_side("head", "rnn.")


@pytest.mark.parametrize("text", ["[" * 200_000, '{"hidden": "' + "9" * 5000 + '"}'])
def test_metadata_that_python_cannot_hold_states_nothing(text: str) -> None:
    stated = read_config({}, {"hparams": text, "layers": re.sub(r"\D", "", text)})
    assert stated.hidden is None
    assert stated.layers is None
