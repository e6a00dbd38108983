"""Memory in use a second way: one real input replaced in a plain loop, beside memaudit's horizon.

    python -m tests.plugins.second_way FOLDER [MODEL...]

FOLDER holds the packages that `tests/plugins/test_real_models.py` fetches, unpacked. Models and
features are built here from the stored tensors with torch and numpy alone; only the column
`memaudit` asks memaudit.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from scipy.io import wavfile
from torch import Tensor, nn

import memaudit
from memaudit.texts import read_text
from tests.plugins.ssm_models import stepped

Run = Callable[[Tensor], Tensor]
Find = Callable[[str], Path]
F = nn.functional


@dataclass(frozen=True, slots=True)
class Case:
    """How a model is asked, the same way by both.

    `window` lags are read behind as many steps of warm-up. Both ways take windows of the same
    data: memaudit `sequences` of them, SEEDS times, the plain loop as many in all at random places.
    The input in the middle is replaced by a random other one. Windows overlap by half at most, so
    that a minute of speech decides how long they are.
    """

    window: int
    sequences: int


CASES = {
    "silero-vad": Case(window=56, sequences=32),
    "resemblyzer": Case(window=184, sequences=32),
    "gr-nlp": Case(window=128, sequences=48),
    "g2p-en": Case(window=64, sequences=128),
    "uzmorph-bigru": Case(window=64, sequences=128),
    "opensr-mamba": Case(window=64, sequences=64),
}
#: A memory below this share of its largest value is over. At 0.05 and less hardly one of these
#: windows holds a horizon, in either way: the curves of trained models have long tails.
EPSILONS = (0.3, 0.1)
#: Horizons of the two ways may differ by this share.
AGREE = 0.15
#: One set of sequences of a trained model says its horizon to about a quarter: the median of these.
SEEDS = range(7)


# The plain loop


def plain_curve(run: Run, inputs: Tensor, case: Case, *, both: bool = False) -> np.ndarray:
    """|y - y'| by lag as a share of the distance between two sequences, means over sequences."""
    random, steps = np.random.default_rng(100), 2 * case.window
    changes, variations, before = [], [], None
    for _ in range(len(SEEDS) * case.sequences):
        start = random.integers(0, len(inputs) - steps + 1)
        u = inputs[start : start + steps]
        v = u.clone()
        while torch.equal(v, u):
            v[case.window] = inputs[random.integers(0, len(inputs))]
        with torch.no_grad():
            y, changed = run(u[None])[0], run(v[None])[0]
        change = (y - changed).norm(dim=-1).numpy()
        right, left = change[case.window :], change[case.window : 0 : -1]
        changes.append((left + right) / 2 if both else right)
        if before is not None:
            variations.append((y - before).norm(dim=-1)[case.window :].mean())
        before = y
    return np.mean(changes, axis=0) / float(np.mean(variations))


def horizon(curve: np.ndarray, epsilon: float) -> int | None:
    """The lag from which the curve stays below epsilon of its largest value; None beyond it."""
    past = curve[1:]
    above = np.flatnonzero(past >= epsilon * past.max())
    last = int(above[-1]) + 1  # the lag of the last value above
    return last + 1 if last < len(past) else None


# The models: (inputs (N, D) in order, the plain forward, the file, options of memaudit)

Model = tuple[Tensor, Run, Path, dict[str, Any]]


def tensors(path: Path) -> dict[str, Tensor]:
    return torch.load(path, map_location="cpu", weights_only=True)


def filled(module: nn.Module, state: dict[str, Tensor], prefix: str) -> Any:
    own = {k.removeprefix(prefix): v.double() for k, v in state.items() if k.startswith(prefix)}
    module.double().load_state_dict(own)
    return module


def speech(find: Find) -> Tensor:
    """A minute of speech at 16 kHz."""
    rate, samples = wavfile.read(find("test.wav"))
    assert rate == 16000
    return torch.tensor(samples / 32768.0)


def mels(find: Find) -> Tensor:
    """40 mel bands (T, 40) of 25 ms windows every 10 ms, as resemblyzer/audio.py has them."""
    window = torch.hann_window(400, dtype=torch.float64)
    power = torch.stft(speech(find), 400, 160, window=window, return_complex=True).abs() ** 2
    step, top = math.log(6.4) / 27, 15 + math.log(8.0) / (math.log(6.4) / 27)
    edges = np.linspace(0, top, 42)
    edges = np.where(edges < 15, edges * 200 / 3, 1000 * np.exp((edges - 15) * step))
    hertz = np.linspace(0, 8000, 201)
    low, mid, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (hertz - low) / (mid - low), (high - hertz) / (high - mid)
    bands = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return (torch.tensor(bands) @ power).T.contiguous()


def silero(find: Find) -> Model:
    """The features that its convolutions make of speech, and an LSTM cell."""
    path = find("silero_vad_16k.safetensors")
    w = {name: value.double() for name, value in load_file(path).items()}
    sound = F.pad(speech(find), (64, 0))
    features = []
    for at in range(64, len(sound) - 512, 512):
        frame = F.pad(sound[None, at - 64 : at + 512], (0, 64), mode="reflect")[:, None]
        x = F.conv1d(frame, w["stft_conv.weight"], stride=128)
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 2), ("conv4", 1)):
            bias = w[f"{name}.bias"]
            x = F.conv1d(x, w[f"{name}.weight"], bias, stride=stride, padding=1).relu()
        features.append(x.squeeze(-1)[0])
    cell = nn.LSTM(128, 128, batch_first=True)
    named = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    filled(cell, {f"{name}_l0": w[f"lstm_cell.{name}"] for name in named}, "")
    return torch.stack(features), lambda u: cell(u)[0], path, {}


def resemblyzer(find: Find) -> Model:
    """Mel bands of speech, three LSTM layers and a linear one."""
    path = find("pretrained.pt")
    state = tensors(path)["model_state"]
    lstm = filled(nn.LSTM(40, 256, 3, batch_first=True), state, "lstm.")  # type: ignore
    head = filled(nn.Linear(256, 256), state, "linear.")  # type: ignore
    return mels(find), lambda u: head(lstm(u)[0]), path, {}


def greek(find: Find) -> Model:
    """The embeddings of 8,000 characters that the language model wrote itself, and its LSTM."""
    path = find("LSTM_LM_50000_char_120_32_512.pt")
    state = tensors(path)
    embedding = state["embed.weight"].double()
    lstm = filled(nn.LSTM(32, 512, batch_first=True), state, "lstm.")
    head = filled(nn.Linear(512, 120), state, "dense.")
    generator, memory, token, written = torch.Generator().manual_seed(0), None, 1, []
    with torch.no_grad():
        for _ in range(8000):
            y, memory = lstm(embedding[token][None, None], memory)
            chances = head(y[0, -1]).softmax(-1)
            token = int(torch.multinomial(chances, 1, generator=generator))
            written.append(token)
    return embedding[written], lambda u: lstm(u)[0], path, {}


def graphemes(find: Find) -> Model:
    """The embeddings of the letters of the package's text, and the encoder."""
    path = find("checkpoint20.npz")
    arrays = {name: torch.tensor(value) for name, value in np.load(path).items()}
    gru = nn.GRU(256, 256, batch_first=True)
    named = {"w_ih": "weight_ih", "w_hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}
    filled(gru, {f"{long}_l0": arrays[f"enc_{short}"] for short, long in named.items()}, "")
    known = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
    letters = [c for c in read_text(None).lower() if c in known or c == " "]
    ids = [known.index("</s>" if c == " " else c) for c in letters]  # words end as in training
    return arrays["enc_emb"].double()[ids], lambda u: gru(u)[0], path, {"layers": "enc"}


def uzbek(find: Find) -> Model:
    """The embeddings of letters, two layers that read both ways, and a linear one."""
    path = find("morph_bigru.pth")
    state = tensors(path)
    known = json.loads(find("char_vocab.json").read_text("utf-8"))
    gru = filled(nn.GRU(64, 64, 2, bidirectional=True, batch_first=True), state, "gru.")
    head = filled(nn.Linear(128, 746), state, "hidden2tag.")
    ids = [known[c] for c in read_text(None).lower() if c in known and c.isalpha()]
    return state["char_embeddings.weight"].double()[ids], lambda u: head(gru(u)[0]), path, {}


def satellite(find: Find) -> Model:
    """One scan of a vision Mamba, behind its in_proj, on a spectrogram as the picture."""
    path = find("fusionmodel01.pth")
    block = "layers.0.residual_group.blocks.0.self_attention"
    state = {k: v.double() for k, v in tensors(path).items() if k.startswith(f"{block}.")}
    w = {name.removeprefix(f"{block}."): value.numpy() for name, value in state.items()}
    weight = torch.tensor(w["in_proj.weight"])
    lift = torch.randn(8, weight.shape[1], generator=torch.Generator().manual_seed(0)).double()
    picture = F.layer_norm(mels(find)[:, :8].log1p() @ lift, (weight.shape[1],))
    scan = {
        "a_log": w["A_logs"].reshape(4, 90, 16)[0],
        "skip": w["Ds"].reshape(4, 90)[0],
        "dt_weight": w["dt_projs_weight"][0],
        "dt_bias": w["dt_projs_bias"][0],
        "x_weight": w["x_proj_weight"][0],
    }

    def run(u: Tensor) -> Tensor:
        return torch.tensor(stepped(u.numpy(), **scan))

    return F.silu((picture @ weight.T)[:, :90]), run, path, {"layers": f"{block}.scan0"}


MODELS: dict[str, Callable[[Find], Model]] = {
    "silero-vad": silero,
    "resemblyzer": resemblyzer,
    "gr-nlp": greek,
    "g2p-en": graphemes,
    "uzmorph-bigru": uzbek,
    "opensr-mamba": satellite,
}


def compared(name: str, find: Find) -> list[tuple[int | None, int | None]]:
    """The horizon of the plain loop and the median of memaudit's on the same data, by epsilon."""
    case = CASES[name]
    inputs, run, path, options = MODELS[name](find)
    plain = plain_curve(run, inputs, case, both=name == "uzmorph-bigru")
    asked = {"horizon": case.window, "queries": ["driven"], "probes": [], "level": "thorough"}
    asked |= {"sequences": case.sequences, "data": inputs.numpy()}
    found = []
    for epsilon in EPSILONS:
        scans = (memaudit.scan(path, epsilon=epsilon, seed=n, **asked, **options) for n in SEEDS)
        horizons = [scan.memory["driven"].horizon for scan in scans]
        own = sorted(math.inf if one is None else one for one in horizons)[len(SEEDS) // 2]
        found.append((horizon(plain, epsilon), None if math.isinf(own) else int(own)))
    return found


def main(folder: str, *names: str) -> None:
    print("| model | epsilon | plain | memaudit | ratio | window | sequences |")
    print(7 * "|---" + "|")
    for name in names or CASES:
        case = CASES[name]
        found = compared(name, lambda inside: next(Path(folder).rglob(inside)))
        for epsilon, (plain, own) in zip(EPSILONS, found, strict=True):
            ratio = "-" if plain is None or own is None else f"{own / plain:.2f}"
            told = [f"> {case.window - 1}" if one is None else one for one in (plain, own)]
            cells = (name, epsilon, *told, ratio, case.window, case.sequences)
            print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
