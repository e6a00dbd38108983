"""What a config can make a library fetch, import or run is left out, and said."""

from __future__ import annotations

from typing import Any

import pytest

from memaudit.errors import SourceError
from memaudit.loading.configs import clean_config

#: What makes transformers or timm load code or files, or brings back what was left out.
HOSTILE: dict[str, Any] = {
    "auto_map": {"AutoModel": "modeling_evil.Evil"},
    "trust_remote_code": True,
    "custom_pipelines": {"evil": {"impl": "evil.Evil"}},
    "_attn_implementation": "org/kernel",
    "attn_implementation": "org/kernel@main:run",
    "_attn_implementation_internal": "org/kernel",
    "experts_implementation": "org/kernel",
    "_experts_implementation_internal": "org/kernel",
    "kernel_config": {"RMSNorm": "org/kernel:Norm"},
    "use_kernels": True,
    "fusion_config": {"patch": True},
    "base_model_name_or_path": "org/base",
    "transformers_weights": "../../x.safetensors",
    "configuration_files": ["config.4.0.0.json"],
    "peft_config": {"default": {"base_model_name_or_path": "org/base"}},
    "checkpoint_path": "/x.pth",
    "pretrained_cfg_overlay": {"file": "/x.pth"},
    "architecture": "hf-hub:org/name",
    "backbone": "org/name",
    "attribute_map": {"_attn_implementation_internal": "harmless"},
    "sub_configs_defaults": {},
    "base_model_tp_plan": {"layers.*": "colwise"},
    "__dict__": {"_attn_implementation_internal": "org/kernel"},
    "__class__": "type",
    "_private": "org/kernel",
}


@pytest.mark.parametrize("key", HOSTILE)
@pytest.mark.parametrize(
    "around",
    [
        lambda values: values,
        lambda values: {"text_config": {"decoder": values}},
        lambda values: {"parts": [[values]]},
    ],
    ids=["top", "nested", "in a list"],
)
def test_a_hostile_key_is_left_out_at_every_depth(key: str, around) -> None:
    config = around({key: HOSTILE[key], "hidden_size": 8})
    kept, notes = clean_config(config, name="config.json")
    assert kept == around({"hidden_size": 8})
    if HOSTILE[key]:
        assert len(notes) == 1
        assert notes[0].startswith("config.json: ")
        assert f"{key} was left out: it " in notes[0]


def test_the_sentence_names_the_key_and_the_reason() -> None:
    config = {"auto_map": {"a": "b"}, "vision_config": {"auto_map": {"a": "b"}}}
    assert clean_config(config, name="config.json")[1] == (
        "config.json: auto_map, vision_config.auto_map were left out: "
        "they name code in the repository",
    )


def test_hostile_names_are_cleaned_in_the_sentence() -> None:
    _, notes = clean_config({"evil\x1b[31m\n": {"auto_map": {"a": "b"}}}, name="config.json")
    assert "\x1b" not in notes[0]
    assert "\n" not in notes[0]


def test_what_every_library_writes_is_left_out_without_a_word() -> None:
    config = {"_name_or_path": "org/name", "auto_map": None, "use_pretrained_backbone": False}
    assert clean_config(config, name="config.json") == ({}, ())


def test_private_sizes_and_flags_stay() -> None:
    config = {"_remove_final_layer_norm": True, "_sliding_window_pattern": 6, "_frame_rate": None}
    assert clean_config(config, name="config.json") == (config, ())


def test_the_word_of_a_registry_stays() -> None:
    config = {"encoder": {"_name_": "linear"}, "layers": [{"_name_": "s4-v4.1"}]}
    assert clean_config(config, name="config.json") == (config, ())


@pytest.mark.parametrize("value", ["org/name", "hf-hub:name", "a b", "", "s4\n", ["s4"]])
def test_a_name_that_is_no_word_is_left_out(value: Any) -> None:
    assert clean_config({"model": {"_name_": value}}, name="config.json")[0] == {"model": {}}


def test_a_class_to_import_is_left_out_of_a_config_and_kept_of_settings() -> None:
    config = {"model": {"_target_": "src.models.Net"}}
    assert clean_config(config, name="config.json")[0] == {"model": {}}
    assert clean_config(config, name="settings", library=False)[0] == config


def test_names_of_classes_are_not_keys() -> None:
    config = {"label2id": {"__label__good": 0, "auto_map": 1}}
    assert clean_config(config, name="config.json") == (config, ())


def test_the_input_is_not_changed() -> None:
    config = {"text_config": {"auto_map": {"a": "b"}}}
    clean_config(config, name="config.json")
    assert config == {"text_config": {"auto_map": {"a": "b"}}}


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, "quantized (gptq)"),
        ({"load_in_8bit": True}, "quantized (bitsandbytes)"),
        ({"quant_method": "evil\x1b"}, "'evil'"),
        ({"bits": 4}, "'without a name'"),
        ("gptq", "quantized (gptq)"),
        ([1], "'[1]'"),
    ],
)
def test_quantized_weights_are_refused_by_their_kind(key: str, stated: Any, words: str) -> None:
    for config in ({key: stated}, {"text_config": [{key: stated}]}):
        with pytest.raises(SourceError) as caught:
            clean_config(config, name="config.json")
        assert caught.value.code == "E_UNSUPPORTED"
        assert words in caught.value.fact
        assert caught.value.hint


@pytest.mark.parametrize("nothing", [None, {}])
def test_an_empty_quantization_is_none(nothing: object) -> None:
    assert clean_config({"quantization_config": nothing}, name="config.json")[1] == ()


def test_transformers_builds_no_foreign_kernel_from_a_cleaned_config() -> None:
    transformers = pytest.importorskip("transformers")
    hostile = {"harmless": "org/kernel", **HOSTILE, "vocab_size": 16}
    cleaned, _ = clean_config(hostile, name="config.json")
    config = transformers.LlamaConfig(**cleaned)
    assert config._attn_implementation is None
    assert config._experts_implementation is None
    assert config.vocab_size == 16
    assert not hasattr(config, "auto_map")
    assert not hasattr(config, "transformers_weights")


def test_every_kind_of_quantization_that_transformers_reads_is_known() -> None:
    pytest.importorskip("transformers")
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    for method in AUTO_QUANTIZATION_CONFIG_MAPPING:
        name = "bitsandbytes" if method.startswith("bitsandbytes") else method
        with pytest.raises(SourceError, match="quantized") as caught:
            clean_config({"quantization_config": {"quant_method": name}}, name="config.json")
        assert f"({name})" in caught.value.fact
