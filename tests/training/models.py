"""Tiny models, data and trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import memaudit
from memaudit.numerics.signals import seeded

VOCABULARY = 32


def mamba(*, seed: int = 0, **config: Any) -> Any:
    """A Mamba of two layers with weights that a seed decides."""
    from transformers import MambaConfig, MambaForCausalLM

    shape = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "vocab_size": VOCABULARY}
    model = MambaForCausalLM(MambaConfig(**shape, **config))
    generator = seeded(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if (weight.ndim >= 2 or "bias" in name) and "A_log" not in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model


def retrofitted(model: nn.Module, form: str = "best", **options: Any) -> Any:
    memaudit.retrofit(model, form, radius=False, **options)
    return model


def sentences(count: int = 8, length: int = 6, *, seed: int = 1) -> list[dict[str, torch.Tensor]]:
    drawn = torch.randint(0, VOCABULARY, (count, length), generator=seeded(seed))
    return [{"input_ids": row, "labels": row} for row in drawn]


def recurrent(*, seed: int = 0) -> nn.RNN:
    model = nn.RNN(3, 6, batch_first=True)
    generator = seeded(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_((torch.rand(weight.shape, generator=generator) - 0.5) * 0.6)
    return model


def raws(model: nn.Module) -> dict[str, torch.Tensor]:
    """The raw weights of a model, as they are now."""
    named = model.named_parameters()
    return {name: p.detach().clone() for name, p in named if "parametrizations" in name}


def trainer(model: nn.Module, folder: Path, **options: Any) -> Any:
    """A Trainer on the sentences, silent."""
    from transformers import Trainer, TrainingArguments

    chosen: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 3,
        "dataloader_pin_memory": False,
    }
    callbacks = options.pop("callbacks", [])
    data = options.pop("data", None) or sentences()
    chosen |= options
    return Trainer(
        model=model,
        args=TrainingArguments(**chosen),
        train_dataset=data,  # type: ignore[arg-type]
        eval_dataset=data[:2],  # type: ignore[arg-type]
        callbacks=callbacks,
    )
