"""Whatever a config holds, nothing but a SourceError comes out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.errors import SourceError
from memaudit.loading.configs import Config, check_config, clean_config, parse_config

NAME = "config.json"
KEYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "n_layer", "intermediate_size"),
    *("model_type", "text_config", "depths", "layers", "num_labels", "head_dim", "expand"),
    *("auto_map", "__dict__", "__float__", "_private", "quantization_config", "id2label"),
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["auto", "NaN", "org/name", "hf-hub:org/name"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), JSON_VALUES, max_size=6))
@settings(max_examples=300, deadline=None)
def test_whatever_a_config_holds_it_passes_or_is_refused(values: dict[str, Any]) -> None:
    with suppress(SourceError):
        read = parse_config(json.dumps(values).encode(), name=NAME)
        kept, _ = clean_config(read, name=NAME)
        assert clean_config(kept, name=NAME) == (kept, ())
        for tensors in ({}, {"weight": torch.zeros(64, 16)}):
            check_config(Config(None, kept, ()), tensors)


@given(
    st.binary(max_size=40) | st.text(alphabet='{}[]":,0123456789.eE+-\\unaltrsf ').map(str.encode)
)
def test_whatever_the_text_is_it_is_read_or_refused(data: bytes) -> None:
    with suppress(SourceError):
        assert isinstance(parse_config(data, name=NAME), dict)
