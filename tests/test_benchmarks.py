"""The benchmarks run, compare the same numbers, and hold what is counted. No time is judged."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from benchmarks import opening, stability
from benchmarks.__main__ import GROUPS, main
from benchmarks.audits import exponent
from benchmarks.row import Row, best


def test_one_command_prints_a_table_and_writes_rows_and_a_picture(tmp_path, capsys):
    main(["machine", "opening", "--json", f"{tmp_path}/a.json", "--picture", f"{tmp_path}/a.svg"])
    found = json.loads((tmp_path / "a.json").read_text())
    names = [row["name"] for row in found["rows"]]
    assert found["threads"] == torch.get_num_threads()
    assert "matrix product, float32" in names
    assert "one layer of 6 GB, .safetensors" in names
    printed = capsys.readouterr().out
    assert "GFLOP/s" in printed
    assert "<=" in printed
    ElementTree.fromstring((tmp_path / "a.svg").read_text())


def test_an_unknown_group_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["scan"])
    words = capsys.readouterr().err
    assert "unknown group 'scan'" in words
    assert all(name in words for name in GROUPS)


def test_opening_a_file_takes_no_more_than_what_is_read():
    found = {row.name: row for row in opening.rows(full=False)}
    assert len(found) == 5
    assert found["nothing of 500 MB, .safetensors"].value < 5
    assert found["one layer of 6 GB, .safetensors"].value < 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loop_and_the_copies_have_the_same_errors(dtype):
    for case in (stability.ssm_case(), stability.lstm_case(dtype)):
        betas = stability.BETAS[8::6]
        loop = stability.one_by_one(case, betas, 3)
        rounding = 10 * torch.finfo(dtype).eps
        assert stability.batched(case, betas, 3) == pytest.approx(loop, rel=1e-9, abs=rounding)


def test_works_take_turns_and_the_best_counts():
    turns = []
    found = best({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 3)
    assert turns == ["a", "b"] * 3
    assert set(found) == {"a", "b"}
    assert exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert Row("a", "b", 1.0).unit == "x"
    assert np.isfinite(list(found.values())).all()
