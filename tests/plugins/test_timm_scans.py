"""Whole audits of models of timm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import memaudit
from memaudit.errors import SourceError
from memaudit.testing import check_adapter
from memaudit_timm import TimmAdapter
from tests.plugins.timm_models import SCANNING, SMALL, made, saved, sequencer, vit

#: 16 x 16 patches: room for the shifts of the assumptions.
ROOMY = {**SMALL, "img_size": 128, "patch_size": 8, "depth": 1, "embed_dim": 16}


@pytest.mark.parametrize("kind", ["folder", "module"])
@pytest.mark.parametrize("family", ["vit", "sequencer"])
def test_the_adapter_keeps_the_laws(kind: str, family: str, tmp_path: Path) -> None:
    model = vit(**ROOMY) if family == "vit" else sequencer()
    sizes: dict[str, Any] = ROOMY if family == "vit" else SCANNING
    source = saved(model, tmp_path / "model", sizes) if kind == "folder" else model
    options = {} if family == "vit" else {"layers": "stages.1"}
    check_adapter(TimmAdapter(), source, options=options)


def test_a_vision_transformer_is_audited_and_said_to_look_ahead() -> None:
    report = memaudit.scan(vit(**ROOMY), horizon=24, level="quick", dtype="float64")
    held = {a.name: a.holds for a in report.assumptions}
    assert report.subject.adapter == "timm"
    assert held["causal"] is False
    assert held["time-homogeneous"] is False
    assert held["linear"] is False
    assert set(report.memory) >= {"heaviside", "impulse"}
    assert report.complete


def test_a_small_grid_is_audited_within_its_patches() -> None:
    report = memaudit.scan(vit(), horizon=64, level="quick", dtype="float64")
    assert report.complete
    assert all(len(curve.lags) <= 16 for curve in report.memory.values())


def test_a_sequencer_is_audited_layer_by_layer(tmp_path: Path) -> None:
    folder = saved(sequencer(), tmp_path / "model", SCANNING)
    report = memaudit.scan(folder, horizon=24, level="quick")
    assert report.subject.adapter == "timm"
    assert len(report.layers) == 6
    assert all("impulse" in curves for curves in report.layers.values())
    assert len(report.subject.recurrences) == 8


def test_a_module_without_a_sequence_is_refused_by_scan() -> None:
    with pytest.raises(SourceError, match="no sequence to audit"):
        memaudit.scan(made("test_resnet"))
