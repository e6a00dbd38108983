"""Which file of a folder is the model, and when the user is asked."""

import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.files import choose_weight_file

SHARD = "model-00001-of-00002.safetensors"


def chosen(folder, *names):
    for name in names:
        (folder / name).touch()
    return choose_weight_file(folder)[0].name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model.safetensors"], "model.safetensors"),
        (["model.safetensors", "pytorch_model.bin", "model.pt"], "model.safetensors"),
        (["model.pt", "io.safetensors", "config.json", "meta.json"], "model.pt"),
        (["pytorch_model.bin", "optimizer.pt", "training_args.bin"], "pytorch_model.bin"),
        (["pytorch_model_fsdp.bin", "sampler.bin", "sampler_1.bin"], "pytorch_model_fsdp.bin"),
        (["sampler_net.bin"], "sampler_net.bin"),
        (["last.ckpt", "io.safetensors"], "last.ckpt"),
        (["ckpt.pth", "something.npz"], "ckpt.pth"),
        (["tiny.safetensors", "tiny.bin"], "tiny.safetensors"),
        (["epoch=3.ckpt", "optimizer.bin"], "epoch=3.ckpt"),
        (["MODEL.PT"], "MODEL.PT"),
        (["model.safetensors", "model.safetensors.index.json"], "model.safetensors"),
        (["arrays.npz"], "arrays.npz"),
        (["model.safetensors.index.json", SHARD], "model.safetensors.index.json"),
        (
            ["model.safetensors.index.json", "pytorch_model.bin", "consolidated.safetensors"],
            "model.safetensors.index.json",
        ),
        (
            ["pytorch_model.bin.index.json", "model.safetensors.index.json"],
            "model.safetensors.index.json",
        ),
        (["pytorch_model.bin.index.json"], "pytorch_model.bin.index.json"),
        (["pytorch_model.bin.index.json", "model.safetensors"], "model.safetensors"),
        (["unet.safetensors.index.json", "unet.bin"], "unet.safetensors.index.json"),
        (["tf_model.h5.index.json", "model.pt"], "model.pt"),
    ],
)
def test_the_model_is_chosen(tmp_path, names, expected):
    assert chosen(tmp_path, *names) == expected


def test_files_that_were_passed_over_are_said(tmp_path):
    chosen(tmp_path, "model.pt", "io.safetensors")
    assert choose_weight_file(tmp_path)[1] == ["model.pt was opened; not io.safetensors"]


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["a.pt", "b.pt"], "E_PATH", "a.pt, b.pt"),
        (["a.safetensors", "b.safetensors", "c.pt"], "E_PATH", "a.safetensors, b.safetensors"),
        (["model.pt", "model.pth"], "E_PATH", "model.pt, model.pth"),
        ([SHARD], "E_NOT_FOUND", "model.safetensors.index.json"),
        (["x-00002-of-00003.bin", "x-00001-of-00003.bin"], "E_NOT_FOUND", "2 shards"),
        (["saved_model.pb"], "E_UNSAFE_FORMAT", "SavedModel"),
        (["model.onnx"], "E_UNSUPPORTED", "model.onnx"),
        (["readme.md", "optimizer.pt"], "E_NOT_FOUND", "no weights"),
        ([], "E_NOT_FOUND", "no weights"),
    ],
)
def test_a_folder_without_one_answer_is_refused(tmp_path, names, code, words):
    with pytest.raises(SourceError) as caught:
        chosen(tmp_path, *names)
    assert caught.value.code == code
    assert words in caught.value.fact
    assert caught.value.hint


@pytest.mark.parametrize("name", ["model.safetensors", "last.ckpt"])
def test_a_folder_in_the_place_of_the_weights_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == "E_PATH"
    assert name in caught.value.fact


def test_a_folder_in_the_place_of_the_weights_is_not_replaced_by_another_file(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    torch.save({"w": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == "E_PATH"


def test_a_folder_beside_the_weights_is_passed_over(tmp_path):
    (tmp_path / "last.ckpt").mkdir()
    torch.save({"w": torch.ones(1)}, tmp_path / "epoch=3.ckpt")
    assert list(open_checkpoint(tmp_path).tensors) == ["w"]


def test_a_damaged_safetensors_file_is_not_replaced_by_a_torch_file(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    torch.save({"w": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == "E_CORRUPT"
    assert caught.value.source.endswith("model.safetensors")


def test_names_in_the_folder_arrive_clean_in_the_message(tmp_path):
    for name in ("a\x1b[31m.pt", "b\u202e.pt"):
        (tmp_path / name).touch()
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert not set("\x1b\u202e") & set(str(caught.value))
