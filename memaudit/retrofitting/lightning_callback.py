"""The callback for Lightning."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memaudit.errors import MachineError
from memaudit.retrofitting.record import is_retrofitted, load_raw_state, raw_state
from memaudit.retrofitting.training import WINDOW, Monitor, make_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

#: Lightning has two names, with classes that do not know each other.
PACKAGES = ("lightning.pytorch", "pytorch_lightning")
#: The key of the raw weights in a checkpoint.
KEY = "memaudit"


def _callback_class() -> type[Any]:
    for package in PACKAGES:
        try:
            return import_module(package).Callback
        except ModuleNotFoundError as error:
            if error.name not in (package, package.partition(".")[0]):
                raise
    raise MachineError(
        "E_DEPENDENCY", "Lightning is not installed", hint='pip install "memaudit[lightning]"'
    )


class LightningMemauditCallback(_callback_class()):  # type: ignore[misc]
    """Watches the recurrent weights of a run, and keeps the raw ones in its checkpoints.

    The options are those of `MemauditCallback`; `every` is that of the trainer's logging by
    default. The state dict in a checkpoint is plain; the raw weights stand beside it. Build the
    optimizer with `memaudit.training.parameter_groups`.
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        horizon_every: int | None = 500,
        window: int = WINDOW,
        stop_on: Sequence[str] | str = ("nonfinite",),
        audible: Callable[[nn.Module], Any] | None = None,
    ) -> None:
        super().__init__()
        self._watch = make_watch(
            every=every,
            horizon_every=horizon_every,
            window=window,
            stop_on=stop_on,
            audible=audible,
        )
        self._monitor: Monitor | None = None
        self._seen = -1
        self.stopped = ""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the first reading."""
        self.stopped = ""
        self._seen = trainer.global_step
        self._monitor = Monitor(pl_module, self._watch)
        for optimizer in trainer.optimizers:
            self._monitor.check_decay(optimizer)
        self._read(trainer, first=True)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Look at the gradients that are about to be used."""
        del pl_module, optimizer
        if self._monitor is not None and self._due(trainer, trainer.global_step + 1):
            self._monitor.before_step()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the weights after the step; batches that are only gathered make none."""
        del pl_module, outputs, batch, batch_idx
        if trainer.global_step == self._seen or self._monitor is None:
            return
        self._seen = trainer.global_step
        if self._due(trainer, self._seen):
            self._read(trainer)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Put the raw weights beside the plain state dict."""
        del trainer
        if is_retrofitted(pl_module):
            checkpoint[KEY] = raw_state(pl_module)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Put them back, after the plain ones were."""
        del trainer
        if KEY in checkpoint:
            load_raw_state(pl_module, checkpoint[KEY])
        elif is_retrofitted(pl_module):
            warnings.warn(
                "memaudit: the checkpoint has no raw weights of this model: they were made from "
                "the plain ones, and the optimizer's averages may not belong to them",
                UserWarning,
                stacklevel=2,
            )

    def _due(self, trainer: Any, step: int) -> bool:
        assert self._monitor is not None
        return self._monitor.due(step, max(int(trainer.log_every_n_steps or 1), 1))

    def _read(self, trainer: Any, *, first: bool = False) -> None:
        assert self._monitor is not None
        reading, reason = self._monitor.after_step(trainer.global_step, first=first)
        # Past the trainer's own bookkeeping: it drops what does not come at its logging steps.
        for logger in trainer.loggers:
            logger.log_metrics(reading.logs(), step=trainer.global_step)
        trainer.callback_metrics.update(_tensors(reading.logs()))
        if reason:
            self.stopped = f"step {trainer.global_step}: {reason}"
            warnings.warn(f"memaudit: the run is stopped at {self.stopped}", stacklevel=2)
            trainer.should_stop = True


def _tensors(logs: dict[str, float]) -> dict[str, Any]:
    import torch

    return {name: torch.tensor(value) for name, value in logs.items()}
