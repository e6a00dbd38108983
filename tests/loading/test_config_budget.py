"""A config that asks for more than the weights hold is refused before anything is built."""

from __future__ import annotations

import inspect
import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from memaudit.errors import SourceError
from memaudit.loading.configs import (
    FREE_LABELS,
    FREE_LAYERS,
    FREE_NUMBERS,
    FREE_SIDE,
    Config,
    check_config,
    clean_config,
    open_config,
)

SMALL = {"weight": torch.zeros(64, 16)}
NOTHING: dict[str, Tensor] = {}
SIZES = (
    *("vocab_size", "hidden_size", "d_model", "n_embd", "num_hidden_layers", "n_layer"),
    *("num_attention_heads", "intermediate_size", "state_size", "d_state", "conv_kernel"),
    *("time_step_rank", "max_position_embeddings"),
)


def check(values: dict[str, Any], tensors: dict[str, Tensor] = SMALL) -> None:
    check_config(Config(None, values, ()), tensors)


def refusal(values: dict[str, Any], tensors: dict[str, Tensor] = SMALL) -> SourceError:
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
        ("16", "'16'"),
        (16.5, "16.5"),
        (True, "true"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_what_is_no_size_is_named_with_its_key(key: str, value: Any, shown: str) -> None:
    for values, where in (({key: value}, ""), ({"text_config": {key: value}}, "text_config.")):
        error = refusal(values)
        assert error.code == "E_CONFIG"
        assert f"{where}{key} is {shown}," in error.fact


@pytest.mark.parametrize("value", [None, [16]])
def test_a_width_is_one_number(value: object) -> None:
    assert refusal({"hidden_size": value}).code == "E_CONFIG"


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
    error = refusal(values, tensors)
    assert error.code == "E_LIMIT"
    assert len(str(error)) < 400


def test_the_refusal_says_what_is_asked_and_what_is_there() -> None:
    error = refusal({"vocab_size": 400_000_000 // 64, "hidden_size": 64 * 64})
    assert "vocab_size 6250000 x hidden_size 4096" in error.fact
    assert f"the weights hold {64 * 16} numbers" in error.fact


def test_the_weights_that_are_there_pay_for_what_is_asked() -> None:
    """An expanded tensor counts as many numbers as a stored one, and takes no memory."""
    rows, width = 1 << 20, 1 << 10
    values = {"vocab_size": rows, "hidden_size": width}
    assert refusal(values).code == "E_LIMIT"
    check(values, {"table": torch.zeros(1).expand(rows, width)})


def test_layers_are_paid_for_by_tensors() -> None:
    values = {"n_layer": FREE_LAYERS + 1}
    assert refusal(values).code == "E_LIMIT"
    check({"n_layer": FREE_LAYERS})
    check(values, {str(n): torch.zeros(1) for n in range(FREE_LAYERS + 1)})


def test_a_side_that_a_tensor_has_is_allowed() -> None:
    for key, free in (("max_position_embeddings", FREE_SIDE), ("num_labels", FREE_LABELS)):
        values = {"model_type": "odd", key: free + 1}
        assert refusal(values).code == "E_LIMIT"
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


def default_configs() -> Iterator[tuple[str, dict[str, Any]]]:
    """The default of every config class in transformers, as it would be written to a file."""
    models = import_module("transformers.models")
    root = import_module("transformers").PreTrainedConfig
    strict = import_module("huggingface_hub.errors").StrictDataclassError
    for found in pkgutil.walk_packages(models.__path__, "transformers.models."):
        if not found.name.rpartition(".")[2].startswith("configuration_"):
            continue
        module = import_module(found.name)
        for name, kind in vars(module).items():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and issubclass(kind, root):
                try:
                    yield name, json.loads(kind().to_json_string(use_diff=False))
                except (TypeError, ValueError, strict):
                    continue  # a class that needs arguments has no default


@pytest.mark.filterwarnings("ignore")
def test_every_default_config_of_transformers_passes() -> None:
    pytest.importorskip("transformers")
    checked = 0
    for name, values in default_configs():
        kept, _ = clean_config(values, name=name)
        check(kept, NOTHING)
        checked += 1
    assert checked > 300
