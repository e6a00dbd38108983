"""Memory in use: the closed form, models with known answers, and where the sequences come from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import Status
from memaudit.memory.curve import Curve
from memaudit.numerics.convolution import filtered
from memaudit.testing.laws import LetterFilter

LAGS = np.arange(512)
KERNELS = {
    "one mode": 0.9**LAGS,
    "two modes": 0.5**LAGS + 0.05 * 0.9**LAGS,
    "oscillating": 0.9**LAGS * np.cos(0.4 * LAGS),
}


def linear(kernel: np.ndarray) -> memaudit.interfaces.AbstractSubject:
    rho = torch.tensor(kernel).reshape(-1, 1, 1)
    return memaudit.wrap(lambda u: filtered(u, rho), input_size=1, dtype=torch.float64)


def stepped(step: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]):
    """A model of one number from h, y = step(h, u)."""

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for now in u.unbind(1):
            state, answer = step(state, now)
            answers.append(answer)
        return torch.stack(answers, 1)

    return memaudit.wrap(model, input_size=1, dtype=torch.float64)


def driven(subject, horizon: int = 128, **options) -> Curve:
    report = memaudit.scan(subject, horizon=horizon, queries=["driven"], probes=[], **options)
    return report.memory["driven"]


def horizon_of(values: np.ndarray, epsilon: float = 1e-3) -> int:
    """The lag from which memory stays below epsilon of its largest value; lag 0 is the present."""
    past = values[1:]
    upper = np.maximum.accumulate(past[::-1])[::-1]
    return int(np.argmax(upper < epsilon * past.max())) + 1


# The closed form of a linear model under unit noise


@pytest.mark.parametrize("name", KERNELS)
def test_a_linear_model_has_its_kernel_over_the_norm_of_it(name):
    kernel = KERNELS[name]
    exact = np.abs(kernel[:128]) / np.linalg.norm(kernel)
    curve = driven(linear(kernel), sequences=4096)
    seen = exact > 1e-9
    assert np.abs(curve.values / exact - 1)[seen].max() < 0.03
    assert curve.probes == 4096


@pytest.mark.parametrize("name", KERNELS)
def test_the_interval_holds_the_closed_form_in_nine_of_ten_seeds(name):
    kernel = KERNELS[name]
    exact = np.abs(kernel[:128]) / np.linalg.norm(kernel)
    true, covered = horizon_of(exact), 0
    for seed in range(100):
        curve = driven(linear(kernel), seed=seed)
        covered += bool(((curve.low <= exact) & (exact <= curve.high)).all())
        assert curve.horizon == pytest.approx(true, rel=0.1)
    assert covered >= 90


def test_the_share_is_what_the_kernel_has_behind_its_first_value():
    kernel = 0.8**LAGS
    kernel[0] = 4.0
    curve = driven(linear(kernel), horizon=64, sequences=4096)
    true = np.linalg.norm(kernel[1:]) / np.linalg.norm(kernel)
    assert curve.share == pytest.approx(true, rel=0.05)


# Known answers


def test_a_readout_that_zero_input_shuts_is_seen_in_use():
    def step(h, u):
        h = 0.9 * h + u
        return h, torch.tanh(u) * h

    report = memaudit.scan(stepped(step), horizon=128)
    assert report.memory["impulse"].decay.kind == "memoryless"
    assert report.memory["driven"].decay.rate == pytest.approx(-np.log(0.9), rel=0.05)
    assert report.metrics()["memaudit/horizon"] == report.memory["driven"].horizon
    steps = report.memory["driven"].horizon
    words = f"In use it remembers {steps} steps (unit noise, 256 sequences; half gone after "
    assert report.document().headlines[0].startswith(words)


def latch(h, u):
    """Forgets within 32 steps, but holds for ever what is larger than 6."""
    full = h.abs() >= 6
    h = torch.where(full, h, torch.where(u.abs() > 6, u, 0.8 * h + 0.5 * u))
    return h, h


def test_a_cell_that_only_large_inputs_fill_for_ever_forgets_in_use():
    report = memaudit.scan(stepped(latch), horizon=512)
    assert report.memory["driven"].horizon == horizon_of(0.8**LAGS)
    use, worst = report.document().headlines
    assert use.startswith("In use it remembers 32 steps")
    assert worst.startswith("At worst: more than 511 steps (")
    assert "at |x| >= 8; its own inputs reach 4.9" in worst
    assert worst.endswith("longer: inputs larger than its own hold the state longer.")
    sizes = {at.size: at for at in report.memory["impulse"].sizes}
    assert [size for size, at in sizes.items() if at.beyond == 511] == [8.0, 64.0]
    assert sizes[1.0].horizon == 32


QUERIES = ("driven", "heaviside", "impulse", "reversed")


@pytest.mark.parametrize("queries", [QUERIES, *((query,) for query in QUERIES)])
def test_of_a_chaotic_network_no_query_asserts_a_horizon(queries):
    generator = torch.Generator().manual_seed(0)
    inner = 0.5 * torch.randn(64, 64, generator=generator, dtype=torch.float64)
    outer = torch.randn(1, 64, generator=generator, dtype=torch.float64)

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros(len(u), 64, dtype=torch.float64), []
        for now in u.unbind(1):
            state = torch.tanh(state @ inner + now @ outer)
            answers.append(state[:, :3])
        return torch.stack(answers, 1)

    subject = memaudit.wrap(model, input_size=1, dtype=torch.float64)
    report = memaudit.scan(subject, horizon=256, queries=queries, level="quick")
    for curve in report.memory.values():
        assert curve.status is Status.CHAOTIC
        assert curve.horizon_text == "?"
        assert curve.noise <= curve.floor
    assert not [name for name in report.metrics() if "horizon" in name or "half_life" in name]
    noisy = next(finding for finding in report.findings if finding.code == "MA112")
    assert all(f"{query}: by" in noisy.message for query in queries)
    if "driven" in queries:
        words = "In use it is not known how long it remembers"
        assert report.document().headlines[0].startswith(words)


def noisy(size: float, memory: float) -> memaudit.interfaces.AbstractSubject:
    """A filter whose answers jitter under a constant input."""
    generator = torch.Generator().manual_seed(0)

    def model(u: torch.Tensor) -> torch.Tensor:
        kernel = torch.tensor(memory * 0.9**LAGS)
        kernel[0] = 1.0
        on = (u != 0) & (u.roll(1, 1) == u)
        jitter = size * torch.rand(u.shape, generator=generator, dtype=u.dtype)
        return filtered(u, kernel.reshape(-1, 1, 1)) + torch.where(on, jitter, 0.0)

    return memaudit.wrap(model, input_size=1, dtype=torch.float64)


@pytest.mark.parametrize(
    ("size", "memory", "status"),
    [(17.7, 1.0, Status.CHAOTIC), (5e-3, 1e-6, Status.HIDDEN)],
)
def test_noise_raises_the_floor_of_the_query_it_was_found_in(size, memory, status):
    report = memaudit.scan(
        noisy(size, memory),
        horizon=64,
        queries=["heaviside", "impulse"],
        probes=[],
        amplitudes=(1.0,),
    )
    hidden, clear = report.memory["heaviside"], report.memory["impulse"]
    assert hidden.status is status
    assert hidden.horizon_text == "?"
    assert size / 2 < hidden.noise <= hidden.floor
    assert clear.noise == 0.0
    assert clear.decay.rate == pytest.approx(-np.log(0.9), rel=1e-3)
    known = {name.rpartition("/")[2] for name in report.metrics() if "/heaviside/" in name}
    assert not known & {"horizon", "horizon_beyond", "half_life"}
    assert "memaudit/impulse/half_life" in report.metrics()
    (finding,) = (finding for finding in report.findings if finding.code == "MA112")
    assert "heaviside: by" in finding.message
    assert "impulse" not in finding.message


def test_a_recurrence_beside_a_large_skip_path_is_called_unused():
    def step(h, u):
        h = 0.95 * h + u
        return h, u + 1e-3 * h

    curve = driven(stepped(step))
    gain = 1e-3 * 0.95 / np.sqrt(1 - 0.95**2)
    assert curve.share == pytest.approx(gain, rel=0.2)


def test_a_bounded_oscillation_under_a_constant_input_is_reported_as_that():
    angle = torch.tensor(0.3, dtype=torch.float64)
    turn = 1.3 * torch.stack(
        [torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])]
    )

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros(len(u), 2, dtype=torch.float64), []
        for now in u.unbind(1):
            state = torch.tanh(state @ turn + now)
            answers.append(state)
        return torch.stack(answers, 1)

    subject = memaudit.wrap(model, input_size=2, dtype=torch.float64)
    report = memaudit.scan(subject, horizon=256, queries=["heaviside"], amplitudes=(0.01, 0.1, 0.3))
    codes = {finding.code for finding in report.findings}
    assert report.memory["heaviside"].bounded_oscillation
    assert "MA118" in codes
    assert not codes & {"MA102", "MA103"}


def test_memory_of_an_unstable_linear_model_still_grows():
    report = memaudit.scan(linear(1.02**LAGS), horizon=256)
    assert "MA102" in {finding.code for finding in report.findings}


def by_hand(run, inputs: torch.Tensor, at: int, lags: list[int]) -> np.ndarray:
    """Mean distance after one input was replaced by that of the next sequence: `run` reads it."""
    changed = inputs.clone()
    changed[:, at] = inputs.roll(-1, 0)[:, at]
    with torch.no_grad():
        found = [torch.linalg.vector_norm(run(changed, t) - run(inputs, t), dim=-1) for t in lags]
    return torch.stack(found).mean(1).numpy()


@pytest.fixture
def inputs() -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(64, 128, 4, generator=generator, dtype=torch.float64)


@pytest.fixture
def make():
    def made(**settings) -> nn.LSTM:
        torch.manual_seed(1)
        network = nn.LSTM(4, 12, batch_first=True, **settings).double()
        for name, weight in network.named_parameters():
            if "weight_hh" in name:
                nn.init.normal_(weight, std=0.4)
        return network

    return made


def same_decay(curve: Curve, values: np.ndarray) -> None:
    """The horizon and the shape of the curve, by two sets of sequences."""
    lags = np.arange(1, len(values) + 1)
    assert curve.horizon == pytest.approx(horizon_of(np.concatenate([[1.0], values])), rel=0.15)
    near = curve.values[np.isin(curve.lags, lags[:8])]
    assert near / near[0] == pytest.approx(values[:8] / values[0], rel=0.25)


def test_a_model_that_looks_both_ways_is_read_on_both_sides(inputs, make):
    network = make(bidirectional=True)
    subject = memaudit.wrap(lambda u: network(u)[0], input_size=4, dtype=torch.float64)
    curve = driven(subject, horizon=64)
    sides = [by_hand(lambda u, t: network(u)[0][:, t], inputs, 64, list(at)) for at in
             (range(65, 120), range(63, 8, -1))]  # fmt: skip
    same_decay(curve, (sides[0] + sides[1]) / 2)


def test_of_a_model_that_answers_once_the_distance_is_that_from_the_end(inputs, make):
    network = make()
    subject = memaudit.wrap(
        lambda u: network(u)[0][:, -1], input_size=4, dtype=torch.float64, pooled=True
    )
    curve = driven(subject, horizon=64)
    values = by_hand(lambda u, t: network(u[:, : 64 + t])[0][:, -1], inputs, 63, list(range(1, 60)))
    assert (curve.lags < 64).all()
    same_decay(curve, values)


def test_padding_follows_the_changed_input(inputs, make):
    network = make()
    subject = memaudit.wrap(lambda u: network(u)[0], input_size=4, dtype=torch.float64)
    padded = inputs.clone()
    padded[:, 65:] = 0.5

    def run(u: torch.Tensor, t: int) -> torch.Tensor:
        return network(u)[0][:, 64 + t]

    same_decay(driven(subject, horizon=64, pad=0.5), by_hand(run, padded, 64, list(range(1, 60))))
    ends = memaudit.wrap(
        lambda u: network(u)[0][:, -1], input_size=4, dtype=torch.float64, pooled=True
    )
    once = driven(ends, horizon=64, pad=0.5)
    same_decay(once, by_hand(run, padded, 64, list(range(1, 60))))


def test_pad_must_be_a_number():
    with pytest.raises(ArgumentError, match="pad is 'x'"):
        driven(linear(0.9**LAGS), pad="x")


# Where the sequences come from


def reading(data, **options) -> Curve:
    return driven(linear(0.9**LAGS), horizon=32, data=data, **options)


def test_data_are_read_from_every_kind_of_file(tmp_path):
    from safetensors.numpy import save_file
    from scipy.io import wavfile

    signal = np.random.default_rng(0).standard_normal((4000, 1))
    np.save(tmp_path / "a.npy", signal)
    np.savez(tmp_path / "a.npz", signal=signal)
    save_file({"signal": signal}, tmp_path / "a.safetensors")
    np.savetxt(tmp_path / "a.csv", signal, header="signal", comments="")
    curves = [reading(str(tmp_path / f"a.{kind}")) for kind in ("npy", "npz", "safetensors", "csv")]
    assert [curve.fed for curve in curves] == [
        f"a.{kind}, 125 sequences" for kind in ("npy", "npz", "safetensors", "csv")
    ]
    for curve in (*curves, reading(signal), reading(torch.tensor(signal[None]))):
        assert np.allclose(curve.values, curves[0].values)
        assert curve.horizon is None or curve.horizon > 30
    wavfile.write(tmp_path / "a.wav", 8000, (signal / 8 * 2**15).astype(np.int16))
    sound = reading(str(tmp_path / "a.wav"))
    assert np.allclose(sound.values, curves[0].values, rtol=1e-2)
    assert sound.reach == pytest.approx(np.abs(signal).max() / 8, rel=1e-3)


def test_a_long_signal_is_cut_into_frames_where_a_model_takes_several_numbers():
    network = memaudit.wrap(lambda u: u.cumsum(1) * 0.5, input_size=4, dtype=torch.float64)
    fed = driven(network, horizon=16, data=np.ones(4000).cumsum()).fed
    assert fed == "your data, cut into frames of 4, 62 sequences"
    with pytest.raises(ArgumentError, match="3 columns, and the model takes 4 numbers a step"):
        driven(network, horizon=16, data=np.ones((100, 3)))


def test_a_signal_is_not_cut_into_frames_for_a_part_of_a_host():
    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.ModuleDict({"a": nn.GRU(4, 3), "b": nn.LSTM(4, 3)})

    for data in (np.random.default_rng(0).standard_normal(4000), np.ones((100, 3))):
        with pytest.raises(ArgumentError, match=r"no part takes: cells\.a takes 4"):
            memaudit.scan(Host(), horizon=16, queries=["driven"], probes=[], data=data)


def test_whole_numbers_are_token_ids_where_a_model_has_a_vocabulary():
    ids = np.random.default_rng(0).integers(0, 27, 4096)
    curves = [
        driven(LetterFilter(), horizon=32, data=data)
        for data in (ids, ids[:, None], ids[None], ids.reshape(4, 1024), torch.tensor(ids))
    ]
    for curve in curves:
        assert curve.fed == "your data, 128 passages"
        assert curve.decay.rate == pytest.approx(-np.log(0.8), rel=0.05)
    for wrong in (27, -1):
        with pytest.raises(ArgumentError, match=f"the token id {wrong}, and the ids end at 26"):
            driven(LetterFilter(), horizon=32, data=np.append(ids, wrong))


def test_a_text_that_a_model_cannot_read_is_told(tmp_path):
    (tmp_path / "a.txt").write_text("a rose is a rose " * 60)
    queries = {"queries": ["driven"], "horizon": 32, "probes": []}
    report = memaudit.scan(linear(0.9**LAGS), text=tmp_path / "a.txt", **queries)
    assert "MA119" in {finding.code for finding in report.findings}
    assert report.settings["text"] is None
    report = memaudit.scan(LetterFilter(), text=tmp_path / "a.txt", **queries)
    assert "MA119" not in {finding.code for finding in report.findings}
    assert "given" in report.settings["text"]


def test_data_shorter_than_the_window_give_fewer_lags_and_too_short_ones_a_status():
    noise = np.random.default_rng(0).standard_normal((120, 1))
    assert len(reading(noise).lags) == 15  # a quarter of the data, half of it before the change
    assert reading(noise[:24]).status is Status.TOO_SHORT


def test_a_short_window_says_what_ended_it():
    noise, subject = np.random.default_rng(0).standard_normal((120, 1)), linear(0.99**LAGS)
    options = {"queries": ["driven"], "probes": []}
    report = memaudit.scan(subject, horizon=64, data=noise, **options)
    assert report.memory["driven"].horizon_text == "> 14"
    (use,) = report.document().headlines
    assert use.startswith("In use it remembers more than 14 steps (")
    assert use.endswith("); the data end there: give longer data.")
    assert "--horizon" not in " ".join(finding.advice for finding in report.findings)
    (use,) = memaudit.scan(subject, horizon=16, **options).document().headlines
    assert "more than 15 steps" in use
    assert use.endswith("); --horizon 64 looks further.")


def test_memory_that_few_lags_show_and_the_floor_ends_is_not_a_dash():
    network = memaudit.wrap(lambda u: filtered(u, torch.tensor(0.1**LAGS[:512], dtype=u.dtype)
                            .reshape(-1, 1, 1)), input_size=1, dtype=torch.float32)  # fmt: skip
    report = memaudit.scan(network, horizon=64, epsilon=1e-9, probes=[])
    assert {curve.horizon_text for curve in report.memory.values()} == {"?"}


# How sure the horizon is


def drifting(seed: int = 0) -> memaudit.interfaces.AbstractSubject:
    """Holds its state the longer, the larger a slow second input is: no two passages agree."""

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0, :1]), []
        for now in u.unbind(1):
            state = (0.9 + 0.09 * now[:, 1:]) * state + now[:, :1]
            answers.append(state)
        return torch.stack(answers, 1)

    return memaudit.wrap(model, input_size=2, dtype=torch.float64)


def passages(steps: int = 20_000) -> np.ndarray:
    random = np.random.default_rng(1)
    slow = np.repeat(random.random(steps // 500), 500)
    return np.stack([random.standard_normal(steps), slow], 1)


def test_the_headline_has_the_range_of_an_uncertain_horizon():
    report = memaudit.scan(
        drifting(), horizon=512, data=passages(), sequences=8, queries=["driven"], probes=[]
    )
    curve = report.memory["driven"]
    low, high = curve.spread
    assert low <= curve.horizon <= high
    assert high - low > 0.1 * high
    words = f"In use it remembers {curve.horizon} steps ({low} to {high}; your data, 8 sequences"
    assert report.document().headlines[0].startswith(words)
    again = memaudit.Report.from_dict(report.to_dict())
    assert again.memory["driven"].spread == curve.spread
    old = curve.to_dict()
    assert {old.pop(name) for name in ("limit", "unfed")} == {"", "ok"}
    assert old.pop("spread") == [low, high]
    assert Curve.from_dict(old).spread is None
    (table,) = report.sections()[0].tables
    assert f"{low} to {high}" in table.texts()[0]


def test_a_horizon_that_all_sequences_agree_on_has_no_range():
    curve = driven(linear(0.9**LAGS))
    assert curve.spread == (curve.horizon - 1, curve.horizon + 1)
    assert curve.spread_text == ""


def test_as_many_sequences_are_fed_as_are_asked_for_from_places_that_the_seed_draws():
    curves = [
        driven(drifting(), data=passages(2000), sequences=60, seed=seed) for seed in (0, 0, 1)
    ]
    assert {curve.fed for curve in curves} == {"your data, 60 sequences"}
    assert np.array_equal(curves[0].values, curves[1].values)
    assert not np.array_equal(curves[0].values, curves[2].values)


def test_where_data_are_few_each_sequence_has_several_inputs_replaced():
    steps = []

    def model(u: torch.Tensor) -> torch.Tensor:
        steps.append(len(u))
        return filtered(u, torch.tensor(0.9**LAGS).reshape(-1, 1, 1))

    subject = memaudit.wrap(model, input_size=1, dtype=torch.float64)
    data = np.random.default_rng(0).standard_normal(2000)
    curve = driven(subject, horizon=64, data=data)
    assert curve.fed == "your data, 31 sequences"
    assert curve.probes == 31
    assert max(steps) == 31 * (1 + 4)
    assert curve.decay.rate == pytest.approx(-np.log(0.9), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.npy", b"nonsense", "no array of numpy"),
        ("a.csv", b"a,b\n1,x\n", "which is no number"),
        ("a.wav", b"RIFF", "cannot be read"),
        ("a.mp3", b"", "data of the kind .mp3 are unknown"),
        ("a.csv", b"1,nan\n2,3\n", "not finite"),
    ],
)
def test_data_that_are_none_are_refused_before_the_model_is_opened(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(memaudit.MemauditError, match=words):
        memaudit.scan("demo:rnn", data=str(tmp_path / name))
    with pytest.raises(memaudit.MemauditError):
        memaudit.scan("demo:rnn", data=str(tmp_path / "missing.npy"))


def test_a_text_file_is_a_text(tmp_path):
    (tmp_path / "a.txt").write_text("a rose is a rose " * 60)
    curve = driven(LetterFilter(), horizon=32, data=str(tmp_path / "a.txt"))
    assert curve.fed.startswith("your text, ")
    assert driven(LetterFilter(), horizon=32).fed.startswith("the sample text, ")


def test_embeddings_stand_in_where_there_is_no_tokenizer():
    class Table(LetterFilter):
        def tokens_of(self, text: str) -> None:
            return None

        def natural_inputs(self, count: int, generator: torch.Generator) -> torch.Tensor:
            return torch.tensor([[1.0], [2.0], [4.0]])

    curve = driven(Table(), horizon=32)
    assert curve.fed == "its embeddings in random order, 256 sequences"
    assert curve.reach == 4.0
    assert curve.decay.rate == pytest.approx(-np.log(0.8), rel=0.01)


# What is fed


class Large(nn.Module):
    """A linear model with more parameters than it needs, that counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1200, 1000))
        self.steps = 0

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        self.steps += u.shape[0] * u.shape[1]
        kernel = torch.tensor(0.9**LAGS, dtype=u.dtype).reshape(-1, 1, 1)
        return filtered(torch.tanh(u), kernel)


class LargeBothWays(Large):
    """The same, and looks ahead as far as it looks back."""

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return super().forward(u) + super().forward(u.flip(1)).flip(1)


@pytest.mark.parametrize("level", ["quick", "standard"])
def test_a_large_model_that_looks_both_ways_is_fed_no_more(level):
    report = memaudit.scan(LargeBothWays(), horizon=64, level=level)
    fed = report.results["memory"].fed
    assert list(fed) == ["driven", "heaviside, impulse, reversed"]
    assert all(steps <= 24 * 64 for steps in fed.values())
    assert not report.results["memory"].facts.causal
    for query in ("impulse", "reversed"):
        assert report.memory[query].decay.rate == pytest.approx(-np.log(0.9), rel=0.01)


@pytest.mark.parametrize("level", ["quick", "standard"])
def test_a_large_model_is_fed_at_most_24_horizons_by_each_group_of_queries(level):
    network = Large()
    report = memaudit.scan(network, horizon=64, level=level, probes=[])
    fed = report.results["memory"].fed
    assert list(fed) == ["driven", "heaviside, impulse, reversed"]
    assert all(steps <= 24 * 64 for steps in fed.values())
    before = network.steps
    memaudit.scan(network, horizon=64, level=level, probes=[], queries=["driven"])
    again = network.steps - before
    assert again >= fed["driven"] > 8 * 2 * 64
    assert report.memory["driven"].fed == "unit noise, 8 sequences"
    assert report.memory["driven"].decay.rate == pytest.approx(-np.log(0.9), rel=0.01)


# What no replaced input shows


def pooled(model) -> memaudit.interfaces.AbstractSubject:
    return memaudit.wrap(model, input_size=1, dtype=torch.float64, pooled=True)


def held(h, u):
    """Takes up what is larger than 3.2, holds it for ever, and forgets all else at once."""
    h = torch.where(u > 3.2, u, h)
    return h, h


@pytest.mark.parametrize(
    "subject",
    [
        linear(np.eye(1, 512, 200)[0]),  # a delay beyond the window
        pooled(lambda u: u.amax(1)),  # a replaced input is hardly ever the largest
        stepped(held),
        memaudit.wrap(
            lambda u: filtered(u, torch.tensor(1.3**LAGS, dtype=u.dtype).reshape(-1, 1, 1)),
            input_size=1,
            dtype=torch.float32,  # an input is lost in the rounding of what has grown by then
        ),
    ],
    ids=["late", "largest", "rare", "growing"],
)
def test_answers_that_other_inputs_decide_are_not_memoryless(subject):
    report = memaudit.scan(subject, horizon=128, probes=[])
    curve = report.memory["driven"]
    assert curve.decay.kind not in ("memoryless", "finite", "exponential")
    assert curve.horizon is None
    assert "memaudit/driven/horizon" not in report.metrics()
    assert all(curve.decay.kind != "memoryless" for curve in report.memory.values())


def test_a_model_of_the_present_input_alone_is_still_memoryless():
    report = memaudit.scan(linear(np.eye(1, 512)[0]), horizon=64, probes=[])
    assert report.memory["driven"].decay.kind == "memoryless"
    assert report.metrics()["memaudit/horizon"] == 0
    words = "In use, within 63 steps an earlier input leaves no trace in the answers (unit noise, "
    words += "256 sequences; one in fewer than 1% of them could be missed)."
    assert report.document().headlines[0] == words


def test_data_of_one_value_say_that_nothing_could_be_replaced():
    report = memaudit.scan(
        linear(0.9**LAGS), horizon=32, data=np.ones(4096), queries=["driven"], probes=[]
    )
    assert report.memory["driven"].status is Status.NO_VARIATION
    assert report.memory["driven"].horizon_text == "-"
    (finding,) = (finding for finding in report.findings if finding.code == "MA006")
    assert "the inputs do not vary" in finding.message


def test_a_state_that_takes_up_no_rounding_of_an_input_is_still_found_chaotic():
    def step(h, u):
        h = 1 - 1.99 * (h - 0.5).abs() + 1e-9 * u  # a tent map, its inputs tiny
        return h, h

    curve = driven(stepped(step), horizon=256)
    assert curve.status is Status.CHAOTIC


@pytest.mark.parametrize("name", KERNELS)
def test_few_sequences_are_paired_without_a_bias(name):
    kernel = KERNELS[name]
    exact = np.abs(kernel[:16]) / np.linalg.norm(kernel)
    found = [driven(linear(kernel), horizon=16, sequences=8, seed=n).values for n in range(100)]
    assert np.abs(np.mean(found, 0) / exact - 1).max() < 0.05


def test_the_interval_holds_the_truth_where_inputs_of_data_are_replaced_several_times():
    data = np.random.default_rng(3).standard_normal(3000)
    kernel, covered = KERNELS["one mode"], 0
    apart = np.abs(data[:, None] - data[None]).mean() / np.sqrt(2 / np.pi) / np.sqrt(2)
    exact = kernel[:64] / np.linalg.norm(kernel)
    for seed in range(100):
        curve = driven(linear(kernel), horizon=64, data=data, seed=seed)
        covered += bool(curve.low[0] <= exact[0] * apart <= curve.high[0])
    assert covered >= 90


def test_padding_is_measured_against_the_variation_before_it():
    network = linear(0.9**LAGS)
    plain, padded = driven(network, sequences=1024), driven(network, sequences=1024, pad=0.0)
    assert padded.values[:32] == pytest.approx(plain.values[:32], rel=0.1)


@pytest.mark.parametrize("rate", [0.005, 0.01, 0.03])
def test_the_horizon_between_two_lags_of_a_pooled_model_is_interpolated(rate):
    lags = np.arange(4096)
    rho = torch.tensor(np.exp(-rate * lags)).reshape(-1, 1, 1)
    subject = pooled(lambda u: filtered(u, rho)[:, -1])
    curve = driven(subject, horizon=4096, epsilon=1e-2)
    assert curve.horizon == pytest.approx(horizon_of(np.exp(-rate * lags), 1e-2), rel=0.1)


def test_fewer_sequences_for_want_of_budget_are_told():
    report = memaudit.scan(
        linear(0.9**LAGS), horizon=64, queries=["driven"], probes=[], budget="6000tokens"
    )
    (finding,) = (finding for finding in report.findings if finding.code == "MA007")
    assert "memory in use (" in finding.message
    assert "of 256 sequences" in finding.message


def test_a_module_of_which_no_recurrence_is_known_may_have_an_unused_one():
    def step(h, u):
        h = 0.95 * h + u
        return h, u + 1e-3 * h

    report = memaudit.scan(stepped(step), horizon=64, probes=[])
    assert "MA117" in {finding.code for finding in report.findings}
