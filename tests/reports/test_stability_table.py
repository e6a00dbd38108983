"""The stability of a model on a page, to the letter."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import numpy as np
from rich.console import Console

from memaudit.reports.stability_table import stability_block
from memaudit.stability.result import Stability
from memaudit.testing.samples import stability

TABLE = """\
Stability
weights   |radius   |until    |exact  |tolerance |E(0.01) |E(0.1) |E(1)
----------+---------+---------+-------+----------+--------+-------+--------
recurrent |0.05     |boundary |0.0501 |     0.05 |5.00%   |75.00% |infinite
readout   |infinite |error    |-      |     0.05 |5.00%   |75.00% |infinite
"""
LEGEND = """\
Radius: the largest move until which no mode reaches the boundary, or, where the
weights alone do not decide the modes, the error stays below the answers; 3
seeds.
Tolerance: E(beta) <= 2 E(0).
E within the spectral ball, in the sobolev norm, as a share of the answers,
against the model as it is, on 8 inputs of 100 steps; 30 draws and gradient
ascent.
a note
"""


def page(item: Stability) -> str:
    sheet = StringIO()
    console = Console(file=sheet, width=80, color_system=None, highlight=False, _environ={})
    console.print(stability_block(item, width=80, ascii_only=True))
    return "\n".join(line.rstrip() for line in sheet.getvalue().splitlines()) + "\n"


def test_every_group_has_a_row_with_its_radii_and_errors() -> None:
    assert page(stability()).startswith(TABLE)


def test_the_legend_says_what_radius_tolerance_and_error_are() -> None:
    assert page(stability()).endswith(LEGEND)


def test_the_curves_are_drawn_with_a_letter_each() -> None:
    picture = page(stability()).split("dotted: the answers\n")[1]
    assert picture.count("a") > 20
    assert "1.0e-03" in picture


def test_parts_of_a_host_have_a_column() -> None:
    near = replace(stability(), where="encoder")
    far = replace(stability(), where="decoder")
    told = page(near.joined(far))
    assert "layer" in told.splitlines()[1]
    assert told.count("encoder") == told.count("decoder") == 2


def test_errors_at_the_end_of_all_numbers_are_drawn() -> None:
    """A reference of 1e308, ten times which is no number, and curves that are infinite."""
    made = stability()
    for errors, top in (([1e307, 1e308, 1.5e308, np.inf], "1e+309"), ([np.inf] * 4, "1e+308")):
        curves = tuple(replace(c, errors=np.asarray(errors)) for c in made.curves)
        picture = page(replace(made, scale=1e308, curves=curves)).split("dotted: the answers\n")[1]
        assert top in picture
