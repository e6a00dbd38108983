"""The form behind log_A_real, a name that S4D and StableSSM use for different raw weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.numerics.linear import discretize
from memaudit_ssm.layers.laws import STABLE_LAWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.contracts import AbstractReparam

#: So many steps tell one form from another even where step sizes are 0.001.
STEPS = 64
#: Single precision loses up to a ten-thousandth where the code subtracts one from exp(dt·A).
CLOSE = 1e-3
#: What a module raises that only looks like a kernel.
_NO_KERNEL = (RuntimeError, TypeError, ValueError, AttributeError, IndexError)


def law_of_kernel(part: nn.Module, own: Mapping[str, Tensor]) -> AbstractReparam | None:
    """The one law with which the kernel of S4D is that of the module; None for none or several."""
    rates, steps = own["log_A_real"], own["log_dt"]
    alike = rates.shape == own["A_imag"].shape and own["C"].shape == (*rates.shape, 2)
    if not alike or rates.ndim != 2 or steps.shape != rates.shape[:1]:
        return None
    try:
        with torch.no_grad():
            told = part(STEPS)
            fitting = [law for law in STABLE_LAWS.values() if _close(_kernel(law, own), told)]
    except _NO_KERNEL:
        return None
    return fitting[0] if len(fitting) == 1 else None


def _kernel(law: AbstractReparam, own: Mapping[str, Tensor]) -> Tensor:
    """K (H,L) with K(l) = 2 Re Σ_n C_n (e^{dt·A_n} - 1) / A_n · e^{dt·A_n·l}."""
    rates = torch.complex(law.forward(own["log_A_real"].double()), own["A_imag"].double())
    modes, gains = discretize(rates, own["log_dt"].double().exp().unsqueeze(-1), how="zoh")
    order = torch.arange(STEPS, dtype=torch.float64, device=rates.device)
    powers = modes.unsqueeze(-1) ** order
    readout = gains * torch.view_as_complex(own["C"].double().contiguous())
    return 2.0 * torch.einsum("hn,hnl->hl", readout, powers).real


def _close(kernel: Tensor, told: Tensor) -> bool:
    off = (kernel - told.reshape(kernel.shape)).abs().amax()
    return bool(off <= CLOSE * kernel.abs().amax())
