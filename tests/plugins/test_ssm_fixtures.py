"""The reference checkpoints of state-space models: as recorded, under moved weights, damaged."""

from __future__ import annotations

import json
import shutil
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import memaudit
from memaudit.errors import MemauditError
from memaudit.interfaces import DiagonalDecay
from memaudit.loading import open_checkpoint
from memaudit_ssm import SsmAdapter
from memaudit_ssm.s4 import POSITIVE, TIED, S4Kernel
from tests.module_laws import check_perturbable
from tests.plugins.corruptions import CORRUPTIONS, Damaged, State, damaged
from tests.plugins.recorded_answers import (
    LIMITS,
    assert_close_to_record,
    fed,
    recorded_modes,
    records,
)
from tests.plugins.s4_models import both_of, one_step, pairs

FOLDER = Path(__file__).parents[2].parent / "shared" / "fixtures"
S4 = ("s4_v4_lightning/nplr_omegaconf", "s4_v4_lightning/s4d_plain")
S4 += tuple(f"s4_v4_standalone/{kind}" for kind in ("diag", "diag_real", "dplr"))
S4D = ("s4d_standalone/small", "s4d_standalone/pooled")
STABLE = tuple(f"stablessm/{form}" for form in ("best", "direct", "exp", "softplus"))
CURSE = tuple(f"curse_of_memory/{c}" for c in ("diagonalrnn", "lru", "rnn", "softplusrnn", "ssm"))
DENSE = ("lru_jax/small", "s5_pytorch/small")
LOW_RANK = ("s4_v4_lightning/nplr_omegaconf", "s4_v4_standalone/dplr")
EVERY = (*S4, *S4D, *STABLE, *CURSE, *DENSE)
#: Names are translated there, or tensors are blamed together: a refusal need not name the one.
UNNAMED = (*S4, *DENSE)
NOTHING = "no recurrent layer was recognised"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="no reference checkpoints beside the checkout"),
]


@pytest.mark.parametrize(
    ("name", "dtype"),
    # Of Curse-of-memory there is a record in double precision alone.
    [(name, dtype) for name in EVERY for dtype in LIMITS if name not in CURSE or "64" in dtype],
)
def test_recorded_outputs_are_reproduced(name: str, dtype: str) -> None:
    assert_close_to_record(memaudit.load(FOLDER / name, dtype=dtype), FOLDER / name)


@pytest.mark.parametrize(
    "name", [*S4, S4D[0], STABLE[0], "curse_of_memory/ssm", "curse_of_memory/diagonalrnn", *DENSE]
)
@pytest.mark.parametrize("execution", ["chunks", "convolution", "stepping"])
def test_every_execution_gives_the_recorded_outputs(name: str, execution: str) -> None:
    subject = memaudit.load(FOLDER / name, execution=execution)
    assert_close_to_record(subject, FOLDER / name)
    # What the original's own stepping gave.
    stepped = records(FOLDER / name).get("output_step64")
    if stepped is not None:
        answer = subject.respond(records(FOLDER / name)["input"].double())
        torch.testing.assert_close(answer, stepped, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", EVERY)
def test_recorded_eigenvalues_are_reproduced_in_their_order(name: str) -> None:
    spectra = memaudit.load(FOLDER / name).spectra()
    found = torch.stack([torch.from_numpy(item.eigenvalues) for item in spectra])
    wanted = recorded_modes(FOLDER / name).flatten(1)
    if name.endswith(("/rnn", "/softplusrnn", "/ssm")):
        # Eigenvalues of a full symmetric matrix have no order of their own.
        found, wanted = found.real.sort().values, wanted.real.sort().values
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9, check_dtype=False)
    stated = {"stablessm": name.rpartition("/")[2], "s4d_standalone": "exp"}
    form = stated.get(name.partition("/")[0])
    assert form is None or {item.parameterization for item in spectra} == {form}


@pytest.mark.parametrize("name", [*S4, *S4D, *STABLE, *DENSE])
def test_the_kernel_of_the_first_layer_is_the_recorded_one(name: str) -> None:
    subject, wanted = memaudit.load(FOLDER / name), records(FOLDER / name)["kernel64"]
    skip = next(w for key, w in subject.weights().items() if key.endswith(".D")).flatten()
    part = next(iter(subject.linear_parts().values()))
    if name in DENSE:
        skip = torch.diag(skip)
    else:
        wanted = wanted.flatten(0, -2).T[:, None]
    kernel = part.kernel(0, len(wanted)).clone()
    kernel[0] -= skip  # the recorded kernels have no D
    torch.testing.assert_close(kernel, wanted, rtol=0, atol=1e-11)


def test_the_first_layer_of_s5_answers_as_the_stepped_original() -> None:
    recorded = records(FOLDER / "s5_pytorch/small")
    part = memaudit.load(FOLDER / "s5_pytorch/small").linear_parts()["layers.0"]
    found = part.respond(recorded["layer0_ssm_input64"][None])[0]
    torch.testing.assert_close(found, recorded["layer0_ssm_output_step64"], rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", LOW_RANK)
def test_the_true_readout_is_restored(name: str) -> None:
    recorded, subject = records(FOLDER / name), memaudit.load(FOLDER / name)
    core: Any = next(iter(subject.net.cores().values()))  # type: ignore[attr-defined]
    wanted = torch.complex(recorded["dC_real"], recorded["dC_imag"])
    torch.testing.assert_close(core.systems()[""].readout, wanted, rtol=0, atol=1e-10)
    assert "condition number" in subject.identity.description


@pytest.mark.parametrize("name", EVERY)
def test_the_whole_model_is_run_and_described(name: str) -> None:
    subject = memaudit.load(FOLDER / name)
    identity = subject.identity
    assert identity.whole
    assert identity.coverage == 1.0
    meta = json.loads((FOLDER / name / "meta.json").read_text())
    assert identity.parameters == meta.get("n_params", identity.parameters)
    assert subject.pooled == name.endswith("pooled")
    assert len(subject.spectra()) == len(identity.recurrences)


def test_msgpack_and_npz_hold_the_same_model(tmp_path: Path) -> None:
    for name in ("params.msgpack", "config.json"):
        shutil.copy(FOLDER / "lru_jax/small" / name, tmp_path)
    subject = memaudit.load(tmp_path)
    assert_close_to_record(subject, FOLDER / "lru_jax/small")
    assert (subject.identity.family, subject.identity.assumed) == ("lru", {})


def test_what_nothing_says_is_assumed_aloud_and_can_be_changed() -> None:
    folder = FOLDER / "s4_v4_standalone/diag"
    steps, pooled = memaudit.load(folder), memaudit.load(folder, pool="true")
    assert "--set pool=mean" in steps.identity.assumed["pool"]
    assert (pooled.pooled, "pool" in pooled.identity.assumed) == (True, False)
    ones = fed("heaviside", 1)
    # The decoder is affine: the answer to the mean is the mean of the answers.
    torch.testing.assert_close(pooled.respond(ones), steps.respond(ones).mean(dim=1))
    notes = memaudit.load(FOLDER / "s4_v4_standalone/dplr").identity.notes
    assert any("l_max = 512" in note for note in notes)
    s5 = memaudit.load(FOLDER / "s5_pytorch/small").identity
    assert set(s5.assumed) == {"liquid", "disc", "degree", "pool"}
    assert any("follow each other" in note for note in s5.notes)
    curse = memaudit.load(FOLDER / "curse_of_memory/rnn").identity
    assert set(curse.assumed) == {"encoder activation", "decoder activation"}


# -- Moved weights, and the weights that make the modes.


@pytest.mark.parametrize("name", [n for n in EVERY if n not in STABLE[1:]])
def test_moved_weights_obey_the_laws(name: str) -> None:
    subject = memaudit.load(FOLDER / name, dtype="float64")
    for part in (subject.parts() or {"": subject}).values():
        check_perturbable(part)


def steps_of(kernel: Any) -> Any:
    """The step sizes of a layer with states of its own for every feature, or of one state."""
    if isinstance(kernel, S4Kernel):
        raw = kernel.inv_dt.sinh() if kernel.recipe.dt_fast else kernel.inv_dt
        return POSITIVE[kernel.recipe.dt_transform](raw)
    return kernel.log_dt.exp().unsqueeze(-1) if hasattr(kernel, "log_dt") else 1.0


@pytest.mark.parametrize("name", EVERY)
def test_the_stored_decays_are_those_behind_the_recorded_eigenvalues(name: str) -> None:
    subject = memaudit.load(FOLDER / name)
    (module,) = subject.live_modules().values()
    decays = list(SsmAdapter().stored_decays(module))
    assert len(decays) == len(subject.spectra())
    for decay, modes in zip(decays, recorded_modes(FOLDER / name), strict=True):
        assert isinstance(decay, DiagonalDecay)
        owner: Any = decay.owner
        assert owner in module.get_submodule(decay.layer).modules()
        stored = getattr(owner, decay.name).detach()
        lam = decay.law.forward((stored.real if decay.part == "real" else stored).double())
        if name in CURSE:
            net: Any = module.get_submodule("net")
            if decay.cell == "diagonalrnn":
                found = lam
            elif decay.cell == "lru":
                found = 1.0 - net.dt * (1.0 - lam)
            else:
                assert "overshoot" in decay.note
                basis = net.P.weight
                found = 1.0 + net.dt * torch.linalg.eigvalsh(basis.mT @ torch.diag(lam) @ basis)
            wanted = modes.real.sort().values
            torch.testing.assert_close(found.sort().values, wanted, rtol=0, atol=1e-9)
        elif name in LOW_RANK:
            assert decay.note == TIED
            rates = both_of((lam - 1j * owner.A_imag).numpy())[0]
            left = both_of(pairs(owner.P))[:, 0]
            dt = steps_of(owner).numpy()[0]
            step = one_step(rates, left, left.conj(), rates, dt, "bilinear")[0]
            sizes = torch.linalg.eigvals(torch.from_numpy(step)).abs().sort().values
            torch.testing.assert_close(sizes, modes[0].abs().sort().values, rtol=0, atol=1e-9)
        elif getattr(owner, "disc", "zoh") == "bilinear":
            rates = 2.0 / steps_of(owner) * ((modes - 1.0) / (modes + 1.0)).real
            torch.testing.assert_close(lam.expand_as(rates), rates, rtol=1e-7, atol=1e-9)
        else:
            dt = owner.log_step.exp() if decay.part == "real" else steps_of(owner)
            wanted = modes.abs()
            found = torch.exp(dt * lam).expand_as(wanted)
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


# -- Damage.


@cache
def state_of(name: str) -> State:
    return dict(open_checkpoint(FOLDER / name).tensors)


@cache
def answer_of(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A short signal, and what the undamaged model answers to it."""
    subject = memaudit.load(FOLDER / name)
    generator = torch.Generator().manual_seed(5)
    signal = torch.randn(1, 24, subject.input_size or 0, generator=generator, dtype=torch.float64)
    return signal, subject.respond(signal)


def written(folder: Path, name: str, state: State) -> Path:
    """A folder with the weights and the config of the fixture."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for config in FOLDER.joinpath(name).glob("config.*"):
        shutil.copy(config, folder)
    # Tensors that share their memory are not saved in this format.
    tensors = {key: t.contiguous().clone() for key, t in state.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", [n for n in EVERY if n not in STABLE[1:]])
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(how=st.sampled_from(sorted(CORRUPTIONS)), data=st.data())
def test_damage_is_refused_by_name_run_in_part_and_said_or_harmless(
    tmp_path: Path, name: str, how: str, data: st.DataObject
) -> None:
    harm: Damaged | None = data.draw(damaged(partial(state_of, name), how))
    assume(harm is not None)
    assert harm is not None
    try:
        subject = memaudit.load(written(tmp_path / "folder", name, harm.state))
    except MemauditError as error:
        assert not harm.harmless
        # Of a layer that lost its only tensor nothing is left that could be named.
        told = harm.blamed is None or harm.blamed in error.line() or NOTHING in error.line()
        assert told or name in UNNAMED
        return
    if subject.identity.whole:
        signal, expected = answer_of(name)
        torch.testing.assert_close(subject.respond(signal), expected, rtol=1e-9, atol=1e-9)
    else:
        assert not harm.harmless
        assert subject.identity.coverage < 1.0
        assert subject.identity.notes
        assert subject.parts()
