"""Patches in raster order are a sequence: answers, layers, weights and whole audits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from timm.models.mlp_mixer import MlpMixer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.testing import check_adapter
from memaudit_timm import TimmAdapter
from memaudit_timm.patches import PatchSubject
from tests.module_laws import check_perturbable
from tests.plugins.timm_models import SCANNING, SMALL, made, noise, opened, saved, sequencer, vit

FAMILIES = {
    "vit": ("vit_tiny_patch16_224", {"img_size": 64, "embed_dim": 32, "num_heads": 2}),
    "registers": (
        "vit_tiny_patch16_224",
        {"img_size": 64, "embed_dim": 32, "num_heads": 2, "reg_tokens": 3, "class_token": True},
    ),
    "no class token": (
        "vit_tiny_patch16_224",
        {
            **{"img_size": 64, "embed_dim": 32, "num_heads": 2, "class_token": False},
            **{"global_pool": "avg"},
        },
    ),
    "dynamic": (
        "vit_tiny_patch16_224",
        {"img_size": 64, "embed_dim": 32, "num_heads": 2, "dynamic_img_size": True},
    ),
    "deit": (
        "deit_tiny_distilled_patch16_224",
        {"img_size": 64, "embed_dim": 32, "num_heads": 2},
    ),
    "eva": ("eva02_tiny_patch14_224", {"img_size": 56, "embed_dim": 32, "num_heads": 2}),
    "mixed rope": (
        "vit_small_patch16_rope_mixed_224",
        {"img_size": 64, "embed_dim": 32, "num_heads": 2},
    ),
    "beit": ("beit_base_patch16_224", {"img_size": 64, "embed_dim": 32, "num_heads": 2}),
    "relpos": (
        "vit_relpos_small_patch16_224",
        {"img_size": 64, "embed_dim": 32, "num_heads": 2},
    ),
    "cait": ("cait_xxs24_224", {"img_size": 64, "embed_dim": 32, "num_heads": 2}),
    "xcit": ("xcit_nano_12_p8_224", {"img_size": 32, "embed_dim": 32, "num_heads": 2}),
}
BOUND = ("beit", "relpos", "xcit", "mixer")


def small(family: str) -> nn.Module:
    if family == "mixer":
        with torch.random.fork_rng(devices=[]):
            return MlpMixer(
                num_classes=3, img_size=64, num_blocks=2, embed_dim=16, patch_size=16
            ).eval()
    name, sizes = FAMILIES[family]
    return made(name, depth=2, num_classes=3, **sizes)


def image_of(model: Any) -> Tensor:
    embedding = getattr(model, "patch_embed", None) or model.stem
    height, width = embedding.img_size
    return noise(2, 3, height, width)


def embedded(model: Any, image: Tensor) -> Tensor:
    """The patches of an image by the model's own embedding, in raster order."""
    patches = (getattr(model, "patch_embed", None) or model.stem)(image)
    patches = patches[0] if isinstance(patches, tuple) else patches
    return patches.reshape(len(patches), -1, patches.shape[-1])


@pytest.mark.parametrize("family", [*FAMILIES, "mixer"])
def test_the_answer_is_that_of_the_models_own_forward(family: str) -> None:
    model: Any = small(family)
    image = image_of(model).float()
    with torch.no_grad():
        patches = embedded(model, image)
        expected = model.forward_features(image)[:, -patches.shape[1] :]
    subject = opened(model)
    answer = subject.respond(patches)
    torch.testing.assert_close(answer, expected)
    assert subject.longest == patches.shape[1]
    assert subject.input_size == patches.shape[2]


@pytest.mark.parametrize("steps", [1, 7, 15])
@pytest.mark.parametrize("registers", [0, 2])
def test_fewer_patches_run_on_the_first_positions(steps: int, registers: int) -> None:
    model: Any = vit(reg_tokens=registers).double()
    sequences = noise(3, steps, 32)
    before = 1 + registers
    with torch.no_grad():
        first = [model.cls_token, model.reg_token] if registers else [model.cls_token]
        tokens = torch.cat([*(t.expand(3, -1, -1) for t in first), sequences], dim=1)
        tokens = tokens + model.pos_embed[:, : before + steps]
        expected = model.norm(model.blocks(tokens))[:, before:]
    torch.testing.assert_close(opened(model).respond(sequences), expected)


def test_fewer_patches_keep_their_rotary_positions() -> None:
    model: Any = small("eva").double()
    sequences = noise(2, 9, 32)
    rope = model.rope.get_embed()[:9]
    with torch.no_grad():
        tokens = torch.cat([model.cls_token.expand(2, -1, -1), sequences], dim=1)
        tokens = tokens + model.pos_embed[:, :10]
        for block in model.blocks:
            tokens = block(tokens, rope=rope)
        expected = model.norm(tokens)[:, 1:]
    torch.testing.assert_close(opened(model).respond(sequences), expected)


@pytest.mark.parametrize("family", [*FAMILIES, "mixer"])
def test_models_that_are_bound_to_their_grid_are_filled_with_zeros(family: str) -> None:
    subject = opened(small(family).double())
    assert isinstance(subject, PatchSubject)
    word = "fill" if family in BOUND else "cut"
    assert subject.identity.assumed["shorter"].startswith(f"{word} (")
    if family in BOUND:
        whole = noise(1, subject.patches.count, subject.patches.width)
        whole[:, 3:] = 0.0
        torch.testing.assert_close(subject.respond(whole[:, :3]), subject.respond(whole)[:, :3])


def test_filling_can_be_asked_for_and_cutting_refused() -> None:
    whole = noise(1, 16, 32)
    whole[:, 5:] = 0.0
    filled = opened(vit().double(), shorter="fill")
    torch.testing.assert_close(filled.respond(whole[:, :5]), filled.respond(whole)[:, :5])
    cut = opened(vit().double()).respond(whole[:, :5])
    assert not torch.allclose(cut, filled.respond(whole)[:, :5], atol=1e-3)
    assert "shorter" not in filled.identity.assumed
    with pytest.raises(ArgumentError, match="cannot run on fewer patches than 16"):
        opened(small("beit"), shorter="cut")


def test_more_patches_than_the_model_has_are_refused() -> None:
    subject = opened(vit())
    with pytest.raises(ArgumentError, match="17 steps, the model has 16 patches"):
        subject.respond(noise(1, 17, 32))


@pytest.mark.parametrize("shape", [(2, 5, 31), (2, 5), (2, 0, 32)])
def test_inputs_of_another_form_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"floats of shape|is empty"):
        opened(vit()).respond(noise(*shape))
    with pytest.raises(ArgumentError, match=r"floats of shape|is empty"):
        opened(vit()).respond(torch.zeros(2, 5, dtype=torch.int64))


@pytest.mark.parametrize("family", [*FAMILIES, "fp32 norm"])
def test_float64_is_really_float64(family: str) -> None:
    model = vit(norm_layer="layernormfp32") if family == "fp32 norm" else small(family)
    subject = opened(model, torch.float64)
    assert isinstance(subject, PatchSubject)
    shape = (1, subject.patches.count, subject.patches.width)
    point, way = noise(*shape), noise(*shape, seed=1)
    here, step = subject.respond(point), 2.0**-30
    near = (subject.respond(point + step * way) - here) / step
    far = (subject.respond(point + 2 * step * way) - here) / (2 * step)
    assert here.dtype == torch.float64
    # In float32 the difference quotients of so small a step would be rounding alone.
    torch.testing.assert_close(near, far, rtol=0.0, atol=1e-4 * float(near.abs().max()))


def test_every_block_gives_its_patches() -> None:
    model: Any = vit().double()
    subject = opened(model)
    heard: dict[str, Tensor] = {}
    sequences = noise(2, 6, 32)
    answer = subject.respond_with_hook(sequences, lambda name, hidden: heard.update({name: hidden}))
    assert subject.layers() == tuple(heard) == ("blocks.0", "blocks.1")
    with torch.no_grad():
        tokens = torch.cat([model.cls_token.expand(2, -1, -1), sequences], dim=1)
        first = model.blocks[0](tokens + model.pos_embed[:, :7])
    torch.testing.assert_close(heard["blocks.0"], first[:, 1:])
    torch.testing.assert_close(model.norm(heard["blocks.1"]).detach(), answer)
    assert torch.equal(answer, subject.respond(sequences))


def test_blocks_of_a_filled_grid_give_as_many_steps_as_were_fed() -> None:
    heard: list[tuple[int, ...]] = []
    subject = opened(small("beit").double())
    subject.respond_with_hook(
        noise(2, 6, 32), lambda name, hidden: heard.append(tuple(hidden.shape))
    )
    assert heard == [(2, 6, 32), (2, 6, 32)]


def test_the_coverage_is_what_the_answer_depends_on() -> None:
    model: Any = vit()
    unused = [*model.patch_embed.parameters(), *model.head.parameters()]
    total = sum(p.numel() for p in model.parameters())
    identity = opened(model).identity
    assert identity.parameters == total
    assert identity.coverage == pytest.approx(1 - sum(p.numel() for p in unused) / total)
    assert "not run: the patch embedding, head" in identity.notes


def test_the_identity_says_what_was_opened() -> None:
    identity = opened(vit()).identity
    assert (identity.adapter, identity.family, identity.dtype) == ("timm", "vit", "float32")
    assert identity.description == "vit_tiny_patch16_224: 4 x 4 patches of width 32, 2 blocks"
    assert any("raster order" in note for note in identity.notes)
    assert len(identity.sha256) == 64


def test_the_module_is_left_as_it_was() -> None:
    model: Any = vit(proj_drop_rate=0.5).train()
    before, embedding = copy.deepcopy(model.state_dict()), model.patch_embed
    subject = opened(model, torch.float64)
    assert torch.equal(subject.respond(noise(1, 16, 32)), subject.respond(noise(1, 16, 32)))
    with torch.no_grad():
        model.pos_embed.zero_()
    assert model.training
    assert model.patch_embed is embedding
    assert all(p.requires_grad for p in model.parameters())
    kept = {name: t for name, t in model.state_dict().items() if name != "pos_embed"}
    assert all(torch.equal(before[name], value) for name, value in kept.items())
    assert torch.equal(subject.weights()["pos_embed"], before["pos_embed"].double())


def test_a_model_with_gradient_checkpoints_is_covered_all_the_same() -> None:
    model: Any = vit()
    model.set_grad_checkpointing(True)
    assert opened(model).identity.coverage == opened(vit()).identity.coverage
    assert model.grad_checkpointing


def test_a_copy_of_the_subject_answers_the_same() -> None:
    subject = opened(vit().double())
    inputs = noise(2, 9, 32)
    assert torch.equal(copy.deepcopy(subject).respond(inputs), subject.respond(inputs))


def test_a_model_without_a_config_is_opened_by_the_size_of_its_embedding() -> None:
    with torch.random.fork_rng(devices=[]):
        model = VisionTransformer(
            img_size=(32, 48), patch_size=16, embed_dim=24, depth=1, num_heads=2
        )
    subject = opened(model)
    assert subject.longest == 6
    assert "2 x 3 patches of width 24" in subject.identity.description
    assert subject.identity.description.startswith("VisionTransformer: ")


def test_recurrent_layers_obey_the_laws() -> None:
    for part in opened(sequencer().double()).parts().values():
        check_perturbable(part)


def test_patches_obey_the_laws() -> None:
    subject = opened(vit(), torch.float64)
    check_perturbable(subject, inputs=noise(2, 16, 32))


def test_shorter_sequences_of_patches_obey_the_laws() -> None:
    subject = opened(vit(), torch.float64)
    check_perturbable(subject, inputs=noise(2, 7, 32))


def test_the_weights_of_a_vision_transformer_are_none_of_a_recurrence() -> None:
    model = opened(vit(), torch.float64).perturbable()
    assert model is not None
    assert {role.group for role in model.roles.values()} == {"other"}
    assert not any(name.startswith(("patch_embed", "head")) for name in model.weights)


def test_a_host_of_several_layers_has_none_of_its_own() -> None:
    assert opened(sequencer().double()).perturbable() is None


#: 16 x 16 patches: room for the shifts of the assumptions.
ROOMY = {**SMALL, "img_size": 128, "patch_size": 8, "depth": 1, "embed_dim": 16}


@pytest.mark.parametrize("kind", ["folder", "module"])
@pytest.mark.parametrize("family", ["vit", "sequencer"])
def test_the_adapter_keeps_the_laws(kind: str, family: str, tmp_path: Path) -> None:
    model = vit(**ROOMY) if family == "vit" else sequencer()
    sizes: dict[str, Any] = ROOMY if family == "vit" else SCANNING
    source = saved(model, tmp_path / "model", sizes) if kind == "folder" else model
    options = {} if family == "vit" else {"layers": "stages.1"}
    check_adapter(TimmAdapter(), source, options=options)


def test_a_vision_transformer_is_audited_and_said_to_look_ahead() -> None:
    report = memaudit.scan(vit(**ROOMY), horizon=24, level="quick", dtype="float64")
    held = {a.name: a.holds for a in report.assumptions}
    assert report.subject.adapter == "timm"
    assert held["causal"] is False
    assert held["time-homogeneous"] is False
    assert held["linear"] is False
    assert set(report.memory) >= {"heaviside", "impulse"}
    assert report.complete


def test_a_small_grid_is_audited_within_its_patches() -> None:
    report = memaudit.scan(vit(), horizon=64, level="quick", dtype="float64")
    assert report.complete
    assert all(len(curve.lags) <= 16 for curve in report.memory.values())


def test_a_sequencer_is_audited_layer_by_layer(tmp_path: Path) -> None:
    folder = saved(sequencer(), tmp_path / "model", SCANNING)
    report = memaudit.scan(folder, horizon=24, level="quick")
    assert report.subject.adapter == "timm"
    assert len(report.layers) == 6
    assert all("impulse" in curves for curves in report.layers.values())
    assert len(report.subject.recurrences) == 8


def test_a_module_without_a_sequence_is_refused_by_scan() -> None:
    with pytest.raises(SourceError, match="no sequence to audit"):
        memaudit.scan(made("test_resnet"))
