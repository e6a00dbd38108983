"""Train the two demos of the state-space zoo, saved as their originals are.

What an audit should find. s4d averages its input with the kernel 0.95^t: memory decays
exponentially at a rate near 0.05, and so do the modes of its layer. lru repeats the symbol of
8 steps ago: what is read under an impulse stands out at lag 8, and is forgotten at the speed of
its slowest mode, within some 40 steps.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from memaudit_ssm.flax import FlaxBlock, FlaxStack
from memaudit_ssm.lru import LRU
from memaudit_ssm.s4d import S4D, ExampleStack, S4DBlock

DEMO_FOLDER = Path(__file__).resolve().parent.parent / "memaudit" / "demos"
HELD_OUT = 256
#: s4d: the kernel's share that is left after a step, and the steps of a sequence.
DECAY, WINDOW = 0.95, 160
#: s4d: steps of these sizes start with modes that last about as long as the kernel.
SMALLEST_STEP, LARGEST_STEP = 0.1, 0.5
#: lru: how many symbols there are, how long ago the wanted one was, and the steps of a sequence.
SYMBOLS, DELAY, LENGTH = 4, 8, 40
#: Choosing the faster execution looks at the eigenvalues; a constant keeps training alike.
TRAINED_BY = "convolution"

Batch = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One demo: the model, where its batches come from, its score, and its training."""

    name: str
    model: nn.Module
    batch: Batch
    score: Callable[[Tensor, Tensor], Tensor]
    config: dict[str, Any]
    steps: int
    rate: float
    size: int


def averaging_kernel(lags: int) -> Tensor:
    """The kernel that s4d learns, of unit L2 norm."""
    rho = DECAY ** torch.arange(lags, dtype=torch.float64)
    return rho / rho.norm()


def averaging_batch(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """White noise (B,T,1) and its average."""
    noise = torch.randn(size, WINDOW, generator=generator)
    times = torch.arange(WINDOW)
    lag = times[:, None] - times[None, :]
    toeplitz = torch.where(lag >= 0, averaging_kernel(WINDOW)[lag.clamp(min=0)], 0.0).float()
    return noise[..., None], (noise @ toeplitz.T)[..., None]


def copying_batch(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Symbols one by one (B,T,4), and the numbers (B,T-8) of those that are to be repeated."""
    symbols = torch.randint(SYMBOLS, (size, LENGTH), generator=generator)
    return functional.one_hot(symbols, SYMBOLS).float(), symbols[:, : LENGTH - DELAY]


def copying_loss(answers: Tensor, wanted: Tensor) -> Tensor:
    """The mean negative log-likelihood once there is something to repeat."""
    return functional.nll_loss(answers[:, DELAY:].flatten(0, 1), wanted.flatten())


def s4d(generator: torch.Generator) -> Recipe:
    """One block of S4's example that learns to average."""
    hidden, states = 16, 16
    block = S4DBlock(hidden, states)
    block.execution = TRAINED_BY
    block.load_state_dict(S4D(hidden, states, generator=generator).state_dict(), strict=False)
    low, high = math.log(SMALLEST_STEP), math.log(LARGEST_STEP)
    nn.init.uniform_(block.kernel.log_dt, low, high, generator=generator)
    model = ExampleStack([block], inputs=1, outputs=1, hidden=hidden, prenorm=False, pooling="none")
    mix = block.output_linear[0]
    _draw((model.encoder, model.decoder, mix), generator)
    config = {"d_input": 1, "d_output": 1, "d_model": hidden, "d_state": states, "n_layers": 1}
    config |= {"prenorm": False, "pool": False, "parameterization": "exp"}
    return Recipe(
        "s4d", model, averaging_batch, functional.mse_loss, config, steps=800, rate=1e-2, size=32
    )


def lru(generator: torch.Generator) -> Recipe:
    """One block of minimal-LRU that repeats its input."""
    hidden, states = 24, 48
    seq = LRU(hidden, states, radii=(0.3, 0.85), generator=generator)
    seq.execution = TRAINED_BY
    block = FlaxBlock(
        seq, activation="full_glu", norm="layer", called="normalization", prenorm=True
    )
    model = FlaxStack([block], inputs=SYMBOLS, outputs=SYMBOLS, pooling="none")
    outs = (block.get_submodule("out1"), block.get_submodule("out2"))
    _draw((model.encoder.encoder, model.decoder, *outs), generator)
    config = {"d_input": SYMBOLS, "d_output": SYMBOLS, "d_model": hidden, "d_hidden": states}
    config |= {"n_layers": 1, "pooling": "none", "norm": "layer", "prenorm": True}
    return Recipe("lru", model, copying_batch, copying_loss, config, steps=800, rate=4e-3, size=32)


def train(recipe: Recipe, steps: int, generator: torch.Generator) -> tuple[float, float]:
    """Train in place; the loss on a fresh batch before and after."""
    before = held_out(recipe, generator)
    optimizer = torch.optim.Adam(recipe.model.parameters(), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    for _ in range(steps):
        inputs, wanted = recipe.batch(recipe.size, generator)
        loss = recipe.score(recipe.model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(recipe.model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return before, held_out(recipe, generator)


@torch.no_grad()
def held_out(recipe: Recipe, generator: torch.Generator) -> float:
    """The loss on a fresh batch."""
    inputs, wanted = recipe.batch(HELD_OUT, generator)
    return float(recipe.score(recipe.model(inputs), wanted))


def write(recipe: Recipe, folder: Path) -> Path:
    """Save weights and config as users of the original have them."""
    place = folder / recipe.name
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(recipe.config, indent=2) + "\n", "utf-8")
    tensors = {name: t.detach().contiguous() for name, t in recipe.model.state_dict().items()}
    if recipe.name == "lru":
        np.savez(place / "params.npz", **_flax_tree(tensors))  # type: ignore[arg-type]
    else:
        save_file(tensors, place / "model.safetensors")
    for file in place.iterdir():
        file.chmod(0o644)  # safetensors writes for the owner alone; a package is read by everybody
    return place


def _flax_tree(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """The names and forms that flax gives to them."""
    tree: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        owner, _, leaf = name.replace("layers.", "layers_").rpartition(".")
        if leaf == "weight":
            leaf, tensor = ("kernel", tensor.mT) if tensor.ndim == 2 else ("scale", tensor)
        tree["/".join(["params", *owner.split("."), leaf])] = tensor.numpy().copy(order="C")
    return tree


@torch.no_grad()
def _draw(layers: tuple[nn.Module, ...], generator: torch.Generator) -> None:
    """Torch's own initial range, drawn from our generator."""
    for layer in layers:
        bound = layer.get_parameter("weight").shape[1] ** -0.5
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)


def main(argv: list[str] | None = None) -> int:
    """Train every demo and print its losses."""
    parser = argparse.ArgumentParser(description="Train the demos of the state-space zoo.")
    parser.add_argument("--out", type=Path, default=DEMO_FOLDER, help="folder for the demos")
    parser.add_argument("--steps", type=int, default=None, help="steps instead of the recipe's")
    arguments = parser.parse_args(argv)
    for seed, recipe_of in enumerate((s4d, lru)):
        generator = torch.Generator().manual_seed(seed)
        recipe = recipe_of(generator)
        steps = recipe.steps if arguments.steps is None else arguments.steps
        before, after = train(recipe, steps, generator)
        place = write(recipe, arguments.out)
        print(f"{place.name}: loss {before:.4g} before and {after:.4g} after {steps} steps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
