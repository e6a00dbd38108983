"""Recurrent layers of torch, from files as people save them and from modules in memory."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import AbstractSubject
from memaudit_rnn import recognition
from tests.plugins.recorded_answers import LIMITS, assert_close_to_record, fed, records

FIXTURES = ("lstm_uni", "lstm_bi", "gru_uni", "gru_bi", "rnn_uni")
CAUSAL = ("lstm_uni", "gru_uni", "rnn_uni")
STACKS = {
    "lstm": nn.LSTM(3, 5, 2, batch_first=True),
    "projected": nn.LSTM(3, 6, 2, batch_first=True, bidirectional=True, proj_size=2),
    "gru": nn.GRU(3, 5, 2, batch_first=True, bidirectional=True),
    "rnn": nn.RNN(3, 5, 1, batch_first=True),
    "without_bias": nn.LSTM(3, 5, 1, batch_first=True, bias=False),
}
ONES = {"rnn.weight_ih_l0": torch.ones(1, 1), "rnn.weight_hh_l0": torch.ones(1, 1)}


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
        dtype
    )


def prefixed(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in module.state_dict().items()}


def opened(
    folder: Path,
    tensors: dict[str, Tensor],
    *,
    config: dict[str, object] | None = None,
    metadata: dict[str, str] | None = None,
    **options: Any,
) -> AbstractSubject:
    path = folder / "model.safetensors"
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, path, metadata)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return memaudit.load(path, adapter="rnn", **options)


# -- The reference checkpoints.


@pytest.mark.shared
@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("file", ["", "model.pt"])
@pytest.mark.parametrize("dtype", LIMITS)
def test_recorded_outputs_are_reproduced(shared: Path, name: str, file: str, dtype: str) -> None:
    folder = shared / "fixtures" / "torch_rnn" / name
    assert_close_to_record(memaudit.load(folder / file, dtype=dtype), folder)


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["heaviside", "impulse", "zero", "repeat"])
def test_prefixes_of_the_pooled_classifier_are_reproduced(shared: Path, kind: str) -> None:
    folder = shared / "fixtures" / "torch_rnn" / "lstm_bi"
    subject, recorded = memaudit.load(folder), records(folder)
    assert (subject.pooled, subject.input_size) == (True, 16)
    expected = recorded[f"{kind}_prefix_output"]
    for row, length in zip(expected, recorded["prefix_lengths"].tolist(), strict=True):
        inputs = (
            recorded["repeat_token"].expand(1, length)
            if kind == "repeat"
            else fed(kind, 16)[:, :length]
        )
        answer = subject.respond(inputs)[0].float()
        torch.testing.assert_close(answer, row, rtol=0, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.shared
def test_the_classifier_is_described_and_its_pooling_is_an_assumption(shared: Path) -> None:
    identity = memaudit.load(shared / "fixtures" / "torch_rnn" / "lstm_bi").identity
    expected = "2-layer bidirectional LSTM, 16 → 32, embedding of 24 tokens, head to 4"
    assert identity.description == expected
    assert (identity.coverage, identity.parameters) == (1.0, 38532)
    layers = [(layer.layer, layer.directions) for layer in identity.recurrences]
    assert layers == [("lstm.l0", 2), ("lstm.l1", 2)]
    assert "4 classes" in identity.assumed["pool"]
    assumed = memaudit.load(shared / "fixtures" / "torch_rnn" / "rnn_uni").identity.assumed
    assert assumed["nonlinearity"].startswith("tanh (not stored")


def recorded_curves(folder: Path) -> dict[str, np.ndarray]:
    """Memory by its definition, from the recorded answers to ones, an impulse and zeros."""
    io = {key: value.numpy() for key, value in records(folder).items()}
    step, impulse, zero = (io[f"{k}_output64"][0] for k in ("heaviside", "impulse", "zero"))
    return {
        "heaviside": np.abs(np.diff(step - zero, axis=0)).max(-1)[:511],
        "impulse": np.abs(impulse - zero).max(-1)[:511],
    }


@pytest.mark.shared
@pytest.mark.parametrize("name", [*CAUSAL, "gru_bi"])
def test_measured_curves_are_those_of_the_record(shared: Path, name: str) -> None:
    folder = shared / "fixtures" / "torch_rnn" / name
    asked = ["heaviside", "impulse"]
    at_ones = memaudit.scan(folder, horizon=511, queries=asked, normalization="universal")
    # The record ends at 512, and a backward direction feels that end; the audit runs on.
    until = 256 if name == "gru_bi" else 511
    for query, record in recorded_curves(folder).items():
        assert np.abs(at_ones.memory[query].values - record)[:until].max() <= 1e-9
    codes = {finding.code for finding in at_ones.findings}
    assert ("MA301" in codes) == (name == "gru_bi")


@pytest.mark.shared
@pytest.mark.parametrize("name", CAUSAL)
def test_the_supremum_is_above_the_record_and_decays_as_its_spectrum(
    shared: Path, name: str
) -> None:
    folder = shared / "fixtures" / "torch_rnn" / name
    asked = ["heaviside", "impulse", "reversed"]
    report = memaudit.scan(folder, horizon=512, level="quick", queries=asked)
    for query, record in recorded_curves(folder).items():
        curve = report.memory[query]
        above = record > 10 * curve.floor
        # Another processor adds in another order: below the floor the curve says nothing.
        assert (curve.values[:511][above] >= (1 - 1e-9) * record[above] - curve.floor).all()
    io = records(folder)
    slowest = -float(torch.complex(io["eigs_real"], io["eigs_imag"]).abs().max().log())
    decay = report.memory["reversed"].decay
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(slowest, rel=0.01)


@pytest.mark.shared
def test_a_pooled_classifier_is_read_from_its_recorded_prefixes(shared: Path) -> None:
    folder = shared / "fixtures" / "torch_rnn" / "lstm_bi"
    io = {key: value.numpy() for key, value in records(folder).items()}
    lengths = io["prefix_lengths"].tolist()
    options = {"queries": ["heaviside"], "normalization": "universal"}
    report = memaudit.scan(folder, horizon=16, **options)
    assert report.complete
    first = io["heaviside_prefix_output"] - io["zero_prefix_output"]
    step = first[lengths.index(2)] - first[lengths.index(1)]
    assert report.memory["heaviside"].values[0] == pytest.approx(np.linalg.norm(step), rel=1e-4)


# -- Files: what is recognised.


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("prefix", ["", "module.encoder.rnn.", "_orig_mod.r."])
def test_a_bare_stack_answers_as_torch_does(tmp_path: Path, name: str, prefix: str) -> None:
    module = copy.deepcopy(STACKS[name])
    subject = opened(tmp_path, prefixed(prefix, module))
    expected, _ = module.double()(noise(2, 7, 3))
    torch.testing.assert_close(subject.respond(noise(2, 7, 3)), expected.detach())
    assert (subject.identity.coverage, subject.identity.dtype) == (1.0, "float64")


def test_wrappers_enter_the_names_of_layers_only_to_keep_them_distinct(tmp_path: Path) -> None:
    subject = opened(tmp_path, prefixed("module.model.encoder.rnn.", nn.GRU(2, 3, 2)))
    names = [layer.layer for layer in subject.identity.recurrences]
    assert names == ["encoder.rnn.l0", "encoder.rnn.l1"]
    assert subject.identity.recurrences[0].parameters == 9 * 2 + 9 * 3 + 18
    twins = {**prefixed("model.lstm.", nn.LSTM(2, 3)), **prefixed("net.lstm.", nn.LSTM(2, 3))}
    assert list(opened(tmp_path, twins).parts()) == ["model.lstm", "net.lstm"]


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
    expected = 0.5 ** torch.arange(20, dtype=torch.float64)
    assert torch.equal(subject.respond(torch.eye(1, 20)[..., None])[0, :, 0], expected)
    assert "nonlinearity" not in subject.identity.assumed


def test_several_stacks_are_a_host_that_does_not_answer(tmp_path: Path) -> None:
    tensors = {**prefixed("enc_", nn.GRUCell(3, 4)), **prefixed("dec_", nn.GRUCell(5, 4))}
    odd = {k.replace("weight_", "w_").replace("bias_", "b_"): v for k, v in tensors.items()}
    host = opened(tmp_path, odd)
    assert {name: part.input_size for name, part in host.parts().items()} == {"enc": 3, "dec": 5}
    assert host.input_size is None
    with pytest.raises(SourceError, match=r"E_UNSUPPORTED.*dec, enc"):
        host.respond(torch.zeros(1, 1, 3))
    many = {k: v for i in range(12) for k, v in prefixed(f"r{i}.", nn.RNN(1, 1)).items()}
    subject = opened(tmp_path, many)
    assert len(subject.parts()) == len(subject.identity.recurrences) == 12
    assert "and 4 more" in subject.identity.description


def test_more_recurrent_layers_than_any_model_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognition, "MOST_STACKS", 2)
    tensors = {k: v for i in range(3) for k, v in prefixed(f"r{i}.", nn.RNN(1, 1)).items()}
    with pytest.raises(SourceError, match=r"E_LIMIT.*3 recurrent layers stand side by side"):
        opened(tmp_path, tensors)


def test_a_file_without_recurrence_says_what_it_holds(tmp_path: Path) -> None:
    tensors = prefixed("fc.", nn.Linear(3, 4))
    with pytest.raises(SourceError, match=r"E_UNSUPPORTED.*no recurrent layer.*fc\.bias \(4,\)"):
        opened(tmp_path, tensors)
    with pytest.raises(SourceError, match="E_UNSUPPORTED"):
        memaudit.load(tmp_path / "model.safetensors")


# -- Files: names that collide.


@pytest.mark.parametrize("alias", ["weight_hh_l00", "weight_hh_l0\n", "weight_hh_l\u0660"])
def test_another_spelling_of_a_layer_replaces_nothing(tmp_path: Path, alias: str) -> None:
    tensors = prefixed("rnn.", nn.RNN(3, 3))
    subject = opened(tmp_path, {**tensors, f"rnn.{alias}": torch.eye(3)})
    (part,) = subject.parts().values()
    stored = tensors["rnn.weight_hh_l0"].double()
    assert any(torch.equal(weight, stored) for weight in part.weights().values())
    assert any("recurrent-looking tensors" in note for note in subject.identity.notes)


def test_two_names_for_one_place_are_refused_and_named(tmp_path: Path) -> None:
    tensors = {**prefixed("rnn.", nn.RNN(3, 3)), "rnn.w_hh_l0": torch.eye(3)}
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, tensors)
    assert caught.value.code == "E_WEIGHTS"
    assert all(name in caught.value.fact for name in ("rnn.weight_hh_l0", "rnn.w_hh_l0"))


@pytest.mark.parametrize(
    "others", [("rnn.", "rnn_"), ("a\u200b.", "a."), ("x" * 400 + ".", "x" * 401 + ".")]
)
def test_layers_whose_printed_names_are_alike_are_all_kept(
    tmp_path: Path, others: tuple[str, str]
) -> None:
    tensors = {**prefixed(others[0], nn.RNN(2, 2)), **prefixed(others[1], nn.RNN(2, 4))}
    parts = opened(tmp_path, tensors).parts().values()
    assert sorted(part.identity.recurrences[0].size for part in parts) == [2, 4]


# -- Files: what contradicts itself.


def damaged(**changes: Tensor | None) -> dict[str, Tensor]:
    tensors = prefixed("lstm.", nn.LSTM(3, 4, 3, bidirectional=True))
    for name, value in changes.items():
        tensors.pop(f"lstm.{name}")
        if value is not None:
            tensors[f"lstm.{name}"] = value
    return tensors


def without_layer_1() -> dict[str, Tensor]:
    return {k: v for k, v in prefixed("lstm.", nn.LSTM(3, 4, 3)).items() if "_l1" not in k}


def beside(*originals: str, lost: bool = False) -> dict[str, Tensor]:
    """An LSTM with what a parametrization of its weight would leave beside it."""
    tensors = prefixed("lstm.module.", nn.LSTM(3, 4))
    if lost:
        del tensors["lstm.module.weight_hh_l0"]
    return {**tensors, **{name: torch.ones(16, 1) for name in originals}}


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
        (without_layer_1(), "lacks weight_ih_l1"),
        (beside("lstm.module.weight_hh_l0_g"), "weight_hh_l0_g"),
        (beside("lstm.module.weight_hh_l0_orig"), "weight_hh_l0_orig"),
        (
            beside("lstm.module.parametrizations.weight_hh_l0.original0"),
            r"parametrizations\.weight_hh_l0\.original0",
        ),
        (beside("lstm.weight_hh_l0_raw"), r"module\.weight_hh_l0 .*lstm\.weight_hh_l0_raw"),
        (beside("lstm.weight_hh_l0_raw", lost=True), r"lstm\.weight_hh_l0_raw"),
        (
            beside("lstm.module.weight_hh_l0_v", "lstm.module.weight_hh_l0_g", lost=True),
            r"weight_hh_l0_g, .*_v may be a parametrization",
        ),
    ],
)
def test_contradictory_weights_are_refused_by_name(
    tmp_path: Path, tensors: dict[str, Tensor], named: str
) -> None:
    with pytest.raises(SourceError, match=named) as error:
        opened(tmp_path, tensors)
    assert error.value.code == "E_WEIGHTS"
    assert "model.safetensors" in error.value.source


def test_an_original_elsewhere_is_named_in_the_notes(tmp_path: Path) -> None:
    tensors = {**prefixed("lstm.", nn.LSTM(3, 4)), "other.weight_hh_l0_g": torch.ones(16, 1)}
    notes = opened(tmp_path, tensors).identity.notes
    assert any("recurrent-looking" in note and "other.weight_hh_l0_g" in note for note in notes)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    module = nn.LSTM(3, 4)
    with torch.no_grad():
        module.get_parameter("bias_ih_l0").fill_(float("nan"))
    with pytest.raises(SourceError, match=r"lstm\.bias_ih_l0"):
        opened(tmp_path, prefixed("lstm.", module))
    with pytest.raises(SourceError, match="bias_ih_l0"):
        memaudit.load(module)


# -- Files: what is stated beside the weights.


@pytest.mark.parametrize(
    "config", [{"kind": "gru"}, {"hidden": 5}, {"num_layers": 2}, {"bidirectional": True}]
)
def test_a_config_that_contradicts_the_tensors_is_refused(
    tmp_path: Path, config: dict[str, object]
) -> None:
    with pytest.raises(SourceError, match=r"E_CONFIG.*the config states"):
        opened(tmp_path, prefixed("lstm.", nn.LSTM(3, 4)), config=config)


@pytest.mark.parametrize(
    ("config", "relu"),
    [
        ({"activation": "ReLU"}, True),
        ({"activation": "gelu"}, False),
        ({"nonlinearity": "relu", "activation": "tanh"}, True),
        ({"rnn_type": "RNN_RELU", "activation": "tanh"}, True),
        ({"rnn_type": "RNN_RELU", "nonlinearity": "relu"}, True),
    ],
)
def test_a_config_states_the_nonlinearity(
    tmp_path: Path, config: dict[str, object], relu: bool
) -> None:
    subject = opened(tmp_path, ONES, config=config)
    assert (subject.respond(torch.ones(1, 5, 1))[0, -1, 0] == 5.0) == relu
    assert ("nonlinearity" in subject.identity.assumed) != relu


def test_metadata_and_lightning_state_the_nonlinearity_too(tmp_path: Path) -> None:
    stated = opened(tmp_path, ONES, metadata={"kind": "rnn", "nonlinearity": "relu"})
    content = {"state_dict": ONES, "hyper_parameters": {"nonlinearity": "relu"}}
    torch.save(content, tmp_path / "last.ckpt")
    for subject in (stated, memaudit.load(tmp_path / "last.ckpt")):
        assert subject.respond(torch.ones(1, 5, 1))[0, -1, 0] == 5.0
        assert "nonlinearity" not in subject.identity.assumed
    with pytest.raises(SourceError, match=r"E_CONFIG.*rnn_relu.*tanh"):
        opened(tmp_path, ONES, config={"rnn_type": "RNN_RELU", "nonlinearity": "tanh"})


@pytest.mark.parametrize("text", ["[" * 200_000, '{"hidden": "' + "9" * 5000 + '"}'])
def test_metadata_that_python_cannot_hold_states_nothing(tmp_path: Path, text: str) -> None:
    tensors = prefixed("lstm.", nn.LSTM(3, 4))
    stated = {"hparams": text, "layers": re.sub(r"\D", "", text)}
    assert opened(tmp_path, tensors, metadata=stated).identity.coverage == 1.0


def test_weights_with_other_names_are_assumed_to_lie_as_in_torch(tmp_path: Path) -> None:
    plain = prefixed("rnn.", nn.RNN(3, 3, bias=False))
    assert "orientation" not in opened(tmp_path, plain).identity.assumed
    short = {name.replace("weight", "w").removesuffix("_l0"): v for name, v in plain.items()}
    said = opened(tmp_path, short).identity.assumed["orientation"]
    assert said.startswith("rows are gates as in torch (")
    assert "rnn.w_hh" in said


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


def test_opening_leaves_the_global_random_numbers_alone(tmp_path: Path) -> None:
    model = nn.ModuleDict({"emb": nn.Embedding(9, 2), "gru": nn.GRU(2, 3), "fc": nn.Linear(3, 4)})
    layers = (nn.GRU(2, 3), nn.LSTM(2, 4, proj_size=3), nn.RNNCell(2, 3), model)
    before = torch.get_rng_state()
    opened(tmp_path, dict(model.state_dict()))
    for module in layers:
        memaudit.load(module)
    assert torch.equal(torch.get_rng_state(), before)


# -- Modules in memory.


class Wrapped(nn.Module):
    """Two recurrent layers and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3)
        self.gru = nn.GRU(3, 4)
        self.cell = nn.LSTMCell(4, 5)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "kind", [nn.LSTM, nn.GRU, nn.RNN, lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)]
)
def test_a_bare_layer_answers_batch_first(kind: type[nn.LSTM], batch_first: bool) -> None:
    module = kind(3, 4, 2, bidirectional=True, batch_first=batch_first)
    inputs = noise(2, 6, 3, dtype=torch.float32)
    expected = module(inputs if batch_first else inputs.transpose(0, 1))[0].detach()
    answer = memaudit.load(module).respond(inputs)
    assert answer.dtype == torch.float32
    torch.testing.assert_close(answer, expected if batch_first else expected.transpose(0, 1))


def test_dropout_is_off_and_the_module_is_left_as_it_was() -> None:
    module = nn.LSTM(3, 4, 2, dropout=0.9).train()
    weight = module.get_parameter("weight_hh_l0")
    weight.grad = torch.ones_like(weight)
    before = copy.deepcopy(module.state_dict())
    subject = memaudit.load(module, dtype="float64")
    answer = subject.respond(noise(2, 6, 3))
    assert torch.equal(answer, subject.respond(noise(2, 6, 3)))
    assert module.training
    assert weight is module.weight_hh_l0
    assert weight.requires_grad
    assert torch.equal(weight.grad, torch.ones_like(weight))
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.no_grad():
        weight.zero_()
    assert torch.equal(subject.respond(noise(2, 6, 3)), answer)


def test_a_module_that_contains_layers_is_a_host_of_them() -> None:
    module, inputs = Wrapped(), noise(2, 5, 3, dtype=torch.float32)
    host = memaudit.load(module)
    assert {name: part.input_size for name, part in host.parts().items()} == {"gru": 3, "cell": 4}
    share = sum(p.numel() for m in (module.gru, module.cell) for p in m.parameters())
    assert host.identity.coverage == share / sum(p.numel() for p in module.parameters())
    expected = module.gru(inputs.transpose(0, 1))[0].transpose(0, 1).detach()
    torch.testing.assert_close(host.parts()["gru"].respond(inputs), expected)


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_parametrized_layer_is_run_with_its_effective_weight(norm: Any) -> None:
    module, inputs = norm(nn.LSTM(3, 4, batch_first=True), "weight_hh_l0"), noise(1, 5, 3).float()
    before = copy.deepcopy(module.state_dict())
    answer = memaudit.load(module).respond(inputs)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    torch.testing.assert_close(answer, module.eval()(inputs)[0].detach())


def test_a_dropped_out_copy_in_a_module_is_refused() -> None:
    dropped = nn.Module()
    dropped.module, dropped.weight_hh_l0_raw = nn.LSTM(3, 4), nn.Parameter(torch.ones(16, 4))
    with pytest.raises(SourceError, match=r"module\.weight_hh_l0 .*weight_hh_l0_raw"):
        memaudit.load(nn.Sequential(dropped))


def test_what_no_module_can_answer_is_refused() -> None:
    with pytest.raises(SourceError, match=r"E_UNSUPPORTED.*contains no"):
        memaudit.load(nn.Linear(2, 2), adapter="rnn")
    for option in ({"nonlinearity": "relu"}, {"head": "fc"}):
        with pytest.raises(ArgumentError, match="is an option of files"):
            memaudit.load(nn.RNN(3, 4), **option)


def test_a_layer_may_be_pooled() -> None:
    module = nn.GRU(3, 4, bidirectional=True, batch_first=True)
    inputs = noise(2, 5, 3, dtype=torch.float32)
    final = module(inputs)[1].detach()
    answer = memaudit.load(module, pool="final").respond(inputs)
    torch.testing.assert_close(answer, torch.cat((final[0], final[1]), dim=1))


def test_a_forward_of_its_own_is_noted() -> None:
    class Doubled(nn.GRU):
        def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002
            return 2 * super().forward(input, hx)[0]

    notes = memaudit.load(Doubled(3, 4)).identity.notes
    assert any("forward of its own" in note for note in notes)
