"""Audits of transformers models whose decays were put into another form."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import memaudit
from memaudit.reparams import Best
from memaudit.retrofitting.weights import swap
from memaudit.testing import check_perturbable
from memaudit_transformers import TransformersAdapter
from memaudit_transformers.recurrent import fast_scans, find_recurrences, unmatched
from memaudit_transformers.recurrent.alone import LayerAlone
from memaudit_transformers.recurrent.places import kernel_places
from tests.plugins.transformers_zoo import make, noise, opened

RETROFITTED = ("mamba", "mamba2", "rwkv", "recurrentgemma", "jamba")


def told(module: nn.Module) -> list[Any]:
    return list(TransformersAdapter().stored_decays(module))


def retrofitted(model: Any) -> Any:
    for decay in told(model):
        stored = getattr(decay.owner, decay.name).detach().double()
        swap(decay, Best().fitted(decay.law.forward(stored)))
    return model


@pytest.mark.parametrize("name", RETROFITTED)
def test_a_retrofitted_model_is_audited_as_before(name: str) -> None:
    model = make(name)
    before = opened(model)
    inputs = noise(2, 12, before.input_size or 1).float()
    answer, old = before.respond(inputs), before.spectra(inputs)
    weights = before.perturbable().weights
    after = opened(retrofitted(model))
    assert torch.equal(after.respond(inputs), answer)
    assert after.layers() == before.layers()
    assert after.identity == before.identity
    for now, then in zip(after.spectra(inputs), old, strict=True):
        assert now.layer == then.layer
        assert then.parameterization in ("exp", "softplus")
        assert now.parameterization.startswith("best (a=")
        assert (now.eigenvalues == then.eigenvalues).all()
        assert [p.at for p in now.points] == [p.at for p in then.points]
        for point, other in zip(now.points, then.points, strict=True):
            assert (point.eigenvalues == other.eigenvalues).all()
    assert len(after.perturbable().weights) == len(weights)


@pytest.mark.parametrize("name", RETROFITTED)
def test_the_copies_of_a_retrofitted_model_move_its_raw_weights(name: str) -> None:
    subject = opened(retrofitted(make(name)))
    check_perturbable(subject)
    copies = subject.perturbable()
    raw = [n for n in copies.weights if "parametrizations" in n]
    assert raw
    for own in raw:
        assert (copies.roles[own].group, copies.roles[own].form) == ("recurrent", "diagonal")
        assert own in subject.weights()
        assert subject.weights()[own].data_ptr() == copies.weights[own].data_ptr()
    layer, weight = copies.roles[raw[0]].layer, copies.weights[raw[0]]
    at, moved = copies.modes({raw[0]: torch.stack([weight, 1.5 * weight])})[layer]
    assert bool((moved.abs() > at.abs()).all())  # a larger raw weight of best is a slower mode


@pytest.mark.parametrize("name", RETROFITTED)
def test_a_retrofitted_model_is_opened_in_another_dtype(name: str) -> None:
    model = make(name)
    plain = opened(model, torch.float64)
    inputs = noise(2, 12, plain.input_size or 1)
    wide = opened(retrofitted(model), torch.float64)
    torch.testing.assert_close(wide.respond(inputs), plain.respond(inputs), rtol=0, atol=1e-12)
    assert wide.spectra()[0].parameterization.startswith("best")


def test_raw_weights_do_not_decide_the_dtype_of_a_model() -> None:
    model = retrofitted(make("mamba").to(torch.bfloat16))
    raw = model.backbone.layers[0].mixer.parametrizations.A_log.original0
    assert raw.dtype == torch.float32
    assert opened(model).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["mamba", "recurrentgemma"])
def test_scans_of_retrofitted_layers_are_replaced_and_put_back(name: str) -> None:
    model = make(name)
    plain = len(kernel_places(find_recurrences(model)))
    found = find_recurrences(retrofitted(model))
    assert len(kernel_places(found)) == plain > 0
    with fast_scans(model):
        assert all(hasattr(p.function, "memaudit_fast") for p in kernel_places(found))
    assert not any(hasattr(p.function, "memaudit_fast") for p in kernel_places(found))


def test_a_retrofitted_layer_alone_keeps_its_name_and_its_answer() -> None:
    mixer = make("mamba").backbone.layers[0].mixer
    plain = LayerAlone(mixer, name="mixer")
    inputs = noise(1, 9, plain.input_size or 1)
    wanted = plain.respond(inputs)
    after = LayerAlone(retrofitted(mixer), name="mixer")
    assert after.identity.family == "MambaMixer"
    assert after.live_modules()[""] is after.module
    torch.testing.assert_close(after.respond(inputs), wanted, rtol=0, atol=1e-12)


def test_every_probe_of_weights_works_on_a_retrofitted_model() -> None:
    model = make("mamba")
    asked: dict[str, Any] = {"queries": ["heaviside"], "probes": ["gradient", "precision"]}
    before = memaudit.scan(model, horizon=32, level="quick", **asked)
    after = memaudit.scan(retrofitted(model), horizon=32, level="quick", **asked)
    assert (after.memory["heaviside"].values == before.memory["heaviside"].values).all()
    assert after.gradient[0].decay.endswith("parametrizations.A_log.original0")
    single = next(r for r in after.precision.roundings if r.format == "fp32")
    assert single.error == 0.0
    assert [item.layer for item in single.layers] == ["layers.0.mixer", "layers.1.mixer"]


def test_retrofitted_layers_are_told_again_with_the_law_of_the_file() -> None:
    model = retrofitted(make("mamba"))
    assert [(d.name, d.law.name) for d in told(model)] == [("A_log", "exp")] * 2
    assert unmatched(model, find_recurrences(model)) == ()


class Doubled(nn.Module):
    """A parametrization of somebody else, which says nothing about itself."""

    def forward(self, raw: Tensor) -> Tensor:
        return 2.0 * raw

    def right_inverse(self, value: Tensor) -> Tensor:
        return value / 2.0


def test_a_foreign_parametrization_is_seen_through() -> None:
    layer = nn.Module()
    layer.time_decay = nn.Parameter(torch.linspace(-1, 1, 4))
    layer.time_first = nn.Parameter(torch.zeros(4))
    (before,) = find_recurrences(layer)
    at_rest = before.at_rest()
    parametrize.register_parametrization(layer, "time_decay", Doubled())
    (after,) = find_recurrences(layer)
    assert after.parameterization == "exp"
    assert torch.equal(after.at_rest(), at_rest)


def test_what_is_not_matched_is_named_as_without_its_parametrization() -> None:
    odd, form = nn.Module(), Doubled()
    odd.A_log = nn.Parameter(torch.zeros(2, 2, 2, 2))
    odd.dt_bias = nn.Parameter(torch.zeros(5))
    form.register_buffer("anchor", torch.zeros(1))
    parametrize.register_parametrization(odd, "A_log", form)
    assert set(unmatched(odd, find_recurrences(odd))) == {"A_log", "dt_bias"}
