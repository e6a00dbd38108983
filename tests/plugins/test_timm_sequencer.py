"""Sequencer2D is a host: its vertical and horizontal LSTMs are audited one by one."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from memaudit.errors import ArgumentError, SourceError
from memaudit_timm import TimmAdapter
from memaudit_timm.recurrent import choose_layers, in_blocks
from tests.plugins.timm_models import SCANNING, noise, opened, saved, sequencer, vit

LAYERS = [
    f"stages.{stage}.blocks.{block}.rnn_tokens.rnn_{axis}"
    for stage, block in ((0, 0), (0, 1), (0, 2), (1, 0))
    for axis in "vh"
]
ENDS = [name for name in LAYERS if ".blocks.1." not in name]


@pytest.fixture(scope="module")
def model() -> Any:
    return sequencer().double()


def test_every_part_answers_as_the_lstm_of_the_model(model: Any) -> None:
    host = opened(model, layers="all")
    assert list(host.parts()) == LAYERS
    for name, part in host.parts().items():
        lstm = model.get_submodule(name)
        assert part.input_size is not None
        inputs = noise(3, 11, part.input_size)
        with torch.no_grad():
            expected = lstm(inputs)[0]
        torch.testing.assert_close(part.respond(inputs), expected, rtol=1e-13, atol=1e-15)


def test_the_parts_together_are_the_two_dimensional_scan_of_timm(model: Any) -> None:
    """Rows through one part and columns through the other give what timm's own layer gives."""
    scan = model.stages[0].blocks[0].rnn_tokens
    parts = opened(model).parts()
    image = noise(2, 4, 5, 8)
    columns = image.transpose(1, 2).reshape(10, 4, 8)
    vertical = parts[LAYERS[0]].respond(columns).reshape(2, 5, 4, -1).transpose(1, 2)
    horizontal = parts[LAYERS[1]].respond(image.reshape(8, 5, 8)).reshape(2, 4, 5, -1)
    with torch.no_grad():
        mixed = scan.fc(torch.cat([vertical, horizontal], dim=-1))
        expected = scan(image)
    torch.testing.assert_close(mixed, expected)


def test_the_first_and_last_block_of_every_stage_are_audited_unless_asked(model: Any) -> None:
    host = opened(model)
    assert list(host.parts()) == ENDS
    assert host.identity.assumed["layers"].startswith("ends (6 of 8 recurrent layers")
    left = [note for note in host.identity.notes if note.startswith("not audited")]
    assert left == ["not audited (--set layers=all): stages.0.blocks.1"]


def test_the_coverage_is_the_share_of_the_audited_layers(model: Any) -> None:
    total = sum(p.numel() for p in model.parameters())
    for asked, names in (("all", LAYERS), ("ends", ENDS), (LAYERS[4], [LAYERS[4]])):
        identity = opened(model, layers=asked).identity
        lstms = [model.get_submodule(name) for name in names]
        share = sum(p.numel() for lstm in lstms for p in lstm.parameters())
        assert identity.coverage == share / total
        assert identity.parameters == total
        assert "layers" not in identity.assumed


def test_every_recurrence_is_listed_whether_audited_or_not(model: Any) -> None:
    listed = opened(model).identity.recurrences
    assert [r.layer for r in listed] == LAYERS
    assert {(r.cell, r.directions) for r in listed} == {("LSTM", 2)}
    assert [r.size for r in listed] == [3, 3, 3, 3, 3, 3, 5, 5]
    lstm = model.get_submodule(LAYERS[0])
    assert listed[0].parameters == sum(p.numel() for p in lstm.parameters())


def test_layers_of_a_stack_are_listed_one_by_one() -> None:
    model = sequencer(num_rnn_layers=2)
    listed = opened(model).identity.recurrences
    assert [r.layer for r in listed[:2]] == [f"{LAYERS[0]}.l0", f"{LAYERS[0]}.l1"]
    lstm = model.get_submodule(LAYERS[0])
    assert sum(r.parameters for r in listed[:2]) == sum(p.numel() for p in lstm.parameters())


def test_parts_say_over_how_many_patches_the_model_runs_them(model: Any) -> None:
    parts = opened(model).parts()
    assert parts[LAYERS[0]].identity.description == "bidirectional LSTM, 8 → 3, over 4 patches"
    assert parts[LAYERS[6]].identity.description == "bidirectional LSTM, 12 → 5, over 2 patches"


def test_a_single_layer_answers_for_the_host(model: Any) -> None:
    host = opened(model, layers=LAYERS[0])
    assert host.input_size == 8
    inputs = noise(1, 5, 8)
    assert torch.equal(host.respond(inputs), host.parts()[LAYERS[0]].respond(inputs))


def test_a_host_of_several_layers_does_not_answer(model: Any) -> None:
    host = opened(model)
    assert host.input_size is None
    with pytest.raises(SourceError, match="rows and columns") as error:
        host.respond(noise(1, 5, 8))
    assert error.value.code == "E_UNSUPPORTED"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("stages.1", LAYERS[6:]),
        ("stages.0.blocks.1, stages.1.blocks.0.rnn_tokens.rnn_h", [*LAYERS[2:4], LAYERS[7]]),
        ("all", LAYERS),
        ("ends", ENDS),
    ],
)
def test_layers_are_chosen_by_name_block_or_stage(asked: str, expected: list[str]) -> None:
    assert choose_layers(LAYERS, asked) == expected


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (LAYERS, "stages.0.blocks.0 to 2, stages.1.blocks.0"),
        (ENDS, "stages.0.blocks.0, stages.0.blocks.2, stages.1.blocks.0"),
        (LAYERS[1:4], f"{LAYERS[1]}, stages.0.blocks.1"),
        ([], ""),
    ],
)
def test_layers_are_listed_in_blocks(names: list[str], words: str) -> None:
    assert in_blocks(names, LAYERS) == words


@pytest.mark.parametrize("asked", ["stages.7", "stages.0.blocks.1.rnn", "", "all,ends"])
def test_layers_that_are_not_there_are_refused(asked: str) -> None:
    with pytest.raises(ArgumentError, match="no recurrent layer"):
        choose_layers(LAYERS, asked)


def test_options_of_patch_models_are_refused(model: Any) -> None:
    with pytest.raises(ArgumentError, match="shorter is for models of patches"):
        opened(model, shorter="fill")


def test_a_folder_answers_as_the_module_and_runs_in_float64(tmp_path: Path) -> None:
    model = sequencer()
    folder = saved(model, tmp_path / "model", SCANNING)
    host = opened(folder)
    assert host.identity.dtype == "float64"
    assert host.identity.family == "sequencer"
    for name, part in host.parts().items():
        assert part.input_size is not None
        inputs = noise(2, 6, part.input_size)
        lstm = copy.deepcopy(model.get_submodule(name)).double()
        with torch.no_grad():
            expected = lstm(inputs)[0]
        torch.testing.assert_close(part.respond(inputs), expected, rtol=1e-13, atol=1e-15)


def test_weights_of_a_part_are_those_that_answer(model: Any) -> None:
    part = opened(model).parts()[LAYERS[0]]
    before = part.respond(noise(1, 4, 8))
    with torch.no_grad():
        part.weights()["weight_hh_l0"].zero_()
    assert not torch.equal(part.respond(noise(1, 4, 8)), before)
    assert model.get_submodule(LAYERS[0]).weight_hh_l0.abs().sum() > 0


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
