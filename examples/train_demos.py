"""Train the three demo models of the package and write them as safetensors files."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

HIDDEN = 32
BATCH = 64
HELD_OUT = 256
DEMO_FOLDER = Path(__file__).resolve().parent.parent / "memaudit" / "demos"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One demo: which cell learns to convolve white noise with which kernel, and for how long."""

    name: str
    cell: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]
    task: str
    decay: float | None
    delay: int
    length: int
    steps: int
    rate: float
    seed: int

    def kernel(self) -> Tensor:
        """The kernel rho of the target y_t = sum_s rho_s x_{t-s}, of unit L2 norm."""
        lags = torch.arange(self.length, dtype=torch.float64)
        if self.decay is None:
            return (lags == self.delay).double()
        powers = self.decay**lags
        return powers / powers.norm()


RECIPES = (
    Recipe("lstm", nn.LSTM, "moving average with kernel 0.95^t", 0.95, 0, 100, 600, 1e-2, 1),
    Recipe("gru", nn.GRU, "repeat the input of 10 steps ago", None, 10, 40, 2500, 1e-2, 2),
    Recipe("rnn", nn.RNN, "moving average with kernel 0.9^t", 0.9, 0, 100, 800, 3e-3, 3),
)


class Demo(nn.Module):
    """A recurrent layer under the name of its cell, and a linear readout `fc`."""

    def __init__(self, recipe: Recipe, generator: torch.Generator) -> None:
        super().__init__()
        self.cell = recipe.name
        self.add_module(recipe.name, recipe.cell(1, HIDDEN, batch_first=True))
        self.fc = nn.Linear(HIDDEN, 1)
        bound = HIDDEN**-0.5  # torch's own initial range, drawn from our generator
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,1) by (B,T,1)."""
        states, _ = self.get_submodule(self.cell)(inputs)
        return self.fc(states)


def batch(recipe: Recipe, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """White noise (B,T,1) and its convolution with the kernel."""
    noise = torch.randn(size, recipe.length, generator=generator)
    rho = recipe.kernel()
    times = torch.arange(recipe.length)
    lag = times[:, None] - times[None, :]
    toeplitz = torch.where(lag >= 0, rho[lag.clamp(min=0)], 0.0).float()
    return noise[..., None], (noise @ toeplitz.T)[..., None]


def train(recipe: Recipe, steps: int) -> tuple[Demo, float, float]:
    """The trained model, its loss on held-out noise, and the loss of answering zero."""
    generator = torch.Generator().manual_seed(recipe.seed)
    model = Demo(recipe, generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    for _ in range(steps):
        inputs, targets = batch(recipe, BATCH, generator)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    inputs, targets = batch(recipe, HELD_OUT, generator)
    with torch.no_grad():
        final = nn.functional.mse_loss(model(inputs), targets)
    return model, float(final), float(targets.square().mean())


def write(recipe: Recipe, model: Demo, loss: float, folder: Path) -> Path:
    """Save the weights in float32 with what the tensors do not say beside them."""
    path = folder / f"{recipe.name}.safetensors"
    metadata = {
        "kind": recipe.name,
        "nonlinearity": "tanh",
        "task": recipe.task,
        "final_loss": f"{loss:.6g}",
    }
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, path, metadata=metadata)
    path.chmod(0o644)  # safetensors writes for the owner alone; a package is read by everybody
    return path


def main(argv: list[str] | None = None) -> int:
    """Train every demo and print its losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DEMO_FOLDER, help="folder for the files")
    parser.add_argument("--steps", type=int, default=None, help="steps instead of the recipe's")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES:
        steps = recipe.steps if arguments.steps is None else arguments.steps
        model, loss, trivial = train(recipe, steps)
        path = write(recipe, model, loss, arguments.out)
        print(
            f"{path.name}: loss {loss:.4g} after {steps} steps, answering zero costs {trivial:.4g}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
