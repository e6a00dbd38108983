"""Whole mixers in hosts of unknown make: they answer as the library's own, and by closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import linear, silu, softplus
from transformers import Mamba2Config, MambaConfig, Zamba2Config
from transformers.models.mamba.modeling_mamba import MambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.models.zamba2.modeling_zamba2 import Zamba2MambaMixer

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import Claim
from memaudit.loading import parse_source
from memaudit.numerics.wide_floats import really_float64
from memaudit.retrofitting.folder import retrofit_source
from memaudit.testing import check_adapter
from memaudit_ssm import SsmAdapter
from tests.module_laws import check_perturbable
from tests.plugins.ssm_models import State, draw, mixer, opened, picture_scan, stepped, written

#: Sums of a few dozen terms of size one.
ROUNDING = 1e-12
PREFIX = "encoder.blocks.0.mamba."


def close(answer: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(answer, expected, rtol=ROUNDING, atol=ROUNDING)


def filled(module: nn.Module, *, seed: int = 0) -> nn.Module:
    """The module in double precision, with weights of size one and steps that remember."""
    for number, weight in enumerate(module.double().parameters()):
        weight.data = 0.6 * draw(*weight.shape, seed=seed + number)
    return module.eval().requires_grad_(False)


def stored(module: nn.Module, prefix: str = PREFIX) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in module.state_dict().items()}


def answered(module: nn.Module, inputs: Tensor) -> Tensor:
    """What the library's mixer answers, in double precision throughout."""
    with torch.no_grad(), really_float64(torch.float64):
        return module(inputs)


def selective(
    *, width: int = 6, inner: int = 12, n: int = 4, rank: int = 2, taps: int = 4, biases: str = ""
) -> nn.Module:
    config = MambaConfig(
        hidden_size=width,
        intermediate_size=inner,
        expand=inner // width,
        state_size=n,
        time_step_rank=rank,
        conv_kernel=taps,
        num_hidden_layers=1,
        use_bias="linear" in biases,
        use_conv_bias="conv" in biases,
    )
    return filled(MambaMixer(config, 0))


def dual(
    *,
    width: int = 6,
    heads: int = 3,
    per_head: int = 4,
    n: int = 5,
    taps: int = 4,
    biases: str = "",
) -> nn.Module:
    config = Mamba2Config(
        hidden_size=width,
        num_heads=heads,
        head_dim=per_head,
        expand=heads * per_head // width,
        state_size=n,
        n_groups=1,
        conv_kernel=taps,
        chunk_size=8,
        num_hidden_layers=1,
        layer_norm_epsilon=1e-5,
        use_bias="linear" in biases,
        use_conv_bias="conv" in biases,
    )
    return filled(Mamba2Mixer(config, 0))


def grouped(*, heads: int, per_head: int, n: int, groups: int, bias: bool) -> nn.Module:
    """Of the library's mixers of Mamba-2 this one has the original's norm, group by group."""
    config = Zamba2Config(
        hidden_size=6,
        n_mamba_heads=heads,
        mamba_headdim=per_head,
        mamba_expand=heads * per_head // 6,
        mamba_d_state=n,
        mamba_ngroups=groups,
        num_hidden_layers=1,
        layers_block_type=["mamba"],
        chunk_size=8,
        add_bias_linear=bias,
    )
    made = Zamba2MambaMixer(config, 0)
    made.time_step_limit = (0.0, math.inf)
    return filled(made)


BIASES = ["", "conv", "linear", "linear conv"]


@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize(
    "sizes",
    [{}, {"width": 5, "inner": 5, "n": 1, "rank": 1, "taps": 2}, {"inner": 24, "n": 16, "taps": 1}],
    ids=["usual", "small", "wide"],
)
def test_a_mixer_of_mamba1_answers_as_the_library_does(
    tmp_path: Path, biases: str, sizes: dict[str, int]
) -> None:
    module = selective(biases=biases, **sizes)
    host = opened(stored(module), tmp_path)
    inputs = draw(2, 23, host.input_size or 0, seed=9)
    close(host.respond(inputs), answered(module, inputs))
    assert host.identity.coverage == 1.0


@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize(
    "sizes",
    [{}, {"heads": 1, "per_head": 12, "n": 1, "taps": 2}, {"heads": 6, "per_head": 2, "n": 16}],
    ids=["usual", "one head", "many heads"],
)
def test_a_mixer_of_mamba2_answers_as_the_library_does(
    tmp_path: Path, biases: str, sizes: dict[str, int]
) -> None:
    module = dual(biases=biases, **sizes)
    host = opened(stored(module), tmp_path)
    inputs = draw(2, 23, 6, seed=9)
    close(host.respond(inputs), answered(module, inputs))
    assert host.identity.coverage == 1.0


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("heads", "per_head", "n", "groups"), [(4, 3, 5, 2), (4, 3, 5, 4), (6, 2, 3, 3)]
)
def test_groups_of_heads_have_a_b_a_c_and_a_norm_of_their_own(
    tmp_path: Path, heads: int, per_head: int, n: int, groups: int, bias: bool
) -> None:
    module = grouped(heads=heads, per_head=per_head, n=n, groups=groups, bias=bias)
    host = opened(stored(module), tmp_path, ngroups=groups)
    inputs = draw(2, 23, 6, seed=9)
    close(host.respond(inputs), answered(module, inputs))
    assert f"said by options: ngroups={groups}" in host.identity.notes


def test_the_config_may_say_how_many_groups_there_are(tmp_path: Path) -> None:
    module = grouped(heads=4, per_head=3, n=5, groups=2, bias=False)
    path = written(stored(module), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"ssm_cfg": {"ngroups": 2}}))
    inputs = draw(1, 9, 6)
    close(opened(path).respond(inputs), answered(module, inputs))


def test_groups_that_do_not_share_the_heads_are_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="ngroups is 3, not one of 1, 2"):
        opened(stored(dual(heads=6, per_head=2, n=4)), tmp_path, ngroups=3)
    with pytest.raises(ArgumentError, match="no such setting"):
        opened(stored(selective()), tmp_path, ngroups=2)


def test_one_group_and_the_gate_before_the_norm_are_assumed(tmp_path: Path) -> None:
    who = opened(stored(dual()), tmp_path).identity
    assert {name: words.split()[0] for name, words in who.assumed.items()} == {
        "ngroups": "1",
        "norm_before_gate": "false",
    }
    assert any("epsilon of the norm is 1e-05" in note for note in who.notes)


def by_steps(state: State, u: Tensor, *, late: bool = False) -> Tensor:
    """Mamba-2 with one group, head by head and step by step; D may be one per channel."""
    heads, inner = len(state["A_log"]), state["out_proj.weight"].shape[1]
    mixed, taps = state["conv1d.weight"].shape[0], state["conv1d.weight"].shape[2]
    n, size = (mixed - inner) // 2, inner // heads
    projected = linear(u, state["in_proj.weight"])
    z, raw, dt = projected.split((inner, mixed, heads), -1)
    skip = state["D"].reshape(heads, -1).expand(heads, size)
    rows = []
    for row in range(len(u)):
        h, answers = torch.zeros(heads, size, n, dtype=u.dtype), []
        for t in range(u.shape[1]):
            seen = [(raw[row, t - k], state["conv1d.weight"][:, 0, -1 - k]) for k in range(taps)]
            now = silu(torch.stack([x * w for x, w in seen[: t + 1]]).sum(0))
            x, b, c = now.split((inner, n, n))
            x, size_now = x.reshape(heads, size), softplus(dt[row, t] + state["dt_bias"])
            keep = torch.exp(-size_now * state["A_log"].exp())
            h = keep[:, None, None] * h + (size_now[:, None] * x)[:, :, None] * b
            y, gate = (h @ c + skip * x).flatten(), silu(z[row, t])
            y = y if late else y * gate
            if "norm.weight" in state:
                y = y / torch.sqrt(y.square().mean() + 1e-5) * state["norm.weight"]
            answers.append(linear(y * gate if late else y, state["out_proj.weight"]))
        rows.append(torch.stack(answers))
    return torch.stack(rows)


def test_mamba2_without_a_norm_with_a_late_gate_or_a_wide_skip_is_run_as_it_is(
    tmp_path: Path,
) -> None:
    state, inputs = dict(dual().state_dict()), draw(2, 11, 6, seed=9)
    close(by_steps(state, inputs), answered(dual(), inputs))  # the loop is right
    late = opened(state, tmp_path, norm_before_gate=True)
    close(late.respond(inputs), by_steps(state, inputs, late=True))
    wide = state | {"D": draw(12)}
    close(opened(wide, tmp_path).respond(inputs), by_steps(wide, inputs))
    plain = {name: tensor for name, tensor in state.items() if name != "norm.weight"}
    close(opened(plain, tmp_path).respond(inputs), by_steps(plain, inputs))


# -- Closed forms.

MODES, DT, PUSH, GATE = [0.9, 0.6, 0.2], 0.5, 0.8, 1.3


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1)


def opening(value: float) -> float:
    """SiLU of a number."""
    return value / (1 + math.exp(-value))


def test_a_step_through_a_mixer_of_mamba1_gives_gated_sums_of_geometric_series(
    tmp_path: Path,
) -> None:
    n = len(MODES)
    state = {
        "A_log": column(*(-math.log(mode) / DT for mode in MODES)).log().T,
        "D": torch.tensor([0.25], dtype=torch.float64),
        "dt_proj.weight": column(0.0),
        "dt_proj.bias": torch.tensor([math.log(math.expm1(DT))], dtype=torch.float64),
        "x_proj.weight": column(*[0.0] * (1 + 2 * n)),
        "x_proj.bias": torch.tensor([0.0, *[1.0] * (2 * n)], dtype=torch.float64),
        "in_proj.weight": column(PUSH, GATE),
        "conv1d.weight": torch.tensor([[[0.5, 1.0]]], dtype=torch.float64),
        "out_proj.weight": column(2.0),
    }
    host = opened({f"m.{name}": tensor for name, tensor in state.items()}, tmp_path)
    answer = host.respond(torch.ones(1, 40, 1, dtype=torch.float64))[0, :, 0]
    # The convolution sees one input first, then two.
    first, later = opening(PUSH), opening(1.5 * PUSH)
    t = np.arange(40)
    series = np.sum(
        [DT * (later * (1 - lam**t) / (1 - lam) + first * lam**t) for lam in MODES], axis=0
    )
    skip = 0.25 * np.where(t == 0, first, later)
    close(answer, torch.from_numpy(2.0 * opening(GATE) * (series + skip)))


def test_a_step_through_a_mixer_of_mamba2_gives_gated_sums_of_geometric_series(
    tmp_path: Path,
) -> None:
    heads = len(MODES)
    # in_proj: gates, x of every head, B, C, and no dt beside its bias.
    rows = [GATE] * heads + [PUSH] * heads + [1.0, 1.0] + [0.0] * heads
    state = {
        "A_log": column(*(-math.log(mode) / DT for mode in MODES)).log().flatten(),
        "D": torch.zeros(heads, dtype=torch.float64),
        "dt_bias": torch.full((heads,), math.log(math.expm1(DT)), dtype=torch.float64),
        "in_proj.weight": column(*rows),
        "conv1d.weight": torch.ones(heads + 2, 1, 1, dtype=torch.float64),
        "out_proj.weight": torch.eye(heads, dtype=torch.float64),
    }
    host = opened({f"m.{name}": tensor for name, tensor in state.items()}, tmp_path)
    answer = host.respond(torch.ones(1, 40, 1, dtype=torch.float64))[0]
    t = np.arange(40)
    for head, lam in enumerate(MODES):
        series = DT * opening(PUSH) * opening(1.0) ** 2 * (1 - lam ** (t + 1)) / (1 - lam)
        close(answer[:, head], torch.from_numpy(opening(GATE) * series))


# -- The recorded models, whose mixers are opened one by one.


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "file", "atol"),
    [("mamba1_original", "pytorch_model.bin", 1e-6), ("mamba2_hf", "model.safetensors", 1e-4)],
)
def test_mixers_joined_by_hand_give_the_recorded_logits(
    shared: Path, name: str, file: str, atol: float
) -> None:
    folder = shared / "fixtures" / name / "small"
    host = memaudit.load(folder, adapter="ssm")
    parts = host.parts()
    assert list(parts) == ["backbone.layers.0.mixer", "backbone.layers.1.mixer"]
    path = folder / file
    state = load_file(path) if path.suffix == ".safetensors" else torch.load(path)
    state = {key: tensor.double() for key, tensor in state.items()}
    table = next(tensor for key, tensor in state.items() if "backbone.embedding" in key)
    recorded = load_file(folder / "io.safetensors")

    def norm(x: Tensor, key: str) -> Tensor:
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * state[key]

    hidden = table[recorded["input"]]
    for number, part in enumerate(parts.values()):
        hidden = hidden + part.respond(norm(hidden, f"backbone.layers.{number}.norm.weight"))
    logits = linear(norm(hidden, "backbone.norm_f.weight"), table)
    torch.testing.assert_close(logits, recorded["output64"].double(), rtol=0, atol=atol)


# -- What is found, and what is said.


def test_mixers_of_mamba2_are_claimed_in_files_and_modules(tmp_path: Path) -> None:
    module = nn.ModuleDict({"encoder": dual(), "head": nn.Linear(6, 2)})
    assert SsmAdapter().claim(parse_source(written(stored(dual()), tmp_path))) == Claim(
        "selective-scan", 8
    )
    host = memaudit.load(module)
    assert (host.identity.adapter, list(host.parts())) == ("ssm", ["encoder"])
    inputs = draw(1, 7, 6)
    close(host.respond(inputs), answered(dual(), inputs))


def test_the_original_language_model_of_mamba2_is_left_to_who_runs_it_whole(tmp_path: Path) -> None:
    state = {
        "backbone.embedding.weight": draw(5, 6),
        **stored(dual(), "backbone.layers.0.mixer."),
        "backbone.layers.0.norm.weight": draw(6),
        "backbone.norm_f.weight": draw(6),
    }
    assert SsmAdapter().claim(parse_source(written(state, tmp_path))) is None


def test_a_host_names_its_kinds_of_mixers(tmp_path: Path) -> None:
    state = stored(selective(), "a.") | stored(dual(), "b.") | mixer("c.")
    host = opened(state, tmp_path)
    assert host.identity.description == (
        "host of 1 Mamba-1 mixer (width 6, 12 channels of 4 states), 1 Mamba-2 mixer (width 6, 3 "
        "heads of 4 x 5 states), 1 selective scan (3 channels of 4 states)"
    )
    assert [(r.layer, r.cell, r.size) for r in host.identity.recurrences] == [
        ("a", "mamba1", 48),
        ("b", "mamba2", 3),
        ("c", "mamba1", 12),
    ]
    assert {name: part.input_size for name, part in host.parts().items()} == {
        "a": 6,
        "b": 6,
        "c": 3,
    }
    bare = [note for note in host.identity.notes if note.startswith("run as bare scans")]
    assert bare == [
        "run as bare scans, without projections and gate (without in_proj.weight, "
        "conv1d.weight, out_proj.weight): c"
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"conv1d.weight": None}, "without conv1d.weight"),
        ({"in_proj.weight": draw(12, 6)}, "in_proj.weight (12, 6), "),
        ({"conv1d.weight": draw(12, 12, 4)}, "conv1d.weight (12, 12, 4)"),
        ({"out_proj.weight": draw(6)}, "out_proj.weight (6,) are not those of a mixer"),
        ({"out_norm.weight": draw(12)}, "a mixer has no out_norm.weight"),
    ],
)
def test_what_is_no_whole_mixer_is_run_as_its_bare_scan_with_the_reason(
    tmp_path: Path, change: dict[str, Tensor | None], why: str
) -> None:
    state: dict[str, Any] = {
        **stored(selective(), "m."),
        **{f"m.{k}": v for k, v in change.items()},
    }
    host = opened({k: v for k, v in state.items() if v is not None}, tmp_path)
    assert why in next(note for note in host.identity.notes if note.startswith("run as bare"))
    inputs = draw(1, 9, 12)
    expected = stepped(
        inputs.numpy(),
        a_log=state["m.A_log"].numpy(),
        skip=state["m.D"].numpy(),
        dt_weight=state["m.dt_proj.weight"].numpy(),
        dt_bias=state["m.dt_proj.bias"].numpy(),
        x_weight=state["m.x_proj.weight"].numpy(),
    )
    close(host.respond(inputs), torch.from_numpy(expected))


def test_scans_over_pictures_stay_bare_beside_their_projections(tmp_path: Path) -> None:
    state = picture_scan("ss.", k=2) | {
        "ss.in_proj.weight": draw(6, 3),
        "ss.conv2d.weight": draw(3),
    }
    host = opened(state, tmp_path)
    assert host.parts()["ss.scan0"].input_size == 3
    assert any("(directions side by side in one tensor): ss" in n for n in host.identity.notes)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"dt_bias": draw(4)}, r"wanted: \(3,\) for dt_bias"),
        ({"norm.weight": draw(6)}, r"wanted: \(12,\) for norm\.weight"),
        ({"in_proj.weight": draw(36, 6)}, r"wanted: \(37, 6\) for in_proj\.weight"),
        ({"conv1d.weight": draw(23, 1, 4)}, "12 channels shared by 3 heads, B and C"),
        ({"conv1d.weight": draw(12, 1, 4)}, "12 channels shared by 3 heads, B and C"),
        ({"A_log": draw(5)}, "12 channels shared by 5 heads"),
        ({"A_log": draw(3, 2)}, r"filled axes \(H,\) of A"),
    ],
)
def test_shapes_of_mamba2_that_contradict_each_other_are_named(
    tmp_path: Path, change: State, fact: str
) -> None:
    state = stored(dual(), "m.") | {f"m.{name}": tensor for name, tensor in change.items()}
    with pytest.raises(SourceError, match=fact) as caught:
        opened(state, tmp_path)
    assert caught.value.code == "E_WEIGHTS"


def test_a_variant_of_mamba2_is_named_and_not_run(tmp_path: Path) -> None:
    state = stored(dual(), "odd.") | {"odd.init_states": draw(3, 4, 5)} | stored(dual(), "m.")
    host = opened(state, tmp_path)
    assert list(host.parts()) == ["m"]
    unmatched = next(note for note in host.identity.notes if "not matched" in note)
    assert "odd.A_log (Mamba-2, a mixer has no init_states)" in unmatched


def test_directions_by_letter_share_their_projections_and_count_them_once(tmp_path: Path) -> None:
    forward, way = stored(selective(), "vim."), stored(selective(), "")
    names = {"A_log": "A_b_log", "D": "D_b"}
    for layer in ("conv1d", "x_proj", "dt_proj"):
        names |= {n: n.replace(layer, f"{layer}_b") for n in way if n.startswith(layer)}
    back = {f"vim.{other}": way[name].flip(0) for name, other in names.items()}
    host = opened(forward | back, tmp_path)
    assert list(host.parts()) == ["vim.scan", "vim.scan_b"]
    assert host.identity.coverage == 1.0
    (record,) = host.identity.recurrences
    assert record.parameters == sum(tensor.numel() for tensor in (forward | back).values())
    turned = selective()
    turned.load_state_dict({**way, **{name: way[name].flip(0) for name in names}})
    inputs = draw(1, 9, 6)
    close(host.parts()["vim.scan"].respond(inputs), answered(selective(), inputs))
    close(host.parts()["vim.scan_b"].respond(inputs), answered(turned, inputs))


# -- Spectra, copies and retrofits, as of bare scans.

MIXERS = {
    "mamba1": lambda: selective(biases="linear conv"),
    "mamba2": lambda: dual(biases="linear conv"),
    "groups": lambda: grouped(heads=4, per_head=3, n=5, groups=2, bias=True),
}


def host_of(name: str, folder: Path) -> Any:
    options = {"ngroups": 2} if name == "groups" else {}
    return opened(stored(MIXERS[name](), "m."), folder, **options)


def test_at_rest_the_eigenvalues_of_mamba1_are_those_of_its_bare_scan(tmp_path: Path) -> None:
    state = stored(selective(biases="conv"), "m.")
    (whole,) = opened(state, tmp_path).spectra()
    inner = {k: v for k, v in state.items() if "_proj" not in k or "x_" in k or "dt_" in k}
    (bare,) = opened({k: v for k, v in inner.items() if "conv" not in k}, tmp_path).spectra()
    assert np.array_equal(whole.eigenvalues, bare.eigenvalues)
    assert (whole.layer, whole.cell, whole.at) == (bare.layer, bare.cell, bare.at)


def test_at_rest_the_eigenvalues_of_mamba2_are_one_per_head(tmp_path: Path) -> None:
    state = stored(dual(biases="linear"), "m.")
    (found,) = opened(state, tmp_path).spectra()
    dt = softplus(state["m.dt_bias"] + state["m.in_proj.bias"][-3:])
    np.testing.assert_allclose(
        found.eigenvalues, torch.exp(-dt * state["m.A_log"].exp()).numpy(), rtol=1e-14
    )
    assert (found.layer, found.cell, found.parameterization) == ("m", "mamba2", "exp")


@pytest.mark.parametrize("name", ["mamba1", "mamba2"])
def test_over_data_the_eigenvalues_follow_dt_inside_the_mixer(tmp_path: Path, name: str) -> None:
    state, inputs = MIXERS[name]().state_dict(), draw(3, 40, 6, seed=5)
    projected = linear(inputs, state["in_proj.weight"], state["in_proj.bias"])
    if name == "mamba2":
        dt, rates = projected[..., -3:] + state["dt_bias"], state["A_log"].exp()[:, None]
    else:
        x = projected[..., :12].mT
        taps = torch.nn.functional.conv1d(
            x, state["conv1d.weight"], state["conv1d.bias"], padding=3, groups=12
        )
        low = linear(silu(taps[..., :40].mT), state["x_proj.weight"])[..., :2]
        dt = linear(low, state["dt_proj.weight"], state["dt_proj.bias"])
        rates = state["A_log"].exp()
    steps = softplus(dt).flatten(0, 1).numpy()
    (found,) = host_of(name, tmp_path).spectra(inputs)
    for share, point in zip((0.05, 0.5, 0.95), found.points, strict=True):
        chosen = np.quantile(steps, share, axis=0)[:, None]
        expected = np.exp(-chosen * rates.numpy()).ravel()
        np.testing.assert_allclose(point.eigenvalues, expected, rtol=1e-12)


@pytest.mark.parametrize("name", MIXERS)
def test_the_copies_of_a_mixer_keep_the_laws(tmp_path: Path, name: str) -> None:
    host = host_of(name, tmp_path)
    check_perturbable(host.parts()["m"])
    model = host.perturbable()
    assert {role.layer for role in model.roles.values()} == {"m"}
    assert set(model.roles) == set(host.parts()["m"].weights())


@pytest.mark.parametrize("name", MIXERS)
def test_a_moved_copy_answers_as_the_library_with_those_weights(tmp_path: Path, name: str) -> None:
    module, inputs = MIXERS[name](), draw(1, 12, 6)
    model = host_of(name, tmp_path).perturbable()
    names = {"A_log": "A_log", "conv_weight": "conv1d.weight", "out_bias": "out_proj.bias"}
    moves = {
        own: 0.1 * draw(2, *module.get_parameter(key).shape, seed=3) for own, key in names.items()
    }
    moved = {own: module.get_parameter(key) + moves[own] for own, key in names.items()}
    answers = model.respond(inputs, moved)
    for copy in range(2):
        other = MIXERS[name]()
        for own, key in names.items():
            other.get_parameter(key).data = moved[own][copy]
        close(answers[copy], answered(other, inputs))


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("in_memory", [False, True])
def test_the_adapter_keeps_the_laws(tmp_path: Path, name: str, in_memory: bool) -> None:
    state = stored(MIXERS[name](), "m.")
    source = nn.ModuleDict({"m": MIXERS[name]()}) if in_memory else written(state, tmp_path)
    check_adapter(SsmAdapter(), source)


@pytest.mark.parametrize("name", ["mamba1", "mamba2"])
def test_a_retrofitted_mixer_is_written_under_the_names_of_its_file(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "in").mkdir()
    source = written(stored(MIXERS[name](), "m."), tmp_path / "in")
    inputs, before = draw(1, 20, 6), memaudit.load(source)
    done = retrofit_source(source, tmp_path / "out", reparam="heavytail")
    assert [layer.layer for layer in done.layers] == ["m"]
    after = memaudit.load(tmp_path / "out")
    (found,) = after.spectra()
    assert found.parameterization.startswith("heavytail")
    close(after.respond(inputs), before.respond(inputs))
