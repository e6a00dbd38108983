"""Configs and trainers' settings beside the weights: read as plain data, compared with weights."""

from __future__ import annotations

import inspect
import json
import math
import os
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from memaudit.errors import SourceError
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.configs import (
    FREE_LABELS,
    FREE_LAYERS,
    FREE_SIDE,
    LARGEST_CONFIG,
    SETTINGS_NAMES,
    Config,
    check_config,
    open_config,
)

# -- A config.json is an object of plain values, or a sentence.


def written(folder: Path, text: bytes | str, name: str = "config.json") -> Path:
    """The folder, with a file in it."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def refusal(folder: Path) -> SourceError:
    """The error that opening the config ends in."""
    with pytest.raises(SourceError) as caught:
        open_config(folder)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{not json", "is not JSON"),
        (b"null", "holds null"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"n": NaN}', "holds NaN"),
        (b'{"n": ["\\ud800"]}', "no text"),
        (b'{"n": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"a": ' + b"[" * 200_000, "nested"),
        (b'{"a": ' + b"[" * 99 + b"]" * 99 + b"}", "nested"),
        (b'{"inner": [{"n": 1, "n": true}]}', "'n' twice"),
    ],
)
def test_a_broken_config_is_one_sentence(tmp_path: Path, text: bytes, words: str) -> None:
    error = refusal(written(tmp_path, text))
    assert error.code == "E_CONFIG"
    assert words in error.fact


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"n": [1], "n": [1]}', {"n": [1]}),
        (b'\xef\xbb\xbf{"n": 1}', {"n": 1}),
        ('{"n": [0.0, Infinity, {"__float__": "-Infinity"}]}', {"n": [0.0, math.inf, -math.inf]}),
        ('{"auto_map": {"AutoModel": "a.B"}}', {"auto_map": {"AutoModel": "a.B"}}),
    ],
)
def test_a_config_is_read_as_it_stands(tmp_path: Path, text: str | bytes, values: object) -> None:
    """What a library is handed of it is for the plugin that builds the model to say."""
    assert open_config(tmp_path) == Config(None, {}, ())
    found = open_config(written(tmp_path, text))
    assert found == Config(tmp_path / "config.json", values, ())


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: path.symlink_to(path.parent.parent / "secret"), "E_PATH"),
        (lambda path: path.symlink_to("gone.json"), "E_NOT_FOUND"),
        (lambda path: (path.touch(), os.truncate(path, LARGEST_CONFIG + 1)), "E_LIMIT"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "config.yaml", ".hydra/config.yaml"])
def test_a_config_elsewhere_or_beyond_the_limit_is_not_read(tmp_path, name, make, code) -> None:
    (tmp_path / "secret").write_text('{"secret": 1}')
    path = tmp_path / "model" / name
    path.parent.mkdir(parents=True)
    make(path)
    if name.startswith(".hydra") and code == "E_PATH":
        path.unlink()
        path.symlink_to(tmp_path / "secret")
    error = refusal(tmp_path / "model")
    assert error.code == code
    assert "secret" not in str(error)


def test_an_adapter_without_its_base_is_refused_by_name(tmp_path: Path) -> None:
    base = {"base_model_name_or_path": "org/base\x1b[31m", "peft_type": "LORA"}
    written(tmp_path, json.dumps(base), "adapter_config.json")
    written(tmp_path, b"weights", "adapter_model.safetensors")
    error = refusal(tmp_path)
    assert error.code == "E_UNSUPPORTED"
    assert "org/base[31m" in error.fact
    assert "merge" in error.hint
    written(tmp_path, b"weights", "model.safetensors")
    assert open_config(tmp_path).notes == (
        "adapter_config.json was not read: the adapter is not applied to the weights",
    )


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"quantization_config": {"quant_method": "gptq\x1b", "bits": 4}}, "gptq"),
        ({"text_config": [{"compression_config": {"load_in_8bit": True}}]}, "bitsandbytes"),
        ({"quantization_config": {"bits": 4}}, "without a name"),
        ({"quantization_config": {}}, ""),
    ],
)
def test_quantized_weights_are_refused_by_their_kind(tmp_path, stated: Any, words: str) -> None:
    written(tmp_path, json.dumps(stated))
    if not words:
        assert open_config(tmp_path).values == stated
        return
    error = refusal(tmp_path)
    assert error.code == "E_UNSUPPORTED"
    assert f"quantized ({words})" in error.fact


# -- A config that asks for more than the weights hold is refused before anything is built.

SMALL = {"weight": torch.zeros(64, 16)}
NOTHING: dict[str, Tensor] = {}


def check(values: dict[str, Any], tensors: dict[str, Tensor] = SMALL) -> None:
    check_config(Config(None, values, ()), tensors)


def budget_refusal(values: dict[str, Any], tensors: dict[str, Tensor] = SMALL) -> SourceError:
    with pytest.raises(SourceError) as caught:
        check(values, tensors)
    assert caught.value.hint
    assert len(str(caught.value)) < 400
    return caught.value


@given(
    st.sampled_from(["vocab_size", "hidden_size", "n_layer", "num_attention_heads", "d_state"]),
    st.integers(max_value=0) | st.floats(0.1, 0.9) | st.booleans() | st.text(max_size=4)
    | st.sampled_from([math.inf, math.nan, [0], [16, "a"]]),
)  # fmt: skip
def test_what_is_no_size_is_named_with_its_key(key: str, value: Any) -> None:
    for values, where in (({key: value}, ""), ({"text_config": {key: value}}, "text_config.")):
        error = budget_refusal(values)
        assert error.code == "E_CONFIG"
        assert f"{where}{key} is " in error.fact


@pytest.mark.parametrize(
    "values",
    [
        {"vocab_size": None, "time_step_rank": "auto", "intermediate_size": [64, 64]},
        {"num_hidden_layers": {"vision": 5, "language": 9}, "expand": 1.5, "hidden_size": 16.0},
        {"head_dim": 0, "num_labels": 0, "type_vocab_size": 0, "total": 10**12},
        {"layers": ["lstm", "linear"], "hidden": "relu", "vocab": "words.txt"},
        {"layers": [512, 512], "max_position_embeddings": FREE_SIDE},
    ],
)
def test_honest_configs_are_left_alone(values: dict[str, Any]) -> None:
    check(values)
    check({"model_type": "odd", "text_config": values})


@pytest.mark.parametrize(
    "values",
    [
        {"vocab_size": 4e8, "hidden_size": 64},
        {"hidden_size": 10**299},
        {"n_layer": 10**6, "n_embd": 16},
        {"model_type": "swin", "depths": [10**5, 10**5]},
        {"model_type": "bert", "num_labels": 10**7},
        {"model_type": "odd", "codebook_dim": float("inf")},
        {"parts": [{"text_config": {"vocab_size": 400_000_000, "d_model": 64}}]},
    ],
)
def test_a_config_that_asks_for_too_much_is_refused(values: dict[str, Any]) -> None:
    for tensors in (SMALL, NOTHING):
        assert budget_refusal(values, tensors).code == "E_LIMIT"


def test_the_weights_that_are_there_pay_for_what_is_asked() -> None:
    error = budget_refusal({"vocab_size": FREE_SIDE + 1})
    assert f"asks for vocab_size {FREE_SIDE + 1}" in error.fact
    assert "the weights hold 1 tensors of at most 64 rows" in error.fact
    for key, free in (("max_position_embeddings", FREE_SIDE), ("num_labels", FREE_LABELS)):
        values = {"model_type": "odd", key: free + 1}
        assert budget_refusal(values).code == "E_LIMIT"
        check(values, {"table": torch.zeros(1).expand(free + 1)})
    assert budget_refusal({"n_layer": FREE_LAYERS + 1}).code == "E_LIMIT"
    check({"n_layer": FREE_LAYERS})
    check({"n_layer": FREE_LAYERS + 1}, {str(n): torch.ones(1) for n in range(FREE_LAYERS + 1)})


@pytest.mark.shared
def test_the_configs_of_the_reference_checkpoints_pass(shared: Path) -> None:
    folders = sorted({p.parent for p in (shared / "fixtures").glob("*/*/config.json")})
    assert folders
    for folder in folders:
        config = open_config(folder)
        assert config.notes == ()
        for tensors in (SMALL, NOTHING):
            check_config(config, tensors)


def default_configs() -> Iterator[dict[str, Any]]:
    """The default of every config class in transformers, as it would be written to a file."""
    models = import_module("transformers.models")
    root = import_module("transformers").PreTrainedConfig
    strict = import_module("huggingface_hub.errors").StrictDataclassError
    for found in pkgutil.walk_packages(models.__path__, "transformers.models."):
        if not found.name.rpartition(".")[2].startswith("configuration_"):
            continue
        module = import_module(found.name)
        for kind in vars(module).values():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and issubclass(kind, root):
                try:
                    yield json.loads(kind().to_json_string(use_diff=False))
                except (TypeError, ValueError, strict):
                    continue  # a class that needs arguments has no default


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_default_config_of_transformers_passes() -> None:
    checked = 0
    for values in default_configs():
        check(values, NOTHING)
        checked += 1
    assert checked > 300


# -- A trainer's settings in YAML are plain values, or a sentence; nothing in them is built.


def with_weights(folder: Path, **beside: object) -> Path:
    torch.save({"state_dict": {"w": torch.ones(2)}, **beside}, folder / "last.ckpt")
    return folder / "last.ckpt"


def stated(folder: Path, text: str) -> dict[str, Any]:
    """What the settings of this text are."""
    return open_config(written(folder, text, "config.yaml")).values


WORDS: dict[str, Any] = {
    **{"~": None, "true": True, "yes": True, "Off": False, "-3": -3, "1_000": 1000, "'7'": "7"},
    **{"1e-3": 0.001, "1e5": 1e5, "-1.5E+2": -150.0, ".5": 0.5, ".inf": math.inf, "!!str 7": "7"},
    **{word: word for word in ("2020-01-01", "2020-01-01T10:00:00Z", "1e", "${a.b}", "???", "=")},
}


def test_a_word_stands_for_what_a_trainer_means(tmp_path: Path) -> None:
    found = stated(tmp_path, "".join(f"k{i}: {word}\n" for i, word in enumerate(WORDS)))
    assert [repr(value) for value in found.values()] == [repr(value) for value in WORDS.values()]


def test_mappings_lists_texts_and_references_are_what_the_library_reads(tmp_path: Path) -> None:
    text = "\ufeffa: {b: [1, two, {c: 3}]}\nd:\n- 1\n-\n  - 2\ne: |\n  long\n  text\n"
    text += "x: &x {n: 1, m: [1]}\ny: *x\nz: {<<: *x, n: 2}\n"
    assert stated(tmp_path, text) == yaml.safe_load(text)
    assert stated(tmp_path, "1: x\n") == {"1": "x"}
    assert stated(tmp_path, yaml.dump({"betas": (0.9, 0.99)})) == {"betas": [0.9, 0.99]}
    for empty in ("", "# a remark\n", "{}", "null", "!!python/name:os.system ''"):
        assert stated(tmp_path, empty) == {}


def test_what_names_code_is_left_out_and_said(tmp_path: Path) -> None:
    text = (
        "n: 1\nlayer: {act: !!python/name:os.system '', d: 2}\n"
        "run: !!python/object/apply:os.system ['touch canary']\n"
        "list: [1, !!python/object:evil.Evil {a: 1}, 3]\nown: !mine 4\nkeys: !!set {a, b}\n"
    )
    config = open_config(written(tmp_path, text, "config.yaml"))
    assert config.values == {"n": 1, "layer": {"d": 2}, "list": [1, None, 3]}
    note = config.notes[1]
    assert note.startswith("config.yaml: left out, with tags that are not plain YAML: ")
    for tag in ("python/name:os.system", "python/object/apply:os.system", "!mine", "set"):
        assert tag in note


KEYS_OF_MANY = ", ".join(f"k{i}: {i}" for i in range(1000))
BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n", "holds a list"),
        ("a: b: c", "is not YAML (line 1"),
        ("a: 1\n---\nb: 2\n", "another document"),
        ("? [1]\n: 2\n", "unhashable key"),
        ("a: &a [*a]\n", "not finished"),
        ("a: .nan\n", "holds NaN"),
        ("a: !!bool perhaps\n", "is not YAML"),
        (f"a: &a {{{KEYS_OF_MANY}}}\nl: [{', '.join(['{<<: *a}'] * 5000)}]\n", "unfolds"),
        (BOMB, "unfolds"),
        (f"t: &t {'x' * 9000}\nl: [{', '.join(['*t'] * 5000)}]\n", "unfolds"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested"),
        ("".join("  " * i + "a:\n" for i in range(200)), "nested"),
        (f"n: {'9' * 5000}\n", "5000 digits"),
        ('a: "\\UFFFFFFFF"\n', "is not YAML"),
        (b"a: \xff", "is not YAML"),
    ],
)
def test_broken_settings_are_one_sentence(tmp_path: Path, text: str | bytes, words: str) -> None:
    error = refusal(written(tmp_path, text, "config.yaml"))
    assert error.code == "E_CONFIG"
    assert error.fact.startswith("config.yaml ")
    assert words in error.fact


def test_settings_beside_the_weights_are_the_config_and_the_first_file_counts(tmp_path) -> None:
    path = with_weights(tmp_path)
    for passed, name in enumerate(reversed(SETTINGS_NAMES)):
        written(tmp_path, f"from: {name}\nd_model: ${{net.width}}\nn_layers: ???\n", name)
        others = ", ".join(SETTINGS_NAMES[len(SETTINGS_NAMES) - passed :])
        for source in (path, tmp_path):
            found = open_checkpoint(source)
            assert found.config["from"] == name
            assert found.config_path == tmp_path / name
            assert found.library_config == {}
            note = f"settings were read from {name} beside the weights"
            assert note + (f"; not {others}" if others else "") in found.notes
    written(tmp_path, json.dumps({"_target_": "a.B", "n": 1}))
    assert open_checkpoint(path).library_config == {"_target_": "a.B", "n": 1}


@pytest.mark.parametrize(("text", "code"), [("- 1", "E_CONFIG"), ("d_model: 1e9", "E_LIMIT")])
def test_odd_settings_refuse_their_folder_but_no_file_that_is_named(tmp_path, text, code) -> None:
    path = with_weights(written(tmp_path, text, "config.yaml"))
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == code
    found = open_checkpoint(path)
    assert (found.config, found.config_path) == ({}, None)
    assert f"config.yaml beside the file was not read: {caught.value.fact}" in found.notes


def test_hyper_parameters_in_the_file_are_the_config_of_last_resort(tmp_path) -> None:
    stated = {"n_layers": 2, "net": {"_target_": "a.B", "rate": 0.5}}
    path = with_weights(tmp_path, hyper_parameters=stated)
    found = open_checkpoint(path)
    assert (found.config, found.config_path) == (stated, None)
    assert "settings were read from hyper_parameters in the file" in found.notes
    written(tmp_path, "n_layers: 3\n", "hparams.yaml")
    assert open_checkpoint(path).config == {"n_layers": 3}


@pytest.mark.parametrize("stated", [{"d_model": 10**9}, "words"])
def test_hyper_parameters_that_cannot_be_settings_are_left_aside(tmp_path, stated) -> None:
    with_weights(tmp_path, hyper_parameters=stated)
    found = open_checkpoint(tmp_path)
    assert found.config == {}
    assert any(n.startswith("hyper_parameters in the file were not read: ") for n in found.notes)


@pytest.mark.shared
def test_every_reference_has_its_settings(shared, tmp_path) -> None:
    for family in ("curse_of_memory", "stablessm", "s4_v4_lightning"):
        folders = sorted(path.parent for path in (shared / "fixtures" / family).glob("*/last.ckpt"))
        assert folders
        for folder in folders:
            stated = yaml.safe_load((folder / "config.yaml").read_text())
            for source in (folder, folder / "last.ckpt"):
                found = open_checkpoint(source)
                assert found.config == stated
                assert found.config_path == folder / "config.yaml"
    alone = tmp_path / "last.ckpt"  # without its config.yaml
    folder = shared / "fixtures/s4_v4_lightning/nplr_omegaconf"
    alone.write_bytes((folder / "last.ckpt").read_bytes())
    assert open_checkpoint(alone).config == open_checkpoint(folder).config


# -- Whatever a config holds, nothing but a SourceError comes out.

NUMBERS = st.none() | st.booleans() | st.integers() | st.floats()
TEXTS = st.text(max_size=8) | st.sampled_from(["auto", "NaN", "org/name", "<<", "!!set", "*a"])
KEYS = st.text(max_size=8) | st.sampled_from(
    [
        *("vocab_size", "hidden_size", "num_hidden_layers", "n_layer", "intermediate_size"),
        *("model_type", "text_config", "depths", "layers", "num_labels", "head_dim", "expand"),
        *("auto_map", "__dict__", "__float__", "_private", "quantization_config", "id2label"),
    ]
)
VALUES = st.recursive(
    NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
LETTERS = """{}[]":,0123456789.eE+-\\unaltrsf &*!<|>?\n'#%~_"""


@given(
    st.dictionaries(KEYS, VALUES, max_size=6).map(lambda values: json.dumps(values).encode())
    | st.dictionaries(KEYS, VALUES, max_size=6).map(lambda values: yaml.dump(values).encode())
    | st.text(alphabet=LETTERS).map(str.encode)
    | st.binary(max_size=40)
)
@settings(max_examples=200, deadline=None)
def test_whatever_the_text_is_it_is_plain_data_or_refused(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        for name in ("config.yaml", "config.json"):
            (Path(folder) / name).write_bytes(data)
            with suppress(SourceError):
                config = open_config(Path(folder))
                assert config.values == json.loads(json.dumps(config.values))
                for tensors in (NOTHING, SMALL):
                    check_config(config, tensors)
