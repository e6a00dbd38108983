"""Batches are halved when memory runs short, and the numbers stay what they were."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
import torch

import memaudit
from memaudit.errors import MachineError
from memaudit.interfaces import AbstractSubject
from memaudit.memory import runner
from memaudit.subjects.batches import FORWARDED, BatchedSubject

ALLOCATORS = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
]


def leaky(u: torch.Tensor) -> torch.Tensor:
    state, answers = torch.zeros_like(u[:, 0]), []
    for now in u.unbind(1):
        state = torch.tanh(0.9 * state + now)
        answers.append(state)
    return torch.stack(answers, 1)


def cramped(rows: int, error: BaseException):
    """A model that has room for so many sequences only, and the sizes that it was asked for."""
    asked: list[int] = []

    def model(u: torch.Tensor) -> torch.Tensor:
        asked.append(len(u))
        if len(u) > rows:
            raise error
        return leaky(u)

    return memaudit.wrap(model, input_size=2), asked


@pytest.mark.parametrize("error", ALLOCATORS, ids=lambda e: type(e).__name__ + str(e)[:4])
@pytest.mark.parametrize("rows", [1, 5])
def test_an_audit_in_small_pieces_gives_the_same_curves(rows: int, error: BaseException) -> None:
    subject, _ = cramped(rows, error)
    whole = memaudit.scan(memaudit.wrap(leaky, input_size=2), horizon=64, level="quick")
    pieces = memaudit.scan(subject, horizon=64, level="quick")
    for name, curve in whole.memory.items():
        np.testing.assert_allclose(pieces.memory[name].values, curve.values, rtol=0, atol=1e-13)
        assert pieces.memory[name].probes == curve.probes
    assert "MA004" in {finding.code for finding in pieces.findings}
    assert "MA004" not in {finding.code for finding in whole.findings}


def test_a_size_that_failed_is_not_tried_again() -> None:
    subject, asked = cramped(8, MemoryError())
    batched = BatchedSubject(subject)
    batch = torch.zeros(64, 4, 2, dtype=torch.float64)
    batched.respond(batch)
    asked.clear()
    batched.respond(batch)
    assert asked == [8] * 8


def test_whatever_a_subject_has_is_forwarded_or_done_by_the_wrapper() -> None:
    """Defaults of the base class would hide what __getattr__ could have found."""
    names = {*vars(AbstractSubject), *AbstractSubject.__annotations__}
    public = {name for name in names if not name.startswith("_")}
    assert public <= {*FORWARDED, *vars(BatchedSubject)}
    module = torch.nn.RNN(2, 3)
    subject = memaudit.load(torch.nn.ModuleDict({"a": module, "b": module}))
    batched = BatchedSubject(subject)
    assert batched.parts() == subject.parts()
    assert batched.live_modules() == subject.live_modules()


def test_longer_sequences_get_fewer_rows() -> None:
    subject, asked = cramped(8, MemoryError())
    batched = BatchedSubject(subject)
    batched.respond(torch.zeros(64, 4, 2, dtype=torch.float64))
    asked.clear()
    batched.respond(torch.zeros(64, 16, 2, dtype=torch.float64))
    assert set(asked) == {2}


def test_other_runtime_errors_are_not_taken_for_a_shortage() -> None:
    subject, asked = cramped(0, RuntimeError("expected scalar type Double"))
    with pytest.raises(RuntimeError, match="scalar type"):
        BatchedSubject(subject).respond(torch.zeros(4, 4, 2, dtype=torch.float64))
    assert asked == [4]


def test_one_sequence_that_does_not_fit_is_the_end() -> None:
    subject, _ = cramped(0, MemoryError())
    with pytest.raises(MachineError) as caught:
        memaudit.scan(subject, horizon=64)
    assert caught.value.code == "E_MEMORY"


def test_a_shortage_after_the_model_answered_halves_the_pass(monkeypatch, caplog) -> None:
    """The readings need room as well; a chunk that failed half-way is not counted twice."""
    honest, failed = runner._difference, []

    def difference(answers, *rest):
        if len(answers) > 4:
            failed.append(len(answers))
            raise MemoryError
        return honest(answers, *rest)

    subject = memaudit.wrap(leaky, input_size=2)
    whole = memaudit.scan(subject, horizon=64, level="quick")
    monkeypatch.setattr(runner, "_difference", difference)
    with caplog.at_level(logging.WARNING, logger="memaudit"):
        pieces = memaudit.scan(subject, horizon=64, level="quick")
    assert failed
    assert "memory ran short" in caplog.text
    for name, curve in whole.memory.items():
        np.testing.assert_allclose(pieces.memory[name].values, curve.values, rtol=0, atol=1e-13)
        assert pieces.memory[name].probes == curve.probes


def test_a_linear_model_stays_exact_in_pieces(monkeypatch) -> None:
    honest = runner._difference

    def difference(answers, *rest):
        if len(answers) > 2:
            raise MemoryError
        return honest(answers, *rest)

    def linear(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for now in u.unbind(1):
            state = 0.8 * state + now
            answers.append(state)
        return torch.stack(answers, 1)

    monkeypatch.setattr(runner, "_difference", difference)
    curve = memaudit.scan(memaudit.wrap(linear, input_size=3), horizon=32).memory["impulse"]
    assert curve.exact
    np.testing.assert_allclose(curve.values, 0.8 ** np.arange(32.0), rtol=1e-12)


def integrator(share: float, dtype: torch.dtype):
    """Half of the past is forgotten at every step, and a small share of it never."""

    def model(u: torch.Tensor) -> torch.Tensor:
        fast, slow, answers = torch.zeros_like(u[:, 0]), torch.zeros_like(u[:, 0]), []
        for now in u.unbind(1):
            fast, slow = 0.5 * fast + now, slow + now
            answers.append(fast + share * slow)
        return torch.stack(answers, 1)

    return memaudit.wrap(model, input_size=1, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "share"),
    [(torch.float64, 2e-14), (torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float32, 2e-6)],
)
def test_a_small_memory_for_ever_is_not_taken_for_rounding(
    dtype: torch.dtype, share: float
) -> None:
    curve = memaudit.scan(integrator(share, dtype), horizon=256, level="quick").memory["impulse"]
    assert curve.decay.kind == "persistent"


@pytest.mark.parametrize("cell", [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM])
@pytest.mark.parametrize("rows", [1, 10_000])
def test_digits_that_the_model_does_not_have_are_found(cell, rows: int) -> None:
    """A model in float32 that answers in float64 has the floor of float32, however it is fed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = cell(2, 8, batch_first=True)

    def model(u: torch.Tensor) -> torch.Tensor:
        if len(u) > rows:
            raise MemoryError
        with torch.no_grad():
            return net(u.float())[0].double()

    report = memaudit.scan(memaudit.wrap(model, input_size=2), horizon=256, level="quick")
    for curve in report.memory.values():
        assert curve.floor > 1e-9 * curve.values.max()
        assert curve.decay.kind not in ("persistent", "finite")


def test_rows_that_could_not_be_seen_side_by_side_are_not_called_independent() -> None:
    subject, _ = cramped(1, MemoryError())
    report = memaudit.scan(subject, horizon=64, level="quick")
    (rows,) = (a for a in report.assumptions if a.name == "rows-independent")
    assert rows.holds is None
    (finding,) = (f for f in report.findings if f.code == "MA004")
    assert "sound" not in finding.advice


def test_a_shortage_of_a_model_with_independent_rows_says_that_the_numbers_are_sound() -> None:
    def model(u: torch.Tensor) -> torch.Tensor:
        if u.shape[1] > 300 and len(u) > 3:
            raise MemoryError
        return leaky(u)

    report = memaudit.scan(memaudit.wrap(model, input_size=2), horizon=512, level="quick")
    (finding,) = (f for f in report.findings if f.code == "MA004")
    assert "sound" in finding.advice


def test_memory_that_ends_half_way_keeps_what_was_measured(monkeypatch) -> None:
    monkeypatch.setattr(runner, "PASS_NUMBERS", 8000)
    calls = []

    def model(u: torch.Tensor) -> torch.Tensor:
        if u.shape[1] > 300:
            calls.append(1)
            if len(calls) > 4:
                raise MemoryError
        return leaky(u)

    report = memaudit.scan(memaudit.wrap(model, input_size=1), horizon=256)
    assert not report.complete
    assert [error["code"] for error in report.errors] == ["E_MEMORY"]
    assert report.memory["impulse"].probes > 0


def test_a_probe_may_copy_what_it_measures() -> None:
    batched = BatchedSubject(memaudit.wrap(leaky, input_size=2))
    again = copy.deepcopy(batched)
    batch = torch.ones(2, 4, 2, dtype=torch.float64)
    assert torch.equal(again.respond(batch), batched.respond(batch))
