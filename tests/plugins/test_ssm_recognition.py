"""Scans are recognised by their tensors alone; what is not matched is named, never skipped."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import Claim
from memaudit.loading import parse_source
from memaudit.testing import check_adapter
from memaudit_ssm import SsmAdapter
from memaudit_ssm.scans import MOST_SCANS
from tests.plugins.ssm_models import draw, mixer, one_channel, opened, picture_scan, written


class Holder(nn.Module):
    """A module whose state dict is what it was given."""

    config: Any = None

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in state.items():
            room, _, leaf = name.rpartition(".")
            owner: nn.Module = self
            for step in room.split(".") if room else ():
                if step not in owner._modules:
                    owner.add_module(step, nn.Module())
                owner = owner.get_submodule(step)
            owner.register_parameter(leaf, nn.Parameter(tensor.float()))


def claimed(source: object) -> Claim | None:
    return SsmAdapter().claim(parse_source(source))


def language_model() -> dict[str, Tensor]:
    layers = mixer("backbone.layers.0.mixer.") | mixer("backbone.layers.1.mixer.")
    return {
        "backbone.embedding.weight": draw(5, 3),
        **layers,
        "backbone.layers.0.norm.weight": draw(3),
        "backbone.norm_f.weight": draw(3),
    }


@pytest.mark.parametrize(
    "state",
    [
        mixer(),
        mixer("blocks.0.mamba."),
        picture_scan("a.b."),
        picture_scan(k=1),
        one_channel([0.5]),
    ],
    ids=["bare", "under a prefix", "four directions", "one direction", "one channel"],
)
def test_scans_are_claimed_below_the_zoos_that_run_a_whole_model(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    assert claimed(written(state, tmp_path)) == Claim("selective-scan", 8)
    assert claimed(Holder(state)) == Claim("selective-scan", 8)


@pytest.mark.parametrize(
    "without", ["A_log", "D", "dt_proj.weight", "dt_proj.bias", "x_proj.weight"]
)
def test_a_mixer_that_lacks_a_tensor_is_not_claimed_and_says_which(
    tmp_path: Path, without: str
) -> None:
    state = mixer()
    del state[without]
    path = written(state, tmp_path)
    assert claimed(path) is None
    with pytest.raises(SourceError, match="no selective scan") as caught:
        opened(path)
    assert caught.value.code == "E_UNSUPPORTED"
    assert without == "A_log" or f"(without {without})" in caught.value.fact


def test_models_of_transformers_are_left_to_their_own_adapter(tmp_path: Path) -> None:
    path = written(mixer("layers.0.mixer."), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    assert claimed(path) is None
    module = Holder(mixer())
    module.config = SimpleNamespace(model_type="mamba")
    assert claimed(module) is None


def test_asked_for_by_name_the_adapter_opens_them_and_says_what_it_does_not_know(
    tmp_path: Path,
) -> None:
    path = written(mixer("layers.0.mixer."), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    notes = opened(path).identity.notes
    assert any("model type mamba" in note for note in notes)


def test_the_original_language_model_is_left_to_who_runs_it_whole(tmp_path: Path) -> None:
    assert claimed(written(language_model(), tmp_path)) is None
    assert claimed(Holder(language_model())) is not None


def test_a_hybrid_with_other_blocks_is_no_original_language_model(tmp_path: Path) -> None:
    state = language_model() | {"backbone.layers.2.mixer.Wqkv.weight": draw(9, 3)}
    assert claimed(written(state, tmp_path)) is not None


@pytest.mark.shared
def test_the_reference_language_models_are_not_claimed(shared: Path) -> None:
    for name in ("mamba1_hf", "mamba1_original", "mamba2_hf"):
        assert claimed(shared / "fixtures" / name / "small") is None


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("A_logs", (11, 4)),
        ("A_logs", (12, 4, 1)),
        ("Ds", (3,)),
        ("dt_projs_weight", (4, 2, 3)),
        ("dt_projs_weight", (12, 2)),
        ("dt_projs_bias", (12,)),
        ("x_proj_weight", (4, 9, 3)),
        ("x_proj_bias", (4, 9)),
    ],
)
def test_shapes_that_contradict_each_other_are_named(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    state = picture_scan("net.ss.") | {f"net.ss.{name}": draw(*shape)}
    with pytest.raises(SourceError) as caught:
        opened(state, tmp_path)
    assert caught.value.code == "E_WEIGHTS"
    assert f"{name} {shape}" in caught.value.fact
    assert "net.ss" in caught.value.fact


@pytest.mark.parametrize("name", ["A_log", "D", "dt_proj.bias", "x_proj.weight", "x_proj.bias"])
def test_a_plain_mixer_of_contradicting_shapes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="contradict each other") as caught:
        opened(mixer() | {name: draw(7, 7)}, tmp_path)
    assert f"{name} (7, 7)" in caught.value.fact


def test_an_empty_scan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="filled axes"):
        opened(mixer(d=0), tmp_path)


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    state = mixer() | {"dt_proj.weight": torch.ones(3, 2, dtype=torch.int8)}
    with pytest.raises(SourceError, match=r"dt_proj\.weight holds int8"):
        opened(state, tmp_path)


def test_numbers_that_are_not_finite_are_refused_where_they_would_be_run(tmp_path: Path) -> None:
    state = mixer("good.") | mixer("bad.")
    state["bad.D"][0] = float("nan")
    with pytest.raises(SourceError, match=r"bad\.D \(1 NaN\)") as caught:
        opened(state, tmp_path)
    assert caught.value.code == "E_NONFINITE"
    assert list(opened(state, tmp_path, layers="good").parts()) == ["good"]


def test_scans_between_norms_are_named_and_not_run(tmp_path: Path) -> None:
    state = mixer("plain.") | mixer("normed.") | {"normed.dt_layernorm.weight": draw(2)}
    host = opened(state, tmp_path)
    assert list(host.parts()) == ["plain"]
    unmatched = next(note for note in host.identity.notes if "not matched" in note)
    assert "normed.A_log (dt_layernorm.weight stands between x_proj and the scan)" in unmatched


def test_recurrent_looking_tensors_of_other_families_are_named(tmp_path: Path) -> None:
    other = {"two.A_log": draw(8), "two.dt_bias": draw(8), "lru.nu_log": draw(4)}
    host = opened(mixer("one.") | other, tmp_path)
    unmatched = next(note for note in host.identity.notes if "not matched" in note)
    assert "two.A_log (without D, dt_proj.weight, dt_proj.bias, x_proj.weight)" in unmatched
    assert "two.dt_bias" in unmatched
    assert "lru.nu_log" in unmatched


def test_nothing_is_said_to_be_unmatched_when_everything_is_matched(tmp_path: Path) -> None:
    notes = opened(mixer("one.") | {"one.in_proj.weight": draw(6, 3)}, tmp_path).identity.notes
    assert not any("not matched" in note for note in notes)
    assert "not run: one.in_proj" in notes


def test_the_identity_counts_scans_directions_and_parameters(tmp_path: Path) -> None:
    state = picture_scan("ss.") | mixer("m.") | {"head.weight": draw(10, 10)}
    who = opened(state, tmp_path).identity
    own = 12 + 3 + 6 + 3 + 30
    records = [(r.layer, r.cell, r.size, r.parameters, r.directions) for r in who.recurrences]
    assert records == [("m", "mamba1", 12, own, 1), ("ss", "mamba1", 12, 4 * own, 4)]
    assert who.parameters == 5 * own + 100
    assert who.coverage == pytest.approx(5 * own / (5 * own + 100))
    assert who.description == "host of 5 selective scans (3 channels of 4 states) in 2 modules"
    assert who.sha256
    assert (who.adapter, who.family, who.dtype) == ("ssm", "selective-scan", "float64")


@pytest.mark.parametrize(
    ("layers", "run"),
    [
        ("all", ["a.ss.scan0", "a.ss.scan1", "b.m"]),
        ("b.m", ["b.m"]),
        ("b", ["b.m"]),
        ("a.ss", ["a.ss.scan0", "a.ss.scan1"]),
        ("a.ss.scan1, b.m", ["a.ss.scan1", "b.m"]),
        (["a.ss.scan0"], ["a.ss.scan0"]),
    ],
)
def test_the_option_layers_limits_what_is_run(
    tmp_path: Path, layers: object, run: list[str]
) -> None:
    state = picture_scan("a.ss.", k=2) | mixer("b.m.")
    host = opened(state, tmp_path, layers=layers)
    assert sorted(host.parts()) == run
    assert len(host.identity.recurrences) == 2
    assert host.identity.coverage == pytest.approx(len(run) / 3)
    idle = [note for note in host.identity.notes if "left out" in note]
    assert len(idle) == (0 if len(run) == 3 else 1)
    assert all(f"{3 - len(run)} of 3 scans" in note for note in idle)


@pytest.mark.parametrize(("layers", "hint"), [("b.mm", "b.m"), ("", "all"), ("b.m,,", "all")])
def test_layers_that_do_not_exist_are_refused(tmp_path: Path, layers: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        opened(mixer("b.m."), tmp_path, layers=layers)
    assert hint in caught.value.hint


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="unknown option 'layer'"):
        opened(mixer(), tmp_path, layer="all")


def test_wrappers_do_not_enter_the_names_unless_they_tell_two_apart(tmp_path: Path) -> None:
    assert list(opened(mixer("module.model.enc.0."), tmp_path).parts()) == ["enc.0"]
    twins = mixer("model.enc.") | mixer("net.enc.")
    assert sorted(opened(twins, tmp_path).parts()) == ["model.enc", "net.enc"]


def test_more_scans_than_anybody_reads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{MOST_SCANS + 1} selective scans") as caught:
        opened(picture_scan(k=MOST_SCANS + 1, d=1, n=1, rank=1), tmp_path)
    assert caught.value.code == "E_LIMIT"


def test_a_module_is_copied_and_keeps_its_dtype() -> None:
    module = Holder(mixer("m.") | {"head.weight": draw(2, 2)})
    host = opened(module)
    before = host.respond(draw(1, 5, 3))
    assert before.dtype == torch.float32
    with torch.no_grad():
        module.get_parameter("m.A_log").zero_()
    assert torch.equal(host.respond(draw(1, 5, 3)), before)
    assert opened(module, dtype=torch.float64).dtype == torch.float64


def test_a_module_without_numbers_is_refused() -> None:
    with pytest.raises(SourceError, match="no numbers yet"):
        opened(Holder(mixer()).to("meta"))


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_adapter_keeps_the_laws(tmp_path: Path, in_memory: bool) -> None:
    state = picture_scan("ss.", k=2) | mixer("m.")
    check_adapter(SsmAdapter(), Holder(state) if in_memory else written(state, tmp_path))


def test_a_mixer_of_mamba2_in_an_unknown_host_is_called_by_its_name(tmp_path: Path) -> None:
    state = {f"encoder.mamba.{end}": draw(4) for end in ("A_log", "dt_bias", "D")}
    state["encoder.mamba.in_proj.weight"] = draw(8, 4)
    with pytest.raises(SourceError, match=r"A_log \(Mamba-2, which needs"):
        opened(state, tmp_path)
