"""The examples run."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import memaudit
from examples import draw_report, exact_memory
from memaudit.recall.probe import Recall

README = Path(__file__).parent.parent / "README.md"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys) -> None:
    block, _, _ = readme_blocks()
    monkeypatch.chdir(tmp_path)
    names = {"module": nn.GRU(2, 4), "f": lambda u: u.cumsum(1)}
    exec(compile(block, "README.md", "exec"), names)
    assert "heaviside persistent" in capsys.readouterr().out
    demo = memaudit.scan("demo:lstm").memory["impulse"]
    stated = re.search(r"# (\d+), ([\d.]+); None", block)
    assert stated is not None
    assert demo.horizon == int(stated[1])
    assert demo.half_life == pytest.approx(float(stated[2]), abs=0.05)


def test_the_retrofit_of_the_readme_runs(tmp_path) -> None:
    from tests.training.models import mamba, trainer

    _, block, _ = readme_blocks()
    model = mamba()
    before = model.state_dict()["backbone.layers.0.mixer.A_log"].clone()
    names = {"torch": torch, "model": model, "trainer": trainer(model, tmp_path)}
    exec(compile(block, "README.md", "exec"), names)
    assert len(names["done"].layers) == 2
    assert torch.equal(model.backbone.layers[0].mixer.A_log, before)


def test_the_students_of_the_readme_are_trained() -> None:
    _, _, block = readme_blocks()
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["run"].diverged_at is None
    assert names["run"].last < names["run"].losses[0]
    assert [member.size for member in names["family"].members] == [2, 4, 8]
    assert f"# {names['family'].verdict}: {names['family'].reason.partition(' (')[0]}" in block


def test_the_recall_of_the_readme_is_there() -> None:
    (block,) = re.findall(r"  ```python\n(.*?)  ```", README.read_text("utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {"memaudit": memaudit}
    exec(compile(dedent(block), "README.md", "exec"), names)
    assert names["report"].recall.lags == 16
    asked = memaudit.scan("demo:gru", probes=[Recall(lags=16)])
    assert asked.recall.capacity == names["report"].recall.capacity


def readme_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), flags=re.DOTALL | re.M)


def test_a_report_is_drawn_as_a_picture_that_fetches_nothing(tmp_path) -> None:
    memaudit.scan("demo:rnn", horizon=64, level="quick").save(tmp_path / "report.json")
    draw_report.main([str(tmp_path / "report.json"), str(tmp_path / "report.svg")])
    text = (tmp_path / "report.svg").read_text()
    ElementTree.fromstring(text)
    assert "heaviside" in text
    assert text.count("http") == 1  # the name space of SVG itself
    assert text.count("<circle") > 50


def test_measured_and_exact_memory_of_the_reference_layers_are_one(capsys) -> None:
    exact_memory.main(["--states", "8", "--horizon", "128"])
    shares = re.findall(r"differ by (\S+) of the largest", capsys.readouterr().out)
    assert len(shares) == 2
    assert all(float(share) <= 1e-13 for share in shares)
