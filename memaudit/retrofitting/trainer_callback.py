"""The callback for the Trainer of transformers; the only module of the core that imports it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import ArgumentError
from memaudit.loading import guard_torchvision
from memaudit.retrofitting.monitoring import (
    MonitoringCallback,
    undecayed_recurrent,
    warn_of_missing_raw_weights,
)
from memaudit.retrofitting.record import load_raw_state, raw_state, read_raw, write_raw
from memaudit.retrofitting.weights import retrofitted_weights

guard_torchvision()  # before transformers, which imports torchvision

from transformers import TrainerCallback  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

UNATTACHED = (
    "memaudit: the callback is not attached, so its numbers go to state.log_history only, and "
    "weight decay is left as it is; call attach(trainer)"
)


class MemauditCallback(MonitoringCallback, TrainerCallback):
    """Watches the recurrent weights of a run, and keeps the raw ones in its checkpoints.

    Every `every` steps (those of logging by default) the largest gradient over weight and the
    distance to the boundary are logged, every `horizon_every` steps a quick memory horizon; None
    switches it off. Drift is warned of once. `stop_on` takes conditions such as "margin<1e-5",
    "gradient_over_weight>1e4", "horizon<32", "nonfinite" and "drift"; `stopped` tells which one
    ended the run. `source_of` makes of the model what memaudit can scan.
    """

    _trainer: Any = None
    _resumed: Path | None = None

    def attach(self, trainer: Any) -> MemauditCallback:
        """Log through the trainer, keep weight decay off raw weights, resume with exact ones."""
        if self._trainer is trainer:
            return self
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ArgumentError(
                "retrofitted weights have not been tried in pieces on several devices",
                hint="train without FSDP and DeepSpeed",
            )
        self._trainer = trainer
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        trainer.get_decay_parameter_names = _without_recurrent(trainer.get_decay_parameter_names)
        trainer._load_from_checkpoint = self._noting(trainer._load_from_checkpoint)
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the raw weights of a resumed checkpoint back, and take the first reading."""
        if self._trainer is None:
            warnings.warn(UNATTACHED, UserWarning, stacklevel=2)
        self._resume(kwargs["model"], args, state)
        optimizer = kwargs.get("optimizer")
        self._begin(kwargs["model"], () if optimizer is None else (optimizer,))
        self._log(state, control, first=True)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the gradients after they were clipped."""
        del args, control, kwargs
        if self._monitor is not None and self._due(state.global_step + 1, state.logging_steps):
            self._monitor.before_step()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the weights after the step."""
        del args, kwargs
        if self.stopped:  # before the first step, which the Trainer takes nevertheless
            control.should_training_stop = True
        elif self._due(state.global_step, state.logging_steps):
            self._log(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the raw weights beside the plain ones."""
        del control
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if retrofitted_weights(kwargs["model"]) and args.should_save and folder.is_dir():
            write_raw(kwargs["model"], folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the raw weights of the best checkpoint back, if it was loaded."""
        del control
        best = state.best_model_checkpoint
        if args.load_best_model_at_end and best and retrofitted_weights(kwargs["model"]):
            read_raw(kwargs["model"], Path(best))

    def _log(self, state: Any, control: Any, *, first: bool = False) -> None:
        logs = self._measure(state.global_step, first=first)
        if self._trainer is None:
            state.log_history.append({**logs, "epoch": state.epoch, "step": state.global_step})
        else:
            # To log takes back the wish to log, which would be that of the loss.
            wanted = control.should_log
            self._trainer.log(logs)
            control.should_log = wanted
        if self.stopped:
            control.should_training_stop = True

    def _resume(self, model: nn.Module, args: Any, state: Any) -> None:
        """Raw weights have digits, and signs, that the plain ones do not tell."""
        if state.global_step == 0 or not retrofitted_weights(model):
            return
        if self._resumed is not None:
            found = read_raw(model, self._resumed)
        else:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            found = _read_if_it_fits(model, folder)
        self._resumed = None
        if not found:
            warn_of_missing_raw_weights()

    def _noting(self, load: Callable[..., Any]) -> Callable[..., Any]:
        """Loading a checkpoint, with a note of where it is."""

        def noted(folder: Any, *args: Any, **kwargs: Any) -> Any:
            self._resumed = Path(folder)
            return load(folder, *args, **kwargs)

        return noted


def _without_recurrent(names: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The names of the parameters that decay, but for those that make the modes."""

    def decayed(model: nn.Module) -> list[str]:
        recurrent = undecayed_recurrent(model)
        kept = {name for name, weight in model.named_parameters() if id(weight) in recurrent}
        return [name for name in names(model) if name not in kept]

    return decayed


def _read_if_it_fits(model: nn.Module, folder: Path) -> bool:
    """Read the raw weights of a folder, if they make the weights that the model has now."""
    here = retrofitted_weights(model).items()
    before = {key: getattr(owner, name).detach().clone() for key, (owner, name) in here}
    kept = raw_state(model)
    if not read_raw(model, folder):
        return False
    if all(torch.equal(getattr(owner, name), before[key]) for key, (owner, name) in here):
        return True
    load_raw_state(model, kept)
    return False
