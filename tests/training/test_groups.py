"""Parameter groups: what makes the modes has no weight decay."""

from __future__ import annotations

import pytest
import torch

from memaudit.errors import ArgumentError
from memaudit.training import parameter_groups
from tests.training.models import mamba, recurrent, retrofitted


def named(model, **options):
    names = {id(p): n for n, p in model.named_parameters()}
    groups = parameter_groups(model, **options)
    return {g["name"]: {names[id(p)] for p in g["params"]} for g in groups}


def test_raw_weights_have_a_group_without_decay():
    model = retrofitted(mamba())
    found = named(model, weight_decay=0.1)
    assert found["recurrent"] == {
        f"backbone.layers.{k}.mixer.parametrizations.A_log.original0" for k in range(2)
    }
    groups = {g["name"]: g for g in parameter_groups(model, weight_decay=0.1, lr=1e-4)}
    assert groups["recurrent"]["weight_decay"] == 0.0
    assert groups["recurrent"]["lr"] == 1e-4
    assert groups["decayed"]["weight_decay"] == 0.1
    assert "lr" not in groups["decayed"]


def test_stored_rates_have_none_either():
    found = named(mamba(), weight_decay=0.1)
    assert found["recurrent"] == {f"backbone.layers.{k}.mixer.A_log" for k in range(2)}


def test_all_raw_weights_of_a_matrix_are_free_of_decay():
    plain, model = recurrent(), retrofitted(recurrent(), "exp")
    assert "recurrent" not in named(plain, weight_decay=0.1)
    found = named(model, weight_decay=0.1)["recurrent"]
    assert found == {f"parametrizations.weight_hh_l0.original{k}" for k in range(4)}


def test_every_trained_parameter_is_in_one_group():
    model = retrofitted(mamba())
    model.backbone.embeddings.requires_grad_(False)
    model.lm_head.requires_grad_(False)
    params = [p for g in parameter_groups(model, weight_decay=0.1) for p in g["params"]]
    assert len({id(p) for p in params}) == len(params)
    assert {id(p) for p in params} == {id(p) for p in model.parameters() if p.requires_grad}
    torch.optim.AdamW(parameter_groups(model, weight_decay=0.1), lr=1e-3)


def test_biases_and_norms_are_those_of_the_trainer(tmp_path):
    from tests.training.models import trainer

    model = mamba()
    wanted = set(trainer(model, tmp_path).get_decay_parameter_names(model))
    rates = {f"backbone.layers.{k}.mixer.A_log" for k in range(2)}
    # The last norm of Mamba is called norm_f, which the Trainer does not take for one.
    norms = {"backbone.norm_f.weight"}
    tied = {"lm_head.weight"}
    assert named(model, weight_decay=0.1)["decayed"] == wanted - rates - norms - tied


def test_a_negative_decay_is_refused():
    with pytest.raises(ArgumentError, match="weight_decay is -1"):
        parameter_groups(recurrent(), weight_decay=-1.0)
