"""The images that a model of timm takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Pixels of one image that a trial may cost: 2048 by 2048.
MOST_PIXELS = 1 << 22
MOST_CHANNELS = 1 << 10
USUAL = (3, 224, 224)


def image_size(model: nn.Module) -> tuple[int, int, int]:
    """Channels, height and width of the images that a model was made for."""
    config: Any = getattr(model, "pretrained_cfg", None)
    stated = config.get("input_size") if isinstance(config, dict) else None
    channels, height, width = stated or USUAL
    embedding = getattr(model, "patch_embed", getattr(model, "stem", None))
    fixed = getattr(embedding, "img_size", None)
    if fixed is not None:
        height, width = (fixed, fixed) if isinstance(fixed, int) else fixed
    channels = getattr(model, "in_chans", channels)
    if height * width > MOST_PIXELS or channels > MOST_CHANNELS:
        raise SourceError(
            "E_LIMIT",
            f"the model takes images of {channels} x {height} x {width}",
            hint="state the true input_size in the config",
            stage="config",
        )
    return int(channels), int(height), int(width)


def noise_image(model: nn.Module, weight: Tensor) -> Tensor:
    """One image of noise, always the same, in the dtype and on the device of a weight."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, *image_size(model), generator=generator, dtype=torch.float64)
    return noise.to(weight.device, weight.dtype)
