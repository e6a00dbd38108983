"""Weights put into a module, and refused when they are not finite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from memaudit.errors import SourceError
from memaudit.loading.filling import fill, require_finite, require_same

# -- What a module holds after filling is what the file holds, or there is an error.


class Tied(nn.Module):
    """An embedding, a head that is the same matrix, a saved and an unsaved buffer."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4, device=device)
        self.head = nn.Linear(4, 6, bias=False, device=device)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.ones(3, device=device))
        self.register_buffer("unsaved", torch.arange(2.0), persistent=False)


def saved(module: nn.Module) -> dict[str, Tensor]:
    """Other numbers than the module's own, under its names."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        for name, tensor in module.state_dict().items()
    }


def refusal(call: Callable[[], None]) -> SourceError:
    with pytest.raises(SourceError) as caught:
        call()
    assert caught.value.hint
    return caught.value


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, dtype=torch.float16))


def floats(module: nn.Module) -> dict[str, Tensor]:
    """A file of the module; the counter of a batch norm is a whole number."""
    counters = {n: t for n, t in module.state_dict().items() if not t.is_floating_point()}
    return saved(module) | {name: torch.tensor(7) for name in counters}


def test_the_numbers_of_the_file_arrive_in_the_modules_dtypes() -> None:
    module = network()
    before = {name: tensor.dtype for name, tensor in module.state_dict().items()}
    tensors = floats(module)
    fill(module, tensors)
    for name, tensor in module.state_dict().items():
        assert tensor.dtype == before[name]
        assert torch.equal(tensor, tensors[name].to(tensor.dtype))


def test_parameters_stay_the_same_objects() -> None:
    module = network()
    before = dict(module.named_parameters())
    fill(module, floats(module))
    assert all(tensor is before[name] for name, tensor in module.named_parameters())


def test_every_disagreement_stands_in_one_error() -> None:
    module = nn.LSTM(3, 4)
    tensors = saved(module)
    del tensors["weight_hh_l0"]
    tensors["bias_hh_l0"] = torch.zeros(7)
    tensors["weight_xx\x1b"] = torch.zeros(1)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    error = refusal(lambda: fill(module, tensors, source="model.pt"))
    assert error.code == "E_WEIGHTS"
    assert error.source == "model.pt"
    assert "1 tensor is missing: weight_hh_l0" in error.fact
    assert "1 tensor is not known to the model: weight_xx" in error.fact
    assert "bias_hh_l0 (7,) float32 instead of (16,) float32" in error.fact
    assert all(torch.equal(tensor, before[n]) for n, tensor in module.state_dict().items())


def test_the_first_five_are_named_and_the_rest_counted() -> None:
    module = nn.Sequential(*[nn.Linear(1, 1, bias=False) for _ in range(8)])
    fact = refusal(lambda: fill(module, {})).fact
    assert "8 tensors are missing: 0.weight, 1.weight" in fact
    assert "4.weight and 3 more" in fact
    assert "5.weight" not in fact


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64])
def test_another_kind_of_numbers_is_refused(dtype: torch.dtype) -> None:
    error = refusal(lambda: fill(nn.Embedding(2, 2), {"weight": torch.ones(2, 2, dtype=dtype)}))
    assert error.code == "E_WEIGHTS"
    assert str(dtype).removeprefix("torch.") in error.fact


def test_true_is_not_the_number_one() -> None:
    module = nn.BatchNorm1d(2)
    tensors = {**module.state_dict(), "num_batches_tracked": torch.tensor(True)}
    error = refusal(lambda: fill(module, tensors))
    assert error.code == "E_WEIGHTS"
    assert "num_batches_tracked () bool instead of () int64" in error.fact


def test_optional_names_may_be_missing_on_either_side() -> None:
    module = nn.Linear(2, 2)
    bias = module.bias.detach().clone()
    tensors = {"weight": torch.ones(2, 2), "inv_freq": torch.ones(3)}
    fill(module, tensors, optional=["bias", "inv_freq"])
    assert torch.equal(module.weight, torch.ones(2, 2))
    assert torch.equal(module.bias, bias)


def test_names_of_the_file_are_translated() -> None:
    module = nn.Linear(2, 2, bias=False)
    fill(module, {"backbone.w": torch.ones(2, 2)}, names={"backbone.w": "weight"})
    assert torch.equal(module.weight, torch.ones(2, 2))


def test_two_names_for_one_tensor_are_refused() -> None:
    tensors = {"weight": torch.zeros(2, 2), "w": torch.ones(2, 2)}
    module = nn.Linear(2, 2, bias=False)
    assert refusal(lambda: fill(module, tensors, names={"w": "weight"})).code == "E_WEIGHTS"


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", ["table.weight", "head.weight"])
def test_a_tied_weight_needs_one_name(device: str, name: str) -> None:
    module = Tied(device)
    tensors = {n: t for n, t in saved(module).items() if n in (name, "scale")}
    fill(module, tensors)
    assert module.head.weight is module.table.weight
    assert torch.equal(module.table.weight, tensors[name].float())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tied_weights_with_two_values_are_refused(device: str) -> None:
    module = Tied(device)
    error = refusal(lambda: fill(module, saved(module)))
    assert error.code == "E_WEIGHTS"
    assert "unlike the file's" in error.fact


def test_a_module_without_memory_is_compared_before_it_takes_any() -> None:
    module = nn.Embedding(1 << 40, 1 << 10, device="meta")
    error = refusal(lambda: fill(module, {"weight": torch.zeros(2, 2)}))
    assert str(1 << 40) in error.fact
    assert module.weight.is_meta


def test_a_module_without_memory_is_filled() -> None:
    module = nn.LSTM(3, 4, num_layers=2, device="meta", dtype=torch.float64)
    tensors = saved(module)
    fill(module, tensors)
    other = nn.LSTM(3, 4, num_layers=2, dtype=torch.float64)
    other.load_state_dict(tensors)
    inputs = torch.ones(5, 3, dtype=torch.float64)
    assert torch.equal(module(inputs)[0], other(inputs)[0])


def test_a_buffer_that_nobody_filled_is_refused() -> None:
    module = nn.Linear(2, 2, bias=False, device="meta")
    module.register_buffer("inv_freq", torch.ones(2, device="meta"), persistent=False)
    error = refusal(lambda: fill(module, {"weight": torch.ones(2, 2)}))
    assert "left without numbers: inv_freq" in error.fact


def test_a_number_too_large_for_the_dtype_is_refused() -> None:
    module = nn.Linear(1, 1, bias=False, dtype=torch.float16)
    error = refusal(lambda: fill(module, {"weight": torch.tensor([[1e30]])}))
    assert error.code == "E_NONFINITE"
    assert "too large for float16: weight" in error.fact


def test_a_random_module_is_not_the_same_as_its_file() -> None:
    module = nn.LSTM(3, 4)
    tensors = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    require_same(module, tensors)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] += 1
    error = refusal(lambda: require_same(module, tensors, source="org/name"))
    assert error.code == "E_WEIGHTS"
    assert "1 tensor is unlike the file's: weight_hh_l0" in error.fact


def test_nothing_in_common_is_not_the_same() -> None:
    module = nn.Linear(2, 2)
    fact = refusal(lambda: require_same(module, {"backbone.w": torch.ones(2, 2)})).fact
    assert "2 tensors are missing" in fact
    assert "1 tensor is not known" in fact


def test_values_are_compared_bit_for_bit() -> None:
    module = nn.Linear(1, 1, bias=False)
    fill(module, {"weight": torch.zeros(1, 1)})
    assert refusal(lambda: require_same(module, {"weight": -torch.zeros(1, 1)})).code == "E_WEIGHTS"
    with torch.no_grad():
        module.weight.fill_(float("nan"))
    require_same(module, {"weight": torch.full((1, 1), float("nan"))})


# -- NaN and infinite weights are named with their counts.

NAN, INF = float("nan"), float("inf")


def test_finite_weights_pass():
    tensors = {"w": torch.ones(3), "n": torch.tensor([1]), "z": torch.ones(2, dtype=torch.cfloat)}
    require_finite({**tensors, "e": torch.empty(0)}, source="m.pt")


def test_counts_stand_beside_the_names():
    tensors = {
        "a": torch.tensor([NAN, NAN, 1.0]),
        "b": torch.tensor([NAN, INF, -INF]),
        "c": torch.ones(2),
    }
    with pytest.raises(SourceError) as caught:
        require_finite(tensors, source="m.pt")
    assert caught.value.code == "E_NONFINITE"
    assert caught.value.source == "m.pt"
    assert caught.value.hint
    assert caught.value.fact == (
        "2 tensors hold 3 NaN and 2 infinite numbers: a (2 NaN), b (1 NaN, 2 infinite)"
    )


def test_one_tensor_is_spoken_of_in_the_singular():
    with pytest.raises(SourceError, match="1 tensor holds 1 NaN: a"):
        require_finite({"a": torch.tensor([NAN])}, source="")


def test_long_lists_are_cut():
    tensors = {f"w{i}": torch.tensor([INF]) for i in range(9)}
    with pytest.raises(SourceError, match=r"9 tensors hold 9 infinite numbers: .* and 4 more"):
        require_finite(tensors, source="")


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
)
def test_every_floating_dtype_is_looked_at(dtype):
    tensor = torch.tensor([1.0, NAN]).to(dtype)
    with pytest.raises(SourceError, match="1 NaN"):
        require_finite({"w": tensor}, source="")
