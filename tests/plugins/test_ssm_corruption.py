"""Damaged state-space checkpoints are refused, run in part and say so, or answer as before."""

from __future__ import annotations

import shutil
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import memaudit
from memaudit.errors import MemauditError
from memaudit.interfaces import AbstractSubject
from memaudit.loading import open_checkpoint
from tests.plugins.corruptions import CORRUPTIONS, Damaged, State, damaged

FIXTURES = Path(__file__).parents[2].parent / "shared" / "fixtures"
#: A checkpoint of every kind whose refusals name the very tensor that is to blame.
NAMED = (
    "s4d_standalone/small",
    "s4d_standalone/pooled",
    "stablessm/best",
    "curse_of_memory/rnn",
    "curse_of_memory/diagonalrnn",
    "curse_of_memory/ssm",
)
#: Of these only the silence is tested: names are translated, or tensors are blamed together.
OTHERS = (
    "lru_jax/small",
    "s4_v4_standalone/diag",
    "s4_v4_standalone/diag_real",
    "s4_v4_standalone/dplr",
    "s4_v4_lightning/s4d_plain",
    "s4_v4_lightning/nplr_omegaconf",
    "s5_pytorch/small",
)
NOTHING = "no recurrent layer was recognised"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FIXTURES.is_dir(), reason="no reference checkpoints beside it"),
]


@cache
def state_of(name: str) -> State:
    return dict(open_checkpoint(FIXTURES / name).tensors)


@cache
def answer_of(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A short signal, and what the undamaged model answers to it."""
    subject = memaudit.load(FIXTURES / name)
    assert subject.identity.whole
    assert subject.input_size is not None
    generator = torch.Generator().manual_seed(5)
    signal = torch.randn(1, 24, subject.input_size, generator=generator, dtype=torch.float64)
    return signal, subject.respond(signal)


def written(folder: Path, name: str, state: State) -> Path:
    """A folder with the weights and the config of the fixture."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for config in FIXTURES.joinpath(name).glob("config.*"):
        shutil.copy(config, folder)
    # Tensors that share their memory are not saved in this format.
    save_file(
        {key: t.contiguous().clone() for key, t in state.items()}, folder / "model.safetensors"
    )
    return folder


def opened(folder: Path) -> tuple[AbstractSubject | None, str]:
    """The subject, or the line of the refusal."""
    try:
        return memaudit.load(folder), ""
    except MemauditError as error:
        return None, error.line()


def judge(folder: Path, name: str, harm: Damaged) -> None:
    subject, refusal = opened(written(folder, name, harm.state))
    if subject is None:
        assert not harm.harmless
        # Of a layer that lost its only tensor nothing is left that could be named.
        told = harm.blamed is None or harm.blamed in refusal or NOTHING in refusal
        assert told or name in OTHERS
        return
    if not subject.identity.whole:
        assert not harm.harmless
        assert subject.identity.coverage < 1.0
        assert subject.identity.notes
        assert subject.parts()
        return
    signal, expected = answer_of(name)
    torch.testing.assert_close(subject.respond(signal), expected, rtol=1e-9, atol=1e-9)


PLAIN = settings(
    deadline=None, derandomize=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much, HealthCheck.too_slow
    ],
)  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("how", CORRUPTIONS)
@settings(PLAIN, max_examples=6)
@given(data=st.data())
def test_damage_is_told_by_the_name_of_its_tensor(
    tmp_path: Path, name: str, how: str, data: st.DataObject
) -> None:
    damage_and_judge(tmp_path, name, how, data)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("how", CORRUPTIONS)
@settings(PLAIN, max_examples=4)
@given(data=st.data())
def test_no_damage_is_audited_silently(
    tmp_path: Path, name: str, how: str, data: st.DataObject
) -> None:
    damage_and_judge(tmp_path, name, how, data)


def damage_and_judge(tmp_path: Path, name: str, how: str, data: st.DataObject) -> None:
    harm = data.draw(damaged(partial(state_of, name), how))
    assume(harm is not None)
    assert harm is not None
    judge(tmp_path / "folder", name, harm)
