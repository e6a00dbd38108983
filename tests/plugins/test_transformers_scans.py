"""Every recurrent family of the installed transformers is scanned through the front door."""

from __future__ import annotations

from pathlib import Path

import pytest

import memaudit
from tests.plugins.transformers_families import FAMILIES, Family
from tests.plugins.transformers_zoo import saved

LAGS = 24


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_folder_of_the_family_is_scanned(family: Family, tmp_path: Path) -> None:
    report = memaudit.scan(
        saved(family.build(), tmp_path),
        horizon=LAGS,
        level="quick",
        amplitudes=(1.0,),
        queries=["heaviside", "impulse", "repeat"],
    )
    assert report.complete
    assert report.subject.adapter == "transformers"
    layers = family.config().num_hidden_layers
    assert len(report.layers) == layers
    for curves in (report.memory, *report.layers.values()):
        assert all(len(c.values) in (LAGS, LAGS - 1) for c in curves.values())
    assert [item.cell for item in report.spectrum] == [family.cell] * len(family.recurrent_layers())
    for item in report.spectrum:
        assert item.time_scale > 0
        assert (abs(item.eigenvalues) <= 1).all()
        assert item.count == len(item.eigenvalues)
    assert memaudit.Report.from_dict(report.to_dict()) == report
