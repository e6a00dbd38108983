"""The folder of a retrofit: written, opened again, folded into the original format."""

from __future__ import annotations

import json
import shutil
import signal
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import memaudit
from memaudit.errors import ArgumentError, MemauditError, SourceError
from memaudit.loading import open_checkpoint
from memaudit.retrofitting.folder import fold_folder, retrofit_source
from tests.retrofitting.checkpoints import KINDS, rnn_state, write


def made(tmp_path, kind="safetensors", **options):
    source = write(tmp_path, kind)
    done = retrofit_source(source, tmp_path / "out", "best", radius=False, **options)
    return source, tmp_path / "out", done


def same(one, other):
    assert set(one) == set(other)
    for name, value in one.items():
        assert value.dtype == other[name].dtype
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_an_untrained_fold_is_the_source_bit_by_bit(tmp_path, kind):
    source, folder, _ = made(tmp_path, kind)
    fold_folder(folder, tmp_path / "back")
    before, after = open_checkpoint(source), open_checkpoint(tmp_path / "back" / source.name)
    same(before.tensors, after.tensors)
    assert (after.format, after.container) == (before.format, before.container)
    assert after.metadata == before.metadata
    assert [path.name for path in (tmp_path / "back").iterdir()] == [source.name]


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_opens_again_and_answers_as_the_source(tmp_path, kind):
    source, folder, _ = made(tmp_path, kind)
    before, after = memaudit.load(source), memaudit.load(folder)
    inputs = torch.ones(1, 5, before.input_size or 0, dtype=before.dtype)
    assert torch.equal(after.respond(inputs), before.respond(inputs))
    names = [n for m in after.live_modules().values() for n, _ in m.named_parameters()]
    assert any(name.endswith(".original0") for name in names)


def stored(owner: Any) -> torch.Tensor:
    return owner.weight_hh_l0


def test_the_plain_checkpoint_in_the_folder_is_the_source(tmp_path):
    source, folder, _ = made(tmp_path)
    same(load_file(source), load_file(folder / "model.safetensors"))
    assert open_checkpoint(folder).metadata == {"format": "pt", "trained_on": "noise"}


def test_bfloat16_stays_bfloat16_and_is_kept_exactly(tmp_path):
    source = tmp_path / "rnn.safetensors"
    save_file(rnn_state(dtype=torch.bfloat16), source)
    retrofit_source(source, tmp_path / "out", "best", radius=False)
    raw = load_file(tmp_path / "out" / "retrofit.safetensors")
    assert raw["rnn.weight_hh_l0.raw0"].dtype is torch.float32
    assert raw["rnn.weight_hh_l0.anchor"].dtype is torch.bfloat16
    fold_folder(tmp_path / "out", tmp_path / "back")
    same(load_file(source), load_file(tmp_path / "back" / "rnn.safetensors"))


def test_trained_raw_weights_are_what_is_folded(tmp_path):
    """A raw size of the smallest mode is moved: only its eigenvalue follows, by the form."""
    _, folder, done = made(tmp_path, "torch")
    raws, plain = (load_file(folder / f"{n}.safetensors") for n in ("retrofit", "model"))
    key = "rnn.weight_hh_l0"
    model = memaudit.load(folder).live_modules()[""]
    owner = next(m for m in model.modules() if hasattr(m, "parametrizations"))
    with torch.no_grad():
        owner.get_parameter("parametrizations.weight_hh_l0.original0").mul_(0.9)
        plain[key] = stored(owner).to(torch.float32)
    raws[f"{key}.raw0"] = raws[f"{key}.raw0"] * 0.9
    save_file(raws, folder / "retrofit.safetensors")
    save_file(plain, folder / "model.safetensors", metadata={"format": "pt"})
    fold_folder(folder, tmp_path / "back")
    folded = open_checkpoint(tmp_path / "back" / "rnn.pt").tensors[key]
    a, b = done.layers[0].constants["a"], done.layers[0].constants["b"]
    sizes = (1.0 - 1.0 / (a * raws[f"{key}.raw0"].double() ** 2 + b)).abs()
    found = torch.linalg.eigvals(folded.double()).abs()
    for size in sizes:
        assert float((found - size).abs().min()) < 1e-5


@pytest.mark.parametrize("name", ["model.safetensors", "retrofit.safetensors"])
def test_a_weight_that_was_changed_alone_is_named(tmp_path, name):
    _, folder, _ = made(tmp_path)
    tensors = load_file(folder / name)
    key = "rnn.weight_hh_l0" if name.startswith("model") else "rnn.weight_hh_l0.raw0"
    tensors[key] = tensors[key] * 1.01
    save_file(tensors, folder / name, metadata={"format": "pt"})
    with pytest.raises(SourceError, match=r"rnn\.weight_hh_l0") as caught:
        memaudit.load(folder)
    assert caught.value.code == "E_CORRUPT"
    with pytest.raises(SourceError, match="E_CORRUPT"):
        fold_folder(folder, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def edited(folder, change):
    path = folder / "retrofit_config.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    change(said)
    path.write_text(json.dumps(said), encoding="utf-8")


def first(said):
    return next(iter(said["weights"].values()))


HOSTILE = {
    "schema": lambda said: said.update(schema=99),
    "is not known here: the plugin": lambda said: first(said)["form"].update(name="os.system"),
    "a constant 'c'": lambda said: first(said)["form"]["constants"].update(c=1.0),
    "does not take": lambda said: first(said)["form"]["constants"].update(a=-1.0),
    r"limits\.0 is str, not a number": lambda said: first(said).update(limits=["now", 1]),
    "names no weights": lambda said: said.update(weights={}),
    "unknown format": lambda said: said["original"].update(format="pickle"),
    "options is list, not an object": lambda said: said.update(options=[]),
    "has an option 'shell'": lambda said: said.update(options={"shell": "true"}),
}


@pytest.mark.parametrize("words", HOSTILE)
def test_a_hostile_record_is_refused_in_a_sentence(tmp_path, words):
    _, folder, _ = made(tmp_path)
    edited(folder, HOSTILE[words])
    with pytest.raises(MemauditError, match=words):
        memaudit.load(folder)


@pytest.mark.parametrize("name", ["../escaped.pt", "/tmp/escaped.pt", "retrofit_config.json"])
def test_a_record_cannot_name_another_place_to_fold_to(tmp_path, name):
    _, folder, _ = made(tmp_path)
    edited(folder, lambda said: said["original"].update(file=name))
    with pytest.raises(SourceError):
        fold_folder(folder, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not (tmp_path / "escaped.pt").exists()


def test_text_that_is_no_strict_json_is_refused(tmp_path):
    _, folder, _ = made(tmp_path)
    (folder / "retrofit_config.json").write_text('{"schema": NaN}', encoding="utf-8")
    with pytest.raises(SourceError, match="is not JSON"):
        memaudit.load(folder)


def test_configs_and_texts_go_along_but_no_code_and_no_other_weights(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    shutil.move(write(tmp_path, "safetensors"), source / "model.safetensors")
    for name in ("notes.md", "vocab.txt", "chat.jinja", "code.py", "optimizer.pt", "a.index.json"):
        (source / name).write_bytes(name.encode())
    retrofit_source(source, tmp_path / "out", "best", radius=False)
    fold_folder(tmp_path / "out", tmp_path / "back")
    names = {"model.safetensors", "notes.md", "vocab.txt", "chat.jinja"}
    assert {path.name for path in (tmp_path / "back").iterdir()} == names
    assert (tmp_path / "back" / "vocab.txt").read_bytes() == b"vocab.txt"


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    shutil.move(write(tmp_path, "safetensors"), source / "model.safetensors")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (source / "notes.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(SourceError, match="leads outside"):
        retrofit_source(source, tmp_path / "out", "best", radius=False)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def foreground():
    """Ctrl-C as in a shell's foreground: a job in the background inherits it as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("action", ["ENOSPC", "interrupt"])
def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch, action):
    source = write(tmp_path, "safetensors")
    monkeypatch.setenv("MEMAUDIT_FAULT", f"write.flushed:1-99={action}")
    with pytest.raises((MemauditError, KeyboardInterrupt)):
        retrofit_source(source, tmp_path / "out", "best", radius=False)
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_folder_that_is_not_empty_is_never_written_into(tmp_path):
    source = write(tmp_path, "safetensors")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine", encoding="utf-8")
    with pytest.raises(ArgumentError, match="not empty"):
        retrofit_source(source, tmp_path / "out", "best")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_second_retrofit_and_a_fold_of_a_plain_folder_are_refused(tmp_path):
    _, folder, _ = made(tmp_path)
    with pytest.raises(ArgumentError, match="retrofitted already"):
        retrofit_source(folder, tmp_path / "again", "exp")
    (tmp_path / "plain").mkdir()
    with pytest.raises(
        SourceError, match=r"is no retrofit folder: it has no retrofit_config\.json"
    ):
        fold_folder(tmp_path / "plain", tmp_path / "back")


def test_where_nothing_can_be_retrofitted_nothing_is_written(tmp_path):
    source = tmp_path / "rnn.pt"
    torch.save({name: 3.0 * value for name, value in rnn_state().items()}, source)
    with pytest.raises(SourceError, match="no layer could be retrofitted"):
        retrofit_source(source, tmp_path / "out", "best", radius=False)
    assert not (tmp_path / "out").exists()


def test_projected_modes_are_those_of_the_folder(tmp_path):
    source = tmp_path / "rnn.pt"
    torch.save({name: 3.0 * value for name, value in rnn_state().items()}, source)
    done = retrofit_source(source, tmp_path / "out", "best", radius=False, project=True)
    assert done.layers[0].moved > 0
    fold_folder(tmp_path / "out", tmp_path / "back")
    weight = open_checkpoint(tmp_path / "back").tensors["rnn.weight_hh_l0"]
    assert float(torch.linalg.eigvals(weight.double()).abs().max()) < 1.0
