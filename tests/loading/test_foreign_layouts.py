"""The way out that the refusals of Keras and ONNX files tell gives the model that they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import memaudit
from memaudit.errors import SourceError
from memaudit.loading.checkpoint import open_checkpoint

WIDTH, SIZE, STEPS = 3, 4, 6


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(gates: list[str], w: np.ndarray, r: np.ndarray, b: np.ndarray, u: np.ndarray):
    """Answers (T,H) of weights with a row a gate and unit; `gates` is their order."""
    h, c, answers = np.zeros(SIZE), np.zeros(SIZE), []
    for step in u:
        parts = dict(zip(gates, np.split(w @ step + r @ h + b, 4), strict=True))
        c = sigmoid(parts["f"]) * c + sigmoid(parts["i"]) * np.tanh(parts["c"])
        h = sigmoid(parts["o"]) * np.tanh(c)
        answers.append(h)
    return np.array(answers)


def gru(w: np.ndarray, r: np.ndarray, b: np.ndarray, u: np.ndarray):
    """Answers (T,H) with the gates z, r, h, the reset gate behind the product with the state."""
    h, answers = np.zeros(SIZE), []
    for step in u:
        z, reset, new = np.split(w @ step + b[0], 3)
        rz, rr, rn = np.split(r @ h + b[1], 3)
        z, reset = sigmoid(z + rz), sigmoid(reset + rr)
        h = z * h + (1 - z) * np.tanh(new + reset * rn)
        answers.append(h)
    return np.array(answers)


def reordered(array: np.ndarray, order: list[int]) -> np.ndarray:
    parts = np.split(array, len(order))
    return np.concatenate([parts[k] for k in order])


#: Which of the gates of a file, in their order, stand first, second, … in torch.
TORCH_GRU, ONNX_LSTM = [1, 0, 2], [0, 2, 3, 1]


@pytest.mark.parametrize("made", ["keras lstm", "keras gru", "onnx lstm", "onnx gru"])
def test_arrays_under_torch_names_answer_as_the_original(made: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    count = 4 if made.endswith("lstm") else 3
    w, r = rng.normal(size=(count * SIZE, WIDTH)), rng.normal(size=(count * SIZE, SIZE))
    b, u = rng.normal(size=(2, count * SIZE)), rng.normal(size=(STEPS, WIDTH))
    order = list(range(count))
    if made == "keras lstm":
        b[1] = 0  # a Keras LSTM has one bias
        wanted = lstm(["i", "f", "c", "o"], w, r, b[0], u)
    elif made == "onnx lstm":
        wanted, order = lstm(["i", "o", "f", "c"], w, r, b.sum(0), u), ONNX_LSTM
    else:
        wanted, order = gru(w, r, b, u), TORCH_GRU
    names = {"weight_ih_l0": w, "weight_hh_l0": r, "bias_ih_l0": b[0], "bias_hh_l0": b[1]}
    arrays = {name: reordered(array, order) for name, array in names.items()}
    np.savez(tmp_path / "m.npz", **arrays)  # type: ignore[arg-type]
    answer = memaudit.load(tmp_path / "m.npz").respond(torch.from_numpy(u)[None])
    np.testing.assert_allclose(answer[0].numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("m.h5", ("kernel.T", "i f c o", "z r h where torch has r z n", "CuDNNLSTM")),
        ("m.keras", ("kernel.T", "reset_after=True")),
        ("m.onnx", ("i o f c where torch has i f g o", "linear_before_reset=1")),
    ],
)
def test_a_refusal_says_how_the_layout_differs(name: str, words, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x01\x02\x03\x04 whatever")
    for source in (tmp_path / name, tmp_path):
        with pytest.raises(SourceError) as caught:
            open_checkpoint(source)
        assert all(word in caught.value.hint for word in words)
