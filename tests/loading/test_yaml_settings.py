"""A trainer's settings in YAML are plain values, or a sentence; nothing in them is built."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
import torch
import yaml

from memaudit.errors import SourceError
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.configs import DEEPEST, LARGEST_YAML, SETTINGS_NAMES, open_config, parse_yaml

REFERENCES = ("curse_of_memory", "stablessm", "s4_v4_lightning")


def written(folder: Path, text: str | bytes, name: str = "config.yaml") -> Path:
    """The folder, with settings in it."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def with_weights(folder: Path, **beside: object) -> Path:
    torch.save({"state_dict": {"w": torch.ones(2)}, **beside}, folder / "last.ckpt")
    return folder / "last.ckpt"


def refusal(text: str | bytes) -> str:
    with pytest.raises(SourceError) as caught:
        parse_yaml(text.encode() if isinstance(text, str) else text, name="config.yaml")
    assert caught.value.code == "E_CONFIG"
    assert caught.value.fact.startswith("config.yaml ")
    return caught.value.fact


def values(text: str) -> dict[str, object]:
    return parse_yaml(text.encode(), name="config.yaml")[0]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *[(word, None) for word in ("", "~", "null", "NULL")],
        *[(word, True) for word in ("true", "True", "yes", "ON")],
        *[(word, False) for word in ("false", "no", "Off")],
        *[("7", 7), ("-3", -3), ("+3", 3), ("0", 0), ("1_000", 1000), ("0x1F", 31)],
        *[("0.33", 0.33), ("1e-3", 0.001), ("1.", 1.0), (".5", 0.5), ("-1.5E+2", -150.0)],
        *[(".inf", math.inf), ("-.Inf", -math.inf), (".nan", ".nan"), ("inf", "inf")],
        *[(word, word) for word in ("2020-01-01", "2020-01-01T10:00:00Z", "1:30", "012", "0b1")],
        *[(word, word) for word in ("0x", "1e", ".", "_1", "1__x", "${a.b}", "???", "=")],
        *[("'7'", "7"), ('"yes"', "yes"), ("!!str 7", "7"), ("! 7", "7"), ("!!int '7'", 7)],
    ],
)
def test_a_word_stands_for_what_a_trainer_means(word, value):
    found = values(f"a: {word}\n")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_mappings_lists_and_texts_are_what_the_library_reads():
    text = "a: {b: [1, two, {c: 3}]}\nd:\n- 1\n-\n  - 2\n1: x\n"
    text += "e: |\n  long\n  text\nf: >\n  so\n  so\n"
    found = values(text)
    assert found.pop("1") == "x"
    assert found == {key: value for key, value in yaml.safe_load(text).items() if key != 1}


def test_repeated_parts_and_merged_ones_are_filled_in():
    text = "a: &x {n: 1, m: [1]}\nb: *x\nc: {<<: *x, n: 2}\nd: {<<: [{k: 0}, *x]}\n'<<': 3\n"
    found = values(text)
    assert found["b"] == found["a"] == {"n": 1, "m": [1]}
    assert found["c"] == {"n": 2, "m": [1]}
    assert found["d"] == {"k": 0, "n": 1, "m": [1]}
    assert found["<<"] == 3


def test_an_empty_file_states_nothing():
    assert [values(text) for text in ("", "# a remark\n", "---\n", "{}", "null")] == [{}] * 5


def test_a_byte_order_mark_is_forgiven():
    assert parse_yaml(b"\xef\xbb\xbfn: 1", name="config.yaml")[0] == {"n": 1}


def test_a_tuple_of_lightning_is_a_list():
    assert values(yaml.dump({"betas": (0.9, 0.99)})) == {"betas": [0.9, 0.99]}


def test_what_names_code_is_left_out_and_said():
    text = (
        "n: 1\nlayer: {act: !!python/name:os.system '', d: 2}\n"
        "run: !!python/object/apply:os.system ['touch canary']\n"
        "list: [1, !!python/object:evil.Evil {a: 1}, 3]\nown: !mine 4\n"
    )
    found, notes = parse_yaml(text.encode(), name="config.yaml")
    assert found == {"n": 1, "layer": {"d": 2}, "list": [1, None, 3]}
    assert notes == (
        "config.yaml: left out, for a tag that is not plain YAML: layer.act, run, list, own",
    )


BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n", "holds a list"),
        ("word", "holds a str"),
        ("a: [1\nb: }", "is not YAML"),
        ("a: b: c", "is not YAML (line 1"),
        ("a: 1\n---\nb: 2\n", "several documents"),
        ("a: 1\na: 2\n", "'a' twice"),
        ("a: 1\na: true\n", "'a' twice"),
        ("l: [{a: 1, a: '1'}]\n", "'a' twice"),
        ("? [1]\n: 2\n", "key that is no text"),
        ("? {a: 1}\n: 2\n", "key that is no text"),
        ("k: &k [1]\nb: {*k : 2}\n", "key that is no text"),
        ("a: &a [*a]\n", "not finished"),
        ("a: *b\n", "not finished or not there"),
        ("a: {<<: 3}\n", "merges what is no mapping"),
        (BOMB, "unfolds"),
        (f"t: &t {'x' * 9000}\nl: [{', '.join(['*t'] * 5000)}]\n", "unfolds"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested"),
        ("a: " + "{a: " * 5000 + "}" * 5000, "nested"),
        ("".join("  " * i + "a:\n" for i in range(200)), "nested"),
        (
            "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100)),
            "nested",
        ),
        (f"n: {'9' * 5000}\n", "5000 digits"),
        ('a: "\\ud800"\n', "no text"),
        ('a: "\\UFFFFFFFF"\n', "is not YAML"),
        (f"%YAML {'9' * 5000}.1\n---\na: 1\n", "is not YAML"),
        ("a: \x00", "is not YAML"),
        (b"\xff\xfea\x00", "UTF-8"),
    ],
)
def test_broken_settings_are_one_sentence(text, words):
    assert words in refusal(text)


def test_the_deepest_nesting_that_is_allowed_is_read():
    assert values("a: " + "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1))


def test_a_key_that_is_only_repeated_is_forgiven():
    assert values("a: [1]\na: [1]\n") == {"a": [1]}


@pytest.mark.parametrize("name", SETTINGS_NAMES)
@pytest.mark.parametrize("direct", [True, False], ids=["file", "folder"])
def test_settings_beside_the_weights_are_the_config(tmp_path, name, direct):
    path = with_weights(written(tmp_path, "model: {_target_: a.B, _name_: s4, n: 1}\n", name))
    found = open_checkpoint(path if direct else tmp_path)
    assert found.config == {"model": {"_target_": "a.B", "_name_": "s4", "n": 1}}
    assert found.config_path == tmp_path / name
    assert found.library_config == {}
    assert f"settings were read from {name} beside the weights" in found.notes


def test_the_first_of_several_counts_and_the_others_are_said(tmp_path):
    for name in reversed(SETTINGS_NAMES):
        written(tmp_path, f"from: {name}\n", name)
    config = open_config(tmp_path)
    assert config.values == {"from": "config.yaml"}
    assert config.notes == (
        "settings were read from config.yaml beside the weights; "
        "not config.yml, .hydra/config.yaml, hparams.yaml",
    )


def test_a_config_json_counts_alone(tmp_path):
    written(tmp_path, "a: [broken", "config.yaml")
    written(tmp_path, json.dumps({"_target_": "a.B", "n": 1}), "config.json")
    config = open_config(tmp_path)
    assert config.values == {"n": 1}
    assert open_checkpoint(with_weights(tmp_path)).library_config == {"n": 1}


def test_what_names_files_and_code_is_left_out_of_settings_too(tmp_path):
    written(tmp_path, "auto_map: {a: b}\nmodel: {_private: x, checkpoint_path: /x, n: 1}\n")
    config = open_config(tmp_path)
    assert config.values == {"model": {"n": 1}}
    assert len(config.notes) == 4


@pytest.mark.parametrize(
    ("text", "code"),
    [("- 1", "E_CONFIG"), ("a: 1\na: 2", "E_CONFIG"), ("net: {d_model: 1000000000}", "E_LIMIT")],
)
def test_odd_settings_refuse_their_folder_but_no_file_that_is_named(tmp_path, text, code):
    path = with_weights(written(tmp_path, text))
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == code
    found = open_checkpoint(path)
    assert (found.config, found.config_path) == ({}, None)
    assert f"config.yaml beside the file was not read: {caught.value.fact}" in found.notes


def test_references_and_gaps_are_no_sizes_of_a_trainer(tmp_path):
    text = "d_model: ${net.width}\nhidden_size: ???\nn_layers: null\nvocab_size: -1\n"
    path = with_weights(written(tmp_path, text))
    assert open_checkpoint(path).config["d_model"] == "${net.width}"


def test_settings_beyond_the_limit_are_not_read(tmp_path):
    os.truncate(written(tmp_path, "") / "config.yaml", LARGEST_YAML + 1)
    with pytest.raises(SourceError) as caught:
        open_config(tmp_path)
    assert caught.value.code == "E_LIMIT"


@pytest.mark.parametrize("link", ["config.yaml", ".hydra/config.yaml", ".hydra"])
def test_settings_outside_the_folder_are_not_read(tmp_path, link):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    written(outside, "secret: 1")
    (inside / link).parent.mkdir(exist_ok=True)
    (inside / link).symlink_to(outside if link == ".hydra" else outside / "config.yaml")
    with pytest.raises(SourceError) as caught:
        open_config(inside)
    assert caught.value.code == "E_PATH"


def test_hyper_parameters_in_the_file_are_the_config_of_last_resort(tmp_path):
    stated = {"n_layers": 2, "net": {"_target_": "a.B", "rate": 0.5}}
    path = with_weights(tmp_path, hyper_parameters=stated)
    found = open_checkpoint(path)
    assert (found.config, found.config_path) == (stated, None)
    assert "settings were read from hyper_parameters in the file" in found.notes
    written(tmp_path, "n_layers: 3\n", "hparams.yaml")
    assert open_checkpoint(path).config == {"n_layers": 3}


@pytest.mark.parametrize("stated", [{"d_model": 10**9}, "words", [1, 2]])
def test_hyper_parameters_that_cannot_be_settings_are_left_aside(tmp_path, stated):
    with_weights(tmp_path, hyper_parameters=stated)
    found = open_checkpoint(tmp_path)
    assert found.config == {}
    assert any(n.startswith("hyper_parameters in the file were not read: ") for n in found.notes)


@pytest.mark.shared
@pytest.mark.parametrize("family", REFERENCES)
def test_every_reference_has_its_settings(shared, family):
    folders = sorted(path.parent for path in (shared / "fixtures" / family).glob("*/last.ckpt"))
    assert folders
    for folder in folders:
        stated = yaml.safe_load((folder / "config.yaml").read_text())
        for source in (folder, folder / "last.ckpt"):
            found = open_checkpoint(source)
            assert found.config == stated
            assert found.config_path == folder / "config.yaml"


@pytest.mark.shared
def test_the_settings_inside_the_omegaconf_reference_are_those_beside_it(shared, tmp_path):
    folder = shared / "fixtures/s4_v4_lightning/nplr_omegaconf"
    alone = tmp_path / "last.ckpt"
    alone.write_bytes((folder / "last.ckpt").read_bytes())
    assert open_checkpoint(alone).config == open_checkpoint(folder).config
