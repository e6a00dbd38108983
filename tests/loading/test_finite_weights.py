"""NaN and infinite weights are named with their counts."""

import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.filling import require_finite

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
