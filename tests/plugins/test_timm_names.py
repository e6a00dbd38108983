"""Names of timm: trained weights from a hub, random ones on request, refusals with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from memaudit.contracts import AbstractSubject, Request
from memaudit.errors import ArgumentError, MachineError, SourceError
from memaudit.loading.access import Access
from memaudit.loading.source import parse_source
from memaudit_timm import TimmAdapter
from memaudit_timm.building import SEED
from tests.loading.hub_server import Hub, Repository
from tests.loading.hub_visits import hub_home
from tests.plugins.timm_models import made, noise, opened, saved

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
