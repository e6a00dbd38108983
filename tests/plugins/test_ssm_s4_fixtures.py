"""The reference checkpoints of S4 come out as the original code recorded them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from memaudit_ssm.s4 import DplrBank
from memaudit_ssm.subject import NetSubject
from tests.plugins.s4_models import opened

STANDALONE = ("diag", "diag_real", "dplr")
LIGHTNING = ("s4d_plain", "nplr_omegaconf")
FOLDERS = tuple(f"s4_v4_standalone/{n}" for n in STANDALONE) + tuple(
    f"s4_v4_lightning/{n}" for n in LIGHTNING
)
LOW_RANK = ("s4_v4_standalone/dplr", "s4_v4_lightning/nplr_omegaconf")
STEPS = 512

pytestmark = pytest.mark.shared


def subject_of(folder: Path, dtype: torch.dtype = torch.float64, **options: str) -> NetSubject:
    subject = opened(folder, dtype, **options)
    assert isinstance(subject, NetSubject)
    return subject


def probes(recorded: dict[str, torch.Tensor], width: int) -> dict[str, torch.Tensor]:
    silence = torch.zeros(1, STEPS, width, dtype=torch.float64)
    impulse = silence.clone()
    impulse[:, 0] = 1.0
    return {
        "": recorded["input"].double(),
        "heaviside_": silence + 1.0,
        "impulse_": impulse,
        "zero_": silence,
    }


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(
    ("dtype", "end", "tolerance"),
    # In float32 a thousand products of rounding 1e-7 add up.
    [(torch.float32, "", 1e-4), (torch.float64, "64", 1e-12), (torch.float64, "_step64", 1e-12)],
)
def test_outputs_are_reproduced(
    shared: Path, name: str, dtype: torch.dtype, end: str, tolerance: float
) -> None:
    recorded = load_file(shared / "fixtures" / name / "io.safetensors")
    subject = subject_of(shared / "fixtures" / name, dtype)
    fed = probes(recorded, 1)
    wanted = {
        kind: recorded[f"{kind}output{end}"] for kind in fed if f"{kind}output{end}" in recorded
    }
    # The real variant of the original cannot step.
    assert wanted or (end == "_step64" and name.endswith("real"))
    for kind, record in wanted.items():
        answer = subject.respond(fed[kind].to(dtype))
        off = float((answer - record).abs().max() / record.abs().max())
        assert off <= tolerance, kind


@pytest.mark.parametrize("name", FOLDERS)
def test_both_executions_agree(shared: Path, name: str) -> None:
    folder = shared / "fixtures" / name
    fed = load_file(folder / "io.safetensors")["input"].double()
    first, second = (
        subject_of(folder, execution=way).respond(fed) for way in ("convolution", "stepping")
    )
    torch.testing.assert_close(first, second, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", FOLDERS)
def test_eigenvalues_come_in_the_order_of_the_original(shared: Path, name: str) -> None:
    recorded = load_file(shared / "fixtures" / name / "io.safetensors")
    wanted = torch.complex(recorded["eigs_real"], recorded["eigs_imag"])
    spectra = subject_of(shared / "fixtures" / name).spectra()
    found = torch.stack([torch.from_numpy(s.eigenvalues) for s in spectra])
    torch.testing.assert_close(found, wanted.flatten(1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", FOLDERS)
def test_kernels_are_those_of_the_original(shared: Path, name: str) -> None:
    wanted = load_file(shared / "fixtures" / name / "io.safetensors")["kernel64"]
    subject = subject_of(shared / "fixtures" / name)
    core = next(iter(subject.net.cores().values()))
    kernel = core.systems()[""].kernel(0, wanted.shape[-1]).permute(1, 2, 0).clone()
    # The original's kernel has no D.
    kernel[..., 0] -= core.get_parameter("D")
    torch.testing.assert_close(kernel, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", LOW_RANK)
def test_the_true_readout_is_restored(shared: Path, name: str) -> None:
    recorded = load_file(shared / "fixtures" / name / "io.safetensors")
    subject = subject_of(shared / "fixtures" / name)
    system = next(iter(subject.net.cores().values())).systems()[""]
    assert isinstance(system, DplrBank)
    wanted = torch.complex(recorded["dC_real"], recorded["dC_imag"])
    torch.testing.assert_close(system.readout, wanted, rtol=0, atol=1e-10)
    assert "condition number" in subject.identity.description


@pytest.mark.parametrize("name", FOLDERS)
def test_every_parameter_is_run(shared: Path, name: str) -> None:
    identity = subject_of(shared / "fixtures" / name).identity
    assert identity.whole
    assert identity.coverage == 1.0
    assert identity.family == "s4"


def test_what_nothing_says_is_assumed_aloud_and_can_be_changed(shared: Path) -> None:
    folder = shared / "fixtures" / "s4_v4_standalone" / "diag"
    steps = subject_of(folder)
    assert "--set pool=mean" in steps.identity.assumed["pool"]
    pooled = subject_of(folder, pool="true")
    assert pooled.pooled
    assert "pool" not in pooled.identity.assumed
    fed = torch.ones(1, 32, 1, dtype=torch.float64)
    # The decoder is affine: the answer to the mean is the mean of the answers.
    torch.testing.assert_close(pooled.respond(fed), steps.respond(fed).mean(dim=1))


def test_the_cut_of_the_original_is_told(shared: Path) -> None:
    identity = subject_of(shared / "fixtures" / "s4_v4_standalone" / "dplr").identity
    assert any("l_max = 512" in note for note in identity.notes)
