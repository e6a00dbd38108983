"""Number formats against casts, against closed forms, and against their own step."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from memaudit.numerics.rounding import FORMATS, rounded

CASTS = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8-e4m3": torch.float8_e4m3fn,
    "fp8-e5m2": torch.float8_e5m2,
}
#: Digits of the mantissa, and the smallest normal number.
FLOATS = {
    "fp32": (24, 2.0**-126),
    "tf32": (11, 2.0**-126),
    "fp16": (11, 2.0**-14),
    "bf16": (8, 2.0**-126),
    "fp8-e4m3": (4, 2.0**-6),
    "fp8-e5m2": (3, 2.0**-14),
}
#: Levels on each side of zero, and how many neighbours share a scale.
INTEGERS = {"int8": (127, 80), "int8-row": (127, 40), "int4": (7, 80), "int4-group": (7, 32)}

moderate = st.floats(-400, 400, allow_subnormal=False).filter(lambda x: abs(x) > 1e-30 or x == 0)
tables = arrays.arrays("float64", (2, 40), elements=moderate)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def floats_of_every_size() -> torch.Tensor:
    """Every float32 with a mantissa of 12 random bits is exact in float64: a cast rounds once."""
    generator = torch.Generator().manual_seed(0)
    mantissa = torch.randint(-(2**12), 2**12, (20000,), generator=generator)
    exponent = torch.randint(-160, 116, (20000,), generator=generator)
    near = torch.randint(-22, 4, (20000,), generator=generator)
    both = torch.cat([torch.ldexp(mantissa.double(), e) for e in (exponent, near)])
    return both.float().double()


@pytest.mark.parametrize("name", CASTS)
def test_a_format_rounds_as_a_cast_of_float32_does(name):
    values = floats_of_every_size()
    cast = values.float().to(CASTS[name]).double()
    assert torch.equal(rounded(values, name), cast)


@pytest.mark.parametrize(("name", "code"), [("fp16", "<e"), ("fp32", "<f")])
def test_a_format_rounds_once_as_packing_does(name, code):
    values = torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    # Just above the middle of two neighbours: by way of float32 it would fall to the even one.
    values = torch.cat([values, double(1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-24 + 2.0**-50)])
    packed = [struct.unpack(code, struct.pack(code, x))[0] for x in values.tolist()]
    assert rounded(values, name).tolist() == packed


def test_0_999_in_bf16_is_exactly_one():
    assert rounded(double(0.999, 0.99), "bf16").tolist() == [1.0, 0.98828125]


def test_rounding_log_a_moves_the_eigenvalues_of_mamba_as_much_as_is_known():
    decays = torch.arange(1, 17, dtype=torch.float64)

    def moved(name: str) -> float:
        return float((torch.exp(rounded(decays.log(), name)) / decays - 1).abs().max())

    assert moved("bf16") == pytest.approx(0.00724391, rel=1e-6)
    # log 4 lies in the middle of two levels, as far from both as a number can.
    assert moved("int8") == pytest.approx(math.expm1(math.log(16) / 127 / 2), rel=1e-12)


@settings(max_examples=60)
@given(values=tables)
def test_a_float_moves_by_half_a_step_at_most(values):
    x = torch.from_numpy(values)
    for name, (digits, smallest) in FLOATS.items():
        exponents = torch.frexp(x.abs().clamp(min=smallest)).exponent.flatten().tolist()
        half = double(*[2.0 ** (e - digits - 1) for e in exponents])
        assert ((rounded(x, name) - x).abs().flatten() <= half).all(), name


@settings(max_examples=60)
@given(values=tables)
def test_an_integer_moves_by_half_a_step_of_its_block_at_most(values):
    x = torch.from_numpy(values)
    for name, (levels, size) in INTEGERS.items():
        cut = (lambda t: [t.flatten()]) if size == x.numel() else _cut(size)
        for block, near in zip(cut(x), cut(rounded(x, name)), strict=True):
            half = float(block.abs().max()) / levels / 2
            # The quotient, the product and the difference round once each.
            assert float((near - block).abs().max()) <= half * (1 + 1e-13), name
            assert len(near.unique()) <= 2 * levels + 1


def _cut(size: int):
    return lambda table: [block for row in table for block in row.split(size)]


@settings(max_examples=60)
@given(values=tables)
def test_a_scaled_float_moves_by_half_a_step_of_its_own_at_most(values):
    x = torch.from_numpy(values)
    step = x.abs().clamp(min=float(x.abs().max()) * 2.0**-6 / 448) * 2.0**-3
    assert ((rounded(x, "fp8-e4m3-scaled") - x).abs() <= step / 2 * (1 + 1e-13)).all()


@settings(max_examples=60)
@given(values=tables)
def test_rounding_twice_is_rounding_once(values):
    for dtype in (torch.float64, torch.float32):
        for name in FORMATS:
            once = rounded(torch.from_numpy(values).to(dtype), name)
            assert torch.equal(rounded(once, name), once), name


def test_what_is_too_large_is_infinite_or_the_largest_number():
    large = double(1e6, -1e6, 65519.9, 3.0)
    assert rounded(large, "fp16").tolist() == [math.inf, -math.inf, 65504.0, 3.0]
    assert rounded(large, "fp8-e5m2").tolist() == [math.inf, -math.inf, math.inf, 3.0]
    assert rounded(large, "fp8-e4m3").tolist() == [448.0, -448.0, 448.0, 3.0]
    assert rounded(double(1e39), "bf16").tolist() == [math.inf]


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_numbers_alone_and_nothing_at_all_are_rounded(name):
    assert torch.equal(rounded(torch.zeros(3, 5), name), torch.zeros(3, 5))
    assert rounded(torch.zeros(0, 4), name).shape == (0, 4)
    assert rounded(torch.zeros(4, 0), name).shape == (4, 0)
    assert rounded(torch.tensor(2.0), name).item() == 2.0


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_not_finite_stays_and_leaves_the_others_alone(name):
    found = rounded(double(math.inf, math.nan, -math.inf, 1.0), name)
    assert found.isinf().tolist() == [True, False, True, False]
    assert found[3].item() == 1.0
    assert math.isnan(found[1].item())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_stays_and_the_tensor_is_not_touched(dtype, name):
    x = torch.linspace(-1, 1, 35).reshape(5, 7).to(dtype)
    before = x.clone()
    found = rounded(x, name)
    assert found.dtype == dtype
    assert found.shape == x.shape
    assert torch.equal(x, before)


def test_rows_and_groups_have_scales_of_their_own():
    x = torch.ones(2, 40, dtype=torch.float64)
    x[0, 0], x[0, 33] = 700.0, 0.01
    assert rounded(x, "int8")[1, 0].item() == 0.0
    assert rounded(x, "int8-row")[1].tolist() == [1.0] * 40
    assert rounded(x, "int8-row")[0, 1].item() == 0.0
    grouped = rounded(x, "int4-group")
    assert grouped[0, 1].item() == 0.0
    assert grouped[0, 32:].tolist() == [1.0, 0.0, *[1.0] * 6]


def test_a_complex_tensor_is_rounded_by_its_parts():
    x = torch.complex(double(0.999), double(0.5))
    assert rounded(x, "bf16").tolist() == [1.0 + 0.5j]
