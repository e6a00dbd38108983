"""Raw weights beside a saved state dict: put back exactly, or refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.numerics.signals import seeded
from memaudit.retrofitting.record import read_raw, write_raw
from tests.retrofitting.models import recurrent


def stored(model: Any) -> torch.Tensor:
    return model.weight_hh_l0


def gated() -> nn.GRU:
    model, generator = nn.GRU(3, 5, batch_first=True), seeded(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.rand(weight.shape, generator=generator) - 0.25)
    return model


def trained(plain: nn.Module, form: str = "best") -> nn.Module:
    model = copy.deepcopy(plain)
    memaudit.retrofit(model, form, radius=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4, 3))[0].square().sum().backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("make", [recurrent, gated])
def test_a_trained_model_comes_back_to_the_last_bit(tmp_path, make):
    plain = make()
    model, other = trained(plain), copy.deepcopy(plain)
    write_raw(model, tmp_path)
    memaudit.retrofit(other, "best", radius=False)
    other.load_state_dict(model.state_dict())
    held = list(other.parameters())
    assert read_raw(other, tmp_path)
    assert all(a is b for a, b in zip(held, other.parameters(), strict=True))
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    assert torch.equal(stored(model), stored(other))
    inputs = torch.ones(2, 4, 3)
    assert torch.equal(model(inputs)[0], other(inputs)[0])


def test_a_folder_without_raw_weights_gives_none(tmp_path):
    model = recurrent()
    memaudit.retrofit(model, "best", radius=False)
    assert read_raw(model, tmp_path) is False


def test_raw_weights_of_another_form_are_refused(tmp_path):
    write_raw(trained(recurrent()), tmp_path)
    model = recurrent()
    memaudit.retrofit(model, "tanh", radius=False)
    with pytest.raises(SourceError, match="another form"):
        read_raw(model, tmp_path)


def test_raw_weights_of_another_size_are_refused(tmp_path):
    small, large = recurrent(4, radius=0.5), recurrent(6, radius=0.5)
    for model in (small, large):
        memaudit.retrofit(model, "best", radius=False, a=1.0, b=1.0)
    write_raw(small, tmp_path)
    with pytest.raises(SourceError, match="shapes"):
        read_raw(large, tmp_path)


def test_a_model_that_is_retrofitted_elsewhere_is_refused(tmp_path):
    write_raw(trained(recurrent()), tmp_path)
    with pytest.raises(SourceError, match="in the checkpoint, but not in the model"):
        read_raw(recurrent(), tmp_path)


def test_a_plain_model_has_no_raw_weights_to_write(tmp_path):
    with pytest.raises(ArgumentError, match="nothing in the model is retrofitted"):
        write_raw(recurrent(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_saved_module_opens_as_a_retrofitted_subject(tmp_path):
    model = trained(recurrent())
    write_raw(model, tmp_path)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    inputs = torch.ones(1, 4, 3, dtype=torch.float64)
    answer = model(inputs.float())[0].double()
    assert torch.allclose(memaudit.load(tmp_path).respond(inputs), answer, atol=1e-5)
