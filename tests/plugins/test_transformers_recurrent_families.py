"""Every recurrent family of the installed transformers: found, heard and sped up."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memaudit.numerics.wide_floats import really_float64
from memaudit_transformers.kinds import find_recurrences, spectra_of, unmatched
from memaudit_transformers.scans import decays_of, fast_scans, kernel_places, recording
from tests.plugins.transformers_families import FAMILIES, VOCABULARY, Family

#: Source text that only recurrent layers have.
SIGNS = re.compile(
    r"self\.(?:A_log|dt_bias|time_decay|recurrent_param|slope_rate|i?fgate_preact)\b"
    r"|[gs]et_recurrent_state\b|recurrent_states\b"
)
#: Keeps the last value of every head and no more: a delay of one step.
DELAYS = {"zaya"}
#: torch's own cells, in codecs, transducers and readers of tables: another adapter's business.
OF_TORCH = {
    "encodec",
    "nemotron3_5_asr",
    "nemotron_asr_streaming",
    "parakeet",
    "slanet",
    "slanext",
}
#: Kinds whose scan in the library is a slow loop, or holds more than it must.
SLOW = {"mamba1", "mamba2", "rg-lru", "rwkv"}

every_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


def ids() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCABULARY, (2, 19), generator=generator)


def answer(model: nn.Module, tokens: Tensor) -> Tensor:
    with torch.no_grad(), really_float64(next(model.parameters()).dtype):
        return model(input_ids=tokens, use_cache=False)[0]


def models() -> Path:
    import transformers

    return Path(transformers.__file__).parent / "models"


def folders_with(sign: re.Pattern[str]) -> set[str]:
    sources = models().glob("*/modeling_*.py")
    return {path.parent.name for path in sources if sign.search(path.read_text("utf-8"))}


def test_no_recurrent_family_of_the_library_is_missing_here() -> None:
    assert folders_with(SIGNS) - DELAYS == {family.folder for family in FAMILIES}


def test_the_other_recurrences_of_the_library_are_those_of_torch() -> None:
    assert folders_with(re.compile(r"nn\.(?:LSTM|GRU|RNN)(?:Cell)?\(")) == OF_TORCH


@every_family
def test_exactly_the_layers_that_the_config_names_are_found(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    numbers = [int(next(filter(str.isdigit, r.layer.split(".")))) for r in found]
    assert numbers == family.recurrent_layers()
    assert {r.cell for r in found} == {family.cell}
    assert unmatched(model, found) == ()
    for recurrent in found:
        assert model.get_submodule(recurrent.layer) is recurrent.module
        assert recurrent.record().parameters == sum(
            p.numel() for name, p in model.named_parameters() if name.startswith(recurrent.layer)
        )


@every_family
def test_eigenvalues_at_rest_are_stable_and_as_many_as_the_layer_says(family: Family) -> None:
    for recurrent in find_recurrences(family.build()):
        eigenvalues = recurrent.at_rest()
        assert eigenvalues.dtype == torch.float64
        assert eigenvalues.shape == (recurrent.record().size,)
        assert ((eigenvalues > 0) & (eigenvalues <= 1)).all()


@every_family
def test_every_layer_is_heard_for_every_token(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    decays = decays_of(found, lambda x: answer(model, x), ids())
    assert list(decays) == [r.layer for r in found]
    for recurrent in found:
        heard = decays[recurrent.layer]
        assert heard.dtype == torch.float32
        assert heard.shape[:2] == (2, 19)
        assert heard[0, 0].numel() == recurrent.size
        assert heard.isfinite().all()
        assert ((heard >= 0) & (heard <= 1)).all()


@every_family
def test_what_is_heard_is_what_stands_at_rest_when_no_data_come_through(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    for recurrent in found:
        for name, parameter in recurrent.module.named_parameters():
            if name.endswith("weight"):
                nn.init.zeros_(parameter)
    decays = decays_of(found, lambda x: answer(model, x), ids())
    for recurrent in found:
        heard = decays[recurrent.layer].flatten(2).double()
        expected = recurrent.at_rest().expand_as(heard)
        torch.testing.assert_close(heard, expected, rtol=2e-6, atol=1e-7)


@every_family
def test_points_of_the_spectrum_lie_in_order_where_the_layer_follows_its_input(
    family: Family,
) -> None:
    model = family.build()
    found = find_recurrences(model)
    for recurrent, spectrum in zip(
        found, spectra_of(found, lambda x: answer(model, x), ids()), strict=True
    ):
        assert spectrum.layer == recurrent.layer
        assert spectrum.count == recurrent.size
        rows = [abs(point.eigenvalues) for point in spectrum.points]
        assert len(rows) == (3 if family.cell not in {"rwkv", "lightning"} else 0)
        for slow, fast in pairwise(rows):
            assert (slow >= fast).all()
        assert not rows or (rows[0] > rows[-1]).any() or family.variant == "limited"
    assert all(item.points == () for item in spectra_of(found, lambda x: x, None))


@pytest.mark.parametrize("length", [1, 19])
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.cell in SLOW], ids=str)
def test_fast_scans_answer_as_the_library_does_and_keep_its_cache(
    family: Family, length: int
) -> None:
    model, tokens = family.build(), ids()[:, :length]
    with torch.no_grad():
        slow = model(input_ids=tokens, use_cache=True)[0]
        with fast_scans(find_recurrences(model)):
            fast = model(input_ids=tokens, use_cache=True)[0]
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-5 * float(slow.abs().max()))


@every_family
def test_fast_scans_answer_as_the_library_does(family: Family) -> None:
    model = family.build()
    slow = answer(model, ids())
    with fast_scans(find_recurrences(model)):
        fast = answer(model, ids())
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-5 * float(slow.abs().max()))
    model = model.double()
    slow = answer(model, ids())
    with fast_scans(find_recurrences(model)):
        fast = answer(model, ids())
    assert fast.dtype == torch.float64
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-10 * float(slow.abs().max()))


def functions(model: nn.Module) -> list[Any]:
    """What the layers would call now, and whether it stands on the layer itself."""
    places = kernel_places(find_recurrences(model))
    return [(p.name, p.namespace.get(p.name)) for p in places]


def same(some: list[Any], others: list[Any]) -> bool:
    """The very same functions, not equal ones."""
    return all(x is y for (_, x), (_, y) in zip(some, others, strict=True))


@every_family
def test_the_slow_scans_are_replaced_and_put_back_whatever_happens(family: Family) -> None:
    model = family.build()
    before, inside = functions(model), []

    def fail() -> None:
        with fast_scans(find_recurrences(model)):
            inside.extend(functions(model))
            with fast_scans(find_recurrences(model)):
                assert same(functions(model), inside)
            assert same(functions(model), inside)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert same(functions(model), before)
    replaced = {x is not y for (_, x), (_, y) in zip(before, inside, strict=True)}
    assert replaced == ({family.cell in SLOW} if before else set())
    assert bool(before) == (family.cell not in {"mlstm", "lightning"})


@every_family
def test_taps_hear_the_same_through_fast_scans_and_leave_nothing_behind(family: Family) -> None:
    model = family.build()
    found = find_recurrences(model)
    before = functions(model)

    def quick(tokens: Tensor) -> Tensor:
        with fast_scans(find_recurrences(model)):
            return answer(model, tokens)

    expected = decays_of(found, lambda x: answer(model, x), ids())
    inside = decays_of(found, quick, ids())
    with fast_scans(find_recurrences(model)):
        outside = decays_of(found, lambda x: answer(model, x), ids())
    with recording(found) as recorder:
        decays_of(found, quick, ids())
    assert list(recorder.calls) == list(expected)
    for layer, value in expected.items():
        torch.testing.assert_close(inside[layer], value, rtol=0, atol=1e-5)
        torch.testing.assert_close(outside[layer], value, rtol=0, atol=1e-5)
    assert same(functions(model), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@every_family
def test_a_run_that_fails_under_taps_leaves_nothing_behind(family: Family) -> None:
    model = family.build()
    before = functions(model)

    def fail(tokens: Tensor) -> None:
        answer(model, tokens)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        decays_of(find_recurrences(model), fail, ids())
    assert same(functions(model), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
