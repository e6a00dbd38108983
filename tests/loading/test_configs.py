"""Configs and trainers' settings beside the weights: read, cleaned, compared with the weights."""

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
    DEEPEST,
    FREE_LABELS,
    FREE_LAYERS,
    FREE_NUMBERS,
    FREE_SIDE,
    LARGEST_CONFIG,
    LARGEST_YAML,
    SETTINGS_NAMES,
    Config,
    check_config,
    open_config,
)

# -- A config.json is an object of plain values, or a sentence.


def written(folder: Path, text: bytes | str, name: str = "config.json") -> Path:
    """The folder, with a file in it."""
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def refusal(folder: Path) -> SourceError:
    """The error that opening the config ends in."""
    with pytest.raises(SourceError) as caught:
        open_config(folder)
    assert caught.value.hint
    return caught.value


def nested(depth: int) -> str:
    """An object with lists in it, so deep altogether."""
    return '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{not json", "is not JSON"),
        (b"", "is not JSON"),
        (b'{"n": 1} {"n": 2}', "is not JSON"),
        (b"null", "holds null"),
        (b"[1]", "holds a list"),
        (b"true", "holds a bool"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"n": NaN}', "holds NaN"),
        (b'{"n": ["\\ud800"]}', "no text"),
        (b'{"n": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"n": {"__float__": "NaN"}}', "holds NaN"),
        (nested(200_000).encode(), "nested"),
        (nested(DEEPEST + 1).encode(), "nested"),
        (b'{"n": 1, "n": 2}', "'n' twice"),
        (b'{"inner": [{"n": 1, "n": true}]}', "'n' twice"),
    ],
)
def test_a_broken_config_is_one_sentence(tmp_path: Path, text: bytes, words: str) -> None:
    error = refusal(written(tmp_path, text))
    assert error.code == "E_CONFIG"
    assert words in error.fact


def test_a_key_that_is_only_repeated_is_forgiven(tmp_path: Path) -> None:
    assert open_config(written(tmp_path, '{"n": [1], "n": [1]}')).values == {"n": [1]}


def test_the_deepest_nesting_that_is_allowed_is_read(tmp_path: Path) -> None:
    assert "a" in open_config(written(tmp_path, nested(DEEPEST))).values


def test_a_config_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    written(tmp_path, "{}")
    os.truncate(tmp_path / "config.json", LARGEST_CONFIG + 1)
    assert refusal(tmp_path).code == "E_LIMIT"


def test_a_byte_order_mark_is_forgiven(tmp_path: Path) -> None:
    assert open_config(written(tmp_path, b'\xef\xbb\xbf{"n": 1}')).values == {"n": 1}


@pytest.mark.parametrize("infinity", ["Infinity", '{"__float__": "Infinity"}'])
def test_infinity_is_a_value_that_real_configs_hold(tmp_path: Path, infinity: str) -> None:
    config = open_config(written(tmp_path, f'{{"time_step_limit": [0.0, {infinity}]}}'))
    assert config.values == {"time_step_limit": [0.0, float("inf")]}
    assert config.notes == ()


def test_without_a_config_there_are_no_values(tmp_path: Path) -> None:
    assert open_config(tmp_path) == Config(None, {}, ())


def test_the_path_of_the_config_is_kept(tmp_path: Path) -> None:
    assert open_config(written(tmp_path, "{}")).path == tmp_path / "config.json"


def test_a_config_outside_the_folder_is_refused(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    written(outside, '{"secret": 1}')
    (inside / "config.json").symlink_to(outside / "config.json")
    error = refusal(inside)
    assert error.code == "E_PATH"
    assert "secret" not in str(error)


def test_a_link_that_leads_nowhere_is_not_taken_for_no_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "gone.json")
    assert refusal(tmp_path).code == "E_NOT_FOUND"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(tmp_path: Path, make) -> None:
    make(tmp_path / "config.json")
    assert refusal(tmp_path).code == "E_PATH"


def test_an_adapter_without_its_base_is_refused_by_name(tmp_path: Path) -> None:
    base = {"base_model_name_or_path": "org/base\x1b[31m", "peft_type": "LORA"}
    written(tmp_path, json.dumps(base), "adapter_config.json")
    written(tmp_path, b"weights", "adapter_model.safetensors")
    written(tmp_path, b"weights", "optimizer.pt")
    error = refusal(tmp_path)
    assert error.code == "E_UNSUPPORTED"
    assert "org/base[31m" in error.fact
    assert "merge" in error.hint


def test_an_adapter_beside_whole_weights_is_not_applied_and_said(tmp_path: Path) -> None:
    written(tmp_path, "no JSON at all", "adapter_config.json")
    written(tmp_path, b"weights", "model.safetensors")
    config = open_config(written(tmp_path, '{"n": 1}'))
    assert config.values == {"n": 1}
    assert config.notes == (
        "adapter_config.json was not read: the adapter is not applied to the weights",
    )


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": "evil\x1b"}, "evil"),
        ({"bits": 4}, "without a name"),
        ("gptq", "gptq"),
        ([1], "[1]"),
    ],
)
def test_quantized_weights_are_refused_by_their_kind(
    tmp_path: Path, key: str, stated: Any, words: str
) -> None:
    for config in ({key: stated}, {"text_config": [{key: stated}]}):
        error = refusal(written(tmp_path, json.dumps(config)))
        assert error.code == "E_UNSUPPORTED"
        assert f"quantized ({words})" in error.fact


@pytest.mark.parametrize("nothing", [None, {}])
def test_an_empty_quantization_is_none(tmp_path: Path, nothing: object) -> None:
    stated = {"quantization_config": nothing}
    assert open_config(written(tmp_path, json.dumps(stated))).values == stated


def test_a_config_is_read_as_it_stands(tmp_path: Path) -> None:
    """What a library is handed of it is for the plugin that builds the model to say."""
    stated = {"auto_map": {"AutoModel": "a.B"}, "model": {"_name_": "s4", "_target_": "a.B"}}
    config = open_config(written(tmp_path, json.dumps(stated)))
    assert (config.values, config.notes) == (stated, ())


# -- A config that asks for more than the weights hold is refused before anything is built.

SMALL = {"weight": torch.zeros(64, 16)}
NOTHING: dict[str, Tensor] = {}
SIZES = (
    *("vocab_size", "hidden_size", "d_model", "n_embd", "num_hidden_layers", "n_layer"),
    *("num_attention_heads", "intermediate_size", "state_size", "d_state", "conv_kernel"),
    *("time_step_rank", "max_position_embeddings"),
)


def check(values: dict[str, Any], tensors: dict[str, Tensor] = SMALL) -> None:
    check_config(Config(None, values, ()), tensors)


def budget_refusal(values: dict[str, Any], tensors: dict[str, Tensor] = SMALL) -> SourceError:
    with pytest.raises(SourceError) as caught:
        check(values, tensors)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-16, "-16"),
        (0, "0"),
        ("16", '"16"'),
        (16.5, "16.5"),
        (True, "true"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_what_is_no_size_is_named_with_its_key(key: str, value: Any, shown: str) -> None:
    for values, where in (({key: value}, ""), ({"text_config": {key: value}}, "text_config.")):
        error = budget_refusal(values)
        assert error.code == "E_CONFIG"
        assert f"{where}{key} is {shown}," in error.fact


@pytest.mark.parametrize("value", [None, [16]])
def test_a_width_is_one_number(value: object) -> None:
    assert budget_refusal({"hidden_size": value}).code == "E_CONFIG"


@pytest.mark.parametrize(
    "values",
    [
        {"vocab_size": None},
        {"time_step_rank": "auto"},
        {"intermediate_size": [64, 64]},
        {"num_hidden_layers": {"vision": 5, "language": 9}},
        {"expand": 1.5},
        {"hidden_size": 16.0},
        {"head_dim": 0, "num_labels": 0, "type_vocab_size": 0},
        {"layers": ["lstm", "linear"], "hidden": "relu", "vocab": "words.txt"},
    ],
)
def test_honest_configs_are_left_alone(values: dict[str, Any]) -> None:
    check(values)
    check({"model_type": "odd", "text_config": values})


@pytest.mark.parametrize("tensors", [SMALL, NOTHING], ids=["small", "none"])
@pytest.mark.parametrize(
    "values",
    [
        {"vocab_size": 400_000_000, "hidden_size": 64},
        {"vocab_size": 4e8, "hidden_size": 64},
        {"vocab_size": 400_000_000},
        {"hidden_size": 10**9},
        {"n_layer": 10**6, "n_embd": 16},
        {"layers": 10**6},
        {"model_type": "swin", "depths": [10**5, 10**5]},
        {"model_type": "bert", "num_labels": 10**9},
        {"model_type": "odd", "moe_intermediate_size": 10**9},
        {"model_type": "odd", "codebook_dim": float("inf")},
        {"max_position_embeddings": 10**9},
        {"hidden_size": 10**299},
        {"text_config": {"decoder": {"vocab_size": 400_000_000, "d_model": 64}}},
        {"parts": [{"vocab_size": 400_000_000, "d_model": 64}]},
    ],
)
def test_a_config_that_asks_for_too_much_is_refused(
    values: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    error = budget_refusal(values, tensors)
    assert error.code == "E_LIMIT"
    assert len(str(error)) < 400


def test_the_refusal_says_what_is_asked_and_what_is_there() -> None:
    error = budget_refusal({"vocab_size": 400_000_000 // 64, "hidden_size": 64 * 64})
    assert "vocab_size 6250000 x hidden_size 4096" in error.fact
    assert f"the weights hold {64 * 16} numbers" in error.fact


def test_the_weights_that_are_there_pay_for_what_is_asked() -> None:
    """An expanded tensor counts as many numbers as a stored one, and takes no memory."""
    rows, width = 1 << 20, 1 << 10
    values = {"vocab_size": rows, "hidden_size": width}
    assert budget_refusal(values).code == "E_LIMIT"
    check(values, {"table": torch.zeros(1).expand(rows, width)})


def test_layers_are_paid_for_by_tensors() -> None:
    values = {"n_layer": FREE_LAYERS + 1}
    assert budget_refusal(values).code == "E_LIMIT"
    check({"n_layer": FREE_LAYERS})
    check(values, {str(n): torch.zeros(1) for n in range(FREE_LAYERS + 1)})


def test_a_side_that_a_tensor_has_is_allowed() -> None:
    for key, free in (("max_position_embeddings", FREE_SIDE), ("num_labels", FREE_LABELS)):
        values = {"model_type": "odd", key: free + 1}
        assert budget_refusal(values).code == "E_LIMIT"
        check(values, {"table": torch.zeros(1).expand(free + 1)})


def test_a_factorised_embedding_is_not_taken_for_a_bomb() -> None:
    """The sizes of ALBERT xlarge: its layers share one set of weights."""
    vocabulary, embedding, hidden, wide = 30_000, 128, 2048, 8192
    assert vocabulary * hidden < FREE_NUMBERS
    shapes = [(vocabulary, embedding), (embedding, hidden), (hidden, wide), (wide, hidden)]
    shapes += [(hidden, hidden)] * 4
    tensors = {str(n): torch.zeros(1).expand(shape) for n, shape in enumerate(shapes)}
    sizes = {"vocab_size": vocabulary, "embedding_size": embedding, "hidden_size": hidden}
    check({"intermediate_size": wide, "num_hidden_layers": 24, **sizes}, tensors)


@pytest.mark.shared
@pytest.mark.parametrize("tensors", [SMALL, NOTHING], ids=["small", "none"])
def test_the_configs_of_the_reference_checkpoints_pass(
    shared: Path, tensors: dict[str, Tensor]
) -> None:
    folders = sorted({p.parent for p in (shared / "fixtures").glob("*/*/config.json")})
    assert folders
    for folder in folders:
        config = open_config(folder)
        assert config.notes == ()
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


@pytest.mark.filterwarnings("ignore")
def test_every_default_config_of_transformers_passes() -> None:
    pytest.importorskip("transformers")
    checked = 0
    for values in default_configs():
        check(values, NOTHING)
        checked += 1
    assert checked > 300


# -- A trainer's settings in YAML are plain values, or a sentence; nothing in them is built.

REFERENCES = ("curse_of_memory", "stablessm", "s4_v4_lightning")


def written_yaml(folder: Path, text: str | bytes, name: str = "config.yaml") -> Path:
    """The folder, with settings in it."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def with_weights(folder: Path, **beside: object) -> Path:
    torch.save({"state_dict": {"w": torch.ones(2)}, **beside}, folder / "last.ckpt")
    return folder / "last.ckpt"


def stated(folder: Path, text: str) -> dict[str, Any]:
    """What the settings of this text are."""
    return open_config(written_yaml(folder, text)).values


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *[(word, None) for word in ("", "~", "null", "NULL")],
        *[(word, True) for word in ("true", "True", "yes", "ON")],
        *[(word, False) for word in ("false", "no", "Off")],
        *[("7", 7), ("-3", -3), ("+3", 3), ("0", 0), ("1_000", 1000), ("0x1F", 31)],
        *[("012", 10), ("0b1", 1), ("1:30", 90), ("!!int '7'", 7), ("! 7", 7)],
        *[("0.33", 0.33), ("1e-3", 0.001), ("1.", 1.0), (".5", 0.5), ("-1.5E+2", -150.0)],
        *[("1e5", 1e5), ("2.5e4", 2.5e4), (".inf", math.inf), ("-.Inf", -math.inf)],
        *[(word, word) for word in ("2020-01-01", "2020-01-01T10:00:00Z", "inf", "0x", "1e")],
        *[(word, word) for word in (".", "_1", "1__x", "${a.b}", "???", "=")],
        *[("'7'", "7"), ('"yes"', "yes"), ("!!str 7", "7")],
    ],
)
def test_a_word_stands_for_what_a_trainer_means(tmp_path: Path, word: str, value: Any) -> None:
    found = stated(tmp_path, f"a: {word}\n")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_mappings_lists_and_texts_are_what_the_library_reads(tmp_path: Path) -> None:
    text = "a: {b: [1, two, {c: 3}]}\nd:\n- 1\n-\n  - 2\n1: x\n"
    text += "e: |\n  long\n  text\nf: >\n  so\n  so\n"
    found = stated(tmp_path, text)
    assert found.pop("1") == "x"
    assert found == {key: value for key, value in yaml.safe_load(text).items() if key != 1}


def test_repeated_parts_and_merged_ones_are_filled_in(tmp_path: Path) -> None:
    text = "a: &x {n: 1, m: [1]}\nb: *x\nc: {<<: *x, n: 2}\nd: {<<: [{k: 0}, *x]}\n'<<': 3\n"
    found = stated(tmp_path, text)
    assert found["b"] == found["a"] == {"n": 1, "m": [1]}
    assert found["c"] == {"n": 2, "m": [1]}
    assert found["d"] == {"k": 0, "n": 1, "m": [1]}
    assert found["<<"] == 3


@pytest.mark.parametrize("text", ["", "# a remark\n", "---\n", "{}", "null"])
def test_an_empty_file_states_nothing(tmp_path: Path, text: str) -> None:
    assert stated(tmp_path, text) == {}


def test_a_byte_order_mark_in_yaml_is_forgiven(tmp_path: Path) -> None:
    assert stated(tmp_path, "\ufeffn: 1") == {"n": 1}


def test_a_tuple_of_lightning_is_a_list(tmp_path: Path) -> None:
    assert stated(tmp_path, yaml.dump({"betas": (0.9, 0.99)})) == {"betas": [0.9, 0.99]}


def test_what_names_code_is_left_out_and_said(tmp_path: Path) -> None:
    text = (
        "n: 1\nlayer: {act: !!python/name:os.system '', d: 2}\n"
        "run: !!python/object/apply:os.system ['touch canary']\n"
        "list: [1, !!python/object:evil.Evil {a: 1}, 3]\nown: !mine 4\nkeys: !!set {a, b}\n"
    )
    config = open_config(written_yaml(tmp_path, text))
    assert config.values == {"n": 1, "layer": {"d": 2}, "list": [1, None, 3]}
    assert config.notes[1:] == (
        "config.yaml: left out, for a tag that is not plain YAML: layer.act, run, list, own, keys",
    )


KEYS_OF_MANY = ", ".join(f"k{i}: {i}" for i in range(1000))
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
        ("a: *b\n", "undefined alias"),
        ("a: {<<: 3}\n", "for merging"),
        ("a: .nan\n", "holds NaN"),
        ("a: !!bool perhaps\n", "is not YAML"),
        (f"a: &a {{{KEYS_OF_MANY}}}\nl: [{', '.join(['{<<: *a}'] * 5000)}]\n", "unfolds"),
        (f"a: {{<<: [&x {{{KEYS_OF_MANY}}}, {', '.join(['*x'] * 5000)}]}}\n", "unfolds"),
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
def test_broken_settings_are_one_sentence(tmp_path: Path, text: str | bytes, words: str) -> None:
    error = refusal(written_yaml(tmp_path, text))
    assert error.code == "E_CONFIG"
    assert error.fact.startswith("config.yaml ")
    assert words in error.fact


def test_the_deepest_yaml_that_is_allowed_is_read(tmp_path: Path) -> None:
    assert stated(tmp_path, "a: " + "[" * (DEEPEST - 1) + "1" + "]" * (DEEPEST - 1))


def test_a_yaml_key_that_is_only_repeated_is_forgiven(tmp_path: Path) -> None:
    assert stated(tmp_path, "a: [1]\na: [1]\n") == {"a": [1]}


@pytest.mark.parametrize("name", SETTINGS_NAMES)
@pytest.mark.parametrize("direct", [True, False], ids=["file", "folder"])
def test_settings_beside_the_weights_are_the_config(tmp_path, name, direct):
    path = with_weights(written_yaml(tmp_path, "model: {_target_: a.B, _name_: s4, n: 1}\n", name))
    found = open_checkpoint(path if direct else tmp_path)
    assert found.config == {"model": {"_target_": "a.B", "_name_": "s4", "n": 1}}
    assert found.config_path == tmp_path / name
    assert found.library_config == {}
    assert f"settings were read from {name} beside the weights" in found.notes


def test_the_first_of_several_counts_and_the_others_are_said(tmp_path):
    for name in reversed(SETTINGS_NAMES):
        written_yaml(tmp_path, f"from: {name}\n", name)
    config = open_config(tmp_path)
    assert config.values == {"from": "config.yaml"}
    assert config.notes == (
        "settings were read from config.yaml beside the weights; "
        "not config.yml, .hydra/config.yaml, hparams.yaml",
    )


def test_a_config_json_counts_alone(tmp_path):
    written_yaml(tmp_path, "a: [broken", "config.yaml")
    written_yaml(tmp_path, json.dumps({"_target_": "a.B", "n": 1}), "config.json")
    config = open_config(tmp_path)
    assert config.values == {"_target_": "a.B", "n": 1}
    assert open_checkpoint(with_weights(tmp_path)).library_config == config.values


@pytest.mark.parametrize(
    ("text", "code"),
    [("- 1", "E_CONFIG"), ("a: 1\na: 2", "E_CONFIG"), ("net: {d_model: 1000000000}", "E_LIMIT")],
)
def test_odd_settings_refuse_their_folder_but_no_file_that_is_named(tmp_path, text, code):
    path = with_weights(written_yaml(tmp_path, text))
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == code
    found = open_checkpoint(path)
    assert (found.config, found.config_path) == ({}, None)
    assert f"config.yaml beside the file was not read: {caught.value.fact}" in found.notes


def test_references_and_gaps_are_no_sizes_of_a_trainer(tmp_path):
    text = "d_model: ${net.width}\nhidden_size: ???\nn_layers: null\nvocab_size: -1\n"
    path = with_weights(written_yaml(tmp_path, text))
    assert open_checkpoint(path).config["d_model"] == "${net.width}"


def test_settings_beyond_the_limit_are_not_read(tmp_path):
    os.truncate(written_yaml(tmp_path, "") / "config.yaml", LARGEST_YAML + 1)
    with pytest.raises(SourceError) as caught:
        open_config(tmp_path)
    assert caught.value.code == "E_LIMIT"


@pytest.mark.parametrize("link", ["config.yaml", ".hydra/config.yaml", ".hydra"])
def test_settings_outside_the_folder_are_not_read(tmp_path, link):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    written_yaml(outside, "secret: 1")
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
    written_yaml(tmp_path, "n_layers: 3\n", "hparams.yaml")
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


# -- Whatever a config holds, nothing but a SourceError comes out.

NUMBERS = st.none() | st.booleans() | st.integers() | st.floats()
WORDS = st.text(max_size=8) | st.sampled_from(["auto", "NaN", "org/name", "<<", "!!set", "*a"])
KEYS = st.text(max_size=8) | st.sampled_from(
    [
        *("vocab_size", "hidden_size", "num_hidden_layers", "n_layer", "intermediate_size"),
        *("model_type", "text_config", "depths", "layers", "num_labels", "head_dim", "expand"),
        *("auto_map", "__dict__", "__float__", "_private", "quantization_config", "id2label"),
    ]
)
VALUES = st.recursive(
    NUMBERS | WORDS,
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
@settings(max_examples=300, deadline=None)
def test_whatever_the_text_is_it_is_plain_data_or_refused(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        for name in ("config.yaml", "config.json"):
            (Path(folder) / name).write_bytes(data)
            with suppress(SourceError):
                config = open_config(Path(folder))
                assert config.values == json.loads(json.dumps(config.values))
                for tensors in (NOTHING, SMALL):
                    check_config(config, tensors)
