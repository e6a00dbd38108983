"""Which decays a retrofit may change, and audits of models that were retrofitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils import parametrize

import memaudit
from memaudit.interfaces import DiagonalDecay, NoDecay
from memaudit.reparams import Best
from memaudit.retrofitting.weights import swap
from memaudit_transformers import TransformersAdapter
from memaudit_transformers.kinds import find_recurrences
from tests.module_laws import check_perturbable
from tests.plugins.transformers_families import FAMILIES, Family
from tests.plugins.transformers_zoo import make, noise, opened

#: Fixture → the stored weight and its law.
LAWS = {
    "mamba1_hf": ("A_log", "exp"),
    "mamba1_original": ("A_log", "exp"),
    "mamba2_hf": ("A_log", "exp"),
    "rwkv_hf": ("time_decay", "exp"),
    "recurrentgemma_hf": ("recurrent_param", "softplus"),
}


def decays_in(module: nn.Module) -> list[Any]:
    return list(TransformersAdapter().stored_decays(module))


def rates(decay: DiagonalDecay) -> Tensor:
    return decay.law.forward(getattr(decay.owner, decay.name).detach().double())


def holder(**tensors: Tensor) -> nn.Module:
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_parameter(name, nn.Parameter(tensor))
    return module


def rwkv(size: int = 4) -> nn.Module:
    return holder(time_decay=torch.linspace(-1, 1, size), time_first=torch.zeros(size))


def step_sizes(owner: Any, decay: DiagonalDecay) -> Tensor | float:
    """What the rates are multiplied by at rest, from the formulas of the papers."""
    if decay.cell == "mamba1":
        return softplus(owner.dt_proj.bias.detach().double())[:, None]
    if decay.cell == "mamba2":
        return softplus(owner.dt_bias.detach().double())
    if decay.cell == "rg-lru":
        return 8.0 * torch.sigmoid(owner.recurrent_gate_bias.detach().double().flatten())
    return 1.0


@pytest.mark.shared
@pytest.mark.parametrize("name", LAWS)
def test_the_law_gives_the_eigenvalues_of_every_fixture(shared: Path, name: str) -> None:
    subject = memaudit.load(shared / "fixtures" / name / "small", dtype="float64")
    found = decays_in(subject.live_modules()[""])
    spectra = subject.spectra()
    assert len(found) == len(spectra) == 2
    for decay, spectrum in zip(found, spectra, strict=True):
        assert isinstance(decay, DiagonalDecay)
        assert (decay.name, decay.law.name, decay.law.time) == (*LAWS[name], "continuous")
        assert decay.layer.endswith(spectrum.layer)
        assert decay.cell == spectrum.cell
        modes = torch.exp(step_sizes(decay.owner, decay) * rates(decay)).flatten()
        torch.testing.assert_close(modes, torch.from_numpy(spectrum.eigenvalues).real)


@pytest.mark.shared
def test_the_law_gives_what_was_recorded(shared: Path) -> None:
    recorded = load_file(shared / "fixtures" / "rwkv_hf" / "small" / "io.safetensors")
    subject = memaudit.load(shared / "fixtures" / "rwkv_hf" / "small")
    modes = torch.stack([rates(d).exp() for d in decays_in(subject.live_modules()[""])])
    torch.testing.assert_close(modes, recorded["eigs_real"].double(), rtol=0, atol=1e-7)
    recorded = load_file(shared / "fixtures" / "mamba2_hf" / "small" / "io.safetensors")
    subject = memaudit.load(shared / "fixtures" / "mamba2_hf" / "small")
    for i, decay in enumerate(decays_in(subject.live_modules()[""])):
        decays = torch.exp(recorded[f"dt_layer{i}"].double() * rates(decay))
        torch.testing.assert_close(decays, recorded[f"decay_layer{i}"].double(), rtol=0, atol=1e-5)


@pytest.mark.shared
def test_the_gates_of_xlstm_are_no_weight_for_a_mode(shared: Path) -> None:
    subject = memaudit.load(shared / "fixtures" / "xlstm_hf" / "small")
    found = decays_in(subject.live_modules()[""])
    assert [type(item) for item in found] == [NoDecay, NoDecay]
    assert all("projection of the input" in item.reason for item in found)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_every_family_gives_a_law_that_its_modes_follow_or_a_reason(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    known = decays_in(model)
    assert [item.layer for item in known] == [recurrent.layer for recurrent in found]
    assert {item.cell for item in known} == {family.cell}
    bounded = family.cell == "kimi-delta" and found[0].parameterization == "sigmoid"
    if family.cell in ("mlstm", "lightning") or bounded:
        assert all(isinstance(item, NoDecay) and item.reason for item in known)
        return
    for item, recurrent in zip(known, found, strict=True):
        before, rate = recurrent.at_rest().log(), rates(item)
        with torch.no_grad():
            item.owner.get_parameter(item.name).add_(0.25)
        wanted = (rates(item) / rate).flatten().repeat_interleave(len(before) // rate.numel())
        after = recurrent.at_rest().log()
        assert bool((before < 0).all())
        torch.testing.assert_close(after, before * wanted)


def test_layers_inside_somebody_elses_module_are_called_by_their_path() -> None:
    inner = make("mamba").to(torch.bfloat16)
    found = decays_in(nn.ModuleDict({"mine": nn.Sequential(nn.Linear(2, 2), inner)}))
    assert [item.layer for item in found] == [f"mine.1.backbone.layers.{i}.mixer" for i in range(2)]
    assert found[0].owner is inner.backbone.layers[0].mixer


def test_one_tensor_of_two_layers_is_refused_in_both() -> None:
    first, second = rwkv(), rwkv()
    second.time_decay = first.time_decay
    found = decays_in(nn.ModuleList([first, second, rwkv()]))
    assert [type(item) for item in found] == [NoDecay, NoDecay, DiagonalDecay]
    assert "one tensor for 2 layers" in found[0].reason


def test_a_buffer_is_refused() -> None:
    layer = holder(time_first=torch.zeros(4))
    layer.register_buffer("time_decay", torch.zeros(4))
    (item,) = decays_in(layer)
    assert isinstance(item, NoDecay)
    assert "time_decay is a buffer" in item.reason


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantised_numbers_are_refused(dtype: torch.dtype) -> None:
    layer = holder(time_first=torch.zeros(4))
    stored = nn.Parameter(torch.zeros(4).to(dtype), requires_grad=False)
    layer.register_parameter("time_decay", stored)
    (item,) = decays_in(layer)
    assert isinstance(item, NoDecay)
    assert str(dtype).removeprefix("torch.") in item.reason


def test_a_gate_inside_a_layer_owns_its_rates() -> None:
    layer, gate = nn.Module(), holder(A_log=torch.zeros(2), dt_bias=torch.zeros(6))
    layer.forget_gate = gate
    (item,) = decays_in(nn.ModuleDict({"attention": layer}))
    assert (item.layer, item.owner, item.name) == ("attention", gate, "A_log")
    assert "delta rule" in item.note


class LowRank(nn.Module):
    """What a library of adapters puts around a projection."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.base_layer = inner
        self.down = nn.Linear(inner.in_features, 1, bias=False)
        self.up = nn.Linear(1, inner.out_features, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.base_layer(inputs) + self.up(self.down(inputs))


def test_an_adapter_of_low_rank_around_the_step_size_changes_nothing_at_rest() -> None:
    model = make("mamba")
    mixer = model.backbone.layers[0].mixer
    before, plain = find_recurrences(mixer)[0].at_rest(), decays_in(model)
    mixer.dt_proj = LowRank(mixer.dt_proj)
    assert torch.equal(find_recurrences(mixer)[0].at_rest(), before)
    assert [item.layer for item in decays_in(model)] == [item.layer for item in plain]


def test_a_gate_with_an_adapter_of_low_rank_is_hooked_with_it() -> None:
    layer = nn.Module()
    gate = layer.fgate_preact = LowRank(nn.Linear(3, 2))
    (found,) = find_recurrences(layer)
    torch.testing.assert_close(found.at_rest(), gate.base_layer.bias.detach().double().sigmoid())
    heard: list[Any] = []
    (handle,) = found.kind.hooks(layer, heard.append)
    answer = gate(torch.ones(1, 5, 3))
    handle.remove()
    torch.testing.assert_close(heard[0].decays(), answer.detach().sigmoid())


RETROFITTED = ("mamba", "rwkv", "recurrentgemma")


def retrofitted(model: Any) -> Any:
    for decay in decays_in(model):
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
