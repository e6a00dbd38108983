"""Settings that the user gives or a config states are obeyed, told, or refused: never ignored."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit_ssm import LRU, S4D
from memaudit_ssm.settings import Hyperparameters

shared_only = pytest.mark.shared


def copied(shared: Path, name: str, folder: Path, **changes: Any) -> Path:
    """A fixture with a changed config.json."""
    origin = shared / "fixtures" / name
    for path in origin.iterdir():
        if path.name not in ("io.safetensors", "meta.json"):
            shutil.copy(path, folder)
    config = json.loads((folder / "config.json").read_text())
    config["layer"] = {**config.get("layer", {}), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_an_old_name_that_speaks_beats_a_new_one_that_is_null() -> None:
    facts = Hyperparameters({}, {"layer": {"final_act": None, "postact": "relu"}})
    assert facts.choice("final_act", ("none", "relu", "glu"), also=("postact",)) == "relu"


def test_references_inside_a_config_are_followed() -> None:
    model = {"size": "${dataset.size}", "cut": "${oc.select:a.b,null}"}
    config = {"dataset": {"size": 7}, "model": model}
    section = Hyperparameters({}, config).section("model")
    assert (section.get("size"), section.get("cut", 3)) == (7, None)


def test_a_reference_that_leads_nowhere_is_no_value() -> None:
    section = Hyperparameters({}, {"net": {"return_seq": "${x.y}"}}).section("net")
    with pytest.raises(SourceError, match="leaves return_seq open"):
        section.get("return_seq")


def test_a_flag_is_no_number() -> None:
    with pytest.raises(SourceError, match="bandlimit is true"):
        Hyperparameters({}, {"layer": {"bandlimit": True}}).number("bandlimit")


@shared_only
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("s4d_standalone/small", {"disc": "bilinear"}),
        ("s4d_standalone/small", {"layers": "s4_layers.0"}),
        ("lru_jax/small", {"conj_sym": True}),
        ("s5_pytorch/small", {"bandlimit": 0.5}),
    ],
)
def test_an_option_that_nothing_reads_is_refused(shared: Path, name: str, options: dict) -> None:
    with pytest.raises(ArgumentError):
        memaudit.load(shared / "fixtures" / name, **options)


@shared_only
def test_what_was_forced_stands_in_the_report(shared: Path) -> None:
    folder = shared / "fixtures" / "stablessm" / "best"
    forced = memaudit.load(folder, parameterization="exp", execution="stepping").identity
    assert "said by options: parameterization=exp (the config says best)" in forced.notes
    assert "linear layers were run by stepping" in forced.notes


@shared_only
def test_torch_layers_beside_those_of_a_family_are_named(shared: Path, tmp_path: Path) -> None:
    state = load_checkpoint(shared / "fixtures" / "s4d_standalone" / "small" / "ckpt.pth")
    state |= {f"rnn.{name}": tensor for name, tensor in nn.LSTM(2, 3).state_dict().items()}
    save_file({name: tensor.clone() for name, tensor in state.items()}, tmp_path / "m.safetensors")
    with pytest.raises(SourceError, match=r"rnn\.weight_hh_l0"):
        memaudit.load(tmp_path / "m.safetensors")


def load_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(path, weights_only=True)["model"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_stable_layer_next_to_the_boundary_is_stable_in_any_precision(dtype: str) -> None:
    layer = LRU(2, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        layer.nu_log.fill_(-20.0)
    (found,) = memaudit.load(layer, dtype=dtype).spectra()
    assert found.time_scale == pytest.approx(math.exp(20.0), rel=1e-4)
    assert found.margin == pytest.approx(math.exp(-20.0), rel=1e-4)


def test_a_layer_in_memory_has_its_spectrum_and_its_closed_form() -> None:
    layer = S4D(3, 4, generator=torch.Generator().manual_seed(0))
    report = memaudit.scan(layer, horizon=64, queries=["impulse"])
    assert [item.layer for item in report.spectrum] == ["layer"]
    assert [item.agrees for item in report.closed_form] == [True]
    assert layer.D.requires_grad


def test_a_rescaled_step_is_refused(tmp_path: Path) -> None:
    shapes = {"Lambda_im": (4,), "B": (4, 3, 2), "C": (3, 4, 2), "D": (3,), "log_step": (4, 1)}
    state = {f"seq.{name}": torch.ones(shape) for name, shape in shapes.items()}
    state["seq.Lambda_re"] = -torch.ones(4)
    save_file(state, tmp_path / "model.safetensors")
    settings = {"discretization": "zoh", "conj_sym": True, "step_rescale": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(SourceError, match="step_rescale"):
        memaudit.load(tmp_path)


@shared_only
def test_a_gate_of_the_example_is_read_from_its_old_name(shared: Path, tmp_path: Path) -> None:
    folder = copied(shared, "s4_v4_standalone/diag", tmp_path, final_act=None, postact="glu")
    record = load_file(shared / "fixtures" / "s4_v4_standalone" / "diag" / "io.safetensors")
    found = memaudit.load(folder).respond(record["input"].double())
    torch.testing.assert_close(found, record["output64"], rtol=0, atol=1e-9)
