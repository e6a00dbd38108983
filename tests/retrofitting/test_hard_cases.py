"""What once went wrong: shared classes, shut gates, foreign weights, holes, and tied layers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import SourceError
from memaudit.numerics.reparameterization import raw_domain
from memaudit.numerics.signals import seeded
from memaudit.reparams import Best
from memaudit.retrofitting.record import read_config
from tests.retrofitting.models import recurrent

X = torch.randn(2, 5, 3, generator=seeded(7))


@pytest.fixture
def rnn() -> nn.RNN:
    model = recurrent()
    memaudit.retrofit(model, "exp", radius=False)
    return model


def test_fold_of_a_copy_leaves_the_original(rnn):
    answer = rnn(X)[0].detach()
    memaudit.fold(copy.deepcopy(rnn))
    assert torch.equal(rnn(X)[0], answer)
    memaudit.fold(rnn)
    assert torch.equal(rnn(X)[0], answer)


def test_one_of_two_directions_can_be_put_back_alone():
    from memaudit.retrofitting.weights import unswap

    model = nn.RNN(3, 4, bidirectional=True, batch_first=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.uniform_(-0.3, 0.3, generator=seeded(1))
    before = model(X)[0].detach()
    memaudit.retrofit(model, "exp", radius=False)
    unswap(model, "weight_hh_l0")
    assert torch.equal(model(X)[0], before)
    memaudit.fold(model)
    assert type(model) is nn.RNN
    assert torch.equal(model(X)[0], before)


def test_a_gate_that_is_shut_leaves_the_weights_of_a_gru_finite():
    model = nn.GRU(3, 4, batch_first=True)
    memaudit.retrofit(model, "best", radius=False)
    with torch.no_grad():
        model.bias_ih_l0.fill_(-1e30)
    assert model.weight_hh_l0.isfinite().all()
    assert model(X)[0].isfinite().all()


def test_infinite_turns_and_angles_are_none(rnn):
    for raw in list(rnn.parametrizations.weight_hh_l0.parameters())[1:3]:
        with torch.no_grad():
            raw.fill_(torch.inf)
    sizes = torch.linalg.eigvals(rnn.weight_hh_l0.detach().double()).abs()
    assert sizes.isfinite().all()
    assert float(sizes.max()) < 1.0


def test_plain_weights_of_another_shape_are_refused(rnn):
    state = rnn.state_dict()
    state["weight_hh_l0"] = torch.zeros(5, 5)
    with pytest.raises(RuntimeError, match="size mismatch for weight_hh_l0"):
        rnn.load_state_dict(state)


def test_plain_weights_out_of_reach_are_refused(rnn):
    state = rnn.state_dict()
    state["weight_hh_l0"] = 3.0 * state["weight_hh_l0"]
    with pytest.raises(SourceError, match="does not reach"):
        rnn.load_state_dict(state)


def test_weights_of_two_layers_in_one_are_refused():
    model = nn.ModuleList([recurrent(), recurrent()])
    model[1].weight_hh_l0 = model[0].weight_hh_l0
    done = memaudit.retrofit(model, "exp", radius=False)
    assert not done.layers
    assert all("another layer too" in one.reason for one in done.refused)


def test_a_hole_at_zero_ends_the_domain():
    # At w = 0 the discrete form with b = 1/2 is exactly -1.
    form = Best("discrete", a=1.0, b=0.5)
    low, high = raw_domain(form.forward, torch.ones(1, dtype=torch.float64), time="discrete")
    assert 0.0 < low < 1e-6
    assert high > 1.0


def test_the_sign_of_zero_comes_back():
    model = recurrent(radius=0.3)
    with torch.no_grad():
        model.weight_hh_l0[0, 1] = -0.0
    memaudit.retrofit(model, "exp", radius=False)
    memaudit.fold(model)
    assert torch.signbit(model.weight_hh_l0.detach()[0, 1])


@pytest.mark.parametrize("name", ["trust_remote_code", "allow_pickle", "dtype", "restored"])
def test_a_folder_cannot_allow_itself_anything(name):
    said = {
        "schema": 1,
        "reparam": "exp",
        "source": "x",
        "adapter": "rnn",
        "options": {name: True},
        "original": {"file": "a", "format": "safetensors", "container": "", "sha256": ""},
        "weights": {"a": {}},
        "refused": [],
    }
    said["weights"] = {
        "a": {
            "weight": "a",
            "layer": "l",
            "cell": "c",
            "kind": "dense",
            "part": "all",
            "form": {"name": "exp", "time": "discrete", "constants": {}},
            "law": None,
            "limits": [-1.0, 1.0],
        }
    }
    with pytest.raises(SourceError, match="which is the user's"):
        read_config(said)
    said["options"] = {}
    assert read_config(said).reparam == "exp"
