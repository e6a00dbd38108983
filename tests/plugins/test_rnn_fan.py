"""A fan of copies answers as its copies do one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from memaudit.interfaces import AbstractPerturbable
from memaudit_rnn import copies
from memaudit_rnn.copies import RnnEnsemble
from memaudit_rnn.network import RecurrentNetwork
from tests.plugins.test_rnn_perturbable import MODES, POOLS, inputs, network_of, stack_of

EXACT = 1e-12
DIRECTIONS = 3
SIZES = torch.tensor([0.0, 0.05, 0.2, 0.1], dtype=torch.float64)
EVERY = ("recurrent", "input", "readout")


def ways(ensemble: RnnEnsemble, *groups: str, part: str = "") -> dict[str, Tensor]:
    """Directions of every weight of these groups whose name has a part in it."""
    draw = torch.Generator().manual_seed(3)
    return {
        name: torch.randn(DIRECTIONS, *weight.shape, generator=draw, dtype=weight.dtype)
        for name, weight in ensemble.weights.items()
        if ensemble.roles[name].group in groups and part in name
    }


def agree(ensemble: RnnEnsemble, directions: dict[str, Tensor], x: Tensor | None = None) -> None:
    """Every entry of the fan is the answer of that copy."""
    x = inputs() if x is None else x
    found = ensemble.respond_scaled(x, directions, SIZES)
    for s, size in enumerate(SIZES):
        moved = {name: ensemble.weights[name] + size * way for name, way in directions.items()}
        torch.testing.assert_close(found[s], ensemble.respond(x, moved), rtol=0, atol=EXACT)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("groups", [("recurrent",), ("input",), ("readout",), EVERY])
def test_every_entry_is_the_answer_of_its_copy(
    mode: str, groups: tuple[str, ...], bias: bool, bidirectional: bool
) -> None:
    network = network_of(mode, bias=bias, bidirectional=bidirectional)
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    agree(ensemble, ways(ensemble, *groups))


@pytest.mark.parametrize(
    "part", ["weight_hh_l1", "weight_ih_l0", "bias_hh_l0", "bias_ih_l1", "_reverse", "bias", "l1"]
)
@pytest.mark.parametrize("mode", MODES)
def test_some_weights_may_move_alone(mode: str, part: str) -> None:
    ensemble = RnnEnsemble(network_of(mode, bidirectional=True), ["l0", "l1"])
    agree(ensemble, ways(ensemble, *EVERY, part=part))


@pytest.mark.parametrize("mode", MODES)
def test_a_bare_stack_answers_its_states(mode: str) -> None:
    stack = stack_of(mode, bidirectional=True)
    network = RecurrentNetwork(stack).double()
    ensemble = RnnEnsemble(network, ["l0", "l1"])
    draw = torch.Generator().manual_seed(4)
    x = torch.rand(2, 6, 3, generator=draw, dtype=torch.float64)
    for part in ("l0", "l1", "hh_l1_reverse"):
        agree(ensemble, ways(ensemble, "recurrent", part=part), x)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("pool", POOLS)
def test_a_fan_is_pooled_as_the_network_is(pool: str, bidirectional: bool) -> None:
    ensemble = RnnEnsemble(network_of("LSTM", pool=pool, bidirectional=bidirectional), ["l0", "l1"])
    for groups in (("recurrent",), ("readout",), EVERY):
        agree(ensemble, ways(ensemble, *groups))
    headless = RecurrentNetwork(nn.GRU(2, 4, batch_first=True).double(), pool=pool)
    ensemble = RnnEnsemble(headless, ["l0"])
    agree(ensemble, ways(ensemble, "recurrent"))


def test_blocks_and_threads_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = RnnEnsemble(network_of("GRU"), ["l0", "l1"])
    directions = ways(ensemble, *EVERY)
    whole = ensemble.respond_scaled(inputs(), directions, SIZES)
    monkeypatch.setattr(copies, "DIRECTIONS_CACHE", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    cut = ensemble.respond_scaled(inputs(), directions, SIZES)
    torch.testing.assert_close(cut, whole, rtol=0, atol=EXACT)


def test_a_projected_layer_is_answered_copy_by_copy() -> None:
    ensemble = RnnEnsemble(network_of("LSTM", proj_size=2), ["l0", "l1"])
    agree(ensemble, ways(ensemble, "recurrent"))


def test_one_size_and_no_direction_are_fans_too() -> None:
    ensemble = RnnEnsemble(network_of("GRU"), ["l0", "l1"])
    directions = ways(ensemble, "recurrent")
    moved = {name: ensemble.weights[name] + 0.2 * way for name, way in directions.items()}
    one = ensemble.respond_scaled(inputs(), directions, torch.tensor([0.2], dtype=torch.float64))
    torch.testing.assert_close(one[0], ensemble.respond(inputs(), moved), rtol=0, atol=EXACT)
    none = ensemble.respond_scaled(inputs(), {}, SIZES)
    assert torch.equal(none, ensemble.respond(inputs(), {}).expand(len(SIZES), 1, -1, -1, -1))


def test_half_precision_rounds_every_moved_weight() -> None:
    ensemble = RnnEnsemble(network_of("RNN_TANH").bfloat16(), ["l0", "l1"])
    # A move below half of the last digit of every weight moves nothing.
    directions = {n: 5e-3 * w.float()[None] for n, w in ensemble.weights.items()}
    found = ensemble.respond_scaled(inputs(), directions, SIZES)
    assert torch.equal(found, found[:1].expand_as(found))


def test_the_weights_are_as_they_were_and_nothing_tracks_gradients() -> None:
    ensemble = RnnEnsemble(network_of("LSTM"), ["l0", "l1"])
    before = {name: weight.clone() for name, weight in ensemble.weights.items()}
    found = ensemble.respond_scaled(inputs(), ways(ensemble, *EVERY), SIZES)
    assert not found.requires_grad
    assert all(torch.equal(before[name], weight) for name, weight in ensemble.weights.items())


def test_the_fan_of_the_contract_is_the_same() -> None:
    ensemble = RnnEnsemble(network_of("LSTM"), ["l0", "l1"])
    directions = ways(ensemble, *EVERY)
    plain = AbstractPerturbable.respond_scaled(ensemble, inputs(), directions, SIZES)
    quick = ensemble.respond_scaled(inputs(), directions, SIZES)
    assert plain.shape == quick.shape == (len(SIZES), DIRECTIONS, 3, 7, 4)
    torch.testing.assert_close(quick, plain, rtol=0, atol=EXACT)
