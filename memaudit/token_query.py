"""The contract of a memory function in token space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from memaudit.contracts import AbstractSubject, Setting
    from memaudit.memory.result import Status


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known about a model when it is asked about tokens: facts, and the text to read."""

    causal: bool
    #: Relative rounding of its answers.
    rounding: float
    text: str


@dataclass(frozen=True, slots=True)
class TokenReadings:
    """Readings in token space: values (K,n) for K trials at the lags (n,), and their floors (K,).

    `status` says why there are none. `noise` is by how much two identical runs differed.
    """

    lags: torch.Tensor
    values: torch.Tensor
    floors: torch.Tensor
    noise: float
    status: Status
    #: What tells the trials apart, where they have names.
    names: tuple[str, ...] = ()


class AbstractTokenQuery(ABC):
    """A memory function in token space: token ids are fed, and answers to them compared.

    Laws: readings are sizes of differences of answers, not negative; the same setting gives the
    same numbers; what the model cannot be asked is a status, not an error.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: First lag that is memory.
    first_lag: ClassVar[int] = 1
    #: How the trials become one curve: "supremum" or "mean".
    joined: ClassVar[str]

    @abstractmethod
    def read(
        self,
        subject: AbstractSubject,
        setting: Setting,
        known: Circumstances,
        tick: Callable[[int, int], None],
    ) -> TokenReadings:
        """Feed the tokens; `tick` is told how much is done, and of how much."""
