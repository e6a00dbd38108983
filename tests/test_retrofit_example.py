"""The example of a retrofit: it runs, and its words come from its numbers."""

from __future__ import annotations

import math
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from examples import retrofit_and_finetune
from examples.finetuning import (
    CHOICES,
    DECAY,
    DEMOS,
    PAUSE,
    STEPS_OF_NOISE,
    Run,
    average_loss,
    letters,
    refusal,
    rnn_task,
    sentences,
    table,
)
from memaudit.report import Report

ROW = re.compile(r"^ +(\S+)  (.{10}) +(\d of \d) +(\d of \d) +(.+)$", re.MULTILINE)


class ExactAverage(nn.Module):
    """y_t = 0.98·y_{t-1} + x_t, over the norm of the kernel."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        norm = sum(DECAY ** (2 * t) for t in range(STEPS_OF_NOISE)) ** 0.5
        state, answers = torch.zeros_like(inputs[:, 0]), []
        for u in inputs.unbind(1):
            state = DECAY * state + u
            answers.append(state / norm)
        return torch.stack(answers, 1)


def run(end: float, *, form: str = "best", rate: float = 0.1, margin: float = 0.5) -> Run:
    return Run(form, rate, 1.0, end, margin)


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


def test_a_run_diverged_when_its_loss_is_no_number_or_above_its_start() -> None:
    assert [run(end).diverged for end in (0.5, 1.0, 1.5, math.inf, math.nan)] == [
        *(False, False, True, True, True),
    ]


def test_a_run_is_unstable_when_its_margin_is_not_above_zero() -> None:
    margins = (0.1, 0.0, -0.1, math.nan)
    assert [run(0.5, margin=m).unstable for m in margins] == [False, True, True, True]


def test_the_table_counts_and_takes_the_median() -> None:
    runs = [run(0.25), run(2.0), run(0.5), *(run(math.nan, form="direct") for _ in range(3))]
    lines = list(table(runs))
    assert lines[1].split() == ["0.1", "best", "1", "of", "3", "0", "of", "3", "0.5"]
    assert lines[2].split()[-2:] == ["not", "finite"]


def test_the_words_are_made_from_the_numbers() -> None:
    runs = [run(0.25), run(0.5, form="exp"), run(math.nan, form="direct", margin=-1.0)]
    assert list(sentences("RNN", runs)) == [
        "RNN at 0.1: best, exp diverged in 0 of 1 runs; direct diverged in 1 of 1 runs",
        "RNN at 0.1: best, exp ended unstable in 0 of 1 runs; direct ended unstable in 1 of 1 runs",
        "RNN at 0.1: lowest median loss 0.25 (best), highest not finite (direct), from 1",
    ]


def test_the_exact_average_has_no_loss() -> None:
    loss = average_loss(ExactAverage(), 4, torch.Generator().manual_seed(0))
    # Sums of 64 terms in single precision, squared.
    assert float(loss) < 1e-12


def test_only_the_letter_behind_the_pause_counts() -> None:
    vocabulary = {letter: k for k, letter in enumerate(" " + CHOICES)}
    drawn = letters(vocabulary, 32, torch.Generator().manual_seed(0))
    ids, labels = drawn["input_ids"], drawn["labels"]
    assert ids.shape == (32, PAUSE + 2)
    assert torch.equal(ids[:, 0], labels[:, -1])
    assert bool((ids[:, 1:-1] == vocabulary[" "]).all())
    assert bool((labels[:, :-1] == -100).all())
    assert len(ids[:, 0].unique()) == len(CHOICES)


def test_a_form_that_is_there_already_is_refused_and_as_stored_is_not() -> None:
    task = rnn_task()
    assert refusal(task, "direct") == "it is stored in the form direct already"
    assert refusal(task, "as stored") == refusal(task, "best") == ""


def test_without_accelerate_the_example_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(retrofit_and_finetune, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"needs the package accelerate: pip install"):
        retrofit_and_finetune.main(["--quick"])
