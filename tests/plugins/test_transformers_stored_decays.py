"""What makes the modes of transformers models decay, told by the adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import softplus

import memaudit
from memaudit.contracts import DiagonalDecay, NoDecay
from memaudit_transformers import TransformersAdapter
from memaudit_transformers.kinds import find_recurrences
from tests.plugins.transformers_families import FAMILIES, Family
from tests.plugins.transformers_zoo import make

#: Fixture → the stored weight and its law.
LAWS = {
    "mamba1_hf": ("A_log", "exp"),
    "mamba1_original": ("A_log", "exp"),
    "mamba2_hf": ("A_log", "exp"),
    "rwkv_hf": ("time_decay", "exp"),
    "recurrentgemma_hf": ("recurrent_param", "softplus"),
}


def told(module: nn.Module) -> list[Any]:
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
    found = told(subject.live_modules()[""])
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
    modes = torch.stack([rates(d).exp() for d in told(subject.live_modules()[""])])
    torch.testing.assert_close(modes, recorded["eigs_real"].double(), rtol=0, atol=1e-7)
    recorded = load_file(shared / "fixtures" / "mamba2_hf" / "small" / "io.safetensors")
    subject = memaudit.load(shared / "fixtures" / "mamba2_hf" / "small")
    for i, decay in enumerate(told(subject.live_modules()[""])):
        decays = torch.exp(recorded[f"dt_layer{i}"].double() * rates(decay))
        torch.testing.assert_close(decays, recorded[f"decay_layer{i}"].double(), rtol=0, atol=1e-5)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert_hf", "llama_hf"])
def test_nothing_is_told_about_attention(shared: Path, name: str) -> None:
    subject = memaudit.load(shared / "fixtures" / name / "small")
    assert told(subject.live_modules()[""]) == []


@pytest.mark.shared
def test_the_gates_of_xlstm_are_no_weight_for_a_mode(shared: Path) -> None:
    subject = memaudit.load(shared / "fixtures" / "xlstm_hf" / "small")
    found = told(subject.live_modules()[""])
    assert [type(item) for item in found] == [NoDecay, NoDecay]
    assert all("projection of the input" in item.reason for item in found)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_every_family_tells_a_law_that_its_modes_follow_or_a_reason(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    known = told(model)
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
    found = told(nn.ModuleDict({"mine": nn.Sequential(nn.Linear(2, 2), inner)}))
    assert [item.layer for item in found] == [f"mine.1.backbone.layers.{i}.mixer" for i in range(2)]
    assert found[0].owner is inner.backbone.layers[0].mixer


def test_a_layer_itself_is_the_whole_module() -> None:
    layer = rwkv()
    (item,) = told(layer)
    assert (item.layer, item.owner, item.name) == ("", layer, "time_decay")


def test_a_layer_under_two_names_is_told_once() -> None:
    layer = rwkv()
    assert [x.layer for x in told(nn.ModuleDict({"a": layer, "b": layer}))] == ["a"]


def test_one_tensor_of_two_layers_is_refused_in_both() -> None:
    first, second = rwkv(), rwkv()
    second.time_decay = first.time_decay
    found = told(nn.ModuleList([first, second, rwkv()]))
    assert [type(item) for item in found] == [NoDecay, NoDecay, DiagonalDecay]
    assert "one tensor for 2 layers" in found[0].reason


def test_a_buffer_is_refused() -> None:
    layer = holder(time_first=torch.zeros(4))
    layer.register_buffer("time_decay", torch.zeros(4))
    (item,) = told(layer)
    assert isinstance(item, NoDecay)
    assert "time_decay is a buffer" in item.reason


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_quantised_numbers_are_refused(dtype: torch.dtype) -> None:
    layer = holder(time_first=torch.zeros(4))
    stored = nn.Parameter(torch.zeros(4).to(dtype), requires_grad=False)
    layer.register_parameter("time_decay", stored)
    (item,) = told(layer)
    assert isinstance(item, NoDecay)
    assert str(dtype).removeprefix("torch.") in item.reason


def test_a_gate_inside_a_layer_owns_its_rates() -> None:
    layer, gate = nn.Module(), holder(A_log=torch.zeros(2), dt_bias=torch.zeros(6))
    layer.forget_gate = gate
    (item,) = told(nn.ModuleDict({"attention": layer}))
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
    before, plain = find_recurrences(mixer)[0].at_rest(), told(model)
    mixer.dt_proj = LowRank(mixer.dt_proj)
    assert torch.equal(find_recurrences(mixer)[0].at_rest(), before)
    assert [item.layer for item in told(model)] == [item.layer for item in plain]


def test_a_gate_with_an_adapter_of_low_rank_is_heard_with_it() -> None:
    layer = nn.Module()
    gate = layer.fgate_preact = LowRank(nn.Linear(3, 2))
    (found,) = find_recurrences(layer)
    torch.testing.assert_close(found.at_rest(), gate.base_layer.bias.detach().double().sigmoid())
    heard: list[Any] = []
    (handle,) = found.kind.hooks(layer, heard.append)
    answer = gate(torch.ones(1, 5, 3))
    handle.remove()
    torch.testing.assert_close(heard[0].decays(), answer.detach().sigmoid())
