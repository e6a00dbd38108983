"""The example about gradient scales prints the figures of the papers."""

from __future__ import annotations

import pytest

from examples import gradient_scales


def test_the_balanced_form_has_one_ratio_and_the_moduli_are_those_of_the_table(capsys):
    gradient_scales.main(["--rates", "0.001", "0.5", "4", "--betas", "0.01", "1"])
    scales, moduli = capsys.readouterr().out.split("modulus, by beta\n")
    rows = {line.split()[0]: line.split()[1:] for line in scales.splitlines()[2:]}
    assert rows["best"] == ["2", "2", "-"]
    assert [float(value) for value in rows["direct"]] == pytest.approx([1e9, 8, 1 / 64], rel=1e-2)
    stated = {line.split()[0]: line.split()[1:] for line in moduli.splitlines()[1:]}
    assert stated["best"] == ["0.01424", "2.732"]
    assert stated["heavytail"] == ["0.01003", "1.25"]
    assert stated["direct"] == ["inf", "inf"]
