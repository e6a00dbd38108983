"""Names, folders and files of timm: opened with their own weights, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from memaudit.errors import ArgumentError, MachineError, SourceError
from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.access import Access
from memaudit.loading.source import parse_source
from memaudit_timm import TimmAdapter
from memaudit_timm.adapter import BY_NAMES, CERTAIN
from memaudit_timm.building import SEED
from tests.loading.hub_server import Hub, Repository
from tests.loading.hub_visits import hub_home
from tests.plugins.timm_models import SMALL, VIT, made, noise, opened, saved, sequencer, vit

__all__ = ["hub_home"]

NAME = "test_vit"
REPOSITORY = "timm/test_vit.r160_in1k"


def repository(folder: Path) -> Repository:
    """The repository that timm names for these weights."""
    saved(made(NAME), folder, None)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return Repository(REPOSITORY, files, large=("model.safetensors",), tags=("v2",))


def fetched(source: str, *, offline: bool = False, **options: Any) -> AbstractSubject:
    request = Request(torch.device("cpu"), None, None, options)
    where = parse_source(source, access=Access(offline=offline))
    return TimmAdapter().load(where, request)


@pytest.mark.usefixtures("hub_home")
@pytest.mark.parametrize(
    "source",
    [
        f"timm:{NAME}",
        f"timm:{NAME}.r160_in1k",
        f"timm:{NAME}@v2",
        f"hf-hub:{REPOSITORY}",
        f"hf-hub:{REPOSITORY}@v2",
        REPOSITORY,
    ],
)
def test_trained_weights_come_from_the_hub(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = noise(2, 12, 64)
    with Hub(repository(tmp_path / "model")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        subject = fetched(source)
    expected = opened(made(NAME), torch.float64).respond(inputs)
    assert torch.equal(subject.respond(inputs), expected)
    assert any("from the hub" in note for note in subject.identity.notes)
    taken = subject.identity.assumed.get("pretrained", "")
    assert (f"true, the weights {REPOSITORY}" in taken) == source.startswith("timm:")
    offline = fetched(source, offline=True)
    assert torch.equal(offline.respond(inputs), expected)


@pytest.mark.usefixtures("hub_home")
def test_a_folder_of_that_name_does_not_stand_in_for_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(made(NAME), tmp_path / REPOSITORY, None)
    monkeypatch.chdir(tmp_path)
    for source in (f"timm:{NAME}", f"hf-hub:{REPOSITORY}"):
        with pytest.raises(MachineError) as error:
            fetched(source, offline=True)
        assert error.value.code == "E_OFFLINE"


@pytest.mark.usefixtures("hub_home")
@pytest.mark.parametrize(("offline", "code"), [(True, "E_OFFLINE"), (False, "E_NETWORK")])
def test_without_a_hub_the_random_start_is_offered(offline: bool, code: str) -> None:
    with pytest.raises(MachineError) as error:
        fetched(f"timm:{NAME}", offline=offline)
    assert error.value.code == code
    assert error.value.hint.endswith("--set pretrained=false audits the random initialisation")


@pytest.mark.usefixtures("hub_home")
def test_weights_of_another_model_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository(tmp_path / "model")
    saved(made("test_vit2"), tmp_path / "other", None)
    other.files["model.safetensors"] = (tmp_path / "other" / "model.safetensors").read_bytes()
    with Hub(other) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(SourceError) as error:
            fetched(f"timm:{NAME}")
    assert error.value.code == "E_WEIGHTS"


def test_random_weights_are_the_same_every_time_and_said_to_be_random() -> None:
    one = opened(f"timm:{NAME}", pretrained=False)
    two = opened(f"timm:{NAME}", pretrained="false")
    inputs = noise(1, 10, 64)
    assert torch.equal(one.respond(inputs), two.respond(inputs))
    assert one.identity == two.identity
    assert f"random initialisation by timm (seed {SEED}): no trained weights" in one.identity.notes
    assert "pretrained" not in one.identity.assumed


@pytest.mark.parametrize("sizes", [{"img_size": 64, "depth": 1}, '{"img_size": 64, "depth": 1}'])
def test_sizes_can_be_changed_where_weights_are_random(sizes: Any) -> None:
    subject = opened(f"timm:{NAME}", pretrained=False, model_args=sizes)
    assert subject.longest == 16
    assert subject.layers() == ("blocks.0",)


def test_large_models_are_run_in_float32_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memaudit_timm.building.LARGEST_DOUBLE", 371_239)
    large = opened(f"timm:{NAME}", pretrained=False)
    assert large.dtype == torch.float32
    assert any("371,240 parameters" in note for note in large.identity.notes)
    assert opened(f"timm:{NAME}", torch.float64, pretrained=False).dtype == torch.float64
    monkeypatch.setattr("memaudit_timm.building.LARGEST_DOUBLE", 371_240)
    assert opened(f"timm:{NAME}", pretrained=False).dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "hint"),
    [("sequencer2d_x", "sequencer2d_"), ("vit_tiny_patch16_242", "vit_tiny_patch16_224")],
)
def test_an_unknown_name_is_answered_with_its_neighbours(name: str, hint: str) -> None:
    with pytest.raises(ArgumentError, match="timm has no model") as error:
        opened(f"timm:{name}")
    assert hint in error.value.hint


def test_a_name_like_no_other_is_not_answered_with_a_thousand() -> None:
    with pytest.raises(ArgumentError) as error:
        opened("timm:%%%%")
    assert error.value.hint == "timm.list_models() gives the names"


def test_an_unknown_tag_is_answered_with_those_there_are() -> None:
    with pytest.raises(ArgumentError, match=r"no weights 'r160' of test_vit") as error:
        opened(f"timm:{NAME}.r160")
    assert "r160_in1k" in error.value.hint


def test_a_model_without_trained_weights_is_refused() -> None:
    with pytest.raises(SourceError, match="timm has no trained weights of test_vit4") as error:
        opened("timm:test_vit4")
    assert error.value.code == "E_UNSUPPORTED"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_resnet", "no row of blocks behind an embedding of patches"),
        ("test_convnext", "no row of blocks behind an embedding of patches"),
        ("test_efficientnet", "no row of blocks behind an embedding of patches"),
        ("pit_ti_224", "no row of blocks behind an embedding of patches"),
    ],
)
def test_models_without_a_sequence_axis_are_refused_before_anything_is_fetched(
    name: str, reason: str
) -> None:
    with pytest.raises(SourceError, match=reason) as error:
        opened(f"timm:{name}")
    assert error.value.code == "E_UNSUPPORTED"


@pytest.mark.parametrize(
    ("name", "sizes", "reason"),
    [
        ("samvit_base_patch16", {"depth": 1, "embed_dim": 24, "img_size": 64}, "feature maps"),
        ("hiera_tiny_224", {"embed_dim": 8, "img_size": [224, 224]}, "change the number"),
        ("convit_tiny", {"depth": 2, "local_up_to_layer": 1}, "change the number"),
    ],
)
def test_blocks_that_are_no_row_of_patches_are_refused(
    name: str, sizes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SourceError, match=reason) as error:
        opened(f"timm:{name}", pretrained=False, model_args=sizes)
    assert error.value.code == "E_UNSUPPORTED"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pretrained": "maybe"}, "pretrained='maybe'"),
        ({"pretrain": True}, "unknown option 'pretrain'"),
        ({"model_args": [1]}, "model_args="),
        ({"model_args": "img_size=64"}, "model_args="),
        ({"model": "test_vit2"}, "model='test_vit2' beside"),
        ({"pretrained": False, "shorter": "half"}, "shorter='half'"),
        ({"pretrained": False, "layers": "all"}, "layers is for recurrent layers"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as error:
        opened(f"timm:{NAME}", **options)
    assert words in error.value.fact


@pytest.mark.parametrize("name", ["no-slash", "a/b/c", "../x", ""])
def test_a_hub_id_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="no hub id"):
        opened(f"hf-hub:{name}")


def test_a_config_of_another_library_is_refused(tmp_path: Path) -> None:
    folder = saved(made(NAME), tmp_path / "model", None)
    (folder / "config.json").write_text(json.dumps({"architectures": ["ViTModel"]}))
    with pytest.raises(ArgumentError, match="do not say which model"):
        opened(f"local-dir:{folder}")


WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(vit(), tmp_path / "vit", SMALL)


def own_answer(model: Any) -> torch.Tensor:
    with torch.no_grad():
        image = noise(1, 3, 64, 64)
        return model.double().forward_features(image)[:, 1:]


def patches(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.double().patch_embed(noise(1, 3, 64, 64))


def changed(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def refusal(source: Any, **options: Any) -> SourceError:
    with pytest.raises(SourceError) as error:
        opened(source, **options)
    return error.value


@pytest.mark.parametrize("prefix", ["", "local-dir:"])
def test_a_folder_answers_as_the_model_that_was_saved(folder: Path, prefix: str) -> None:
    model = vit()
    subject = opened(f"{prefix}{folder}")
    torch.testing.assert_close(subject.respond(patches(model)), own_answer(model))
    assert subject.identity.source == f"{prefix}{folder}"
    assert subject.identity.dtype == "float64"
    assert subject.identity.sha256 == parse_source(folder).checkpoint.sha256


def test_a_file_beside_its_config_answers_as_the_folder(folder: Path) -> None:
    one, two = opened(folder), opened(folder / WEIGHTS)
    inputs = noise(2, 16, 32)
    assert torch.equal(one.respond(inputs), two.respond(inputs))
    assert "config.json beside the file was read" in two.identity.notes


def test_a_model_with_tables_that_no_file_holds_is_opened(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"img_size": 56, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model: Any = made("eva02_tiny_patch14_224", **sizes)
    subject = opened(saved(model, tmp_path / "eva", sizes))
    inputs = noise(1, 16, 32)
    answer = opened(model, torch.float64).respond(inputs)
    assert torch.equal(subject.respond(inputs), answer)


def test_a_bare_file_needs_the_name_of_its_model(tmp_path: Path) -> None:
    save_file(vit().state_dict(), tmp_path / "bare.safetensors")
    with pytest.raises(ArgumentError, match="do not say which model") as error:
        opened(tmp_path / "bare.safetensors")
    assert "--set model=NAME" in error.value.hint
    sizes = {key: value for key, value in SMALL.items() if key != "num_classes"}
    subject = opened(tmp_path / "bare.safetensors", model=VIT, model_args=sizes)
    torch.testing.assert_close(subject.respond(patches(vit())), own_answer(vit()))


def test_a_training_checkpoint_states_its_model(tmp_path: Path) -> None:
    model = made("test_vit", num_classes=7)
    state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"arch": "test_vit", "epoch": 3, "state_dict": state}, tmp_path / "last.pth")
    subject = opened(tmp_path / "last.pth")
    inputs = noise(1, 9, 64)
    assert torch.equal(subject.respond(inputs), opened(model, torch.float64).respond(inputs))


def test_weights_without_a_head_are_opened(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({k: t for k, t in tensors.items() if not k.startswith("head.")}, folder / WEIGHTS)
    torch.testing.assert_close(opened(folder).respond(patches(vit())), own_answer(vit()))


def test_missing_and_unknown_tensors_are_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    kept = {name: t for name, t in tensors.items() if name != "blocks.1.attn.qkv.weight"}
    save_file({**kept, "blocks.1.attn.stray": torch.zeros(3)}, folder / WEIGHTS)
    error = refusal(folder)
    assert error.code == "E_WEIGHTS"
    assert "blocks.1.attn.qkv.weight" in error.fact
    assert "blocks.1.attn.stray" in error.fact


def test_a_config_of_other_sizes_is_refused(folder: Path) -> None:
    error = refusal(changed(folder, model_args={**SMALL, "embed_dim": 64}))
    assert error.code == "E_WEIGHTS"
    assert "instead of" in error.fact


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["norm.weight"][0] = float("nan")
    save_file(tensors, folder / WEIGHTS)
    assert refusal(folder).code == "E_NONFINITE"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("embed_dim", 10**9),
        ("depth", 10**7),
        ("norm_layer", {"a": 1}),
        ("num_heads", "two" * 99),
    ],
)
def test_a_config_cannot_ask_for_more_than_sizes(folder: Path, key: str, value: Any) -> None:
    error = refusal(changed(folder, model_args={**SMALL, key: value}))
    assert error.code == "E_CONFIG"
    assert key in error.fact


@pytest.mark.parametrize(
    "key", ["checkpoint_path", "pretrained_cfg_overlay", "pretrained", "features_only", "device"]
)
def test_what_the_model_does_not_take_is_left_out_of_a_config(folder: Path, key: str) -> None:
    inputs = noise(1, 16, 32)
    expected = opened(folder).respond(inputs)
    subject = opened(changed(folder, model_args={**SMALL, key: "elsewhere"}))
    assert torch.equal(subject.respond(inputs), expected)
    left = [note for note in subject.identity.notes if "left out" in note]
    assert any(f"model_args.{key}" in note for note in left)


def test_sizes_that_do_not_fit_together_are_named(folder: Path) -> None:
    error = refusal(changed(folder, model_args={**SMALL, "num_heads": 5}))
    assert error.code == "E_CONFIG"
    assert "num_heads=5" in error.fact


def test_an_image_without_end_is_refused(tmp_path: Path) -> None:
    folder = saved(sequencer(), tmp_path / "model", None)
    stated = {"input_size": [3, 10**5, 10**5], "classifier": "head.fc"}
    sizes = {"layers": [3, 1], "patch_sizes": [7, 2], "embed_dims": [8, 12]}
    more = {"hidden_sizes": [3, 5], "mlp_ratios": [2.0, 2.0]}
    error = refusal(changed(folder, pretrained_cfg=stated, model_args={**sizes, **more}))
    assert error.code == "E_LIMIT"
    assert "100000" in error.fact


@pytest.mark.parametrize("size", [[3, 64], "large", [3, -1, 64], [3, 64.5, 64]])
def test_an_image_size_that_is_none_is_refused(folder: Path, size: Any) -> None:
    error = refusal(changed(folder, pretrained_cfg={"input_size": size}))
    assert error.code == "E_CONFIG"
    assert "input_size" in error.fact


def test_an_unknown_architecture_is_refused(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="no model 'vit_tiny_patch16_225'") as error:
        opened(changed(folder, architecture="vit_tiny_patch16_225"))
    assert "vit_tiny_patch16_224" in error.value.hint


def test_a_random_start_cannot_be_asked_of_a_file(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"pretrained=false is for timm:NAME"):
        opened(folder, pretrained=False)


def test_opening_does_not_move_the_global_random_numbers(folder: Path) -> None:
    before = torch.get_rng_state()
    opened(folder)
    opened("timm:test_vit", pretrained=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_claims_rest_on_the_config_and_the_names(folder: Path, tmp_path: Path) -> None:
    adapter = TimmAdapter()

    def strength(source: Any) -> int:
        claim = adapter.claim(parse_source(source))
        return 0 if claim is None else claim.strength

    save_file(vit().state_dict(), tmp_path / "bare.safetensors")
    save_file({"lstm.weight_hh_l0": torch.zeros(4, 1)}, tmp_path / "other.safetensors")
    assert strength(folder) == strength(f"local-dir:{folder}") == CERTAIN
    assert strength("timm:no_such_model") == strength("hf-hub:timm/nothing") == CERTAIN
    assert strength(tmp_path / "bare.safetensors") == BY_NAMES
    assert strength(tmp_path / "other.safetensors") == 0
    assert strength("demo:lstm") == 0
    assert strength(changed(folder, model_type="timm_wrapper")) == 0
    assert strength(vit()) == strength(sequencer()) == CERTAIN
    assert strength(torch.nn.Linear(2, 2)) == 0
    assert strength(vit().get_submodule("blocks.0")) == 0
