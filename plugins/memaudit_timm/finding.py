"""Whether a model is a sequence of patches, found by structure and proven by a trial."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean
from memaudit.numerics.wide_floats import really_float64
from memaudit_timm.building import BUILD_ERRORS
from memaudit_timm.images import image_size, noise_image
from memaudit_timm.patches import PatchModel
from memaudit_timm.stand_in import GivenPatches

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How timm names the module that makes patches.
EMBEDDINGS = ("patch_embed", "stem")
#: Two runs of one computation may differ by the order of sums on some devices.
ROUNDINGS = 100.0


@dataclass(slots=True)
class Sighting:
    """What a trial saw: the output of the embedding, and what went into and out of the blocks."""

    embedded: Any = None
    tokens: list[Any] = field(default_factory=list)

    def hear_embedding(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Forward hook of the embedding."""
        self.embedded = output

    def hear_block(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Forward hook of every block."""
        self.tokens += [inputs[0] if inputs else None, output]


def require_blocks(model: nn.Module, *, name: str) -> None:
    """Refuse what is no row of blocks behind an embedding, before weights are read."""
    embedded = any(isinstance(getattr(model, a, None), nn.Module) for a in EMBEDDINGS)
    blocks = getattr(model, "blocks", None)
    if not embedded or not isinstance(blocks, nn.Sequential | nn.ModuleList) or not len(blocks):
        raise _refusal(name, "it has no row of blocks behind an embedding of patches")


def find_patches(model: nn.Module, weight: Tensor, *, name: str) -> PatchModel:
    """A map from patch embeddings to patch states, or E_UNSUPPORTED with a reason.

    The model runs an image of noise; fed with the embeddings of that image it must give the same.
    """
    require_blocks(model, name=name)
    attribute = next(a for a in EMBEDDINGS if isinstance(getattr(model, a, None), nn.Module))
    blocks: Any = model.blocks
    embedding = getattr(model, attribute)
    if hasattr(model, "grad_checkpointing"):
        model.__dict__["grad_checkpointing"] = False
    image = noise_image(model, weight)
    sighting, answer = _try(model, embedding, list(blocks), image, name)
    embedded, *extras = sighting.embedded if _is_tuple(sighting.embedded) else [sighting.embedded]
    width = _check_tokens(sighting, embedded, answer, name)
    grid = _grid(embedding, embedded, width)
    count = grid[0] * grid[1]
    if getattr(model, "num_prefix_tokens", answer.shape[1] - count) != answer.shape[1] - count:
        raise _refusal(name, "its answer has other tokens than those of the patches")
    stand_in = GivenPatches(embedding, embedded.shape[1:], tuple(extras))
    setattr(model, attribute, stand_in)
    prefix = sighting.tokens[0].shape[1] - count
    patches = PatchModel(model, stand_in, image_size(model), grid, width, prefix)
    again = patches.run(embedded.reshape(1, count, width))
    off = float((again - answer[:, -count:]).abs().max())
    if not off <= ROUNDINGS * torch.finfo(answer.dtype).eps * float(answer.abs().max()):
        raise _refusal(name, "fed with its own patch embeddings, it answers something else")
    return patches


def can_be_cut(patches: PatchModel, weight: Tensor) -> bool:
    """Whether the model runs on fewer patches than it has; some are bound to their grid."""
    if patches.count < 2:
        return False
    patches.cut = True
    try:
        with torch.no_grad():
            patches.run(weight.new_zeros(1, patches.count - 1, patches.width))
    except BUILD_ERRORS:
        return False
    finally:
        patches.cut = False
    return True


def _try(
    model: nn.Module, embedding: nn.Module, blocks: list[nn.Module], image: Tensor, name: str
) -> tuple[Sighting, Tensor]:
    sighting = Sighting()
    hooks = [embedding.register_forward_hook(sighting.hear_embedding)]
    hooks += [block.register_forward_hook(sighting.hear_block) for block in blocks]
    run: Any = getattr(model, "forward_features", None)
    try:
        with torch.no_grad(), really_float64(image.dtype):
            return sighting, run(image)
    except BUILD_ERRORS as error:
        what = f"an image of {tuple(image.shape[1:])} ends in {type(error).__name__}"
        raise _refusal(name, f"{what}: {clean(error)}") from error
    finally:
        for hook in hooks:
            hook.remove()


def _check_tokens(sighting: Sighting, embedded: Any, answer: Any, name: str) -> int:
    """The width of the patches, or a refusal: one row of them from the first block to the end."""
    if not isinstance(embedded, Tensor) or embedded.ndim not in (3, 4):
        raise _refusal(name, "its embedding does not give patches")
    shapes = list(_shapes(sighting.tokens))
    if not shapes or any(len(shape) != 3 for shape in shapes):
        raise _refusal(name, "its blocks work on feature maps, which have no sequence axis")
    width = shapes[0][2]
    count = embedded.numel() // width
    if embedded.shape[-1] != width or len(set(shapes)) > 1 or shapes[0][1] < count:
        raise _refusal(name, "its blocks change the number or the width of the patches")
    if not isinstance(answer, Tensor) or answer.ndim != 3 or answer.shape[1] < count:
        raise _refusal(name, "it does not answer with a state for every patch")
    return width


def _shapes(tokens: list[Any]) -> Iterator[tuple[int, ...]]:
    for value in tokens:
        yield tuple(value.shape) if isinstance(value, Tensor) else ()


def _is_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0


def _grid(embedding: nn.Module, embedded: Tensor, width: int) -> tuple[int, int]:
    """Rows and columns of the patches, as the embedding or its output states them."""
    count = embedded.numel() // width
    if embedded.ndim == 4:
        return int(embedded.shape[1]), int(embedded.shape[2])
    stated: Any = getattr(embedding, "grid_size", None)
    if isinstance(stated, tuple | list) and len(stated) == 2 and stated[0] * stated[1] == count:
        return int(stated[0]), int(stated[1])
    return 1, count


def _refusal(name: str, why: str) -> SourceError:
    return SourceError(
        "E_UNSUPPORTED",
        f"{name} has no sequence to audit: {why}",
        hint="timm's vision transformers, mixers and Sequencer2D can be audited",
        stage="recognise",
    )
