"""The forms of real checkpoints, found from their modes alone and with the adapter's name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import memaudit
from memaudit.gradient.forms import DENSE as UNTOLD
from memaudit.gradient.forms import GATED, as_retrofitted, synthetic_task
from memaudit.gradient.probe import Gradient
from memaudit.interfaces import Setting
from memaudit.reparams import forms
from memaudit.subjects.decays import find_decay_weight

pytestmark = pytest.mark.shared

#: Checkpoint → form, time, and how the name of the weight ends.
KNOWN = {
    "s4d_standalone/small": ("exp", "continuous", "log_A_real"),
    "s4_v4_standalone/diag": ("exp", "continuous", "A_real"),
    "s4_v4_lightning/s4d_plain": ("exp", "continuous", "A_real"),
    "s5_pytorch/small": ("direct", "continuous", "Lambda"),
    "lru_jax/small": ("exp", "discrete", "nu_log"),
    "stablessm/best": ("best", "continuous", "log_A_real"),
    "stablessm/direct": ("direct", "continuous", "log_A_real"),
    "stablessm/softplus": ("softplus", "continuous", "log_A_real"),
    "mamba1_hf/small": ("exp", "continuous", "A_log"),
    "mamba2_hf/small": ("exp", "continuous", "A_log"),
    "recurrentgemma_hf/small": ("softplus", "continuous", "recurrent_param"),
    "rwkv_hf/small": ("exp", "discrete", "time_decay"),
    "curse_of_memory/diagonalrnn": ("relu", "continuous", "W.weight"),
    "curse_of_memory/lru": ("exp, as stored", "discrete", "W.weight"),
}
#: Rank-one terms and dense matrices stand between their weights and the modes.
DENSE = ("s4_v4_standalone/dplr", "curse_of_memory/rnn")


def loaded(shared: Path, name: str):
    return memaudit.load(str(shared / "fixtures" / name))


@pytest.mark.parametrize("name", KNOWN)
def test_the_form_of_every_layer_is_found(shared, name):
    form, time, ending = KNOWN[name]
    subject = loaded(shared, name)
    copies = subject.perturbable()
    assert copies is not None
    named = form.split(",")[0]
    for layer in copies.modes({}):
        weight = find_decay_weight(copies, layer, named=named)
        assert weight is not None
        assert (weight.form, weight.time) == (form, time)
        assert weight.name.endswith(ending)


@pytest.mark.parametrize("name", ["s4d_standalone/small", "lru_jax/small"])
def test_the_recommended_form_has_the_predicted_gradient(shared, name):
    """Descent in the recommended form is run by hand, through the rates of the layer itself."""
    subject = loaded(shared, name)
    record = Gradient().measure(subject, Setting(horizon=64)).layers[0]
    told = {one.name: one for one in record.reparams}
    copies = subject.perturbable()
    assert copies is not None
    weight = find_decay_weight(copies, record.layer, named=record.current)
    assert weight is not None
    assert weight.known is not None
    form = next(f for f in forms(weight.time) if f.name == record.recommended)
    form = as_retrofitted(weight, form)
    task = synthetic_task(subject, Setting(horizon=64), steps=100)
    new = form.inverse(weight.lam).clone().requires_grad_()
    raw = copies.weights[weight.name]
    moved = weight.known.inverse(form.forward(new)).reshape(raw.shape).to(raw.dtype)[None]
    loss = task.value(copies.respond(task.inputs, {weight.name: moved})[0].double())
    (slope,) = torch.autograd.grad(loss, new)
    exact = float((slope / new.detach()).abs().max())
    # The model runs in single precision.
    assert told[record.recommended].largest == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("name", DENSE)
def test_layers_without_a_weight_per_mode_have_their_own_ratio_alone(shared, name):
    subject = loaded(shared, name)
    for record in Gradient().measure(subject, Setting(horizon=64)).layers:
        assert record.reparams == ()
        assert record.own is not None
        assert record.own > 0.0
        assert "eigenvalue form" in record.note


def test_gates_that_follow_the_data_are_compared_with_no_other_form(shared):
    for record in Gradient().measure(loaded(shared, "xlstm_hf/small"), Setting(horizon=64)).layers:
        assert (record.current, record.reparams, record.note) == ("sigmoid", (), GATED)
        assert record.own is not None


@pytest.mark.parametrize(("name", "cell"), [("gru_uni", "GRU"), ("lstm_uni", "LSTM")])
def test_recurrent_networks_have_the_ratio_of_their_weights(shared, name, cell):
    records = Gradient().measure(loaded(shared, f"torch_rnn/{name}"), Setting(horizon=64)).layers
    assert {record.cell for record in records} == {cell}
    for record in records:
        (weight,) = record.weights
        assert "weight_hh" in weight
        assert (record.reparams, record.note) == ((), UNTOLD)
