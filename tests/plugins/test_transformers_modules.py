"""Models of the library that are in memory are audited without being touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import memaudit
from memaudit.errors import SourceError
from memaudit.loading.source import parse_source
from memaudit_transformers import TransformersAdapter
from tests.plugins.transformers_zoo import ZOO, ids, make, noise, opened


def everything(model: torch.nn.Module) -> list[dict[str, Any]]:
    """What a caller could see of a model: attributes, flags and buffers of every module."""
    return [
        {k: v for k, v in vars(m).items() if k not in ("_parameters", "_modules")}
        | {f"buffer {k}": v for k, v in m._buffers.items()}
        | {f"hook {k}": v for k, v in m._forward_hooks.items()}
        for m in model.modules()
    ]


@pytest.mark.parametrize("name", ZOO)
def test_the_module_is_as_it_was(name: str) -> None:
    model = make(name).train()
    weights = copy.deepcopy(model.state_dict())
    config = copy.deepcopy(vars(model.config))
    before = everything(model)
    subject = opened(model)
    subject.respond(ids(2, 9))
    subject.listen(ids(2, 9), lambda layer, state: None)
    assert subject.model is model
    after = everything(model)
    assert all(old.keys() == new.keys() for old, new in zip(before, after, strict=True))
    assert all(old[key] is new[key] for old, new in zip(before, after, strict=True) for key in old)
    assert all(module.training for module in model.modules())
    assert {k: v for k, v in vars(model.config).items() if k in config} == config
    now = model.state_dict()
    assert all(torch.equal(now[key], weights[key]) for key in weights)


def test_a_model_in_training_is_heard_without_its_dropout() -> None:
    model = make("bert bare", hidden_dropout_prob=0.5).train()
    tokens = ids(2, 9)
    answer = opened(model).respond(tokens)
    with torch.no_grad():
        expected = copy.deepcopy(model).eval()(tokens).last_hidden_state
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-6)


def test_the_front_door_asks_no_trial() -> None:
    model = make("mamba")
    claim = TransformersAdapter().claim(parse_source(model))
    assert claim is not None
    assert claim.strength >= 15
    subject = memaudit.load(model)
    assert subject.identity.adapter == "transformers"
    assert subject.identity.family == "mamba"
    assert subject.dtype == torch.float32


def test_another_dtype_is_that_of_a_copy() -> None:
    model = make("llama")
    subject = opened(model, torch.float64)
    assert subject.model is not model
    assert subject.respond(noise(1, 5, 32)).dtype == torch.float64
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_other_modules_are_left_to_others() -> None:
    assert TransformersAdapter().claim(parse_source(torch.nn.LSTM(3, 4))) is None
    with pytest.raises(SourceError, match="no model of transformers"):
        opened(torch.nn.LSTM(3, 4))


def test_a_module_without_numbers_is_refused() -> None:
    with torch.device("meta"):
        model = make_empty()
    with pytest.raises(SourceError) as caught:
        opened(model)
    assert caught.value.code == "E_WEIGHTS"


def make_empty() -> torch.nn.Module:
    import transformers

    return transformers.MambaModel(
        transformers.MambaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, state_size=2)
    )


def test_weights_that_are_rescaled_for_half_precision_stay_where_they_are() -> None:
    """RWKV divides weights in place when it is first evaluated; an audit must not."""
    model = make("rwkv")
    tokens = ids(2, 9)
    kept = copy.deepcopy(model.state_dict())
    answer = opened(model).respond(tokens)
    assert all(torch.equal(model.state_dict()[key], kept[key]) for key in kept)
    plain = make("rwkv", rescale_every=0)
    with torch.no_grad():
        expected = plain.rwkv(tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-6)


def test_weights_that_are_rescaled_already_are_run_as_they_were_trained() -> None:
    model = make("rwkv")
    tokens = ids(2, 9)
    expected = opened(model).respond(tokens)
    with torch.no_grad():
        model.rwkv(tokens, use_cache=False)
    assert model.rwkv.layers_are_rescaled
    kept = copy.deepcopy(model.state_dict())
    assert torch.equal(opened(model).respond(tokens), expected)
    assert all(torch.equal(model.state_dict()[key], kept[key]) for key in kept)
