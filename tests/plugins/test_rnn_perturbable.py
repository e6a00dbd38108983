"""Copies of a recurrent network answer as modules with their weights do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter, copies
from memaudit_rnn.copies import RnnEnsemble
from memaudit_rnn.network import RecurrentNetwork

MODES = ("RNN_TANH", "RNN_RELU", "GRU", "LSTM")
POOLS = ("none", "last", "mean", "max", "final")
EXACT = 1e-12
COPIES = 5


def stack_of(mode: str, **options: object) -> nn.RNNBase:
    kind, *word = mode.split("_")
    if word:
        options["nonlinearity"] = word[0].lower()
    return getattr(nn, kind)(3, 5, 2, batch_first=True, **options)


def network_of(mode: str, *, pool: str = "none", **options: object) -> RecurrentNetwork:
    """Encoder, two layers and a head in double precision."""
    stack = stack_of(mode, **options)
    width = (stack.proj_size or stack.hidden_size) * (1 + stack.bidirectional)
    network = RecurrentNetwork(
        stack, encoder=nn.Linear(2, 3), head=nn.Linear(width, 4), pool=pool
    ).double()
    draw = torch.Generator().manual_seed(1)
    for weight in network.parameters():
        weight.uniform_(-0.6, 0.6, generator=draw)
    return network


def inputs() -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.rand(3, 7, 2, generator=draw, dtype=torch.float64) * 2 - 1


def moved(ensemble: RnnEnsemble, *groups: str, layer: str = "") -> dict[str, Tensor]:
    """Copies of every weight of these groups, and of one layer if it is named."""
    draw = torch.Generator().manual_seed(3)
    return {
        name: weight + 0.1 * torch.randn(COPIES, *weight.shape, generator=draw, dtype=weight.dtype)
        for name, weight in ensemble.weights.items()
        if ensemble.roles[name].group in groups and layer in ensemble.roles[name].layer
    }


def agree(network: RecurrentNetwork, ensemble: RnnEnsemble, values: dict[str, Tensor]) -> None:
    """Every copy is the network with its weights, with gradients wanted and without."""
    given = inputs()
    tracked = {name: value.clone().requires_grad_() for name, value in values.items()}
    quick, slow = ensemble.respond(given, values), ensemble.respond(given, tracked)
    assert quick.shape == slow.shape
    assert slow.requires_grad
    assert not quick.requires_grad
    for k in range(COPIES):
        own = {name: value[k] for name, value in values.items()}
        expected = functional_call(network, own, (given,))
        torch.testing.assert_close(quick[k], expected, rtol=0, atol=EXACT)
        torch.testing.assert_close(slow[k], expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "groups", [("recurrent",), ("input",), ("readout",), ("recurrent", "input", "readout")]
)
def test_a_copy_answers_as_the_network_with_its_weights(
    mode: str, groups: tuple[str, ...], bias: bool, bidirectional: bool
) -> None:
    network = network_of(mode, bias=bias, bidirectional=bidirectional)
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    agree(network, ensemble, moved(ensemble, *groups))


@pytest.mark.parametrize("layer", ["l0", "l1"])
def test_one_layer_may_move_alone(layer: str) -> None:
    for mode in MODES:
        network = network_of(mode)
        ensemble = RnnEnsemble(network, ["l0", "l1"])
        for group in ("recurrent", "input"):
            agree(network, ensemble, moved(ensemble, group, layer=layer))


@pytest.mark.parametrize("pool", POOLS)
def test_copies_are_pooled_as_the_network_is(pool: str) -> None:
    network = network_of("LSTM", pool=pool, bidirectional=True, proj_size=2)
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    agree(network, ensemble, moved(ensemble, "recurrent"))
    agree(network, ensemble, moved(ensemble, "readout"))


@pytest.mark.parametrize("mode", MODES)
def test_time_may_be_cut_into_chunks(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "chunk_length", lambda length, numbers: 3)
    network = network_of(mode, bidirectional=True)
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    agree(network, ensemble, moved(ensemble, "recurrent", "input"))
    agree(network, ensemble, moved(ensemble, "input"))


def test_blocks_and_threads_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of("GRU")
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    values = moved(ensemble, "recurrent", "readout")
    whole = ensemble.respond(inputs(), values)
    monkeypatch.setattr("memaudit_rnn.copies.FEWEST", 1)
    monkeypatch.setattr("memaudit_rnn.copies.MOST", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    torch.testing.assert_close(ensemble.respond(inputs(), values), whole, rtol=0, atol=EXACT)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_finite_differences(mode: str) -> None:
    options: dict[str, object] = {"proj_size": 2} if mode == "LSTM" else {"bidirectional": True}
    network = network_of(mode, pool="none", **options)
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    names = ["stack.weight_hh_l0", "stack.weight_ih_l1", "encoder.weight", "head.bias"]
    names += ["stack.weight_hr_l0"] if mode == "LSTM" else []
    values = [ensemble.weights[n].expand(2, *ensemble.weights[n].shape).clone() for n in names]

    def answer(*given: Tensor) -> Tensor:
        short = inputs()[:1, :3]
        return ensemble.respond(short, dict(zip(names, given, strict=True))).square().sum((1, 2, 3))

    tracked = tuple(value.requires_grad_() for value in values)
    assert torch.autograd.gradcheck(answer, tracked, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unmoved_copies_answer_as_the_subject_does(dtype: torch.dtype) -> None:
    for mode in MODES:
        subject = opened(stack_of(mode, bidirectional=True), dtype)
        ensemble = subject.perturbable()
        assert ensemble is not None
        given = torch.cat([inputs(), inputs()[..., :1]], dim=-1).to(dtype)
        expected = subject.respond(given)
        rounding = 20 * torch.finfo(dtype).eps
        torch.testing.assert_close(ensemble.respond(given, {})[0], expected, rtol=0, atol=rounding)
        still = {name: torch.stack([w, w]) for name, w in ensemble.weights.items()}
        both = torch.stack([expected, expected])
        torch.testing.assert_close(ensemble.respond(given, still), both, rtol=0, atol=rounding)


def test_nothing_is_written_to_the_model() -> None:
    network = network_of("LSTM", proj_size=2)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    values = moved(ensemble, "recurrent", "input", "readout")
    kept = {name: value.clone() for name, value in values.items()}
    ensemble.respond(inputs(), values)
    ensemble.respond(inputs(), {n: v.clone().requires_grad_() for n, v in values.items()})
    assert all(torch.equal(before[name], v) for name, v in network.state_dict().items())
    assert all(torch.equal(kept[name], value) for name, value in values.items())
    assert (
        ensemble.weights["head.weight"].data_ptr()
        == network.get_parameter("head.weight").data_ptr()
    )


def test_every_weight_has_its_role() -> None:
    roles = RnnEnsemble(network_of("LSTM", proj_size=2), ["a", "b"]).roles
    said = {name: (role.group, role.form, role.layer) for name, role in roles.items()}
    assert said["stack.weight_hh_l1"] == ("recurrent", "matrix", "b")
    assert said["stack.weight_hr_l0"] == ("recurrent", "matrix", "a")
    assert said["stack.weight_ih_l0"] == ("input", "matrix", "a")
    assert said["stack.bias_hh_l0"] == ("input", "vector", "a")
    assert said["encoder.bias"] == ("input", "vector", "")
    assert said["head.weight"] == ("readout", "matrix", "")


def test_the_table_of_tokens_is_no_weight_to_move() -> None:
    network = RecurrentNetwork(nn.GRU(3, 4, batch_first=True), table=nn.Embedding(9, 3))
    assert all(not name.startswith("table") for name in RnnEnsemble(network, ["gru"]).weights)


def test_weights_that_do_not_exist_or_fit_are_refused() -> None:
    ensemble = RnnEnsemble(network_of("GRU"), ["l0", "l1"])
    weight = ensemble.weights["head.bias"]
    with pytest.raises(ArgumentError, match=r"no weight 'head\.bia'"):
        ensemble.respond(inputs(), {"head.bia": weight[None]})
    with pytest.raises(ArgumentError, match=r"head.bias must be moved by \(K, 4\)"):
        ensemble.respond(inputs(), {"head.bias": weight})
    two = {"head.bias": weight[None], "encoder.bias": torch.zeros(2, 3)}
    with pytest.raises(ArgumentError, match=r"\[1, 2\] copies"):
        ensemble.respond(inputs(), two)


def test_a_host_of_one_part_is_perturbable_and_one_of_several_is_not() -> None:
    one = nn.ModuleDict({"gru": nn.GRU(3, 4), "linear": nn.Linear(2, 2)})
    ensemble = opened(one).perturbable()
    assert ensemble is not None
    assert ensemble.roles["stack.weight_hh_l0"].layer == "gru.l0"
    assert opened(nn.ModuleDict({"a": nn.GRU(3, 4), "b": nn.GRU(3, 4)})).perturbable() is None


def opened(source: object, dtype: torch.dtype | None = None) -> AbstractSubject:
    request = Request(torch.device("cpu"), dtype, None, options={})
    return RnnAdapter().load(parse_source(source), request)
