"""The weights of S4 as versions 1, 2 and 3 of state-spaces/s4 store them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import SourceError
from memaudit.reparams import Direct, Relu
from memaudit_ssm.layers.laws import S4_LAWS, TIED, UNTIED
from memaudit_ssm.layers.s4_continuous import Continuous, LowRank, band_limited, tiled
from memaudit_ssm.layers.s4_kernel import AbstractS4Kernel, S4Recipe
from memaudit_ssm.layers.stored import Stored, complex_of
from memaudit_ssm.layers.transforms import POSITIVE


@dataclass(frozen=True, slots=True)
class OldForm:
    """Which tensors a layer of an older version has, by name, and what they mean.

    `shapes` are those of the stored tensors. `length` is that of the kernel where no tensor says
    it. Nothing but exp makes step sizes in these versions, and nothing changes imaginary parts.
    """

    shapes: dict[str, tuple[int, ...]]
    recipe: S4Recipe
    length: int | None = None


class OldKernel(AbstractS4Kernel):
    """Tensors under the names of an older version; a subclass knows what they mean."""

    #: Stored for the code, not for the system: never trained.
    BUFFERS = ("L", "omega", "nodes")

    def __init__(self, form: OldForm) -> None:
        super().__init__()
        self.form = form
        self.width = form.shapes["log_dt"][0]
        self.disc = form.recipe.disc
        self.real_transform = form.recipe.real_transform
        for name, shape in form.shapes.items():
            if name == "L":
                self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))
            elif name in self.BUFFERS:
                self.register_buffer(name, torch.zeros(shape))
            else:
                self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def has(self, name: str) -> bool:
        """Whether the layer stores that tensor."""
        return name in self.form.shapes

    def real(self, name: str) -> Tensor:
        """A stored tensor as it is."""
        return getattr(self, name)

    def pairs(self, name: str) -> Tensor:
        """A stored tensor whose last axis is (real, imaginary), as complex numbers."""
        return torch.view_as_complex(self.real(name).contiguous())

    def steps(self) -> Tensor:
        """The step sizes (H,1)."""
        return self.real("log_dt").exp().unsqueeze(-1)

    def length(self) -> int:
        """The length of the kernel to which the stored readout belongs."""
        if self.has("L"):
            return int(self.real("L"))
        for name in ("omega", "nodes"):
            if self.has(name):
                return length_of_nodes(self.real(name))
        return self.form.length or 0


class S4DV3Kernel(OldKernel):
    """S4D of version 3: inv_A_real or log_A_real, A_imag, B (S,N,2), C and log_dt."""

    def continuous(self) -> Continuous:
        real = -POSITIVE[self.real_transform](self.real(self._name))
        weights = Continuous(
            tiled(complex_of(real, self.real("A_imag")), self.width),
            self.steps(),
            tiled(self.pairs("B"), self.width),
            self.pairs("C"),
        )
        return band_limited(weights, self.form.recipe.bandlimit)

    def decay(self) -> Stored:
        return Stored(self, self._name, S4_LAWS[self.real_transform])

    @property
    def _name(self) -> str:
        return "log_A_real" if self.has("log_A_real") else "inv_A_real"


class S4V3Kernel(OldKernel):
    """S4 of versions 2 and 3: the diagonal w, P and perhaps Q, B, C and log_dt."""

    def continuous(self) -> Continuous:
        left = tiled(self.pairs("P"), self.width)
        right = tiled(self.pairs("Q"), self.width) if self.has("Q") else left.conj()
        weights = Continuous(
            tiled(self._rates(), self.width),
            self.steps(),
            tiled(self.pairs("B")[0], self.width),
            self.pairs("C"),
            LowRank(left, right, self.length()),
        )
        return band_limited(weights, self.form.recipe.bandlimit)

    def _rates(self) -> Tensor:
        if self.has("w"):
            return self.pairs("w")
        raw = self.real(self._name)
        # Here relu alone: the floor came with version 4.
        relu = self.real_transform == "relu"
        rate = functional.relu(raw) if relu else POSITIVE[self.real_transform](raw)
        return complex_of(-rate, self.real("w_imag"))

    def decay(self) -> Stored:
        note = UNTIED if self.has("Q") else TIED
        if self.has("w"):
            return Stored(self, "w", Direct(), part="pairs", note=note)
        relu = self.real_transform == "relu"
        law = Relu() if relu else S4_LAWS[self.real_transform]
        return Stored(self, self._name, law, note=note)

    @property
    def _name(self) -> str:
        return "log_w_real" if self.has("log_w_real") else "inv_w_real"


class S4V1Kernel(OldKernel):
    """S4 of version 1: B holds P in its further rows, C holds Q, and C and Q are conjugated."""

    def continuous(self) -> Continuous:
        rows, read = self.pairs("B"), self.pairs("C").conj()
        rows = rows if rows.ndim == 3 else rows.expand(self.width, *rows.shape)
        rates = self.pairs("w").expand(self.width, -1)
        left, right = rows[:, 1:].transpose(0, 1), read[:, 1:].transpose(0, 1)
        low = LowRank(left, right, self.length())
        return Continuous(rates, self.steps(), rows[:, 0], read[:, :1].transpose(0, 1), low)

    def decay(self) -> Stored:
        return Stored(self, "w", Direct(), part="pairs", note=UNTIED)


def length_of_nodes(nodes: Tensor) -> int:
    """The length L of a kernel from its stored nodes exp(-2 pi i k / L), k = 0 … L/2."""
    count = len(nodes)
    if count < 2:
        return 1
    angle = -math.atan2(float(nodes[1, 1]), float(nodes[1, 0]))
    length = round(2.0 * math.pi / angle) if angle > 0.0 else 0
    if length == 2 * (count - 1):
        return length
    raise SourceError(
        "E_UNSUPPORTED",
        f"the {count} stored nodes of the transform belong to a kernel of {length} steps: the "
        "code of that version transforms even lengths only, of others it makes another kernel",
        hint="run the model once on a longer sequence and save it again",
        stage="weights",
    )
