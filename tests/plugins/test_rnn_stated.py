"""What a file states beside its weights is used, and what it leaves open is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import memaudit
from memaudit.errors import SourceError
from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter

VANILLA = {"rnn.weight_ih_l0": torch.ones(1, 1), "rnn.weight_hh_l0": torch.ones(1, 1)}


def opened(source: object) -> AbstractSubject:
    request = Request(torch.device("cpu"), None, None, options={})
    return RnnAdapter().load(parse_source(source), request)


def saved(
    folder: Path, tensors: dict[str, Tensor], config: dict[str, object] | None = None
) -> Path:
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_hyper_parameters_of_lightning_state_the_nonlinearity(tmp_path: Path) -> None:
    content = {"state_dict": VANILLA, "hyper_parameters": {"nonlinearity": "relu"}}
    torch.save(content, tmp_path / "last.ckpt")
    subject = opened(tmp_path / "last.ckpt")
    assert subject.respond(torch.ones(1, 5, 1))[0, -1, 0] == 5.0
    assert "nonlinearity" not in subject.identity.assumed


def test_an_activation_counts_as_the_nonlinearity(tmp_path: Path) -> None:
    subject = opened(saved(tmp_path, VANILLA, {"activation": "ReLU"}))
    assert subject.respond(torch.ones(1, 5, 1))[0, -1, 0] == 5.0
    assert "nonlinearity" not in subject.identity.assumed


def test_an_unknown_activation_is_ignored(tmp_path: Path) -> None:
    subject = opened(saved(tmp_path, VANILLA, {"activation": "gelu"}))
    assert "tanh" in subject.identity.assumed["nonlinearity"]


@pytest.mark.parametrize("key", ["nonlinearity", "rnn_type"])
def test_a_stated_nonlinearity_goes_before_an_activation(tmp_path: Path, key: str) -> None:
    value = "relu" if key == "nonlinearity" else "RNN_RELU"
    subject = opened(saved(tmp_path, VANILLA, {key: value, "activation": "tanh"}))
    assert subject.respond(torch.ones(1, 5, 1))[0, -1, 0] == 5.0


def test_a_kind_against_the_nonlinearity_is_refused(tmp_path: Path) -> None:
    config: dict[str, object] = {"rnn_type": "RNN_RELU", "nonlinearity": "tanh"}
    with pytest.raises(SourceError, match=r"rnn_relu.*tanh") as error:
        opened(saved(tmp_path, VANILLA, config))
    assert error.value.code == "E_CONFIG"
    config["nonlinearity"] = "relu"
    assert opened(saved(tmp_path, VANILLA, config)).identity.assumed == {}


def test_weights_with_other_names_are_assumed_to_lie_as_in_torch(tmp_path: Path) -> None:
    tensors = nn.RNN(3, 3, bias=False).state_dict()
    plain = {f"rnn.{name}": value for name, value in tensors.items()}
    assert "orientation" not in opened(saved(tmp_path, plain)).identity.assumed
    short = {name.replace("weight", "w").removesuffix("_l0"): v for name, v in plain.items()}
    said = opened(saved(tmp_path, short)).identity.assumed["orientation"]
    assert said.startswith("rows are gates as in torch (")
    assert "rnn.w_hh" in said


def dropped(*, with_copy: bool) -> dict[str, Tensor]:
    tensors = {f"rnn.module.{name}": v for name, v in nn.LSTM(3, 4).state_dict().items()}
    weight = tensors["rnn.module.weight_hh_l0"]
    if not with_copy:
        del tensors["rnn.module.weight_hh_l0"]
    return {**tensors, "rnn.weight_hh_l0_raw": 2 * weight}


@pytest.mark.parametrize("with_copy", [True, False])
def test_a_dropped_out_copy_of_a_weight_is_refused(tmp_path: Path, with_copy: bool) -> None:
    with pytest.raises(SourceError, match=r"rnn\.weight_hh_l0_raw") as error:
        opened(saved(tmp_path, dropped(with_copy=with_copy)))
    assert error.value.code == "E_WEIGHTS"
    assert ("rnn.module.weight_hh_l0 " in str(error.value)) == with_copy


@pytest.mark.parametrize(
    "original", ["weight_hh_l0_g", "weight_hh_l0_orig", "parametrizations.weight_hh_l0.original0"]
)
def test_a_weight_beside_its_original_is_refused(tmp_path: Path, original: str) -> None:
    tensors = {f"lstm.{name}": value for name, value in nn.LSTM(3, 4).state_dict().items()}
    with pytest.raises(SourceError, match=original) as error:
        opened(saved(tmp_path, {**tensors, f"lstm.{original}": torch.ones(16, 1)}))
    assert error.value.code == "E_WEIGHTS"


def test_a_dropped_out_copy_in_a_module_is_refused() -> None:
    class WeightDrop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.LSTM(3, 4)
            self.weight_hh_l0_raw = nn.Parameter(torch.ones(16, 4))

    with pytest.raises(SourceError, match=r"module\.weight_hh_l0 .*weight_hh_l0_raw"):
        opened(nn.Sequential(WeightDrop()))


def test_opening_leaves_the_global_random_numbers_alone(tmp_path: Path) -> None:
    model = nn.ModuleDict({"emb": nn.Embedding(9, 2), "gru": nn.GRU(2, 3), "fc": nn.Linear(3, 4)})
    saved(tmp_path, model.state_dict())
    layers = (nn.GRU(2, 3), nn.LSTM(2, 4, proj_size=3), nn.RNNCell(2, 3), model)
    before = torch.get_rng_state()
    for source in (tmp_path, *layers):
        memaudit.load(source)
        assert torch.equal(torch.get_rng_state(), before)
