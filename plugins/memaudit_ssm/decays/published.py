"""Layers of the published code itself, known by the names and shapes of their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from memaudit.perturbable import plain_name
from memaudit.reparams import Clip, Direct, Exp, Relu
from memaudit_ssm.decays.kernels import law_of_kernel
from memaudit_ssm.hosts.keys import find_scans
from memaudit_ssm.hosts.scans import CELL
from memaudit_ssm.layers.laws import S4_LAWS, SIGNED, TIED, UNTIED
from memaudit_ssm.layers.s5 import LARGEST_RATE
from memaudit_ssm.layers.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.contracts import AbstractReparam

    Found = tuple[str, Stored | str]

UNSAID = "how {name} becomes a rate is not said: {attribute} is none of {known}"
UNCLEAR = "how log_A_real becomes a rate is not clear: its kernel is that of no known form"
LIQUID = "in the liquid form the rates move with the input"
UNCLIPPED = "some rates are above -1e-4, and whether the module cuts them off is not known"


def published(part: nn.Module) -> Iterator[Found]:
    """The cell of a published layer, and the weight that makes its modes; nothing for others."""
    own = _own(part)
    names = set(own)
    if {"nu_log", "theta_log", "gamma_log"} <= names:
        if own["nu_log"].ndim == 1 and own["nu_log"].shape == own["theta_log"].shape:
            yield "lru", Stored(part, "nu_log", Exp())
    elif names & {"Lambda", "Lambda_re"} and "log_step" in names:
        yield from _s5(part, own)
    elif {"C", "inv_dt", "A_real", "B"} <= names:
        yield "s4", _s4(part, own)
    elif {"C", "log_dt", "log_A_real", "A_imag"} <= names and "B" not in names:
        law = law_of_kernel(part, own)
        yield "s4d", UNCLEAR if law is None else Stored(part, "log_A_real", law)
    elif {"C", "log_dt", "B"} <= names:
        yield from _s4_old(part, own)
    else:
        yield from _scans(part, names)


def _own(part: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module itself by their plain names."""
    behind = part.parametrizations if parametrize.is_parametrized(part) else ()
    names = [*part._parameters, *part._buffers, *behind]  # type: ignore[misc]
    with torch.no_grad():
        found = {name: getattr(part, name) for name in names}
    return {name: t for name, t in found.items() if isinstance(t, Tensor) and not is_lazy(t)}


def _s5(part: nn.Module, own: dict[str, Tensor]) -> Iterator[Found]:
    """s5-pytorch, whose Lambda is complex, or the names of S5 in JAX."""
    if "Lambda_re" in own:
        rates, name, kind = own["Lambda_re"], "Lambda_re", "all"
        fits = "Lambda_im" in own and rates.shape == own["Lambda_im"].shape
    else:
        rates, name, kind = own["Lambda"], "Lambda", "real"
        fits = rates.is_complex()
    if not fits or rates.ndim != 1 or own["log_step"].numel() != len(rates):
        return
    clipped = getattr(part, "clip_eigs", None)
    if getattr(part, "liquid", False):
        yield "s5", LIQUID
    elif clipped:
        yield "s5", Stored(part, name, Clip(ceiling=LARGEST_RATE), part=kind)
    elif clipped is None and kind == "all" and bool((rates > LARGEST_RATE).any()):
        yield "s5", UNCLIPPED
    else:
        yield "s5", Stored(part, name, Direct(), part=kind)


def _s4(part: nn.Module, own: dict[str, Tensor]) -> Stored | str:
    """S4 and S4D of version 4, whose kernels keep the names of their transforms."""
    law = _stated(part, "A_real", "real_transform")
    notes = [TIED] if "P" in own else []
    notes += [SIGNED] if getattr(part, "dt_transform", "exp") == "none" else []
    return law if isinstance(law, str) else Stored(part, "A_real", law, note="; ".join(notes))


def _s4_old(part: nn.Module, own: dict[str, Tensor]) -> Iterator[Found]:
    """S4 and S4D of the versions 1 to 3."""
    note = TIED if "P" in own and "Q" not in own else UNTIED
    if "A_imag" in own and "log_A_real" in own:
        yield "s4", Stored(part, "log_A_real", Exp())
    elif "A_imag" in own and "inv_A_real" in own:
        law = _stated(part, "inv_A_real", "real_type")
        yield "s4", law if isinstance(law, str) else Stored(part, "inv_A_real", law)
    elif {"w_imag", "P", "log_w_real"} <= set(own):
        yield "s4", Stored(part, "log_w_real", Exp(), note=note)
    elif {"w_imag", "P", "inv_w_real"} <= set(own):
        law = _stated(part, "inv_w_real", "real_type")
        # Only later did relu get a floor.
        law = Relu() if law is S4_LAWS["relu"] else law
        yield "s4", law if isinstance(law, str) else Stored(part, "inv_w_real", law, note=note)
    elif "w" in own and own["w"].shape[-1:] == own["C"].shape[-1:] == (2,):
        yield "s4", Stored(part, "w", Direct(), part="pairs", note=note)


def _stated(part: nn.Module, name: str, attribute: str) -> AbstractReparam | str:
    """The law by the name that the module keeps of it."""
    said: Any = getattr(part, attribute, None)
    if isinstance(said, str) and said in S4_LAWS:
        return S4_LAWS[said]
    return UNSAID.format(name=name, attribute=attribute, known=", ".join(S4_LAWS))


def _scans(part: nn.Module, names: set[str]) -> Iterator[Found]:
    """Further directions of selective scans; A_log itself is known to the zoo of Mamba."""
    rates = [name for name in names if name.startswith("A_") and name.endswith(("_log", "_logs"))]
    if set(rates) <= {"A_log"}:
        return
    inner = {plain_name(name) for name, _ in part.named_parameters()}
    for scan in find_scans(sorted(inner)).scans:
        if not scan.prefix and scan.keys["A_log"] != "A_log":
            yield CELL, Stored(part, scan.keys["A_log"], Exp())
