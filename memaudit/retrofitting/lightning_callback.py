"""The callback for Lightning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import MachineError
from memaudit.retrofitting.monitoring import MonitoringCallback, warn_of_missing_raw_weights
from memaudit.retrofitting.record import load_raw_state, raw_state
from memaudit.retrofitting.weights import retrofitted_weights

if TYPE_CHECKING:
    pass

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


class LightningMemauditCallback(MonitoringCallback, _callback_class()):  # type: ignore[misc]
    """Watches the recurrent weights of a run, and keeps the raw ones in its checkpoints.

    The options are those of `MemauditCallback`; `every` is that of the trainer's logging by
    default. The state dict in a checkpoint is plain; the raw weights stand beside it. Build the
    optimizer with `memaudit.training.parameter_groups`.
    """

    _last_step = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the first reading."""
        self._last_step = trainer.global_step
        self._begin(pl_module, trainer.optimizers)
        self._log(trainer, first=True)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Look at the gradients that are about to be used."""
        del pl_module, optimizer
        due = self._due(trainer.global_step + 1, trainer.log_every_n_steps)
        if self._monitor is not None and due:
            self._monitor.before_step()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the weights after the step; batches that are only gathered make none."""
        del pl_module, outputs, batch, batch_idx
        if trainer.global_step != self._last_step:
            self._last_step = trainer.global_step
            if self._due(self._last_step, trainer.log_every_n_steps):
                self._log(trainer)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Put the raw weights beside the plain state dict."""
        del trainer
        if retrofitted_weights(pl_module):
            checkpoint[KEY] = raw_state(pl_module)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Put them back, after the plain ones were."""
        del trainer
        if KEY in checkpoint:
            load_raw_state(pl_module, checkpoint[KEY])
        elif retrofitted_weights(pl_module):
            warn_of_missing_raw_weights()

    def _log(self, trainer: Any, *, first: bool = False) -> None:
        logs = self._measure(trainer.global_step, first=first)
        # Past the trainer's own bookkeeping: it drops what does not come at its logging steps.
        for logger in trainer.loggers:
            logger.log_metrics(logs, step=trainer.global_step)
        trainer.callback_metrics.update({n: torch.tensor(value) for n, value in logs.items()})
        if self.stopped:
            trainer.should_stop = True
