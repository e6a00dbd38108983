"""The selective scan as compiled code against torch's and float64, and when it is chosen."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from memaudit.numerics import scans
from memaudit.numerics.scans import selective_scan
from tests.numerics.scan_references import Tensors, relative
from tests.numerics.scan_references import selective as step_by_step
from tests.numerics.test_scans_selective import arguments

#: Within rounding of float32, whose unit is 6e-8; a reading is a sum over states.
TOLERANCE = 2e-6


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest scan is compiled."""
    pytest.importorskip("numba", reason="needs memaudit[fast]")
    assert scans._kernels() is not None
    monkeypatch.setattr(scans, "_COMPILED", 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks that the compiled scan was asked for, numba or not; it leaves its answers empty."""
    asked: list[int] = []
    fake = SimpleNamespace(BLOCK=128, scan_blocks=lambda *x: asked.extend(range(*x[-2:])))
    monkeypatch.setattr(scans, "_kernels", lambda: fake)
    return asked


def single(rows: int, width: int, length: int, size: int = 16) -> Tensors:
    return arguments(rows, width, length, size=size, dtype=torch.float32)


def scan(x: Tensors) -> torch.Tensor:
    return selective_scan(**x, delta_softplus=True)


def by_torch(x: Tensors, initial: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scans, "_COMPILED", sys.maxsize)
        return selective_scan(
            **x, delta_softplus=True, return_last_state=True, initial_state=initial
        )


@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(1, 3),
    width=st.sampled_from([1, 5, 127, 128, 129, 300]),
    length=st.sampled_from([1, 2, 15, 16, 17, 50]),
    size=st.sampled_from([1, 3, 16]),
    left_out=st.sets(st.sampled_from(["D", "z", "delta_bias"])),
    begun=st.booleans(),
    by_channel=st.booleans(),
)
def test_any_shape_and_options_equal_torch_and_float64(
    rows: int,
    width: int,
    length: int,
    size: int,
    left_out: set[str],
    begun: bool,
    by_channel: bool,
) -> None:
    pytest.importorskip("numba", reason="needs memaudit[fast]")
    full = single(rows, width, length, size)
    if by_channel:
        full["hidden"] = full["hidden"].mT.contiguous().mT
        full["D"] = torch.nn.Parameter(full["D"])
    x = {name: value for name, value in full.items() if name not in left_out}
    start = torch.randn(rows, width, size, generator=torch.Generator().manual_seed(1))
    start = start if begun else None
    options = {"delta_softplus": True, "return_last_state": True, "initial_state": start}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scans, "_COMPILED", 0)
        y, last = selective_scan(**x, **options)
    for found, expected in zip((y, last), by_torch(x, start), strict=True):
        assert relative(found, expected) < TOLERANCE
    assert y.shape == (rows, width, length)
    if not left_out:
        exact = step_by_step(
            {name: value.detach().double() for name, value in x.items()},
            None if start is None else start.double(),
        )
        assert relative(y, exact[0]) < TOLERANCE
        assert relative(last, exact[1]) < TOLERANCE


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("low", "high"), [(-87, -20), (-20, 1), (0, 20), (20, 80)])
def test_step_sizes_and_decays_are_exact_to_a_few_roundings(low: int, high: int) -> None:
    # Of one step from a state of one, without an input: the state is the decay.
    shift = torch.linspace(low, high, 2000)
    nothing, one = torch.zeros(1, 2000, 1), torch.zeros(1, 1, 1)
    step = torch.nn.functional.softplus(shift.double())
    rates = -torch.linspace(0.01, 60, 2000, dtype=torch.float64) / step
    given = (nothing, shift.view(1, -1, 1), rates.float()[:, None], one, one)
    start = torch.ones(1, 2000, 1)
    options = {"delta_softplus": True, "initial_state": start, "return_last_state": True}
    _, decay = selective_scan(*given, **options)
    expected = torch.exp(step * rates.float())
    # A rounding of dt·A counts as often as the exponent is large.
    allowed = 2**-24 * (4 + 6 * (step * rates).abs())
    assert ((decay.flatten() / expected - 1).abs() < allowed).all()


@pytest.mark.usefixtures("compiled")
def test_decays_beyond_the_smallest_number_leave_nothing() -> None:
    nothing, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    for rate, left in ((-200.0, 0.0), (-1e30, 0.0), (200.0, torch.inf), (torch.nan, torch.nan)):
        _, last = selective_scan(
            *(nothing, one, torch.tensor([[rate]]), one, one),
            initial_state=one,
            return_last_state=True,
        )
        torch.testing.assert_close(last, torch.full_like(last, left), equal_nan=True)


@pytest.mark.usefixtures("compiled")
def test_an_answer_depends_on_no_other_row_no_later_step_and_no_thread() -> None:
    x = single(3, 200, 40)
    whole = scan(x)
    timed = ("hidden", "dt", "B", "C", "z")
    part = {name: v[1:2, ..., :23] if name in timed else v for name, v in x.items()}
    assert torch.equal(scan(part), whole[1:2, :, :23])
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            with torch.inference_mode():
                assert torch.equal(scan(x).clone(), whole)
    finally:
        torch.set_num_threads(before)


def test_a_large_model_in_single_precision_is_compiled(calls: list[int]) -> None:
    scan(single(2, 512, 3))
    assert sorted(calls) == list(range(8))


def test_a_small_model_is_scanned_by_torch(calls: list[int]) -> None:
    x = single(2, 511, 3)
    assert relative(scan(x), by_torch(x)[0]) < TOLERANCE
    assert not calls


@pytest.mark.parametrize("name", ["hidden", "dt", "A", "B", "D", "z", "delta_bias"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_scanned_by_torch(
    calls: list[int], name: str, dtype: torch.dtype
) -> None:
    x = single(1, 512, 3)
    x[name] = x[name].to(dtype)
    if name == "A" and dtype == torch.bfloat16:
        x["B"] = x["B"].to(dtype)  # A alone is brought to the working precision first
    assert relative(scan(x), by_torch(x)[0]) < TOLERANCE
    assert not calls


def test_tensors_without_memory_of_their_own_are_left_to_torch(calls: list[int]) -> None:
    x = single(1, 512, 3)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        scan({name: mode.from_tensor(value) for name, value in x.items()})
    scan({name: value.to("meta") for name, value in x.items()})
    with pytest.raises(RuntimeError):  # torch's scan writes in place and is transformed no more
        torch.func.vmap(lambda u: scan({**x, "hidden": u}))(x["hidden"][None])
    assert not calls


def test_without_numba_or_a_place_for_its_work_torch_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    x = single(1, 512, 3)
    monkeypatch.delitem(sys.modules, "memaudit.numerics.kernels", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    scans._kernels.cache_clear()
    try:
        assert scans._kernels() is None
        assert relative(scan(x), by_torch(x)[0]) < TOLERANCE
    finally:
        scans._kernels.cache_clear()
