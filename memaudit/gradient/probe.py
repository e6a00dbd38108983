"""How large gradients are beside the recurrent weights that they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memaudit import registry
from memaudit.errors import ArgumentError, clean
from memaudit.gradient.result import GradientResult
from memaudit.interfaces import NO_TOOLS, AbstractProbe, Tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.gradient.forms import Task
    from memaudit.gradient.result import LayerGradient
    from memaudit.interfaces import AbstractSubject, Setting

LOSSES = ("synthetic",)
FIXED = "the weights of this model cannot be moved as an argument"
ROUGH = "this model passes no gradient to its recurrent weights"


@dataclass(frozen=True, slots=True)
class Gradient(AbstractProbe):
    """Which reparameterization should a training run use, and how large a step stays safe?

    Takes |dLoss/dw| / |w| of every raw recurrent weight w, and of the raw weights that each
    reparameterization would have at the same eigenvalues. `loss` "synthetic" asks for a target
    with memory (t+1)^-1.1 on inputs of `steps` steps; `batch` (inputs, targets) and `loss_fn`,
    called with the answers and the targets, take its place.
    """

    name = "gradient"
    summary = "gradient over weight of every recurrence, and for every reparameterization"
    result = GradientResult

    options: ClassVar[Mapping[str, str]] = {
        "loss": "the task: synthetic",
        "steps": "steps of its inputs",
        "batch": "(inputs, targets) in its place, in Python only",
        "loss_fn": "the loss of answers and targets, in Python only",
    }

    loss: str = "synthetic"
    steps: int = 100
    batch: tuple[Any, Any] | None = None
    loss_fn: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, before a model is opened."""
        if self.loss not in LOSSES:
            raise ArgumentError(
                f"gradient.loss is {clean(self.loss)!r}",
                hint="it is synthetic; another loss is given in Python, by batch and loss_fn",
            )
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 2:
            raise ArgumentError(
                f"gradient.steps is {clean(self.steps)!r}", hint="give a whole number from 2 on"
            )
        pair = isinstance(self.batch, tuple | list) and len(self.batch) == 2
        if self.batch is not None and not pair:
            raise ArgumentError("gradient.batch is no pair", hint="give (inputs, targets)")
        if self.loss_fn is not None and (self.batch is None or not callable(self.loss_fn)):
            raise ArgumentError(
                "gradient.loss_fn has nothing to be called with",
                hint="give batch=(inputs, targets) and a function of answers and targets",
            )

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> GradientResult:
        del tools
        return GradientResult(self._layers(subject, setting))

    def _layers(self, subject: AbstractSubject, setting: Setting) -> tuple[LayerGradient, ...]:
        from memaudit.devices import shortage
        from memaudit.gradient.forms import measured, unmeasured

        adapter = subject.identity.adapter
        does = "failed while gradients were taken"
        with registry.calling("adapters", adapter, does), shortage():
            copies = subject.perturbable()
            if copies is None:
                return (unmeasured(FIXED),)
            if not copies.differentiable:
                return (unmeasured(ROUGH),)
            return measured(subject, copies, self._task(subject, setting))

    def _task(self, subject: AbstractSubject, setting: Setting) -> Task:
        from memaudit.gradient.forms import given_task, synthetic_task

        if self.batch is None:
            return synthetic_task(subject, setting, steps=self.steps)
        return given_task(subject, (self.batch[0], self.batch[1]), self.loss_fn)
