"""Decays of the reference checkpoints: as recorded, and as measured on a layer alone."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import memaudit
from memaudit.memory.result import Curve
from memaudit.numerics.wide_floats import really_float64
from memaudit_transformers.kinds import find_recurrences, spectra_of
from memaudit_transformers.scans import decays_of, fast_scans, steps_of


def opened(shared: Path, family: str) -> tuple[nn.Module, dict[str, Tensor]]:
    from transformers import AutoModelForCausalLM

    folder = shared / "fixtures" / family / "small"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    return model, load_file(folder / "io.safetensors")


def running(model: nn.Module):
    def run(tokens: Tensor) -> None:
        with torch.no_grad():
            model(input_ids=tokens, use_cache=False)

    return run


@pytest.mark.shared
def test_the_eigenvalues_of_rwkv_are_the_recorded_ones(shared: Path) -> None:
    model, recorded = opened(shared, "rwkv_hf")
    found = find_recurrences(model)
    assert [r.layer for r in found] == ["rwkv.blocks.0.attention", "rwkv.blocks.1.attention"]
    eigenvalues = torch.stack([r.at_rest() for r in found])
    torch.testing.assert_close(eigenvalues, recorded["eigs_real"], rtol=0, atol=1e-7)
    for spectrum, expected in zip(
        spectra_of(found, running(model), recorded["input"]),
        recorded["eigs_real"].numpy(),
        strict=True,
    ):
        assert abs(spectrum.eigenvalues - expected).max() < 1e-7
        assert spectrum.points == ()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("family", "layers"),
    [
        ("mamba1_hf", "backbone.layers.{}.mixer"),
        ("mamba2_hf", "backbone.layers.{}.mixer"),
    ],
)
def test_the_step_sizes_of_mamba_are_the_recorded_ones(
    shared: Path, family: str, layers: str
) -> None:
    model, recorded = opened(shared, family)
    found = find_recurrences(model)
    assert [r.layer for r in found] == [layers.format(i) for i in range(2)]
    steps = steps_of(found, running(model), recorded["input"][:1])
    for i in range(2):
        step = steps[layers.format(i)]
        torch.testing.assert_close(step.sizes[0], recorded[f"dt_layer{i}"], rtol=0, atol=1e-5)
        raw = model.get_parameter(layers.format(i) + ".A_log").detach()
        torch.testing.assert_close(step.rates, torch.exp(raw), rtol=1e-6, atol=0)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("family", "layers"),
    [
        ("mamba2_hf", "backbone.layers.{}.mixer"),
        ("recurrentgemma_hf", "model.layers.{}.temporal_block.rg_lru"),
        ("xlstm_hf", "backbone.blocks.{}.mlstm_layer"),
    ],
)
def test_decays_over_data_are_the_recorded_ones(shared: Path, family: str, layers: str) -> None:
    model, recorded = opened(shared, family)
    found = find_recurrences(model)
    decays = decays_of(found, running(model), recorded["input"])
    assert list(decays) == [layers.format(i) for i in range(2)]
    for i, heard in enumerate(decays.values()):
        assert heard.shape[:2] == (2, 256)
        torch.testing.assert_close(heard[0], recorded[f"decay_layer{i}"], rtol=0, atol=1e-5)


@pytest.mark.shared
def test_quantiles_of_the_recorded_step_sizes_give_the_points_of_the_spectrum(shared: Path) -> None:
    model, recorded = opened(shared, "mamba1_hf")
    found = find_recurrences(model)
    spectra = spectra_of(found, running(model), recorded["input"][:1])
    for i, spectrum in enumerate(spectra):
        sizes = recorded[f"dt_layer{i}"].double().sort(0).values
        rates = torch.exp(found[i].module.get_parameter("A_log").detach().double())
        assert [point.at for point in spectrum.points] == ["dt 5 %", "dt 50 %", "dt 95 %"]
        for point, row in zip(spectrum.points, (12, 127, 242), strict=True):
            # The nearest of 256 sorted values to 5, 50 and 95 %, give or take one of them.
            near = [torch.exp(-sizes[row + k][:, None] * rates).numpy().ravel() for k in (-1, 2)]
            assert (near[0] + 1e-5 >= abs(point.eigenvalues)).all()
            assert (near[1] - 1e-5 <= abs(point.eigenvalues)).all()


#: Below, the curve still bends where it sinks into the floor: it has no rate to compare.
CONFIDENT = 0.85
#: Moments of the recorded text whose real inputs are held constant.
MOMENTS = (0, 80, 150, 168, 192, 240)
#: Steps after which a convolution of width 4, or a shift by one, has only seen the constant.
SETTLED = 8


class LayerAlone:
    """A float64 copy of one layer, without the layers before and behind it: (B,T,D) to (B,T,M).

    Under a constant input the decays of the layer settle, and from then on it is linear and
    time-invariant: its slowest mode can be measured and compared with its spectrum.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module).double().eval()
        self.recurrents = find_recurrences(self.module)
        linear = next((m for m in self.module.modules() if isinstance(m, nn.Linear)), None)
        self.input_size = self.recurrents[0].size if linear is None else linear.in_features

    def respond(self, inputs: Tensor) -> Tensor:
        for part in self.module.modules():  # RecurrentGemma leaves its state behind
            if "recurrent_states" in vars(part):
                vars(part)["recurrent_states"] = None
        positions = torch.arange(inputs.shape[1]).expand(inputs.shape[:2])
        given = {"position_ids": positions, "attention_mask": None, "use_cache": False}
        known = inspect.signature(self.module.forward).parameters
        given = {name: value for name, value in given.items() if name in known}
        with torch.no_grad(), fast_scans(self.recurrents), really_float64(torch.float64):
            answer = self.module(inputs, **given)
        while isinstance(answer, tuple | list):
            answer = answer[0]
        return answer

    def decays(self, inputs: Tensor) -> dict[str, Tensor]:
        return decays_of(self.recurrents, self.respond, inputs)


def model_of(shared: Path, family: str) -> tuple[nn.Module, Tensor]:
    from transformers import AutoModelForCausalLM

    folder = shared / "fixtures" / family / "small"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    return model, load_file(folder / "io.safetensors")["input"][:1]


def inputs_of(model: nn.Module, layer: str, tokens: Tensor) -> Tensor:
    """What the layer is really fed over the text, (T,D) in float64."""
    heard: list[Tensor] = []

    def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        heard.append([*args, *kwargs.values()][0])

    handle = model.get_submodule(layer).register_forward_pre_hook(hook, with_kwargs=True)
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)
    handle.remove()
    return heard[0][0].double()


def rates(layer: LayerAlone, x: Tensor) -> Tensor:
    """The rate of the slowest mode of every channel when x has been held for a while."""
    (decays,) = layer.decays(x.expand(1, 2 * SETTLED, -1)).values()
    torch.testing.assert_close(decays[0, SETTLED], decays[0, -1])
    slowest = decays[0, -1] if decays.ndim == 3 else decays[0, -1].amax(-1)
    return -torch.log(slowest)


def loudest(layer: LayerAlone, x: Tensor, lag: int, projection: str) -> int:
    """The channel that moves the answer most at that lag, before it is projected out."""
    heard: list[Tensor] = []
    inputs, weight = x.expand(1, lag + 2, -1), torch.ones(1)
    if projection:
        linear = layer.module.get_submodule(projection)
        weight = linear.get_parameter("weight").norm(dim=0)
        handle = linear.register_forward_pre_hook(lambda _, args: heard.append(args[0]))
        layer.respond(inputs)
        handle.remove()
    channels = heard[0] if projection else layer.respond(inputs)
    return int(((channels[0, -1] - channels[0, -2]).abs() * weight).argmax())


def measured(layer: LayerAlone, x: Tensor, horizon: int) -> Curve:
    """The memory of a step to x; the audit itself feeds a step of ones."""
    step = memaudit.wrap(lambda ones: layer.respond(ones * x), input_size=layer.input_size)
    report = memaudit.scan(
        step, queries=["heaviside"], probes=[], normalization="universal", horizon=horizon
    )
    return report.memory["heaviside"]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("family", "layers", "projection", "horizon"),
    [
        ("mamba1_hf", "backbone.layers.{}.mixer", "out_proj", 128),
        ("rwkv_hf", "rwkv.blocks.{}.attention", "output", 4096),
        ("recurrentgemma_hf", "model.layers.{}.temporal_block.rg_lru", "", 4096),
        ("recurrentgemma_hf", "model.layers.{}.temporal_block", "linear_out", 4096),
    ],
)
def test_the_slowest_predicted_mode_is_the_measured_rate(
    shared: Path, family: str, layers: str, projection: str, horizon: int
) -> None:
    """Gates may close the slowest channel: then it is the slowest mode of the loudest one."""
    model, tokens = model_of(shared, family)
    slowest_of_all = 0
    for name in (layers.format(i) for i in range(2)):
        layer = LayerAlone(model.get_submodule(name))
        text = inputs_of(model, name, tokens)
        for moment in MOMENTS:
            decay = measured(layer, text[moment], horizon).decay
            if decay.kind != "exponential" or decay.confidence < CONFIDENT:
                continue
            assert decay.window is not None
            predicted = rates(layer, text[moment])
            channel = loudest(layer, text[moment], decay.window[1], projection)
            assert decay.rate == pytest.approx(float(predicted[channel]), rel=0.05)
            slowest_of_all += channel == int(predicted.argmin())
    assert slowest_of_all > 0


@pytest.mark.shared
def test_a_mamba_layer_alone_answers_as_it_does_inside_its_model(shared: Path) -> None:
    model, tokens = model_of(shared, "mamba1_hf")
    name = "backbone.layers.1.mixer"
    answers: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(lambda *x: answers.append(x[2]))
    text = inputs_of(model, name, tokens)
    handle.remove()
    alone = LayerAlone(model.get_submodule(name)).respond(text[None])
    scale = float(answers[0].abs().max())
    torch.testing.assert_close(alone.float(), answers[0], rtol=0, atol=1e-5 * scale)
