"""The weights are found wherever trainers put them, and never an optimizer's state."""

import json

import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.checkpoint import find_weights

W = torch.ones(3, 3)
STATE = {"rnn.weight_hh_l0": W, "rnn.bias_hh_l0": torch.ones(3)}
OTHER = {"rnn.weight_hh_l0": torch.zeros(3, 3)}
OPTIMIZER = {"state": {0: {"exp_avg": W, "step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1}]}


@pytest.mark.parametrize(
    ("content", "container"),
    [
        (STATE, ""),
        ({"model_state_dict": STATE, "optimizer_state_dict": OPTIMIZER}, "model_state_dict"),
        ({"step": 3, "model_state": STATE, "optimizer_state": OPTIMIZER}, "model_state"),
        ({"state_dict": STATE, "hyper_parameters": {"n": 1}, "optimizer": [W]}, "state_dict"),
        ({"model": STATE, "ema": OTHER}, "model"),
        ({"ema_state_dict": OTHER, "state_dict": STATE}, "state_dict"),
        ({"net": STATE, "acc": 90.0}, "net"),
        ({"ema": STATE, "epoch": 1}, "ema"),
        ({"model": {"state_dict": STATE}}, "model.state_dict"),
        ({"my_rnn": STATE, "opt": OPTIMIZER, "scheduler": {"a": W}}, "my_rnn"),
        ({"discriminator": OTHER, "model": STATE}, "model"),
        ({"model": STATE, "state": OPTIMIZER}, "model"),
    ],
)
def test_the_weights_are_found(content, container):
    found = find_weights(content)
    assert found.container == container
    assert list(found.tensors) == list(STATE)
    assert torch.equal(found.tensors["rnn.weight_hh_l0"], W)


def test_what_was_passed_over_is_said():
    notes = find_weights({"model": STATE, "discriminator": OTHER, "mean": W}).notes
    assert notes == ("the weights are model; left out: discriminator, mean",)


def test_averaged_weights_are_opened_only_alone_and_that_is_said():
    assert find_weights({"ema": STATE}).notes == (
        "only averaged weights are there: ema was opened",
    )


def test_modules_side_by_side_are_opened_together():
    found = find_weights({"en": {"w": W}, "de": {"w": W}, "en_opt": OPTIMIZER, "de_opt": OPTIMIZER})
    assert list(found.tensors) == ["en.w", "de.w"]
    assert found.notes == ("several modules were opened together: en, de",)


def test_a_layer_called_net_inside_the_model_does_not_hide_its_sibling():
    found = find_weights({"params": {"net": {"w": W}, "head": {"w": W}}})
    assert found.container == "params"
    assert list(found.tensors) == ["net.w", "head.w"]


def test_plain_values_beside_the_weights_become_metadata():
    found = find_weights(
        {
            "epoch": 3,
            "name": "tiny",
            "state_dict": STATE,
            "hyper_parameters": {"hidden": 8, "sizes": [1, 2]},
            "lr_schedulers": [{"a": 1}],
            "vocabulary": {str(i): i for i in range(5000)},
        }
    )
    assert set(found.metadata) == {"epoch", "name", "hyper_parameters"}
    assert found.metadata["epoch"] == "3"
    assert found.metadata["name"] == "tiny"
    assert json.loads(found.metadata["hyper_parameters"]) == {"hidden": 8, "sizes": [1, 2]}


def test_what_json_cannot_say_is_left_out_and_the_rest_is_kept():
    settings = {"hidden": 8, "mean": W, "rate": float("nan"), (1, 2): 3, "list": [1, W]}
    found = find_weights({"state_dict": STATE, "hyper_parameters": settings})
    assert json.loads(found.metadata["hyper_parameters"]) == {"hidden": 8, "list": [1, None]}


def test_views_that_together_claim_far_more_than_they_store_are_refused():
    stored = torch.zeros(1 << 20)
    most = (4 * stored.nbytes + (1 << 28)) // stored.nbytes
    assert len(find_weights({f"w{i}": stored for i in range(most)}).tensors) == most
    with pytest.raises(SourceError, match="claim") as caught:
        find_weights({f"w{i}": stored for i in range(most + 1)})
    assert caught.value.code == "E_LIMIT"


def test_lazy_views_are_counted_before_they_are_copied():
    stored = torch.zeros(1 << 21, dtype=torch.complex64).conj()
    with pytest.raises(SourceError, match="claim"):
        find_weights({f"w{i}": stored for i in range(10_000)})


def test_the_number_of_tensors_is_limited():
    assert len(find_weights(STATE, max_tensors=2).tensors) == 2
    with pytest.raises(SourceError, match="more than 1 tensors") as caught:
        find_weights(STATE, max_tensors=1)
    assert caught.value.code == "E_LIMIT"
    assert "max_tensors" in caught.value.hint


def test_names_in_notes_are_clean():
    notes = find_weights({"model": STATE, "x\x1b[31m\u202e": OTHER}).notes
    assert notes == ("the weights are model; left out: x[31m",)


def test_two_tensors_with_one_dotted_name_are_refused():
    with pytest.raises(
        SourceError, match=r"two tensors in the file have the name 'rnn\.w'"
    ) as caught:
        find_weights({"rnn": {"w": W}, "rnn.w": torch.zeros(3)})
    assert caught.value.code == "E_CORRUPT"


def test_lists_of_tensors_are_left_out_aloud():
    notes = find_weights({"w": W, "hidden": [W, W]}).notes
    assert notes == ("lists of unnamed tensors were left out: hidden",)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (W, "E_UNSUPPORTED"),
        ([W, W], "E_UNSUPPORTED"),
        ({0: W, 1: W}, "E_UNSUPPORTED"),
        ({"model": {0: W}}, "E_UNSUPPORTED"),
        (3, "E_UNSUPPORTED"),
        (OPTIMIZER, "E_WEIGHTS"),
    ],
)
def test_what_is_no_model_is_refused_with_a_next_step(content, code):
    with pytest.raises(SourceError) as caught:
        find_weights(content)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("content", [{}, {"epoch": 3, "optimizer_state_dict": OPTIMIZER}])
def test_an_optimizer_is_never_taken_for_the_model(content):
    assert find_weights(content).tensors == {}


def test_a_dictionary_that_holds_itself_is_refused():
    content = {"w": W}
    content["again"] = content
    with pytest.raises(SourceError, match="nested too deeply"):
        find_weights(content)


def test_lists_that_double_do_not_become_metadata():
    doubled = [1]
    for _ in range(60):
        doubled = [doubled, doubled]
    endless = []
    endless.append(endless)
    assert find_weights({"w": W, "bomb": doubled, "loop": endless}).metadata == {}


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (torch.ones(3, 3).to_sparse(), "E_UNSUPPORTED"),
        (torch.ones(3, device="meta"), "E_CORRUPT"),
        (torch.zeros(1).expand(1_000_000, 1_000_000), "E_LIMIT"),
    ],
)
def test_tensors_that_are_not_plain_are_refused_by_name(tensor, code):
    with pytest.raises(SourceError, match=r"layer\.w") as caught:
        find_weights({"layer.w": tensor})
    assert caught.value.code == code


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_nested_and_quantized_tensors_are_refused_by_name():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    for tensor, word in ((nested, "nested"), (quantized, "quantized")):
        with pytest.raises(SourceError, match=f"'w' is {word}"):
            find_weights({"w": tensor})


def test_an_attribute_called_numel_does_not_hide_the_size():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.numel = lambda: 10**18  # type: ignore[method-assign]
    assert find_weights({"w": parameter}).tensors["w"].numel() == 3
