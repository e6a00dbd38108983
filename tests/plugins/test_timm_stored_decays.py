"""Models of timm: what is recurrent in them is torch's own, and the modules are within reach."""

from __future__ import annotations

import re
from pathlib import Path

import timm

from memaudit_timm import TimmAdapter
from tests.plugins.timm_models import opened, sequencer, vit

#: How parameters of recurrences are called that are not torch's own.
SIGNS = re.compile(r"self\.(?:A_log|A_logs|dt_bias|time_decay|nu_log|Lambda)\b|nn\.(?:GRU|RNN)\(")


def test_timm_has_no_recurrence_besides_the_lstm_of_torch() -> None:
    sources = [*Path(timm.__file__).parent.rglob("*.py")]
    assert sources
    assert [path.name for path in sources if SIGNS.search(path.read_text("utf-8"))] == []


def test_the_adapter_of_timm_leaves_recurrences_to_that_of_torch() -> None:
    assert tuple(TimmAdapter().stored_decays(sequencer())) == ()


def test_the_whole_sequencer_and_each_of_its_layers_are_within_reach() -> None:
    host = opened(sequencer())
    whole = host.live_modules()[""]
    for name, part in host.parts().items():
        assert part.live_modules()[""] is whole.get_submodule(name)


def test_a_vision_transformer_is_within_reach() -> None:
    subject = opened(vit())
    own = dict(subject.live_modules()[""].named_parameters())
    for name, weight in subject.weights().items():
        assert own[name].data_ptr() == weight.data_ptr()
