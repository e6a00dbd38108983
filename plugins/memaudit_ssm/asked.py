"""What the tensors of the families may leave open, by name: the options that say it."""

from __future__ import annotations

from typing import Final

from memaudit.numerics.linear import DISCRETIZATIONS
from memaudit_ssm.layers.transforms import POSITIVE, REAL_PART

_POSITIVE = ", ".join(POSITIVE)

#: Option → one sentence. Nothing else is asked for.
ASKED: Final[dict[str, str]] = {
    "activation": "what stands behind the recurrence, e.g. gelu, tanh, linear, half_glu1",
    "bandlimit": "S4: frequencies above this share are cut off (default: none)",
    "batchnorm": "S5 in JAX: true for batch norms, false for layer norms",
    "cell": "Curse-of-memory: rnn, softplusrnn, diagonalrnn, lru, ssm",
    "clip_eigs": "S5 in JAX: true when rates are kept at or below -1e-4",
    "conj_sym": "S5 and ports of LRU: true when the real part of the readout is doubled",
    "degree": "s5-pytorch: the power of the input matrix",
    "disc": f"the discretization: {', '.join(DISCRETIZATIONS)}",
    "dt": "Curse-of-memory: the step size",
    "dt_fast": "S4: true when the step size is stored under asinh",
    "dt_transform": f"S4: how the step size is made positive: {_POSITIVE}",
    "final_act": "S4: what stands behind the mixing layer, e.g. glu",
    "hyper_act": "S4 v2: what joins the hyper network, if there is one",
    "imag_transform": f"S4: how the imaginary part of A is made positive: {_POSITIVE}",
    "l_kernel": "S4 before version 4: the length that the stored C belongs to, 0 for none",
    "liquid": "s5-pytorch: true for the liquid form, which is refused",
    "mult_act": "S4: what stands behind the gate",
    "multidim": "LRU: outputs of the decoder per class",
    "norm": "LRU and S4: layer, batch or none",
    "parameterization": f"S4D and StableSSM: {', '.join(REAL_PART)}",
    "pool": "what the decoder reads: none (every step), mean (or true), last",
    "prenorm": "true when norms stand before the layers, false when after the sum",
    "real_transform": f"S4: how the real part of A is made positive: {_POSITIVE}",
    "residual": "S4: how the residual is added",
}
