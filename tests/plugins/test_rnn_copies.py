"""Copies of a recurrent network with moved weights answer as networks with those weights do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractPerturbable
from memaudit.subjects.copies import Copies
from memaudit_rnn import copies
from memaudit_rnn.copies import copies_of
from memaudit_rnn.network import RecurrentNetwork

MODES = ("RNN_TANH", "RNN_RELU", "GRU", "LSTM")
POOLS = ("none", "last", "mean", "max", "final")
#: Which weights move: all of some groups, or those with a word in their name.
MOVES = ("recurrent", "input", "readout", "", "hh_l1", "ih_l0", "bias", "_reverse", "head", "l1")
EXACT = 1e-12
COPIES = 3
SIZES = torch.tensor([0.0, 0.05, 0.2, 0.1], dtype=torch.float64)


def network_of(mode: str, *, pool: str = "none", whole: bool = True, **options: Any) -> Any:
    """Two layers in double precision, with encoder and head around them if it is whole."""
    kind, *word = mode.split("_")
    if word:
        options["nonlinearity"] = word[0].lower()
    stack = getattr(nn, kind)(3 if whole else 2, 5, 2, batch_first=True, **options)
    width = (stack.proj_size or stack.hidden_size) * (1 + stack.bidirectional)
    around = {"encoder": nn.Linear(2, 3), "head": nn.Linear(width, 4)} if whole else {}
    network = RecurrentNetwork(stack, **around, pool=pool).double()
    draw = torch.Generator().manual_seed(1)
    for weight in network.parameters():
        weight.uniform_(-0.6, 0.6, generator=draw)
    return network


def inputs() -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.rand(3, 7, 2, generator=draw, dtype=torch.float64) * 2 - 1


def directions(ensemble: Copies, what: str = "") -> dict[str, Tensor]:
    """A random direction for every copy of the weights that move."""
    draw = torch.Generator().manual_seed(3)
    return {
        name: torch.randn(COPIES, *weight.shape, generator=draw, dtype=weight.dtype)
        for name, weight in ensemble.weights.items()
        if ensemble.roles[name].group == what or what in name
    }


def agree(network: RecurrentNetwork, ensemble: Copies, what: str = "") -> None:
    """Every copy is the network with its weights, tracked or not, alone or at several sizes."""
    ways = directions(ensemble, what)
    values = {name: ensemble.weights[name] + 0.1 * way for name, way in ways.items()}
    tracked = {name: value.clone().requires_grad_() for name, value in values.items()}
    plain, slow = ensemble.respond(inputs(), values), ensemble.respond(inputs(), tracked)
    scaled = ensemble.respond_scaled(inputs(), ways, SIZES)
    assert slow.requires_grad == bool(values)
    assert not plain.requires_grad
    assert not scaled.requires_grad
    for k in range(COPIES if values else 1):
        expected = functional_call(network, {n: v[k] for n, v in values.items()}, (inputs(),))
        for answer in (plain[k], slow[k], scaled[-1, k]):
            torch.testing.assert_close(answer, expected, rtol=0, atol=EXACT)
    for s, size in enumerate(SIZES):
        moved = {name: ensemble.weights[name] + size * way for name, way in ways.items()}
        wanted = ensemble.respond(inputs(), moved)
        torch.testing.assert_close(scaled[s], wanted, rtol=0, atol=EXACT)


@settings(max_examples=120)
@given(
    st.sampled_from(MODES),
    st.sampled_from(MOVES),
    st.sampled_from(POOLS),
    st.fixed_dictionaries({name: st.booleans() for name in ("bias", "bidirectional", "whole")}),
)
def test_a_copy_answers_as_the_network_with_its_weights(
    mode: str, what: str, pool: str, options: dict[str, bool]
) -> None:
    network = network_of(mode, pool=pool, **options)
    agree(network, copies_of(network, ["l0", "l1"]), what)


@pytest.mark.parametrize("pool", POOLS)
def test_a_projected_layer_is_answered_copy_by_copy(pool: str) -> None:
    network = network_of("LSTM", pool=pool, bidirectional=True, proj_size=2)
    for what in ("recurrent", "readout"):
        agree(network, copies_of(network, ["l0", "l1"]), what)


@pytest.mark.parametrize("mode", MODES)
def test_batches_and_threads_change_no_answer(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "CACHE", 0)
    monkeypatch.setattr("memaudit.subjects.copies._MOST", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    network = network_of(mode, bidirectional=True)
    for what in ("", "recurrent", "input"):
        agree(network, copies_of(network, ["l0", "l1"]), what)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_finite_differences(mode: str) -> None:
    options: dict[str, Any] = {"proj_size": 2} if mode == "LSTM" else {"bidirectional": True}
    ensemble = copies_of(network_of(mode, **options), ["l0", "l1"])
    names = ["stack.weight_hh_l0", "stack.weight_ih_l1", "encoder.weight", "head.bias"]
    names += ["stack.weight_hr_l0"] if mode == "LSTM" else []
    values = [ensemble.weights[n].expand(2, *ensemble.weights[n].shape).clone() for n in names]

    def answer(*moved: Tensor) -> Tensor:
        short = inputs()[:1, :3]
        return ensemble.respond(short, dict(zip(names, moved, strict=True))).square().sum((1, 2, 3))

    tracked = tuple(value.requires_grad_() for value in values)
    assert torch.autograd.gradcheck(answer, tracked, fast_mode=True)


def test_the_scaled_answers_are_those_of_the_interface() -> None:
    ensemble = copies_of(network_of("LSTM"), ["l0", "l1"])
    before = {name: weight.clone() for name, weight in ensemble.weights.items()}
    plain = AbstractPerturbable.respond_scaled(ensemble, inputs(), directions(ensemble), SIZES)
    quick = ensemble.respond_scaled(inputs(), directions(ensemble), SIZES)
    assert plain.shape == quick.shape == (len(SIZES), COPIES, 3, 7, 4)
    torch.testing.assert_close(quick, plain, rtol=0, atol=EXACT)
    assert all(torch.equal(before[name], weight) for name, weight in ensemble.weights.items())
    none = ensemble.respond_scaled(inputs(), {}, SIZES)
    assert torch.equal(none, ensemble.respond(inputs(), {}).expand(len(SIZES), 1, -1, -1, -1))


def test_half_precision_rounds_every_moved_weight() -> None:
    ensemble = copies_of(network_of("RNN_TANH").bfloat16(), ["l0", "l1"])
    # A move below half of the last digit of every weight moves nothing.
    small = {n: 5e-3 * w.float()[None] for n, w in ensemble.weights.items()}
    found = ensemble.respond_scaled(inputs(), small, SIZES)
    assert torch.equal(found, found[:1].expand_as(found))


def test_every_weight_has_its_role() -> None:
    roles = copies_of(network_of("LSTM", proj_size=2), ["a", "b"]).roles
    said = {name: (role.group, role.form, role.layer) for name, role in roles.items()}
    assert said["stack.weight_hh_l1"] == ("recurrent", "matrix", "b")
    assert said["stack.weight_hr_l0"] == ("recurrent", "matrix", "a")
    assert said["stack.weight_ih_l0"] == ("input", "matrix", "a")
    assert said["stack.bias_hh_l0"] == ("input", "vector", "a")
    assert said["encoder.bias"] == ("input", "vector", "")
    assert said["head.weight"] == ("readout", "matrix", "")
    tokens = RecurrentNetwork(nn.GRU(3, 4, batch_first=True), table=nn.Embedding(9, 3))
    assert all(not name.startswith("table") for name in copies_of(tokens, ["gru"]).weights)


def test_weights_that_do_not_exist_or_fit_are_refused() -> None:
    ensemble = copies_of(network_of("GRU"), ["l0", "l1"])
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
    ensemble = memaudit.load(one).perturbable()
    assert ensemble is not None
    assert ensemble.roles["stack.weight_hh_l0"].layer == "gru.l0"
    both = nn.ModuleDict({"a": nn.GRU(3, 4), "b": nn.GRU(3, 4)})
    assert memaudit.load(both).perturbable() is None
