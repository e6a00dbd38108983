"""The spectrum of a trained layer against what is measured on that layer alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import memaudit
from memaudit.memory.result import Curve
from memaudit_transformers.recurrent.alone import LayerAlone

#: Below, the curve still bends where it sinks into the floor: it has no rate to compare.
CONFIDENT = 0.85
#: Moments of the recorded text whose real inputs are held constant.
MOMENTS = (0, 80, 150, 168, 192, 240)
#: Steps after which a convolution of width 4, or a shift by one, has only seen the constant.
SETTLED = 8


def model_of(shared: Path, family: str) -> tuple[nn.Module, Tensor]:
    from transformers import AutoModelForCausalLM

    folder = shared / "fixtures" / family / "small"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    return model, load_file(folder / "io.safetensors")["input"][:1]


def inputs_of(model: nn.Module, layer: str, tokens: Tensor) -> Tensor:
    """What the layer is really fed over the text, (T,D) in float64."""
    heard: list[Tensor] = []

    def hear(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        heard.append([*args, *kwargs.values()][0])

    handle = model.get_submodule(layer).register_forward_pre_hook(hear, with_kwargs=True)
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
    assert layer.input_size is not None
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
        layer = LayerAlone(model.get_submodule(name), name=name)
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
@pytest.mark.parametrize(
    ("family", "layer", "width"),
    [
        ("mamba1_hf", "backbone.layers.0.mixer", 64),
        ("mamba2_hf", "backbone.layers.0.mixer", 64),
        ("rwkv_hf", "rwkv.blocks.0.attention", 64),
        ("recurrentgemma_hf", "model.layers.0.temporal_block", 64),
        ("recurrentgemma_hf", "model.layers.0.temporal_block.rg_lru", 64),
        ("xlstm_hf", "backbone.blocks.0.mlstm_layer", 64),
    ],
)
def test_a_layer_alone_is_float64_and_starts_every_answer_afresh(
    shared: Path, family: str, layer: str, width: int
) -> None:
    model, tokens = model_of(shared, family)
    text = inputs_of(model, layer, tokens)
    module = model.get_submodule(layer)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    alone = LayerAlone(module, name=layer)
    assert alone.input_size == width
    inputs = torch.stack([text[:20], text[20:40]])
    first = alone.respond(inputs)
    assert first.dtype == torch.float64
    assert not torch.equal(first, first.float().double())
    assert torch.equal(first, alone.respond(inputs))
    torch.testing.assert_close(first[:, :7], alone.respond(inputs[:, :7]), rtol=0, atol=1e-12)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    (spectrum,) = alone.spectra(inputs)
    assert spectrum.count == alone.identity.recurrences[0].size


@pytest.mark.shared
def test_a_mamba_layer_alone_answers_as_it_does_inside_its_model(shared: Path) -> None:
    model, tokens = model_of(shared, "mamba1_hf")
    name = "backbone.layers.1.mixer"
    answers: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(lambda *x: answers.append(x[2]))
    text = inputs_of(model, name, tokens)
    handle.remove()
    alone = LayerAlone(model.get_submodule(name), name=name).respond(text[None])
    scale = float(answers[0].abs().max())
    torch.testing.assert_close(alone.float(), answers[0], rtol=0, atol=1e-5 * scale)
