"""The callback in Lightning."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from memaudit.numerics.signals import seeded
from memaudit.training import parameter_groups
from tests.training.models import raws, recurrent, retrofitted

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Lightning imports warns of itself
    lightning = pytest.importorskip("lightning.pytorch", reason="needs memaudit[lightning]")
    from memaudit.training import LightningMemauditCallback

pytestmark = pytest.mark.filterwarnings("ignore")


class Task(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = retrofitted(recurrent(), "exp")
        self.head = nn.Linear(6, 1)
        with torch.no_grad():
            self.head.weight.fill_(0.3)
            self.head.bias.zero_()
        self.losses: list[float] = []

    def training_step(self, batch, batch_idx):
        del batch_idx
        loss = self.head(self.layer(batch[0])[0]).square().mean()
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(parameter_groups(self, weight_decay=0.1), lr=1e-2)


def batches():
    # The same batch again and again: which one a resumed run begins with is Lightning's affair.
    drawn = torch.randn(2, 5, 3, generator=seeded(4)).repeat(4, 1, 1)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(drawn), batch_size=2)


def fitted(folder, callback, *, steps: int, resume=None):
    task = Task()
    made = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        default_root_dir=str(folder),
        callbacks=[callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
    )
    made.fit(task, batches(), ckpt_path=resume, weights_only=True if resume else None)
    return task, made


def watching(**options):
    return LightningMemauditCallback(horizon_every=None, **options)


def test_numbers_are_logged_by_the_trainer(tmp_path):
    _, made = fitted(tmp_path, watching(), steps=2)
    told = made.callback_metrics
    assert 0.0 < float(told["memaudit/margin"]) < 1.0
    assert float(told["memaudit/gradient_over_weight"]) > 0.0


def test_a_horizon_is_measured_of_what_can_be_fed(tmp_path):
    callback = LightningMemauditCallback(
        horizon_every=1, window=32, source_of=lambda task: task.layer
    )
    task, made = fitted(tmp_path, callback, steps=1)
    names = {"memaudit/horizon", "memaudit/horizon_beyond"}
    assert names & set(made.callback_metrics)
    assert task.layer.training


def test_a_checkpoint_is_plain_and_resumes_exactly(tmp_path):
    straight, _ = fitted(tmp_path, watching(), steps=4)
    _, half = fitted(tmp_path, watching(), steps=2)
    file = tmp_path / "half.ckpt"
    half.save_checkpoint(file)
    state = torch.load(file, weights_only=True)
    assert set(state["state_dict"]) == {
        *(f"layer.{name}" for name in recurrent().state_dict()),
        "head.weight",
        "head.bias",
    }
    resumed, _ = fitted(tmp_path, watching(), steps=4, resume=str(file))
    wanted = raws(straight)
    assert len(wanted) == 4
    assert all(torch.equal(wanted[name], value) for name, value in raws(resumed).items())
    assert resumed.losses == straight.losses[2:]


def test_a_condition_stops_the_run(tmp_path):
    callback = watching(stop_on="margin<2")
    _, made = fitted(tmp_path, callback, steps=4)
    assert made.global_step < 4
    assert "margin" in callback.stopped
