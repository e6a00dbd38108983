"""S4D and StableSSM: the recorded models come out as they were, and layers as their formula."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import memaudit
from memaudit.errors import SourceError
from memaudit.interfaces import AbstractSubject
from memaudit.loading import open_checkpoint
from memaudit_ssm import S4D
from memaudit_ssm.s4d import REAL_PART

FIXTURES = Path(__file__).parents[2].parent / "shared" / "fixtures"
NAMES = (
    "s4d_standalone/small",
    "s4d_standalone/pooled",
    "stablessm/exp",
    "stablessm/softplus",
    "stablessm/best",
    "stablessm/direct",
)
recorded = pytest.mark.skipif(not FIXTURES.is_dir(), reason="no reference checkpoints beside it")
TYPES = {"float32": ("", 1e-4), "float64": ("64", 1e-9)}


def records(name: str) -> dict[str, torch.Tensor]:
    return load_file(FIXTURES / name / "io.safetensors")


def probe(kind: str, subject: AbstractSubject) -> torch.Tensor:
    assert subject.input_size is not None
    signal = torch.zeros(1, 512, subject.input_size, dtype=torch.float64)
    if kind == "heaviside":
        signal[:] = 1.0
    if kind == "impulse":
        signal[:, 0] = 1.0
    return signal


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("execution", ["auto", "convolution", "stepping"])
def test_recorded_outputs_are_reproduced(name: str, dtype: str, execution: str) -> None:
    (suffix, limit), io = TYPES[dtype], records(name)
    subject = memaudit.load(FIXTURES / name, dtype=dtype, execution=execution)
    for kind in ("", "heaviside", "impulse", "zero"):
        key = f"{kind}_output{suffix}" if kind else f"output{suffix}"
        if key not in io:
            continue
        answer = subject.respond((probe(kind, subject) if kind else io["input"]).to(subject.dtype))
        assert answer.dtype == subject.dtype
        scale = float(io[key].abs().max())
        torch.testing.assert_close(answer, io[key], rtol=0, atol=limit * scale)


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("name", NAMES)
def test_recorded_eigenvalues_are_reproduced_in_their_order(name: str) -> None:
    io = records(name)
    expected = torch.complex(io["eigs_real"].double(), io["eigs_imag"].double()).flatten()
    spectra = memaudit.load(FIXTURES / name).spectra()
    found = torch.cat([torch.from_numpy(spectrum.eigenvalues) for spectrum in spectra])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    stated = "exp" if name.startswith("s4d") else name.rpartition("/")[2]
    assert {spectrum.parameterization for spectrum in spectra} == {stated}


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("name", NAMES)
def test_the_whole_model_is_run(name: str) -> None:
    subject = memaudit.load(FIXTURES / name)
    assert subject.identity.whole
    assert subject.identity.coverage == 1.0
    meta = json.loads((FIXTURES / name / "meta.json").read_text())
    assert subject.identity.parameters == meta["n_params"]
    assert subject.pooled == name.endswith("pooled")
    assert len(subject.linear_parts()) == len(subject.identity.recurrences) == len(subject.layers())


@pytest.mark.parametrize("parameterization", REAL_PART)
def test_the_kernel_is_the_formula_of_its_docstring(parameterization: str) -> None:
    layer = S4D(
        3, 8, parameterization=parameterization, generator=torch.Generator().manual_seed(2)
    ).double()
    kernel = layer.kernel
    dt, c = kernel.log_dt.exp(), torch.view_as_complex(kernel.C.detach())
    rates = torch.complex(torch.full_like(kernel.A_imag, -0.5), kernel.A_imag).detach()
    for lag in (0, 1, 50):
        grown = (torch.exp(dt[:, None] * rates) - 1) / rates * torch.exp(dt[:, None] * rates * lag)
        expected = 2.0 * (c * grown).sum(-1).real + (layer.D if lag == 0 else 0.0)
        found = layer.system().kernel(lag, lag + 1)[0, 0]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_training_starts_with_the_imaginary_parts_of_s4d_lin_and_the_rate_one_half() -> None:
    for parameterization in REAL_PART:
        generator = torch.Generator().manual_seed(0)
        layer = S4D(2, 6, parameterization=parameterization, generator=generator).double()
        rates = layer.rates()
        torch.testing.assert_close(rates.real, torch.full((2, 3), -0.5).double(), rtol=1e-6, atol=0)
        expected = math.pi * torch.arange(3.0).double().expand(2, 3)
        torch.testing.assert_close(rates.imag, expected, rtol=1e-6, atol=0)


def saved(folder: Path, name: str, state: dict[str, torch.Tensor], *, config: bool = True) -> Path:
    save_file({key: t.contiguous().clone() for key, t in state.items()}, folder / "w.safetensors")
    for file in FIXTURES.joinpath(name).glob("config.*") if config else ():
        shutil.copy(file, folder)
    return folder


def state_of(name: str) -> dict[str, torch.Tensor]:
    return dict(open_checkpoint(FIXTURES / name).tensors)


@pytest.mark.shared
@recorded
def test_a_layer_that_is_gone_without_a_trace_is_missed_in_the_config(tmp_path: Path) -> None:
    name = "s4d_standalone/small"
    state = {
        key: t
        for key, t in state_of(name).items()
        if "layers.1." not in key and "norms.1" not in key
    }
    with pytest.raises(
        SourceError, match="n_layers = 2, but the layers in the file are 1"
    ) as caught:
        memaudit.load(saved(tmp_path, name, state))
    assert caught.value.code == "E_CONFIG"


@pytest.mark.shared
@recorded
@pytest.mark.parametrize(
    ("name", "key", "word"),
    [
        ("s4d_standalone/small", "encoder.weight", "d_input = 1"),
        ("stablessm/best", "encoder.U.weight", "in_size = 1"),
    ],
)
def test_an_input_more_than_the_config_says_is_refused(
    tmp_path: Path, name: str, key: str, word: str
) -> None:
    state = state_of(name)
    state[key] = torch.cat([state[key], state[key]], dim=1)
    with pytest.raises(SourceError) as caught:
        memaudit.load(saved(tmp_path, name, state))
    assert key in caught.value.fact
    assert word in caught.value.fact


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("where", ["encoder", "decoder"])
def test_a_bias_that_was_lost_is_missed(tmp_path: Path, where: str) -> None:
    state = state_of("stablessm/best")
    del state[f"{where}.U.bias"]
    with pytest.raises(SourceError, match=rf"{where}\.U\.bias is not there"):
        memaudit.load(saved(tmp_path, "stablessm/best", state))


@pytest.mark.shared
@recorded
def test_without_a_config_the_settings_are_asked_for_and_a_missing_bias_is_told(
    tmp_path: Path,
) -> None:
    state = state_of("stablessm/best")
    del state["encoder.U.bias"]
    folder = saved(tmp_path, "stablessm/best", state, config=False)
    with pytest.raises(SourceError, match=r"parameterization, prenorm, pool") as caught:
        memaudit.load(folder)
    assert caught.value.code == "E_CONFIG"
    subject = memaudit.load(folder, parameterization="best", prenorm=False, pool=False)
    assert subject.identity.assumed["encoder bias"].startswith("none")


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("name", ["s4d_standalone/small", "stablessm/best"])
def test_layers_alone_answer_as_they_do_inside_the_model(tmp_path: Path, name: str) -> None:
    whole = memaudit.load(FIXTURES / name)
    state = {key: t for key, t in state_of(name).items() if "coder" not in key}
    host = memaudit.load(saved(tmp_path, name, state))
    assert not host.identity.whole
    assert 0.0 < host.identity.coverage < 1.0
    inside, alone = list(whole.linear_parts().values()), list(host.linear_parts().values())
    assert len(inside) == len(alone)
    for one, other in zip(inside, alone, strict=True):
        torch.testing.assert_close(one.kernel(0, 40), other.kernel(0, 40), rtol=0, atol=0)
