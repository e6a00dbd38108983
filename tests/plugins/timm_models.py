"""Small models of timm, made on the spot, and the ways to open them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import save_for_hf
from torch import Tensor, nn

from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_timm import TimmAdapter

VIT = "vit_tiny_patch16_224"
#: 4 x 4 patches of width 32.
SMALL = {"img_size": 64, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}
SEQUENCER = "sequencer2d_s"
#: Two stages with three and one blocks, over 4 x 4 and 2 x 2 patches.
SCANNING = {
    "layers": [3, 1],
    "patch_sizes": [7, 2],
    "embed_dims": [8, 12],
    "hidden_sizes": [3, 5],
    "mlp_ratios": [2.0, 2.0],
    "num_classes": 4,
}
#: Images of Sequencer2D have no size of their own: the config states one.
SEEN = {"input_size": (3, 28, 28), "fixed_input_size": True, "classifier": "head.fc"}


def made(name: str, config: dict[str, Any] | None = None, **sizes: Any) -> nn.Module:
    """A model in evaluation mode with its own random weights, none of them at its start value."""
    generator = torch.Generator().manual_seed(3)
    with torch.random.fork_rng(devices=[]):
        model = timm.create_model(name, pretrained=False, pretrained_cfg=config, **sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def vit(**changes: Any) -> nn.Module:
    return made(VIT, **{**SMALL, **changes})


def sequencer(**changes: Any) -> nn.Module:
    return made(SEQUENCER, SEEN, **{**SCANNING, **changes})


def saved(model: nn.Module, folder: Path, sizes: dict[str, Any] | None) -> Path:
    """The folder that timm itself writes for the hub."""
    save_for_hf(model, str(folder), model_args=sizes, safe_serialization=True)
    return folder


def opened(source: Any, dtype: torch.dtype | None = None, **options: Any) -> AbstractSubject:
    request = Request(torch.device("cpu"), dtype, None, options)
    return TimmAdapter().load(parse_source(source), request)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
