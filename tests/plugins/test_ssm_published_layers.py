"""Layers of published code in memory: known where names and shapes leave no doubt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memaudit.interfaces import DiagonalDecay, NoDecay, StoredDecay
from memaudit_ssm import SsmAdapter
from memaudit_ssm.s4 import S4_LAWS, SIGNED, TIED, UNTIED
from memaudit_ssm.s4d import REAL_PART, STABLE_LAWS


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def told(module: nn.Module) -> StoredDecay | None:
    found = list(SsmAdapter().stored_decays(module))
    assert len(found) <= 1
    return found[0] if found else None


def holding(tensors: dict[str, Tensor], **attributes: Any) -> nn.Module:
    """A module with these parameters and attributes."""
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_parameter(name, nn.Parameter(tensor))
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


class Kernel(nn.Module):
    """The convolution kernel of S4D with any function behind log_A_real."""

    def __init__(self, real: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.real = real
        self.C = nn.Parameter(draw(3, 2, 2))
        self.log_dt = nn.Parameter(draw(3, seed=1) - 5.0)
        self.log_A_real = nn.Parameter(0.3 * draw(3, 2, seed=2) - 0.7)
        self.A_imag = nn.Parameter(draw(3, 2, seed=3).abs())

    def forward(self, length: int) -> Tensor:
        rates = self.real(self.log_A_real) + 1j * self.A_imag
        dt = self.log_dt.exp().unsqueeze(-1)
        readout = torch.view_as_complex(self.C) * (torch.exp(rates * dt) - 1.0) / rates
        steps = (rates * dt).unsqueeze(-1) * torch.arange(length)
        return 2.0 * torch.einsum("hn,hnl->hl", readout, steps.exp()).real


@pytest.mark.parametrize("name", REAL_PART)
def test_the_form_behind_log_a_real_is_known_by_the_kernel(name: str) -> None:
    decay = told(Kernel(REAL_PART[name]))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.name, decay.law) == ("log_A_real", STABLE_LAWS[name])


def test_an_unknown_form_behind_log_a_real_is_refused() -> None:
    decay = told(Kernel(lambda w: -w.square()))
    assert isinstance(decay, NoDecay)
    assert "log_A_real" in decay.reason


def test_a_module_that_only_has_the_names_of_a_kernel_is_refused() -> None:
    other = holding(dict(Kernel(torch.neg).named_parameters()))
    assert isinstance(told(other), NoDecay)


def test_the_names_of_lru_are_enough() -> None:
    names = ("nu_log", "theta_log", "gamma_log")
    decay = told(holding({name: draw(4) for name in names}))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.cell, decay.name, decay.law.name) == ("lru", "nu_log", "exp")
    assert told(holding({name: draw(4) for name in names[:2]})) is None


def test_the_rates_of_s5_are_complex_numbers_beside_their_steps() -> None:
    rates = torch.complex(-draw(4).abs(), draw(4))
    decay = told(holding({"Lambda": rates, "log_step": draw(4)}))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.cell, decay.part, decay.law.name) == ("s5", "real", "direct")
    assert told(holding({"Lambda": rates.real, "log_step": draw(4)})) is None
    liquid = told(holding({"Lambda": rates, "log_step": draw(4)}, liquid=True))
    assert isinstance(liquid, NoDecay)


@pytest.mark.parametrize(
    ("shift", "stated", "law"),
    [(-1.0, None, "direct"), (0.0, None, None), (0.0, False, "direct"), (0.0, True, "clip")],
)
def test_rates_that_may_be_clipped_are_told_only_where_that_makes_no_difference(
    shift: float, stated: bool | None, law: str | None
) -> None:
    tensors = {"Lambda_re": shift - draw(4).abs(), "Lambda_im": draw(4), "log_step": draw(4, 1)}
    tensors["Lambda_re"][0] = shift
    said = {} if stated is None else {"clip_eigs": stated}
    decay = told(holding(tensors, **said))
    assert isinstance(decay, NoDecay) if law is None else isinstance(decay, DiagonalDecay)
    assert law is None or decay.law.name == law  # type: ignore[union-attr]


def s4(**others: Tensor) -> dict[str, Tensor]:
    return {"C": draw(1, 3, 2, 2), "B": draw(1, 3, 2, 2), **others}


@pytest.mark.parametrize("name", S4_LAWS)
def test_version_four_is_told_by_the_transform_that_it_keeps(name: str) -> None:
    tensors = s4(inv_dt=draw(3, 1), A_real=draw(3, 2), A_imag=draw(3, 2))
    decay = told(holding(tensors, real_transform=name, dt_transform="none"))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.law, decay.note) == (S4_LAWS[name], SIGNED)
    refused = told(holding(tensors))
    assert isinstance(refused, NoDecay)
    assert "real_transform" in refused.reason


@pytest.mark.parametrize(
    ("raw", "further", "part", "law", "note"),
    [
        ("log_A_real", ("A_imag",), "all", "exp", ""),
        ("inv_A_real", ("A_imag",), "all", "softplus", ""),
        ("log_w_real", ("w_imag", "P"), "all", "exp", TIED),
        ("inv_w_real", ("w_imag", "P"), "all", "softplus", TIED),
        ("w", ("P",), "pairs", "direct", TIED),
        ("w", ("P", "Q"), "pairs", "direct", UNTIED),
        ("w", (), "pairs", "direct", UNTIED),
    ],
)
def test_older_versions_are_told_by_their_names(
    raw: str, further: tuple[str, ...], part: str, law: str, note: str
) -> None:
    extra = {name: draw(3, 2) for name in further}
    tensors = s4(log_dt=draw(3), **{raw: draw(3, 2)}, **extra)
    decay = told(holding(tensors, real_type="softplus"))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.name, decay.part, decay.law.name) == (raw, part, law)
    assert decay.note == note


def test_relu_got_its_floor_with_the_diagonal_form() -> None:
    rate = torch.tensor([-1.0, 0.5], dtype=torch.float64)
    wide = s4(log_dt=draw(3), inv_w_real=draw(3, 2), w_imag=draw(3, 2), P=draw(1, 3, 2, 2))
    flat = s4(log_dt=draw(3), inv_A_real=draw(3, 2), A_imag=draw(3, 2))
    found = [told(holding(tensors, real_type="relu")) for tensors in (wide, flat)]
    floors = [d.law.forward(rate)[0] for d in found if isinstance(d, DiagonalDecay)]
    assert [float(floor) for floor in floors] == [0.0, -1e-4]


def test_a_rate_that_is_never_trained_is_refused() -> None:
    module = holding({name: draw(4) for name in ("theta_log", "gamma_log")})
    module.register_buffer("nu_log", draw(4))
    decay = told(module)
    assert isinstance(decay, NoDecay)
    assert "buffer" in decay.reason
