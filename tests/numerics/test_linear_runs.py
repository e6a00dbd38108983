"""Linear systems run: convolution, stepping and the recurrence as it is written agree."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from memaudit.numerics import convolution
from memaudit.numerics.convolution import transform_length
from memaudit.numerics.linear import (
    EXECUTIONS,
    Bank,
    Dense,
    DenseBank,
    Modal,
    System,
)
from tests.numerics.linear_systems import contraction, draw, exact_answer, pairs, table
from tests.numerics.scan_references import bytes_beyond_output, relative

SYSTEMS = table()
every_system = pytest.mark.parametrize("system", SYSTEMS.values(), ids=list(SYSTEMS))
ways = pytest.mark.parametrize("execution", EXECUTIONS)


@every_system
@ways
@pytest.mark.parametrize("length", [1, 2, 97, 700])
def test_every_way_is_the_recurrence_as_it_is_written(
    system: System, execution: str, length: int
) -> None:
    u = draw(2, length, system.width)
    assert relative(system.run(u, execution), exact_answer(system, u)) < 1e-13


@every_system
@pytest.mark.parametrize("execution", ["chunks", "convolution"])
def test_fast_ways_agree_with_stepping_over_a_long_sequence(system: System, execution: str) -> None:
    u = draw(1, 3001, system.width)
    assert relative(system.run(u, execution), system.run(u, "stepping")) < 1e-12


@every_system
@ways
def test_the_answer_to_an_impulse_is_the_kernel(system: System, execution: str) -> None:
    kernel = system.kernel(0, 130)
    found = torch.zeros_like(kernel)
    for d in range(system.width):
        u = torch.zeros(1, 130, system.width, dtype=torch.float64)
        u[0, 0, d] = 1.0
        answer = system.run(u, execution)[0]
        if system.banked:
            others = [c for c in range(system.width) if c != d]
            # What an FFT leaves in the other rows of a bank is nothing at all.
            assert float(answer[..., others].abs().sum()) == 0.0
        found[..., d] = answer[..., d] if system.banked else answer
    torch.testing.assert_close(found, kernel, rtol=0, atol=1e-13 * float(kernel.abs().max()))


@every_system
@ways
def test_rows_of_a_batch_do_not_meet(system: System, execution: str) -> None:
    u = draw(3, 40, system.width)
    alone = torch.cat([system.run(row[None], execution) for row in u])
    assert relative(system.run(u, execution), alone) < 1e-14


@every_system
@ways
def test_the_future_does_not_reach_the_past(system: System, execution: str) -> None:
    u = draw(1, 600, system.width)
    later = u.clone()
    later[:, 300:] += 5.0
    difference = (system.run(later, execution) - system.run(u, execution))[:, :300]
    # An FFT spreads the rounding of what comes over all that was; the others do not.
    transformed = execution in ("convolution", "light")
    assert float(difference.abs().max()) <= (1e-12 if transformed else 0.0)


@every_system
@ways
def test_single_precision_stays_single(system: System, execution: str) -> None:
    small = _single(system)
    u = draw(2, 200, system.width)
    answer = small.run(u.float(), execution)
    assert answer.dtype == torch.float32
    assert small.kernel(0, 20).dtype == torch.float32
    assert small.modes().dtype == torch.complex64
    assert relative(answer.double(), system.run(u)) < 1e-4


def growing(value: float) -> dict[str, System]:
    mode = torch.tensor([[value]], dtype=torch.float64)
    return {
        "bank": Bank(mode, torch.ones_like(mode), torch.ones_like(mode)[None]),
        "dense bank": DenseBank(mode[None], torch.ones_like(mode), torch.ones_like(mode)[None]),
        "modal": Modal(mode[0], torch.ones_like(mode), torch.ones_like(mode)),
        "dense": Dense(mode, torch.ones_like(mode), torch.ones_like(mode)),
    }


kinds = pytest.mark.parametrize("kind", ["bank", "dense bank", "modal", "dense"])


@kinds
@pytest.mark.parametrize("execution", ["auto", "chunks", "stepping"])
def test_a_mode_that_grows_does_not_drown_what_was_before(kind: str, execution: str) -> None:
    system, u = growing(1.05)[kind], draw(1, 1500, 1)
    found, expected = system.run(u, execution), exact_answer(system, u)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)
    # The convolution does drown it, which is why nobody takes it unasked.
    assert relative(system.convolve(u)[:, :20], expected[:, :20]) > 1.0


@kinds
@pytest.mark.parametrize("value", [1.0 + 1e-6, 1.0, 0.5])
def test_the_way_is_chunks_when_nobody_chooses(kind: str, value: float) -> None:
    system, u = growing(value)[kind], draw(1, 1500, 1)
    assert torch.equal(system.run(u), system.in_chunks(u))
    assert relative(system.run(u), exact_answer(system, u)) < 1e-12


def test_eigenvectors_that_are_nearly_one_are_not_used() -> None:
    system, other = SYSTEMS["one Jordan block"], SYSTEMS["dense"]
    u = draw(1, 80, system.width)
    assert torch.equal(system.convolve(u), system.step_through(u))
    u = draw(1, 80, other.width)
    assert not torch.equal(other.convolve(u), other.step_through(u))


@every_system
def test_an_unknown_way_is_refused_by_name(system: System) -> None:
    with pytest.raises(ValueError, match=r"scan.*auto, chunks, convolution, stepping"):
        system.run(draw(1, 4, system.width), "scan")


def test_transforms_have_the_least_length_without_wrapping_that_is_fast() -> None:
    limit = 2**19
    smooth = sorted(
        two * three * five
        for two in (2**i for i in range(20))
        for three in (3**i for i in range(12))
        for five in (5**i for i in range(9))
        if two * three * five <= limit
    )
    lengths = [*range(1, 3000), 4096, 5000, 65_537, 100_000, 131_071, 131_072, 131_073, 200_000]
    for length in lengths:
        least = next(n for n in smooth if n >= 2 * length - 1)
        assert transform_length(length) == least


@pytest.mark.parametrize("budget", [1, 300, 10_000])
@pytest.mark.parametrize("name", ["bank of pairs", "dense bank", "modal", "dense"])
def test_blocks_of_any_size_give_the_same(
    monkeypatch: pytest.MonkeyPatch, budget: int, name: str
) -> None:
    system = SYSTEMS[name]
    u = draw(2, 70, system.width)
    whole = system.convolve(u)
    monkeypatch.setattr(convolution, "BUDGET", budget)
    torch.testing.assert_close(system.convolve(u), whole, rtol=1e-14, atol=1e-14)


LONG = 131_072


def test_a_long_kernel_of_a_bank_needs_little_beside_itself() -> None:
    bank = Bank(pairs(32, 32), draw(32, 32, wide=True), draw(1, 32, 32, wide=True), draw(1, 32))
    output = LONG * 32 * 8
    beside, largest = bytes_beyond_output(lambda: bank.kernel(0, LONG))
    # The complex pieces, the joined kernel before D is added, and the powers of one piece.
    assert beside < 3.4 * output
    assert largest <= output


def test_a_long_run_of_a_bank_keeps_to_its_block() -> None:
    bank = Bank(pairs(32, 32), draw(32, 32, wide=True), draw(1, 32, 32, wide=True), draw(1, 32))
    u = draw(1, LONG, 32)
    beside, largest = bytes_beyond_output(lambda: bank.convolve(u))
    block = convolution.BUDGET * 8
    assert largest <= block
    assert beside < 5 * block


@pytest.mark.parametrize("states", [32, 2])
def test_a_long_run_in_chunks_needs_little_beside_its_answer(states: int) -> None:
    bank = Bank(
        pairs(32, states), draw(32, states, wide=True), draw(1, 32, states, wide=True), draw(1, 32)
    )
    u = draw(1, LONG, 32)
    beside, _ = bytes_beyond_output(lambda: bank.in_chunks(u))
    assert beside < 8 * u.untyped_storage().nbytes()


def test_a_long_run_of_one_state_keeps_to_its_block() -> None:
    modal = Modal(pairs(32), draw(32, 32, wide=True), draw(32, 32, wide=True))
    u = draw(1, LONG, 32)
    block = convolution.BUDGET * 16
    beside, largest = bytes_beyond_output(lambda: modal.convolve(u))
    assert largest <= block
    assert beside < 5 * block


def test_long_kernels_of_full_matrices_need_little_beside_themselves() -> None:
    system = Dense(contraction(32), draw(32, 4), draw(4, 32))
    output = LONG * 16 * 8
    beside, _ = bytes_beyond_output(lambda: system.kernel(0, LONG))
    assert beside < 3 * output


def _single(system: System) -> System:
    """The same system in single precision."""
    small = {
        field.name: value.to(torch.complex64 if value.is_complex() else torch.float32)
        for field in fields(system)  # type: ignore[arg-type]
        if isinstance(value := getattr(system, field.name), torch.Tensor)
    }
    return replace(system, **small)  # type: ignore[type-var]
