"""The parts of a host: in natural order, and chosen by the option layers, in every adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import memaudit
from memaudit.cli import main
from memaudit.errors import ArgumentError
from memaudit.report import Report
from memaudit.subjects.hosts import choose_parts, natural_order, read_layers
from tests.plugins.ssm_models import draw, mixer

NUMBERS = (0, 1, 2, 10, 11)


def recurrent() -> dict[str, Tensor]:
    return {
        f"blocks.{number}.lstm.{name}": tensor
        for number in NUMBERS
        for name, tensor in nn.LSTM(2, 3).state_dict().items()
    }


def selective() -> dict[str, Tensor]:
    return {k: v for number in NUMBERS for k, v in mixer(f"blocks.{number}.mamba.").items()}


def diagonal() -> dict[str, Tensor]:
    """Layers of LRU whose model is not known."""
    names = ("nu_log", "theta_log", "gamma_log")
    return {
        f"blocks.{number}.lru.{name}": tensor.abs()
        for number in NUMBERS
        for name, tensor in {
            **{name: draw(4) for name in names},
            **{name: draw(4, 3) for name in ("B_re", "B_im")},
            **{name: draw(3, 4) for name in ("C_re", "C_im")},
            "D": draw(3),
        }.items()
    } | {"unknown.weight": draw(2, 2)}


HOSTS = {"rnn": (recurrent, "lstm"), "scans": (selective, "mamba"), "family": (diagonal, "lru")}


def written(name: str, folder: Path) -> tuple[Path, list[str]]:
    """A file with the parts in the order of a dictionary, and their names in natural order."""
    make, end = HOSTS[name]
    path = folder / "model.safetensors"
    save_file({key: tensor.detach().contiguous() for key, tensor in make().items()}, path)
    return path, [f"blocks.{number}.{end}" for number in NUMBERS]


def test_numbers_are_ordered_as_numbers_and_words_as_they_come() -> None:
    names = ["enc.10.x", "enc.2.x", "enc.2.w", "dec.1", "enc.0", "b10", "b9"]
    expected = ["enc.0", "enc.2.x", "enc.2.w", "enc.10.x", "dec.1", "b9", "b10"]
    assert natural_order(names) == expected
    assert natural_order([f"a{'9' * 300}", "a1"]) == ["a1", f"a{'9' * 300}"]


@pytest.mark.parametrize("name", HOSTS)
def test_parts_and_records_of_a_host_are_in_natural_order(name: str, tmp_path: Path) -> None:
    path, names = written(name, tmp_path)
    host = memaudit.load(path)
    assert list(host.parts()) == names
    layers = [record.layer.removesuffix(".l0") for record in host.identity.recurrences]
    assert layers == names


def test_a_module_in_memory_keeps_its_words_in_their_order() -> None:
    blocks = nn.ModuleDict({str(number): nn.GRU(2, 2) for number in reversed(NUMBERS)})
    module = nn.ModuleDict({"z": nn.GRU(2, 2), "blocks": blocks, "a": nn.GRU(2, 2)})
    expected = ["z", *(f"blocks.{number}" for number in NUMBERS), "a"]
    assert list(memaudit.load(module).parts()) == expected
    assert list(memaudit.load(module, layers="2,z").parts()) == ["z", "blocks.2"]


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize(
    ("layers", "places"),
    [("all", [0, 1, 2, 3, 4]), (10, [3]), ("10,0", [0, 3]), ([1, "blocks.11"], [1, 4])],
)
def test_parts_are_chosen_by_names_or_numbers_in_every_host(
    name: str, layers: object, places: list[int], tmp_path: Path
) -> None:
    path, names = written(name, tmp_path)
    assert list(memaudit.load(path, layers=layers).parts()) == [names[place] for place in places]


@pytest.mark.parametrize("name", HOSTS)
def test_a_part_that_is_not_there_is_refused_with_the_choices(name: str, tmp_path: Path) -> None:
    path, names = written(name, tmp_path)
    with pytest.raises(ArgumentError, match="no recurrent layer '3'") as caught:
        memaudit.load(path, layers="3")
    assert caught.value.hint == f"layers is all, or some of: {', '.join(names)}"


def test_a_number_is_the_first_one_of_a_name_unless_a_part_is_called_so() -> None:
    names = ["stages.0.blocks.1", "stages.1.blocks.0", "lru_1.x", "x2"]
    assert choose_parts(names, ("1",)) == ["stages.1.blocks.0", "lru_1.x"]
    assert choose_parts(["1", "a.1"], ("1",)) == ["1"]
    with pytest.raises(ArgumentError):
        choose_parts(names, ("2",))
    assert read_layers("all") is None


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_model_that_runs_as_a_whole_has_no_parts_to_choose(
    in_memory: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    save_file(nn.GRU(2, 3).state_dict(), path)
    with pytest.raises(ArgumentError, match="runs as a whole"):
        memaudit.load(nn.GRU(2, 3) if in_memory else path, layers="gru")


def test_the_command_line_audits_the_chosen_parts_in_order(tmp_path: Path) -> None:
    path, names = written("rnn", tmp_path)
    saved = tmp_path / "report.json"
    words = ["--quick", "--horizon", "8", "--set", "layers=10,2", "--json", str(saved)]
    assert main(["scan", str(path), *words]) == 0
    report = Report.load(saved)
    assert list(report.layers) == names[2:4]
    assert any(f"not run: {names[0]}" in note for note in report.subject.notes)


def test_weights_that_are_not_finite_matter_only_where_they_are_run(tmp_path: Path) -> None:
    tensors = {k: v.clone() for k, v in recurrent().items()}
    tensors["blocks.1.lstm.bias_hh_l0"][0] = torch.nan
    save_file(tensors, tmp_path / "model.safetensors")
    assert list(memaudit.load(tmp_path, layers=0).parts()) == ["blocks.0.lstm"]
