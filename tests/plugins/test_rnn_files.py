"""State dicts as people save them, opened by the rnn adapter from the file alone."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter
from memaudit_rnn.subject import RnnHost, RnnSubject

STACKS = {
    "lstm": nn.LSTM(3, 5, 2, batch_first=True),
    "projected": nn.LSTM(3, 6, 2, batch_first=True, bidirectional=True, proj_size=2),
    "gru": nn.GRU(3, 5, 2, batch_first=True, bidirectional=True),
    "rnn": nn.RNN(3, 5, 1, batch_first=True),
    "without_bias": nn.LSTM(3, 5, 1, batch_first=True, bias=False),
}


def opened(
    folder: Path,
    tensors: dict[str, Tensor],
    *,
    config: dict[str, object] | None = None,
    metadata: dict[str, str] | None = None,
    **options: object,
) -> AbstractSubject:
    path = folder / "model.safetensors"
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, path, metadata)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    source = parse_source(path)
    return RnnAdapter().load(source, Request(torch.device("cpu"), None, None, options=options))


def prefixed(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in module.state_dict().items()}


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("prefix", ["", "model.net.lstm.", "module.encoder.rnn.", "_orig_mod.r."])
def test_a_bare_stack_answers_as_torch_does(tmp_path: Path, name: str, prefix: str) -> None:
    module = copy.deepcopy(STACKS[name])
    subject = opened(tmp_path, prefixed(prefix, module))
    expected, _ = module.double()(noise(2, 7, 3))
    torch.testing.assert_close(subject.respond(noise(2, 7, 3)), expected.detach())
    assert subject.identity.coverage == 1.0
    assert subject.identity.dtype == "float64"


def test_wrappers_do_not_enter_the_names_of_layers(tmp_path: Path) -> None:
    subject = opened(tmp_path, prefixed("module.model.encoder.rnn.", nn.GRU(2, 3, 2)))
    names = [layer.layer for layer in subject.identity.recurrences]
    assert names == ["encoder.rnn.l0", "encoder.rnn.l1"]
    assert subject.identity.recurrences[0].parameters == 9 * 2 + 9 * 3 + 18


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_answers_as_its_own_steps(tmp_path: Path, kind: type[nn.LSTMCell]) -> None:
    cell = kind(3, 4).double()
    subject = opened(tmp_path, prefixed("cell.", cell))
    state, steps = None, []
    for step in noise(2, 6, 3).unbind(1):
        state = cell(step, state)
        steps.append(state[0] if isinstance(state, tuple) else state)
    torch.testing.assert_close(subject.respond(noise(2, 6, 3)), torch.stack(steps, 1).detach())
    assert subject.identity.recurrences[0].layer == "cell"


def test_the_impulse_response_of_a_relu_rnn_is_geometric(tmp_path: Path) -> None:
    tensors = {"rnn.weight_ih_l0": torch.ones(1, 1), "rnn.weight_hh_l0": torch.full((1, 1), 0.5)}
    subject = opened(tmp_path, tensors, nonlinearity="relu")
    impulse = torch.eye(1, 20)[..., None]
    expected = 0.5 ** torch.arange(20, dtype=torch.float64)
    assert torch.equal(subject.respond(impulse)[0, :, 0], expected)
    assert "nonlinearity" not in subject.identity.assumed


def test_the_metadata_of_the_file_states_the_nonlinearity(tmp_path: Path) -> None:
    tensors = {"rnn.weight_ih_l0": torch.ones(1, 1), "rnn.weight_hh_l0": torch.ones(1, 1)}
    subject = opened(tmp_path, tensors, metadata={"kind": "rnn", "nonlinearity": "relu"})
    assert subject.respond(torch.ones(1, 5, 1))[0, -1, 0] == 5.0
    assert "nonlinearity" not in subject.identity.assumed


def test_two_stacks_are_a_host_that_does_not_answer(tmp_path: Path) -> None:
    tensors = {**prefixed("enc_", nn.GRUCell(3, 4)), **prefixed("dec_", nn.GRUCell(5, 4))}
    odd = {k.replace("weight_", "w_").replace("bias_", "b_"): v for k, v in tensors.items()}
    host = opened(tmp_path, odd)
    assert isinstance(host, RnnHost)
    assert {name: part.input_size for name, part in host.parts().items()} == {"enc": 3, "dec": 5}
    assert host.input_size is None
    with pytest.raises(SourceError, match="dec, enc") as error:
        host.respond(torch.zeros(1, 1, 3))
    assert error.value.code == "E_UNSUPPORTED"


def test_names_that_only_differ_in_wrappers_stay_apart(tmp_path: Path) -> None:
    tensors = {**prefixed("model.lstm.", nn.LSTM(2, 3)), **prefixed("net.lstm.", nn.LSTM(2, 3))}
    assert list(opened(tmp_path, tensors).parts()) == ["model.lstm", "net.lstm"]


def damaged(**changes: Tensor | None) -> dict[str, Tensor]:
    tensors = prefixed("lstm.", nn.LSTM(3, 4, 3, bidirectional=True))
    for name, value in changes.items():
        tensors.pop(f"lstm.{name}")
        if value is not None:
            tensors[f"lstm.{name}"] = value
    return tensors


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        (damaged(weight_hh_l0=torch.zeros(16, 5)), r"weight_hh_l0.*\(16, 5\)"),
        (damaged(weight_hh_l1=torch.zeros(16, 5)), r"weight_hh_l1 \(16, 5\)"),
        (damaged(weight_ih_l1=torch.zeros(16, 4)), r"weight_ih_l1 \(16, 4\)"),
        (damaged(bias_hh_l2=torch.zeros(4)), r"bias_hh_l2 \(4,\)"),
        (damaged(bias_hh_l2=None), "lacks bias_hh_l2"),
        (damaged(weight_ih_l2_reverse=None), "lacks weight_ih_l2_reverse"),
        (damaged(weight_hh_l0=torch.zeros(16)), r"weight_hh_l0 \(16,\)"),
        (damaged(weight_hh_l0=torch.zeros(16, 4, dtype=torch.int8)), "weight_hh_l0 holds int8"),
    ],
)
def test_contradictory_weights_are_refused_by_name(
    tmp_path: Path, tensors: dict[str, Tensor], named: str
) -> None:
    with pytest.raises(SourceError, match=named) as error:
        opened(tmp_path, tensors)
    assert error.value.code == "E_WEIGHTS"
    assert "model.safetensors" in error.value.source


def test_a_missing_layer_is_refused(tmp_path: Path) -> None:
    whole = prefixed("lstm.", nn.LSTM(3, 4, 3))
    tensors = {name: value for name, value in whole.items() if "_l1" not in name}
    with pytest.raises(SourceError, match="lacks weight_ih_l1"):
        opened(tmp_path, tensors)


def test_a_weight_norm_is_named_as_the_reason(tmp_path: Path) -> None:
    tensors = prefixed("lstm.", nn.LSTM(3, 4))
    weight = tensors.pop("lstm.weight_hh_l0")
    tensors |= {"lstm.weight_hh_l0_v": weight, "lstm.weight_hh_l0_g": weight[:, :1]}
    with pytest.raises(SourceError, match=r"weight_hh_l0_g, .*_v may be a parametrization"):
        opened(tmp_path, tensors)


def test_a_leftover_weight_norm_is_named_in_the_notes(tmp_path: Path) -> None:
    tensors = {**prefixed("lstm.", nn.LSTM(3, 4)), "other.weight_hh_l0_g": torch.ones(16, 1)}
    notes = opened(tmp_path, tensors).identity.notes
    assert any("recurrent-looking" in note and "other.weight_hh_l0_g" in note for note in notes)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    tensors = prefixed("lstm.", nn.LSTM(3, 4))
    tensors["lstm.bias_ih_l0"] = torch.full((16,), float("nan"))
    with pytest.raises(SourceError, match=r"lstm\.bias_ih_l0"):
        opened(tmp_path, tensors)


@pytest.mark.parametrize(
    "config",
    [{"kind": "gru"}, {"hidden": 5}, {"num_layers": 2}, {"bidirectional": True}],
)
def test_a_config_that_contradicts_the_tensors_is_refused(
    tmp_path: Path, config: dict[str, object]
) -> None:
    with pytest.raises(SourceError, match="the config states") as error:
        opened(tmp_path, prefixed("lstm.", nn.LSTM(3, 4)), config=config)
    assert error.value.code == "E_CONFIG"


def test_a_file_without_recurrence_is_not_claimed_and_says_what_it_holds(tmp_path: Path) -> None:
    tensors = prefixed("fc.", nn.Linear(3, 4))
    with pytest.raises(SourceError, match=r"no recurrent layer.*fc\.bias \(4,\)") as error:
        opened(tmp_path, tensors)
    assert error.value.code == "E_UNSUPPORTED"
    assert RnnAdapter().claim(parse_source(tmp_path / "model.safetensors")) is None


def test_a_file_with_recurrence_is_claimed(tmp_path: Path) -> None:
    subject = opened(tmp_path, prefixed("lstm.", nn.LSTM(3, 4)))
    assert isinstance(subject, RnnSubject)
    claim = RnnAdapter().claim(parse_source(tmp_path))
    assert claim is not None
    assert (claim.family, claim.strength) == ("rnn", 10)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nonlinerity": "relu"}, "did you mean nonlinearity"),
        ({"pool": "lst"}, "did you mean last"),
        ({"nonlinearity": "relu"}, "vanilla RNNs; this is LSTM"),
        ({"head": "fcc"}, "did you mean fc"),
        ({"encoder": "fc"}, "encoder=fc has shape"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    tensors = {**prefixed("lstm.", nn.LSTM(3, 4)), **prefixed("fc.", nn.Linear(4, 2))}
    with pytest.raises(ArgumentError, match=said):
        opened(tmp_path, tensors, **options)


def test_batch_first_is_recorded_and_changes_nothing(tmp_path: Path) -> None:
    tensors = prefixed("lstm.", nn.LSTM(3, 4))
    plain = opened(tmp_path, tensors).respond(noise(2, 5, 3))
    subject = opened(tmp_path, tensors, batch_first=False)
    assert torch.equal(subject.respond(noise(2, 5, 3)), plain)
    assert any("batch_first=false" in note for note in subject.identity.notes)
