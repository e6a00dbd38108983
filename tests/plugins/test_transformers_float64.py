"""A float64 audit is float64 throughout: no narrow place is left inside the library's models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from memaudit.numerics.wide_floats import as_asked, really_float64
from tests.plugins.transformers_zoo import ZOO, noise, tiny

STEPS = 13


def conversions(x: Tensor) -> dict[str, Tensor]:
    """Every way in which the library asks for float32."""
    narrow = torch.ones(3, dtype=torch.int32).view(torch.float32)  # the same bits: stays narrow
    return {
        "float": x.float(),
        "to": x.to(torch.float32),
        "to by name": x.to(dtype=torch.float32),
        "to device and dtype": x.to("cpu", torch.float32),
        "to like a tensor": x.to(narrow),
        "type": x.type(torch.float32),
        "type by text": x.type("torch.FloatTensor"),
        "type as": x.type_as(narrow),
        "softmax": functional.softmax(x, dim=-1, dtype=torch.float32),
        "method softmax": x.softmax(-1, dtype=torch.float32),
        "cumsum": x.cumsum(0, dtype=torch.float32),
        "sum": torch.sum(x, dtype=torch.float32),
        "zeros": torch.zeros(3, dtype=torch.float32),
        "zeros by default": torch.zeros(3),
        "new": x.new_zeros(3, dtype=torch.float32),
        "like": torch.ones_like(x, dtype=torch.float32),
        "arange": torch.arange(3, dtype=torch.float32),
        "tensor": torch.tensor([1.0], dtype=torch.float32),
    }


@pytest.mark.parametrize("name", conversions(torch.ones(3)))
def test_every_request_for_float32_is_read_as_float64(name: str) -> None:
    x = noise(3)
    assert conversions(x)[name].dtype == torch.float32
    with really_float64(torch.float64):
        assert conversions(x)[name].dtype == torch.float64
    assert conversions(x)[name].dtype == torch.float32


def test_complex_numbers_are_as_wide() -> None:
    with really_float64(torch.float64):
        assert noise(3).to(torch.complex64).dtype == torch.complex128


def test_reading_bits_and_other_dtypes_mean_what_they_say() -> None:
    x = noise(3)
    with really_float64(torch.float64):
        assert torch.equal(
            x.to(torch.int32), x.to(torch.int32).view(torch.float32).view(torch.int32)
        )
        assert x.to(torch.int32).view(torch.float32).dtype == torch.float32
        assert x.to(torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_of_another_dtype_are_left_alone(dtype: torch.dtype) -> None:
    with really_float64(dtype):
        assert noise(3).float().dtype == torch.float32
        assert torch.zeros(3).dtype == torch.float32


def test_everything_is_as_before_after_an_error() -> None:
    with pytest.raises(KeyError), really_float64(torch.float64):
        raise KeyError
    assert torch.zeros(3).dtype == torch.float32
    assert noise(3).float().dtype == torch.float32


def test_whoever_listens_gets_what_he_asks_for() -> None:
    with really_float64(torch.float64):
        with as_asked():
            assert noise(3).float().dtype == torch.float32
            assert torch.zeros(3).dtype == torch.float32
        assert noise(3).float().dtype == torch.float64


@pytest.mark.parametrize("name", ZOO)
def test_no_digit_is_lost_on_the_way_through_a_model(name: str) -> None:
    """A step of 1e-10 and one of 1e-5 have the same slope, which float32 would round away."""
    subject = tiny(name)
    assert subject.input_size is not None
    x = 0.5 * noise(2, STEPS, subject.input_size)
    direction = torch.zeros_like(x)
    direction[:, 2] = noise(subject.input_size)

    def slope(step: float) -> Tensor:
        ahead, back = subject.respond(x + step * direction), subject.respond(x - step * direction)
        return (ahead - back) / (2 * step)

    answer, wide, fine = subject.respond(x), slope(1e-5), slope(1e-10)
    assert answer.dtype == torch.float64
    assert not torch.equal(answer, answer.float().double())
    size = wide.abs().max()
    # Rounding of an answer of size one is 1e-16: over a step of 1e-10 that is 1e-6, with room.
    noise_floor = 1e-16 * answer.abs().max() / 1e-10
    assert (wide - fine).abs().max() < 1e-4 * size + 100 * noise_floor
    assert size > 1e4 * noise_floor
