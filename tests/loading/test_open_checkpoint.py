"""Every usual format opens, and the same weights come out."""

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from memaudit.errors import SourceError
from memaudit.loading.access import Access
from memaudit.loading.checkpoint import open_checkpoint


@pytest.fixture
def weights():
    generator = torch.Generator().manual_seed(0)
    return {
        "rnn.weight_hh_l0": torch.randn(4, 4, generator=generator),
        "rnn.bias_hh_l0": torch.randn(4, generator=generator, dtype=torch.float64),
        "steps": torch.tensor(7),
    }


def write(path, weights, how):
    if how == "safetensors":
        save_file(weights, path, metadata={"format": "pt"})
    elif how == "npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in weights.items()})
    else:
        torch.save(weights, path, _use_new_zipfile_serialization=how == "torch")


@pytest.mark.parametrize("how", ["safetensors", "torch", "torch-legacy", "npz"])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz", ".bin"])
def test_the_format_is_read_from_the_bytes_not_from_the_suffix(tmp_path, weights, how, suffix):
    plain = tmp_path / ("model.npz" if how == "npz" else "model.x")
    write(plain, weights, how)
    path = plain.rename(tmp_path / f"weights{suffix}")
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == how
    assert checkpoint.files == (path,)
    assert checkpoint.container == ""
    assert checkpoint.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert set(checkpoint.tensors) == set(weights)
    for name, tensor in checkpoint.tensors.items():
        assert tensor.dtype == weights[name].dtype
        assert torch.equal(tensor, weights[name])
    misnamed = suffix in (".safetensors", ".npz") and suffix != f".{how}"
    assert misnamed == any("is called" in note for note in checkpoint.notes)


@pytest.mark.parametrize("how", ["torch", "torch-legacy", "npz"])
def test_tensors_keep_the_order_of_the_file(tmp_path, how):
    path = tmp_path / "m.npz"
    names = ["z", "a", "m", "b"]
    write(path, {name: torch.ones(2) for name in names}, how)
    assert list(open_checkpoint(path).tensors) == names


def test_parameters_come_out_without_a_graph(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.nn.Parameter(torch.ones(2))}, path)
    tensor = open_checkpoint(path).tensors["w"]
    assert type(tensor) is torch.Tensor
    assert not tensor.requires_grad


def test_safetensors_metadata_is_kept(tmp_path, weights):
    write(tmp_path / "m.safetensors", weights, "safetensors")
    assert open_checkpoint(tmp_path / "m.safetensors").metadata == {"format": "pt"}


def test_a_config_beside_a_file_is_read_and_said(tmp_path, weights):
    write(tmp_path / "m.pt", weights, "torch")
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 4}))
    checkpoint = open_checkpoint(tmp_path / "m.pt")
    assert checkpoint.config == {"hidden_size": 4}
    assert checkpoint.config_path == tmp_path / "config.json"
    assert "config.json beside the file was read" in checkpoint.notes


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("// a comment\n{}", "E_CONFIG"),
        ("[]", "E_CONFIG"),
        ('{"vocab_size": -1}', "E_CONFIG"),
        ('{"hidden_size": 1000000000}', "E_LIMIT"),
    ],
)
def test_an_odd_config_refuses_its_folder_but_no_file_that_is_named(tmp_path, weights, text, code):
    write(tmp_path / "m.pt", weights, "torch")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == code
    checkpoint = open_checkpoint(tmp_path / "m.pt")
    assert set(checkpoint.tensors) == set(weights)
    assert (checkpoint.config, checkpoint.config_path) == ({}, None)
    assert f"config.json beside the file was not read: {caught.value.fact}" in checkpoint.notes


def test_quantized_weights_stay_refused_when_the_file_is_named(tmp_path, weights):
    write(tmp_path / "m.pt", weights, "torch")
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "gptq"}}')
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path / "m.pt")
    assert caught.value.code == "E_UNSUPPORTED"


def test_objects_in_a_numpy_archive_are_left_out_when_that_is_allowed(tmp_path, weights):
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    np.savez(tmp_path / "m.npz", **arrays, settings=np.array({"hidden": 3}, dtype=object))
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path / "m.npz")
    assert caught.value.code == "E_UNSAFE_FORMAT"
    checkpoint = open_checkpoint(tmp_path / "m.npz", Access(allow_pickle=True))
    assert set(checkpoint.tensors) == set(weights)
    assert "arrays of Python objects were left out: settings" in checkpoint.notes
    assert "config.json beside the file was read" not in checkpoint.notes


@pytest.mark.parametrize("target", ["..", "gone", "config.json"])
def test_a_config_that_is_no_file_refuses_no_file_that_is_named(tmp_path, weights, target):
    write(tmp_path / "m.pt", weights, "torch")
    (tmp_path / "config.json").symlink_to(target)
    with pytest.raises(SourceError):
        open_checkpoint(tmp_path)
    notes = open_checkpoint(tmp_path / "m.pt").notes
    assert any(note.startswith("config.json beside the file was not read") for note in notes)


def test_an_adapter_that_is_named_stays_refused(tmp_path, weights):
    write(tmp_path / "adapter_model.safetensors", weights, "safetensors")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path / "adapter_model.safetensors")
    assert caught.value.code == "E_UNSUPPORTED"


def test_without_a_config_there_is_an_empty_one(tmp_path, weights):
    write(tmp_path / "m.pt", weights, "torch")
    checkpoint = open_checkpoint(tmp_path / "m.pt")
    assert checkpoint.config == {}
    assert checkpoint.config_path is None


def test_opening_leaves_the_file_as_it_was(tmp_path, weights):
    path = tmp_path / "m.pt"
    write(path, weights, "torch")
    before = path.read_bytes()
    open_checkpoint(path).tensors["steps"].add_(1)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt"]


def test_the_legacy_format_is_said_to_have_no_checksums(tmp_path, weights):
    write(tmp_path / "m.pt", weights, "torch-legacy")
    assert any("no checksums" in note for note in open_checkpoint(tmp_path / "m.pt").notes)


@pytest.mark.parametrize("order", [">", "<"])
def test_numpy_arrays_of_either_byte_order_give_the_same_numbers(tmp_path, order):
    values = np.array([[1.5, -2.0], [3.0, 4.0]])
    np.savez_compressed(
        tmp_path / "m.npz", w=np.asfortranarray(values).astype(f"{order}f8"), note="hello"
    )
    checkpoint = open_checkpoint(tmp_path / "m.npz")
    assert checkpoint.tensors["w"].tolist() == values.tolist()
    assert checkpoint.metadata == {"note": "hello"}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["lstm_uni", "lstm_bi", "gru_uni", "gru_bi", "rnn_uni"])
def test_reference_folders_open_the_model_not_the_recorded_numbers(name, shared):
    place = shared / "fixtures" / "torch_rnn" / name
    folder = open_checkpoint(place)
    file = open_checkpoint(place / "model.pt")
    assert folder.files == file.files == (place / "model.pt",)
    assert folder.config == file.config != {}
    assert folder.sha256 == file.sha256
    assert any("weight_hh_l0" in key for key in folder.tensors)
