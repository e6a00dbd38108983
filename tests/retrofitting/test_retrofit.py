"""`memaudit.retrofit` and `memaudit.fold` on whole models, and what they refuse."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.loading import guard_torchvision
from memaudit.numerics.signals import seeded
from memaudit.reparams import Softplus
from tests.retrofitting.models import recurrent

guard_torchvision()


@pytest.fixture
def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = MambaConfig(hidden_size=16, num_hidden_layers=2, vocab_size=32, state_size=4)
        return MambaForCausalLM(config).eval()


def logits(model, ids=None):
    ids = torch.arange(24).reshape(2, 12) if ids is None else ids
    with torch.no_grad():
        return model(ids).logits


def test_a_mamba_computes_the_same_behind_every_stable_form(mamba):
    before = logits(mamba)
    for form in ("softplus", "best", "heavytail"):
        model = copy.deepcopy(mamba)
        done = memaudit.retrofit(model, form)
        assert [layer.old for layer in done.layers] == ["exp", "exp"]
        assert all(layer.new.startswith(form) for layer in done.layers)
        assert torch.equal(logits(model), before)
        assert done.difference == 0.0


def test_fold_gives_back_the_model_bit_by_bit(mamba):
    model = copy.deepcopy(mamba)
    memaudit.retrofit(model, "best", radius=False)
    names = memaudit.fold(model)
    assert names == tuple(f"backbone.layers.{k}.mixer.A_log" for k in (0, 1))
    mine, given = model.state_dict(), mamba.state_dict()
    assert list(mine) == list(given)
    assert all(torch.equal(mine[n], t) and mine[n].dtype == t.dtype for n, t in given.items())
    assert [type(m) for m in model.modules()] == [type(m) for m in mamba.modules()]


def test_the_constants_of_best_come_from_the_fastest_mode(mamba):
    done = memaudit.retrofit(mamba, "best", radius=False)
    fastest = float(mamba.backbone.layers[0].mixer.A_log.detach().double().exp().max())
    constants = done.layers[0].constants
    assert constants["b"] == pytest.approx(1 / (2 * fastest), rel=1e-3)
    assert constants["a"] == pytest.approx(2 * constants["b"])
    raw = mamba.backbone.layers[0].mixer.parametrizations.A_log.original0
    assert float(raw.detach().min()) == pytest.approx(0.5**0.5, rel=1e-3)


def test_constants_that_are_given_are_kept_and_modes_out_of_their_reach_refused(mamba):
    done = memaudit.retrofit(mamba, "best", a=1.0, b=0.4, radius=False)
    assert not done.layers
    assert len(done.refused) == 2
    assert "64 of 128 modes are out of reach of best" in done.refused[0].reason


def test_project_moves_what_is_out_of_reach_and_says_how_far(mamba):
    done = memaudit.retrofit(mamba, "best", project=True, a=1.0, b=0.4, radius=False)
    # Rates 1, 2, 3 and 4 of every channel; the form ends at 2.5, where 3 and 4 are put.
    assert [layer.moved for layer in done.layers] == [64, 64]
    assert done.layers[0].farthest == pytest.approx(1.5, rel=1e-2)
    assert float(mamba.backbone.layers[0].mixer.A_log.detach().exp().max()) <= 2.5 + 1e-6
    assert done.difference is not None
    assert done.difference > 0.0


def test_an_rnn_inside_of_a_module_is_found_and_keeps_its_modes():
    model = nn.Sequential(nn.Linear(3, 3), recurrent(dtype=torch.float64))
    before = torch.linalg.eigvals(model[1].weight_hh_l0.detach()).abs().sort().values
    done = memaudit.retrofit(model, "softplus")
    assert [layer.weight for layer in done.layers] == ["1.weight_hh_l0"]
    assert done.layers[0].condition >= 1.0
    after = torch.linalg.eigvals(model[1].weight_hh_l0.detach()).abs().sort().values
    assert torch.equal(after, before)


def test_an_eigenvalue_outside_is_refused_and_moved_when_that_is_asked():
    model = recurrent(radius=1.2, dtype=torch.float64)
    refused = memaudit.retrofit(model, "exp", radius=False).refused
    assert "not stable" in refused[0].reason
    done = memaudit.retrofit(model, "exp", project=True, radius=False)
    largest = float(torch.linalg.eigvals(model.weight_hh_l0.detach()).abs().max())
    assert largest == pytest.approx(1 - 1e-4, rel=1e-6)
    assert done.layers[0].farthest == pytest.approx(0.2 + 1e-4, rel=1e-2)


def test_ill_conditioned_eigenvectors_are_refused():
    model = recurrent(dtype=torch.float64)
    with torch.no_grad():
        model.weight_hh_l0.copy_(0.5 * torch.eye(6) + torch.diag(torch.ones(5), 1))
    done = memaudit.retrofit(model, "exp", radius=False)
    assert "ill-conditioned" in done.refused[0].reason


def test_an_lstm_is_refused_with_its_reason():
    done = memaudit.retrofit(nn.LSTM(3, 4), "best", radius=False)
    assert not done.layers
    assert "forget gate" in done.refused[0].reason


def test_layers_are_chosen_by_name(mamba):
    done = memaudit.retrofit(mamba, "best", layers="backbone.layers.1.*", radius=False)
    assert [layer.layer for layer in done.layers] == ["backbone.layers.1.mixer"]
    with pytest.raises(ArgumentError, match="no recurrent layer 'nowhere'"):
        memaudit.retrofit(recurrent(), layers="nowhere")


def test_the_form_that_it_has_already_is_named(mamba):
    done = memaudit.retrofit(mamba, "exp", radius=False)
    assert "already" in done.refused[0].reason


def test_radii_are_measured_before_and_after():
    layer = _direct_ssm()
    done = memaudit.retrofit(layer, "exp", radius=True).layers[0]
    assert done.old == "direct"
    assert done.radius_before is not None
    assert done.radius_after is not None
    assert done.radius_after > done.radius_before


def _direct_ssm():
    from memaudit_ssm import S4D

    layer = S4D(2, 8, parameterization="direct", generator=seeded(3)).double()
    with torch.no_grad():
        layer.kernel.log_A_real.mul_(0.02)
    return layer


class TestBadUse:
    def test_after_the_optimizer_was_built(self, mamba):
        optimizer = torch.optim.AdamW(mamba.parameters())
        with pytest.raises(ArgumentError, match="AdamW was built before the retrofit"):
            memaudit.retrofit(mamba, "best")
        assert not hasattr(mamba.backbone.layers[0].mixer, "parametrizations")
        del optimizer

    def test_twice(self, mamba):
        memaudit.retrofit(mamba, "best", radius=False)
        with pytest.raises(ArgumentError, match="retrofitted already"):
            memaudit.retrofit(mamba, "exp")

    def test_on_a_quantised_model(self, mamba):
        mamba.is_quantized = True
        with pytest.raises(SourceError, match="quantised"):
            memaudit.retrofit(mamba)

    def test_on_whole_numbers(self):
        model = nn.Sequential(recurrent())
        model.codes = nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False)
        with pytest.raises(SourceError, match="quantised"):
            memaudit.retrofit(model)

    def test_on_bert(self):
        from transformers import BertConfig, BertModel

        sizes = {"num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 16}
        bert = BertModel(BertConfig(hidden_size=16, num_hidden_layers=1, **sizes))
        with pytest.raises(SourceError, match="nothing recurrent"):
            memaudit.retrofit(bert)

    def test_on_something_else(self):
        with pytest.raises(ArgumentError, match="str is no model"):
            memaudit.retrofit("gpt2")  # type: ignore[arg-type]

    def test_with_a_form_that_is_none(self, mamba):
        with pytest.raises(memaudit.MemauditError, match="besst"):
            memaudit.retrofit(mamba, "besst")

    def test_with_a_constant_that_is_none(self, mamba):
        with pytest.raises(ArgumentError, match="'c'"):
            memaudit.retrofit(mamba, "best", c=1.0)

    def test_fold_of_what_is_not_retrofitted(self, mamba):
        with pytest.raises(ArgumentError, match="nothing in the model is retrofitted"):
            memaudit.fold(mamba)


def test_a_form_can_be_given_as_it_is(mamba):
    done = memaudit.retrofit(mamba, Softplus(), radius=False)
    assert done.layers[0].new == "softplus"
    assert done.reparam == "softplus"


def test_a_form_without_that_time_is_refused_by_layer(mamba):
    done = memaudit.retrofit(mamba, "tanh", radius=False)
    assert "no form in continuous time" in done.refused[0].reason


def test_a_continuous_form_serves_a_matrix_over_one_step():
    model = recurrent(dtype=torch.float64)
    done = memaudit.retrofit(model, "heavytail", radius=False)
    assert done.layers[0].time == "discrete"
    assert done.layers[0].new == "heavytail"


def test_the_record_is_plain_values(mamba):
    import json

    done = memaudit.retrofit(mamba, "best")
    json.dumps(done.to_dict(), allow_nan=False)
    assert "A_log: exp -> best" in str(done)


class Net(nn.Module):
    """A model of one's own, whose width nothing but a name inside of it tells."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.rnns = nn.ModuleList(nn.RNN(4, 4, batch_first=True) for _ in range(layers))

    def forward(self, x):
        x = self.encoder(x)
        for rnn in self.rnns:
            x = rnn(x)[0]
        return x


MODELS = {
    "a layer of torch": lambda layers: nn.RNN(3, 4, num_layers=layers),
    "a subject": lambda layers: memaudit.load(nn.RNN(3, 4, num_layers=layers)),
    "a model of one's own": Net,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layers", [1, 6])
def test_the_model_is_run_once_before_and_once_after_whatever_its_layers(name, layers, monkeypatch):
    torch.manual_seed(0)
    model = MODELS[name](layers)
    # Copies of a layer of torch, which a subject may have made, are run by the same forward.
    kind = Net if name == "a model of one's own" else nn.RNN
    runs, forward = [], kind.forward
    monkeypatch.setattr(kind, "forward", lambda *given: runs.append(1) or forward(*given))
    done = memaudit.retrofit(model, "exp", project=True)
    assert (len(done.layers), len(runs)) == (layers, 2)
    assert done.difference == 0.0
    assert {layer.radius_before for layer in done.layers} == {None}
