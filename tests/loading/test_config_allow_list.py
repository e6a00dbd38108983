"""A library is handed what its config class declares: nothing is lost, and nothing leads out."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memaudit.errors import SourceError
from memaudit.loading.configs import open_config
from memaudit_transformers.building import _make_config
from tests.plugins.transformers_families import FAMILIES, Family

transformers = pytest.importorskip("transformers")

#: What names code, kernels, files or repositories, or would bring such a thing back.
HOSTILE: dict[str, Any] = {
    "auto_map": {"AutoModel": "modeling_evil.Evil"},
    "trust_remote_code": True,
    "custom_pipelines": {"evil": {"impl": "evil.Evil"}},
    "_attn_implementation": "flash_attention_2",
    "attn_implementation": "evil/kernel@main:run",
    "_attn_implementation_internal": "evil/kernel",
    "experts_implementation": "evil/kernel",
    "_experts_implementation": "evil/kernel",
    "_experts_implementation_internal": "evil/kernel",
    "kernel_config": {"RMSNorm": "evil/kernel:Norm"},
    "use_kernels": True,
    "fusion_config": {"patch_embeddings": True},
    "distributed_config": {"enable_expert_parallel": True},
    "name_or_path": "evil/base",
    "base_model_name_or_path": "evil/base",
    "transformers_weights": "../../evil.safetensors",
    "configuration_files": ["config.4.0.0.json"],
    "peft_config": {"default": {"base_model_name_or_path": "evil/base"}},
    "checkpoint_path": "/evil.pth",
    "backbone": "resnet50",
    "attribute_map": {"_attn_implementation_internal": "hidden_act"},
    "sub_configs_defaults": {"evil": {}},
    "base_model_tp_plan": {"layers.*": "colwise"},
    "__dict__": {"_attn_implementation_internal": "evil/kernel"},
    "__class__": "type",
    "_private": "evil/kernel",
    "evil": "evil/kernel",
}
#: Written by every library, and not worth a sentence.
SILENT: dict[str, Any] = {
    "_name_or_path": "evil/base",
    "_commit_hash": "evil",
    "temperature": 2.0,
}


def handed(values: dict[str, Any]) -> tuple[Any, str]:
    """The config that the library is handed of these values, and what the report says of them."""
    config, notes = _make_config(copy.deepcopy(values))
    return config, " ".join(notes)


def parts(config: Any) -> Iterator[Any]:
    """A config and those inside it."""
    yield config
    for key in config.sub_configs:
        if (part := getattr(config, key, None)) is not None:
            yield from parts(part)


def leads_out(config: Any) -> list[str]:
    """What a config holds of the hostile values, at any depth."""
    found = []
    for part in parts(config):
        held = vars(part)
        found += [key for key in HOSTILE if held.get(key) == HOSTILE[key]]
        found += [key for key, value in held.items() if "evil" in repr(value)]
        found += [part._attn_implementation or "", part._experts_implementation or ""]
    return [word for word in found if word]


def as_saved(config: Any, folder: Path) -> dict[str, Any]:
    config.save_pretrained(folder)
    return open_config(folder).values


def test_a_setting_that_names_a_place_is_refused_and_a_separator_is_none() -> None:
    values = {"model_type": "bert", "hidden_act": "evil/kernel:act"}
    with pytest.raises(
        SourceError, match="hidden_act is 'evil/kernel:act', which names a"
    ) as caught:
        handed(values)
    assert caught.value.code == "E_CONFIG"
    found, said = handed({"model_type": "rag", "title_sep": " / ", "architectures": ["evil/Model"]})
    assert found.title_sep == " / "
    assert "architectures" in said


def of_the_library(values: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """What the library itself makes of a config that was saved."""
    return without_place(kind.from_dict(copy.deepcopy(values)))


def without_place(config: Any) -> dict[str, Any]:
    """A config as values, but for where it was loaded from."""
    return {key: value for key, value in config.to_dict().items() if "name_or_path" not in key}


@pytest.mark.parametrize(
    "family",
    [
        f if str(f) in ("mamba", "rwkv") else pytest.param(f, marks=pytest.mark.slow)
        for f in FAMILIES
    ],
    ids=str,
)
def test_a_recurrent_family_keeps_its_config_and_gets_no_hostile_key(
    family: Family, tmp_path: Path
) -> None:
    config = family.config()
    values = as_saved(config, tmp_path)
    # Sizes that the class of Mamba's config does not know were set for the attention of others.
    values = {key: values[key] for key in values if key in type(config)().to_dict()}
    found, said = handed(values)
    assert said == ""
    assert without_place(found) == of_the_library(values, type(config))
    found, said = handed({**values, **HOSTILE, **SILENT})
    assert leads_out(found) == []
    assert found.to_dict() == handed(values)[0].to_dict()
    assert "auto_map" in said
    assert "temperature" not in said


def test_every_model_of_text_keeps_what_it_saves() -> None:
    checked, changed = 0, set()
    for model_type, kind in text_configs():
        try:
            values = json.loads(kind().to_json_string())
            expected = of_the_library(values, kind)
        except Exception:  # a class that needs arguments has no default
            continue
        found, said = handed({**values, "model_type": model_type})
        checked += 1
        if said or without_place(found) != expected:
            changed.add(model_type)
    assert checked > 150
    # The first two name parts of another library, the third has configs that it does not declare.
    assert changed == {"layoutlmv2", "layoutxlm", "rag"}


def text_configs() -> Iterator[tuple[str, type[Any]]]:
    """The config classes without others inside them whose models take tokens."""
    from memaudit_transformers.library import library

    auto = library("transformers.models.auto.configuration_auto")
    for model_type in auto.CONFIG_MAPPING_NAMES:
        kind = auto.CONFIG_MAPPING[model_type]
        if not kind.sub_configs and "vocab_size" in kind.__dataclass_fields__:
            yield model_type, kind
