"""The example of a retrofit: it runs, and its words come from its numbers."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from examples import retrofit_and_finetune
from examples.finetuning import (
    DEMOS,
    refusal,
    rnn_task,
)
from memaudit.report import Report

pytestmark = pytest.mark.slow
ROW = re.compile(r"^ +(\S+)  (.{10}) +(\d of \d) +(\d of \d) +(.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[str, Path]:
    """What the quick run prints, and the folder that it writes."""
    out = tmp_path_factory.mktemp("story")
    with redirect_stdout(StringIO()) as printed:
        retrofit_and_finetune.main(["--quick", "--out", str(out)])
    return printed.getvalue(), out


def test_the_folded_mamba_has_the_keys_and_dtypes_of_the_demo(told) -> None:
    printed, out = told
    assert "0 keys missing or unexpected; 23 of 23 weights are equal bit by bit" in printed
    first = load_file(DEMOS / "mamba" / "model.safetensors")
    last = load_file(out / "mamba" / "model.safetensors")
    assert {n: w.dtype for n, w in first.items()} == {n: w.dtype for n, w in last.items()}
    name = "backbone.layers.0.mixer.A_log"
    assert not torch.equal(first[name], last[name])


def test_the_folded_rnn_is_read_by_the_module_of_before(told) -> None:
    printed, out = told
    assert "the module as it was before: 6 of 6 weights are equal bit by bit" in printed
    first, last = load_file(DEMOS / "rnn.safetensors"), load_file(out / "rnn.safetensors")
    assert first.keys() == last.keys()
    assert not torch.equal(first["rnn.weight_hh_l0"], last["rnn.weight_hh_l0"])


def test_both_models_are_scanned_before_and_after(told) -> None:
    printed, out = told
    for name in ("mamba", "rnn"):
        assert f"$ memaudit diff {name}-before.json {name}-after.json" in printed
        one, other = (Report.load(out / f"{name}-{when}.json") for when in ("before", "after"))
        assert one.spectrum[0].layer == other.spectrum[0].layer
        assert one.spectrum[0].margin != other.spectrum[0].margin
        old, new = (report.metrics()["memaudit/margin"] for report in (one, other))
        assert re.search(rf"^margin +{old:.4g} +{new:.4g} ", printed, re.MULTILINE)


def test_a_retrofit_moves_no_answer(told) -> None:
    printed, _ = told
    assert printed.count("its answers moved by 0\n") == 2


def test_every_form_has_a_row_or_a_refusal(told) -> None:
    printed, _ = told
    rows = ROW.findall(printed)
    assert [(rate, form.strip()) for rate, form, *_ in rows] == [
        *((rate, form) for rate in ("0.005", "0.3") for form in ("as stored", "best", "direct")),
        *((rate, form) for rate in ("0.003", "0.03") for form in ("as stored", "best")),
    ]
    assert "direct was not tried: it is stored in the form direct already" in printed


def test_direct_rates_of_a_mamba_leave_the_stable_set_at_a_large_rate(told) -> None:
    printed, _ = told
    unstable = {(rate, form.strip()): count for rate, form, _, count, _ in ROW.findall(printed)}
    assert unstable["0.3", "direct"] == "1 of 1"
    assert unstable["0.3", "best"] == "0 of 1"


def test_a_form_that_is_there_already_is_refused_and_as_stored_is_not() -> None:
    task = rnn_task()
    assert refusal(task, "direct") == "it is stored in the form direct already"
    assert refusal(task, "as stored") == refusal(task, "best") == ""


def test_without_accelerate_the_example_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(retrofit_and_finetune, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"needs the package accelerate: pip install"):
        retrofit_and_finetune.main(["--quick"])
