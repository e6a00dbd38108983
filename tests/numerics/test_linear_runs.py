"""Linear systems run: convolution, stepping and the recurrence as it is written agree."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from memaudit.numerics import convolution
from memaudit.numerics.linear import (
    EXECUTIONS,
    Bank,
    Dense,
    DenseBank,
    Modal,
    System,
)
from tests.numerics.linear_systems import draw, exact_answer, pairs, table
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
def test_the_future_does_not_reach_the_past(system: System, execution: str) -> None:
    u = draw(1, 600, system.width)
    later = u.clone()
    later[:, 300:] += 5.0
    difference = (system.run(later, execution) - system.run(u, execution))[:, :300]
    # An FFT spreads the rounding of what comes over all that was; the others do not.
    transformed = execution in ("convolution", "least-work")
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


LONG = 131_072


def test_a_long_run_of_a_bank_keeps_to_its_block() -> None:
    bank = Bank(pairs(32, 32), draw(32, 32, wide=True), draw(1, 32, 32, wide=True), draw(1, 32))
    u = draw(1, LONG, 32)
    beside, largest = bytes_beyond_output(lambda: bank.convolve(u))
    block = convolution.BUDGET * 8
    assert largest <= block
    assert beside < 5 * block


def _single(system: System) -> System:
    """The same system in single precision."""
    small = {
        field.name: value.to(torch.complex64 if value.is_complex() else torch.float32)
        for field in fields(system)  # type: ignore[arg-type]
        if isinstance(value := getattr(system, field.name), torch.Tensor)
    }
    return replace(system, **small)  # type: ignore[type-var]
