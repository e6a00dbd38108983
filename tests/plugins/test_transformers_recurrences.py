"""The recurrent layers of transformers: kinds, scans, spectra and exponents of every family."""

from __future__ import annotations

import functools
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memaudit.numerics.wide_floats import really_float64
from memaudit_transformers.kinds import find_recurrences, largest_exponent, spectra_of, unmatched
from memaudit_transformers.scans import (
    CHUNK_SCAN,
    SELECTIVE_SCAN,
    Place,
    Steps,
    decays_of,
    fast_scans,
    fast_version,
    is_compiled,
    kernel_places,
    signature_of,
)
from tests.plugins.transformers_families import FAMILIES, VOCABULARY, Family


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def holder(**tensors: Tensor) -> nn.Module:
    """A module with nothing but these parameters."""
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_parameter(name, nn.Parameter(tensor))
    return module


def only(module: nn.Module):
    (found,) = find_recurrences(module)
    return found


def test_mamba1_at_rest_is_exp_of_minus_rate_times_step() -> None:
    module = holder(A_log=torch.log(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)))
    module.dt_proj = nn.Linear(1, 2).double()
    with torch.no_grad():
        module.dt_proj.bias.copy_(torch.log(torch.expm1(torch.tensor([0.5, 0.25]))))
    found = only(module)
    assert (found.cell, found.parameterization, found.size) == ("mamba1", "exp", 4)
    expected = torch.exp(-torch.tensor([0.5, 1.0, 0.75, 1.0], dtype=torch.float64))
    torch.testing.assert_close(found.at_rest(), expected, rtol=1e-7, atol=0)


def test_heads_of_mamba1_stand_in_one_row() -> None:
    raw, bias = normal(2, 3, 4), normal(2, 3, seed=1)
    found = only(holder(A_log=raw, dt_proj_bias=bias))
    assert (found.cell, found.size) == ("mamba1", 24)
    steps = torch.nn.functional.softplus(bias)
    expected = torch.exp(-torch.exp(raw) * steps[..., None])
    torch.testing.assert_close(found.at_rest(), expected.flatten())


def test_mamba2_keeps_its_step_sizes_inside_the_limit() -> None:
    zeros = torch.zeros(3, dtype=torch.float64)
    module = holder(A_log=zeros, dt_bias=torch.tensor([-9.0, 0.0, 9.0]).double(), D=zeros)
    vars(module)["time_step_limit"] = (0.1, 1.0)
    found = only(module)
    assert found.cell == "mamba2"
    expected = torch.tensor([math.exp(-0.1), 0.5, math.exp(-1.0)], dtype=torch.float64)
    torch.testing.assert_close(found.at_rest(), expected)


def test_without_a_skip_it_is_the_delta_rule() -> None:
    zeros = torch.zeros(3, dtype=torch.float64)
    found = only(holder(A_log=zeros, dt_bias=zeros))
    assert found.cell == "gated-delta"
    torch.testing.assert_close(found.at_rest(), torch.full((3,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(2,), (1, 1, 2, 1)])
@pytest.mark.parametrize("bound", [None, -5.0])
def test_a_gate_with_a_bias_per_channel_belongs_to_the_layer_around_it(
    shape: tuple[int, ...], bound: float | None
) -> None:
    raw, bias = normal(*shape), normal(6, seed=1)
    layer, gate = nn.Module(), holder(A_log=raw, dt_bias=bias)
    layer.forget_gate, vars(gate)["lower_bound"] = gate, bound
    model = nn.ModuleDict({"attention": layer})
    found = only(model)
    assert (found.layer, found.cell, found.size) == ("attention", "kimi-delta", 6)
    rate, bias = torch.exp(raw).reshape(2, 1), bias.reshape(2, 3)
    if bound is None:
        expected = torch.exp(-rate * torch.nn.functional.softplus(bias))
    else:
        expected = torch.exp(bound * torch.sigmoid(rate * bias))
    assert found.parameterization == ("exp" if bound is None else "sigmoid")
    torch.testing.assert_close(found.at_rest(), expected.flatten())


def test_rg_lru_at_rest_has_its_gate_at_the_bias() -> None:
    bias = torch.zeros(2, 2, dtype=torch.float64)
    raw = torch.log(torch.expm1(torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)))
    found = only(holder(recurrent_param=raw, recurrent_gate_bias=bias))
    expected = torch.exp(-4 * torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64))
    assert (found.cell, found.parameterization) == ("rg-lru", "softplus")
    torch.testing.assert_close(found.at_rest(), expected)


def test_a_fixed_slope_is_no_parameter() -> None:
    module = nn.Module()
    module.register_buffer("slope_rate", torch.tensor([1.0, 2.0])[:, None, None])
    found = only(module)
    assert (found.cell, found.parameterization, found.parameters) == ("lightning", "fixed", 0)
    expected = torch.exp(-torch.tensor([1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(found.at_rest(), expected)


@pytest.mark.parametrize("mode", ["single", "fused"])
def test_forget_gates_of_xlstm_are_hooked_alone_and_fused_with_the_input_gates(mode: str) -> None:
    from transformers import xLSTMConfig
    from transformers.models.xlstm.modeling_xlstm import xLSTMLayer

    config = xLSTMConfig(hidden_size=8, num_heads=2, chunk_size=4, weight_mode=mode)
    config.autocast_kernel_dtype = "float32"
    with torch.random.fork_rng(devices=[]):
        layer = xLSTMLayer(config).eval()
    weight, bias = normal(2, 8).float(), normal(2, seed=1).float()
    gate = layer.fgate_preact if mode == "single" else layer.ifgate_preact
    with torch.no_grad():
        gate.weight[-2:], gate.bias[-2:] = weight, bias
    inputs = normal(3, 5, 8, seed=2).float()
    capped = 15 * torch.tanh((inputs @ weight.T + bias) / 15)
    found = find_recurrences(layer)
    heard = decays_of(found, lambda x: layer(x), inputs)
    torch.testing.assert_close(heard[""], torch.sigmoid(capped))
    expected = torch.sigmoid(15 * torch.tanh(bias.double() / 15))
    torch.testing.assert_close(found[0].at_rest(), expected)


def test_a_layer_under_two_names_is_listed_once() -> None:
    layer = holder(time_decay=normal(4), time_first=normal(4, seed=1))
    model = nn.ModuleDict({"first": layer, "second": layer})
    assert [r.layer for r in find_recurrences(model)] == ["first"]
    assert unmatched(model, find_recurrences(model)) == ()


def test_what_looks_recurrent_and_matches_nothing_is_named() -> None:
    model = nn.ModuleDict(
        {
            "known": holder(A_log=normal(3), dt_bias=normal(3)),
            "odd": holder(A_log=normal(2, 2, 2, 2), dt_bias=normal(5), weight=normal(2)),
            "eyes": holder(A_logs=normal(4, 4), dt_projs_bias=normal(2, 2)),
            "cell": nn.LSTM(2, 2),
        }
    )
    assert unmatched(model, find_recurrences(model)) == (
        "odd.A_log",
        "odd.dt_bias",
        "eyes.A_logs",
        "eyes.dt_projs_bias",
        "cell.weight_hh_l0",
    )


def test_a_quantile_is_a_value_that_occurred_even_beside_infinite_steps() -> None:
    sizes = torch.tensor([[[1.0], [2.0], [math.inf], [math.inf]]])
    assert Steps(sizes).quantile(0.05).decays().tolist() == [math.exp(-1.0)]
    assert Steps(sizes).quantile(0.95).decays().tolist() == [0.0]


def scan(hidden, dt, A, B, C, delta_bias=None, delta_softplus=False):  # noqa: N803
    """A selective scan that only says that it was called."""
    raise NotImplementedError


class Packaged(nn.Module):
    """A kernel as a package of kernels wraps it: a module with the signature of the function."""

    def forward(self, hidden, dt, A, B, C, delta_bias=None, delta_softplus=False):  # noqa: N803
        return scan(hidden, dt, A, B, C, delta_bias, delta_softplus)


def test_a_kernel_is_known_by_its_parameters_whatever_wraps_it() -> None:
    assert SELECTIVE_SCAN.recognises(scan)
    assert SELECTIVE_SCAN.recognises(Packaged())
    assert SELECTIVE_SCAN.recognises(functools.wraps(scan)(lambda *args: None))
    assert not SELECTIVE_SCAN.recognises(Packaged)
    assert not SELECTIVE_SCAN.recognises(torch.relu)
    assert not CHUNK_SCAN.recognises(scan)
    assert list(signature_of(Packaged()).parameters) == list(signature_of(scan).parameters)


@pytest.mark.parametrize(("package", "compiled"), [("math", True), ("no_such_package", False)])
def test_a_compiled_kernel_of_the_library_is_recognised(package: str, compiled: bool) -> None:
    from transformers.integrations.hub_kernels import use_kernel_func_from_hub_with_fallback

    function = use_kernel_func_from_hub_with_fallback("sqrt", package)(scan)
    assert is_compiled(Place(SELECTIVE_SCAN, {}, "scan", function)) == compiled


def test_documents_packed_into_one_row_are_left_to_the_library() -> None:
    called = []

    def library(hidden, dt, A, B, C, delta_bias=None, delta_softplus=False, **rest):  # noqa: N803
        called.append(rest)

    quick = fast_version(library, SELECTIVE_SCAN)
    quick(*5 * [None], seq_idx=torch.zeros(1, 1))
    assert len(called) == 1


def test_a_document_that_begins_inside_a_row_starts_with_an_empty_state() -> None:
    from transformers import RecurrentGemmaConfig
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru

    unit = RecurrentGemmaRglru(RecurrentGemmaConfig(lru_width=8, num_attention_heads=2)).double()
    for seed, parameter in enumerate(unit.parameters()):
        parameter.data = normal(*parameter.shape, seed=seed)
    inputs, positions = normal(1, 10, 8, seed=9), torch.arange(10)[None] % 6
    with torch.no_grad(), fast_scans(find_recurrences(unit)), really_float64(torch.float64):
        whole = unit(inputs, positions)
        unit.recurrent_states = None
        second = unit(inputs[:, 6:], positions[:, 6:])
    torch.testing.assert_close(whole[:, 6:], second)


#: Source text that only recurrent layers have.
SIGNS = re.compile(
    r"self\.(?:A_log|dt_bias|time_decay|recurrent_param|slope_rate|i?fgate_preact)\b"
    r"|[gs]et_recurrent_state\b|recurrent_states\b"
)
#: Keeps the last value of every head and no more: a delay of one step.
DELAYS = {"zaya"}
#: torch's own cells, in codecs, transducers and readers of tables: another adapter's business.
OF_TORCH = {
    "encodec",
    "nemotron3_5_asr",
    "nemotron_asr_streaming",
    "parakeet",
    "slanet",
    "slanext",
}
#: Kinds whose scan in the library is a slow loop, or holds more than it must.
SLOW = {"mamba1", "mamba2", "rg-lru", "rwkv"}


def ids() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCABULARY, (2, 19), generator=generator)


def models() -> Path:
    import transformers

    return Path(transformers.__file__).parent / "models"


def folders_with(sign: re.Pattern[str]) -> set[str]:
    sources = models().glob("*/modeling_*.py")
    return {path.parent.name for path in sources if sign.search(path.read_text("utf-8"))}


def test_no_recurrent_family_of_the_library_is_missing_here() -> None:
    assert folders_with(SIGNS) - DELAYS == {family.folder for family in FAMILIES}


def test_the_other_recurrences_of_the_library_are_those_of_torch() -> None:
    assert folders_with(re.compile(r"nn\.(?:LSTM|GRU|RNN)(?:Cell)?\(")) == OF_TORCH


#: One family of every slow scan.
FIRST = {"mamba", "mamba2", "recurrent_gemma", "rwkv"}

every_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


def answer(model: nn.Module, tokens: Tensor) -> Tensor:
    with torch.no_grad(), really_float64(next(model.parameters()).dtype):
        return model(input_ids=tokens, use_cache=False)[0]


def functions(model: nn.Module) -> list[Any]:
    """What the layers would call now, and whether it stands on the layer itself."""
    places = kernel_places(find_recurrences(model))
    return [(p.name, p.namespace.get(p.name)) for p in places]


def same(some: list[Any], others: list[Any]) -> bool:
    """The very same functions, not equal ones."""
    return all(x is y for (_, x), (_, y) in zip(some, others, strict=True))


@pytest.mark.parametrize("length", [1, 19])
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.folder in FIRST], ids=str)
def test_fast_scans_answer_as_the_library_does_and_keep_its_cache(
    family: Family, length: int
) -> None:
    model, tokens = family.build(), ids()[:, :length]
    with torch.no_grad():
        slow = model(input_ids=tokens, use_cache=True)[0]
        with fast_scans(find_recurrences(model)):
            fast = model(input_ids=tokens, use_cache=True)[0]
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-5 * float(slow.abs().max()))


class Kind:
    """A kind that follows its input."""

    kernel = None
    selective = True


class Layer:
    """As much of a recurrent layer as the exponent asks for."""

    kind = Kind()


def of(steps: Steps):
    return largest_exponent(Layer(), steps)  # type: ignore[arg-type]


def test_rates_per_channel_and_mode_multiply_the_step_sizes() -> None:
    sizes = torch.tensor([[[1.0, 3.0], [2.0, 1.0]]])
    found = of(Steps(sizes, torch.tensor([[2.0, 1.0], [0.5, 4.0]])))
    assert found is not None
    assert found.value == pytest.approx(-0.5 * 2.0)


def test_a_channel_that_was_shut_once_is_not_the_slowest() -> None:
    sizes = torch.tensor([[[math.inf, 1.0], [0.0, 1.0]]])
    found = of(Steps(sizes))
    assert found is not None
    assert found.value == -1.0
    assert of(Steps(torch.full((1, 4, 2), math.inf))) is None


@every_family
def test_the_layers_that_the_config_names_are_found_with_their_eigenvalues(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    numbers = [int(next(filter(str.isdigit, r.layer.split(".")))) for r in found]
    assert numbers == family.recurrent_layers()
    assert {r.cell for r in found} == {family.cell}
    assert unmatched(model, found) == ()
    for recurrent in found:
        own = (p for n, p in model.named_parameters() if n.startswith(recurrent.layer))
        assert recurrent.record().parameters == sum(p.numel() for p in own)
        eigenvalues = recurrent.at_rest()
        assert eigenvalues.shape == (recurrent.record().size,)
        assert ((eigenvalues > 0) & (eigenvalues <= 1)).all()
        for name, parameter in recurrent.module.named_parameters():
            if name.endswith("weight"):
                nn.init.zeros_(parameter)
    # Without weights no data come through: what is read is what stands at rest.
    for layer, decays in decays_of(found, lambda x: answer(model, x), ids()).items():
        heard = decays.flatten(2).double()
        expected = next(r for r in found if r.layer == layer).at_rest().expand_as(heard)
        torch.testing.assert_close(heard, expected, rtol=2e-6, atol=1e-7)


@every_family
def test_quantiles_and_exponents_are_those_of_the_hooked_decays(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    decays = decays_of(found, lambda x: answer(model, x), ids())
    spectra = spectra_of(found, lambda x: answer(model, x), ids())
    assert list(decays) == [item.layer for item in spectra] == [r.layer for r in found]
    for recurrent, item in zip(found, spectra, strict=True):
        heard = decays[recurrent.layer]
        assert heard.shape[:2] == (2, 19)
        assert heard[0, 0].numel() == recurrent.size == item.count
        assert ((heard >= 0) & (heard <= 1)).all()
        rows = [abs(point.eigenvalues) for point in item.points]
        assert len(rows) == (3 if family.cell not in {"rwkv", "lightning"} else 0)
        assert all((slow >= fast).all() for slow, fast in pairwise(rows))
        if recurrent.cell in {"gated-delta", "kimi-delta"}:  # the delta rule mixes its modes
            assert item.lyapunov is None
            continue
        means = heard.double().flatten(0, 1).flatten(1).log().mean(0)
        assert item.lyapunov == pytest.approx(float(means.max()), rel=1e-4, abs=1e-7)
        assert item.lyapunov_interval is not None
        assert item.lyapunov_interval[0] <= float(item.lyapunov or 0) <= item.lyapunov_interval[1]


@every_family
def test_fast_scans_answer_as_the_library_and_are_taken_back_after_an_error(
    family: Family,
) -> None:
    model = family.build()
    found, before, inside = find_recurrences(model), functions(model), []
    plain = answer(model, ids()), decays_of(found, lambda x: answer(model, x), ids())

    def fail() -> None:
        with fast_scans(find_recurrences(model)):
            inside.extend(functions(model))
            fast = answer(model, ids())
            close = {"rtol": 0, "atol": 1e-5 * float(plain[0].abs().max())}
            torch.testing.assert_close(fast, plain[0], **close)
            heard = decays_of(found, lambda x: answer(model, x), ids())
            for layer, decays in plain[1].items():
                torch.testing.assert_close(heard[layer], decays, rtol=0, atol=1e-5)
            decays_of(found, lambda x: 1 / 0, ids())

    with pytest.raises(ZeroDivisionError):
        fail()
    assert same(functions(model), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    replaced = {x is not y for (_, x), (_, y) in zip(before, inside, strict=True)}
    assert replaced == ({family.cell in SLOW} if before else set())
    model = model.double()
    slow = answer(model, ids())
    with fast_scans(find_recurrences(model)):
        fast = answer(model, ids())
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-10 * float(slow.abs().max()))
