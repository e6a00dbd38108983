"""Which file of a folder is the model, and when the user is asked."""

import pytest

from memaudit.errors import SourceError
from memaudit.loading.folder import choose_weight_file


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
        (["last.ckpt", "io.safetensors"], "last.ckpt"),
        (["ckpt.pth", "something.npz"], "ckpt.pth"),
        (["tiny.safetensors", "tiny.bin"], "tiny.safetensors"),
        (["epoch=3.ckpt", "optimizer.bin"], "epoch=3.ckpt"),
        (["MODEL.PT"], "MODEL.PT"),
        (["model.safetensors", "model.safetensors.index.json"], "model.safetensors"),
        (["arrays.npz"], "arrays.npz"),
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
        (["model-00001-of-00002.safetensors"], "E_UNSUPPORTED", "shards"),
        (["pytorch_model.bin.index.json"], "E_UNSUPPORTED", "shards"),
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
