"""Which weights of a folder or a file are opened."""

from __future__ import annotations

import hashlib
import json
import os

import pytest
import torch
from safetensors.torch import save_file

from memaudit.errors import SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.checkpoint import find_weights, open_checkpoint
from memaudit.loading.files import choose_weight_file

# -- Which file of a folder is the model, and when the user is asked.

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


# -- Split weights: the index is believed about nothing, and all of it must be there.

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHTS = {"a": torch.arange(4.0), "b": torch.ones(2, 2), "c": torch.zeros(3)}


def split(folder, *, weight_map=None, index=INDEX, shards=None, **more):
    """A folder with two shards and their index."""
    shards = shards or {FIRST: ("a", "b"), SECOND: ("c",)}
    for name, tensors in shards.items():
        content = {tensor: WEIGHTS[tensor] for tensor in tensors}
        if name.endswith(".safetensors"):
            save_file(content, folder / name, metadata={"format": "pt", "first": tensors[0]})
        else:
            torch.save(content, folder / name)
    if weight_map is None:
        weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map, **more}))
    return folder


def refusal(folder, access=None):
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder, access or Access())
    assert caught.value.hint
    return caught.value


def test_all_shards_are_opened_together(tmp_path):
    found = open_checkpoint(split(tmp_path))
    assert list(found.tensors) == ["a", "b", "c"]
    for name, tensor in found.tensors.items():
        assert torch.equal(tensor, WEIGHTS[name])
    assert found.files == (tmp_path / FIRST, tmp_path / SECOND)
    assert found.format == "safetensors"
    assert found.metadata == {"format": "pt", "first": "a"}
    assert any("2 shards" in note for note in found.notes)


def test_the_joint_digest_is_that_of_the_list_of_digests(tmp_path):
    found = open_checkpoint(split(tmp_path))
    lines = [
        f"{name} {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}\n"
        for name in (FIRST, SECOND)
    ]
    assert found.sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_one_shard_has_its_own_digest(tmp_path):
    found = open_checkpoint(split(tmp_path, shards={"model-00001-of-00001.safetensors": ("a",)}))
    assert found.sha256 == hashlib.sha256(found.files[0].read_bytes()).hexdigest()


def test_shards_of_torch_are_opened(tmp_path):
    shards = {f"pytorch_model-0000{i}-of-00002.bin": (name,) for i, name in ((1, "a"), (2, "b"))}
    found = open_checkpoint(split(tmp_path, shards=shards, index="pytorch_model.bin.index.json"))
    assert found.format == "torch"
    assert list(found.tensors) == ["a", "b"]


def test_safetensors_shards_win_over_a_torch_file(tmp_path):
    torch.save({"evil": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    assert set(open_checkpoint(split(tmp_path)).tensors) == set(WEIGHTS)


def test_damaged_shards_are_not_replaced_by_a_torch_file(tmp_path):
    torch.save({"evil": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    split(tmp_path)
    (tmp_path / SECOND).write_bytes((tmp_path / SECOND).read_bytes()[:-1])
    error = refusal(tmp_path)
    assert error.code == "E_CORRUPT"
    assert error.source.endswith(SECOND)


@pytest.mark.parametrize(
    "name",
    [
        *("../secret.safetensors", "/secret.safetensors", "a/b.safetensors", "a\\b.safetensors"),
        *("x\0.safetensors", "..", "", "C:x.safetensors", "\x1b[31m.safetensors"),
    ],
)
def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.ones(1)}, tmp_path / "secret.safetensors")
    error = refusal(split(folder, weight_map={"a": name}))
    assert error.code == "E_PATH"
    assert error.source.endswith(INDEX)


def test_a_shard_outside_the_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    split(folder)
    (folder / SECOND).rename(tmp_path / SECOND)
    (folder / SECOND).symlink_to(tmp_path / SECOND)
    assert refusal(folder).code == "E_PATH"
    (folder / SECOND).unlink()
    os.link(tmp_path / SECOND, folder / SECOND)
    assert refusal(folder).code == "E_PATH"


def test_an_index_outside_the_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    split(folder)
    (folder / INDEX).rename(tmp_path / INDEX)
    (folder / INDEX).symlink_to(tmp_path / INDEX)
    assert refusal(folder).code == "E_PATH"


def test_a_missing_shard_is_named(tmp_path):
    split(tmp_path)
    (tmp_path / SECOND).unlink()
    error = refusal(tmp_path)
    assert error.code == "E_NOT_FOUND"
    assert SECOND in error.fact
    assert "not complete" in error.fact


def test_shards_without_an_index_are_refused(tmp_path):
    split(tmp_path)
    (tmp_path / INDEX).unlink()
    error = refusal(tmp_path)
    assert error.code == "E_NOT_FOUND"
    assert INDEX in error.fact


def test_a_shard_that_is_named_itself_is_opened_and_said(tmp_path):
    found = open_checkpoint(split(tmp_path) / FIRST)
    assert list(found.tensors) == ["a", "b"]
    assert any("one shard of several" in note for note in found.notes)


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND}, "d is missing from it"),
        ({"a": FIRST, "c": SECOND}, "b is not named for it"),
        ({"a": FIRST, "b": SECOND, "c": SECOND}, "b is not named for it"),
        ({"a": FIRST, "b": FIRST, "x": SECOND}, "x is missing from it; c is not named for it"),
    ],
)
def test_shards_that_are_not_what_the_index_says_are_refused(tmp_path, weight_map, words):
    error = refusal(split(tmp_path, weight_map=weight_map))
    assert error.code == "E_WEIGHTS"
    assert words in error.fact


def test_one_tensor_in_two_shards_is_refused(tmp_path):
    weight_map = {"a": FIRST, "b": FIRST, "c": SECOND}
    shards = {FIRST: ("a", "b"), SECOND: ("a", "c")}
    assert refusal(split(tmp_path, shards=shards, weight_map=weight_map)).code == "E_WEIGHTS"


def test_shards_of_two_formats_are_refused(tmp_path):
    split(tmp_path)
    torch.save({"c": torch.ones(3)}, tmp_path / SECOND)
    assert refusal(tmp_path).code == "E_WEIGHTS"
    split(tmp_path, weight_map={"a": FIRST, "b": FIRST, "c": "other.bin"})
    assert refusal(tmp_path).code == "E_WEIGHTS"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E_CORRUPT"),
        ("null", "E_CORRUPT"),
        ("[]", "E_CORRUPT"),
        ("{}", "E_CORRUPT"),
        ('{"weight_map": []}', "E_CORRUPT"),
        ('{"weight_map": {}}', "E_CORRUPT"),
        ('{"weight_map": {"a": 1}}', "E_CORRUPT"),
        ('{"weight_map": {"a": ["x.safetensors"]}}', "E_CORRUPT"),
        (f'{{"weight_map": {{"a": "{FIRST}", "a": "{SECOND}"}}}}', "E_CORRUPT"),
        ('{"weight_map": {}, "weight_map": {}}', "E_CORRUPT"),
        ("[" * 100_000, "E_CORRUPT"),
        ("\udcff", "E_CORRUPT"),
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path, text, code):
    split(tmp_path)
    (tmp_path / INDEX).write_text(text, errors="surrogateescape")
    assert refusal(tmp_path).code == code


def test_the_limits_hold_for_the_index_and_for_all_shards_together(tmp_path):
    split(tmp_path)
    sizes = [(tmp_path / name).stat().st_size for name in (FIRST, SECOND)]
    for limits in (
        Limits(max_header=20),
        Limits(max_tensors=2),
        Limits(max_bytes=sum(sizes) - 1),
    ):
        assert refusal(tmp_path, Access(limits=limits)).code == "E_LIMIT"
    assert open_checkpoint(tmp_path, Access(limits=Limits(max_bytes=sum(sizes))))


def test_a_giant_shard_is_refused_before_any_is_read(tmp_path):
    split(tmp_path)
    with (tmp_path / SECOND).open("r+b") as stream:
        stream.truncate(8 << 40)
    error = refusal(tmp_path)
    assert error.code == "E_LIMIT"
    assert "8.0 TB" in error.fact


def test_reading_is_told_over_all_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("memaudit.loading.files._REPORT_EVERY", 1)
    seen = []
    split(tmp_path)
    open_checkpoint(tmp_path, Access(progress=lambda *step: seen.append(step)))
    total = sum((tmp_path / name).stat().st_size for name in (FIRST, SECOND))
    assert {stage for stage, _, _ in seen} == {"reading"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("reading", total, total)


# -- The weights are found wherever trainers put them, and never an optimizer's state.

W = torch.ones(3, 3)
STATE = {"rnn.weight_hh_l0": W, "rnn.bias_hh_l0": torch.ones(3)}
OTHER = {"rnn.weight_hh_l0": torch.zeros(3, 3)}
OPTIMIZER = {"state": {0: {"exp_avg": W, "step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1}]}


@pytest.mark.parametrize(
    ("content", "container"),
    [
        (STATE, ""),
        ({"model_state_dict": STATE, "optimizer_state_dict": OPTIMIZER}, "model_state_dict"),
        ({"step": 3, "model_state": STATE, "optimizer_state": OPTIMIZER}, "model_state"),
        ({"state_dict": STATE, "hyper_parameters": {"n": 1}, "optimizer": [W]}, "state_dict"),
        ({"model": STATE, "ema": OTHER}, "model"),
        ({"ema_state_dict": OTHER, "state_dict": STATE}, "state_dict"),
        ({"net": STATE, "acc": 90.0}, "net"),
        ({"ema": STATE, "epoch": 1}, "ema"),
        ({"model": {"state_dict": STATE}}, "model.state_dict"),
        ({"my_rnn": STATE, "opt": OPTIMIZER, "scheduler": {"a": W}}, "my_rnn"),
        ({"discriminator": OTHER, "model": STATE}, "model"),
        ({"model": STATE, "state": OPTIMIZER}, "model"),
    ],
)
def test_the_weights_are_found(content, container):
    found = find_weights(content)
    assert found.container == container
    assert list(found.tensors) == list(STATE)
    assert torch.equal(found.tensors["rnn.weight_hh_l0"], W)


def test_what_was_passed_over_is_said():
    notes = find_weights({"model": STATE, "discriminator": OTHER, "mean": W}).notes
    assert notes == ("the weights are model; left out: discriminator, mean",)


def test_averaged_weights_are_opened_only_alone_and_that_is_said():
    assert find_weights({"ema": STATE}).notes == (
        "only averaged weights are there: ema was opened",
    )


def test_modules_side_by_side_are_opened_together():
    found = find_weights({"en": {"w": W}, "de": {"w": W}, "en_opt": OPTIMIZER, "de_opt": OPTIMIZER})
    assert list(found.tensors) == ["en.w", "de.w"]
    assert found.notes == ("several modules were opened together: en, de",)


def test_a_layer_called_net_inside_the_model_does_not_hide_its_sibling():
    found = find_weights({"params": {"net": {"w": W}, "head": {"w": W}}})
    assert found.container == "params"
    assert list(found.tensors) == ["net.w", "head.w"]


def test_plain_values_beside_the_weights_become_metadata():
    found = find_weights(
        {
            "epoch": 3,
            "name": "tiny",
            "state_dict": STATE,
            "hyper_parameters": {"hidden": 8, "sizes": [1, 2]},
            "lr_schedulers": [{"a": 1}],
            "vocabulary": {str(i): i for i in range(5000)},
        }
    )
    assert set(found.metadata) == {"epoch", "name", "hyper_parameters"}
    assert found.metadata["epoch"] == "3"
    assert found.metadata["name"] == "tiny"
    assert json.loads(found.metadata["hyper_parameters"]) == {"hidden": 8, "sizes": [1, 2]}


def test_what_json_cannot_say_is_left_out_and_the_rest_is_kept():
    settings = {"hidden": 8, "mean": W, "rate": float("nan"), (1, 2): 3, "list": [1, W]}
    found = find_weights({"state_dict": STATE, "hyper_parameters": settings})
    assert json.loads(found.metadata["hyper_parameters"]) == {"hidden": 8, "list": [1, None]}


def test_views_that_together_claim_far_more_than_they_store_are_refused():
    stored = torch.zeros(1 << 20)
    most = (4 * stored.nbytes + (1 << 28)) // stored.nbytes
    assert len(find_weights({f"w{i}": stored for i in range(most)}).tensors) == most
    with pytest.raises(SourceError, match="claim") as caught:
        find_weights({f"w{i}": stored for i in range(most + 1)})
    assert caught.value.code == "E_LIMIT"


def test_lazy_views_are_counted_before_they_are_copied():
    stored = torch.zeros(1 << 21, dtype=torch.complex64).conj()
    with pytest.raises(SourceError, match="claim"):
        find_weights({f"w{i}": stored for i in range(10_000)})


def test_the_number_of_tensors_is_limited():
    assert len(find_weights(STATE, max_tensors=2).tensors) == 2
    with pytest.raises(SourceError, match="more than 1 tensors") as caught:
        find_weights(STATE, max_tensors=1)
    assert caught.value.code == "E_LIMIT"
    assert "max_tensors" in caught.value.hint


def test_names_in_notes_are_clean():
    notes = find_weights({"model": STATE, "x\x1b[31m\u202e": OTHER}).notes
    assert notes == ("the weights are model; left out: x[31m",)


def test_two_tensors_with_one_dotted_name_are_refused():
    with pytest.raises(
        SourceError, match=r"two tensors in the file have the name 'rnn\.w'"
    ) as caught:
        find_weights({"rnn": {"w": W}, "rnn.w": torch.zeros(3)})
    assert caught.value.code == "E_CORRUPT"


def test_lists_of_tensors_are_left_out_aloud():
    notes = find_weights({"w": W, "hidden": [W, W]}).notes
    assert notes == ("lists of unnamed tensors were left out: hidden",)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (W, "E_UNSUPPORTED"),
        ([W, W], "E_UNSUPPORTED"),
        ({0: W, 1: W}, "E_UNSUPPORTED"),
        ({"model": {0: W}}, "E_UNSUPPORTED"),
        (3, "E_UNSUPPORTED"),
        (OPTIMIZER, "E_WEIGHTS"),
    ],
)
def test_what_is_no_model_is_refused_with_a_next_step(content, code):
    with pytest.raises(SourceError) as caught:
        find_weights(content)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("content", [{}, {"epoch": 3, "optimizer_state_dict": OPTIMIZER}])
def test_an_optimizer_is_never_taken_for_the_model(content):
    assert find_weights(content).tensors == {}


def test_a_dictionary_that_holds_itself_is_refused():
    content = {"w": W}
    content["again"] = content
    with pytest.raises(SourceError, match="nested too deeply"):
        find_weights(content)


def test_lists_that_double_do_not_become_metadata():
    doubled = [1]
    for _ in range(60):
        doubled = [doubled, doubled]
    endless = []
    endless.append(endless)
    assert find_weights({"w": W, "bomb": doubled, "loop": endless}).metadata == {}


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (torch.ones(3, 3).to_sparse(), "E_UNSUPPORTED"),
        (torch.ones(3, device="meta"), "E_CORRUPT"),
        (torch.zeros(1).expand(1_000_000, 1_000_000), "E_LIMIT"),
    ],
)
def test_tensors_that_are_not_plain_are_refused_by_name(tensor, code):
    with pytest.raises(SourceError, match=r"layer\.w") as caught:
        find_weights({"layer.w": tensor})
    assert caught.value.code == code


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_nested_and_quantized_tensors_are_refused_by_name():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    for tensor, word in ((nested, "nested"), (quantized, "quantized")):
        with pytest.raises(SourceError, match=f"'w' is {word}"):
            find_weights({"w": tensor})


def test_an_attribute_called_numel_does_not_hide_the_size():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.numel = lambda: 10**18  # type: ignore[method-assign]
    assert find_weights({"w": parameter}).tensors["w"].numel() == 3
