"""Other tools on the same models, where they are installed: mambapy and WeightWatcher."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from importlib.util import find_spec

import torch

import memaudit
from benchmarks.audits import transformer
from benchmarks.row import Row, best


def rows(*, full: bool) -> Iterator[Row]:
    """What is installed; the others are named (`pip install --no-deps mambapy weightwatcher`)."""
    if find_spec("mambapy"):
        yield from parallel_scan(full=full)
    else:
        yield Row("others", "mambapy", float("nan"), "", note="not installed: left out")
    if find_spec("weightwatcher"):
        yield from weight_watcher(full=full)
    else:
        yield Row("others", "WeightWatcher", float("nan"), "", note="not installed: left out")


def parallel_scan(*, full: bool) -> Iterator[Row]:
    """The scan of mambapy, which holds all states at once, against ours: one layer of 130M."""
    from mambapy.pscan import pscan

    from memaudit.numerics.scans import selective_scan

    steps, width, states = 4096 if full else 1024, 1536, 16
    draw = torch.Generator().manual_seed(0)
    u, dt = (torch.rand(1, steps, width, generator=draw) for _ in range(2))
    rates = -torch.arange(1.0, states + 1).repeat(width, 1)
    keys, queries = (torch.randn(1, steps, states, generator=draw) for _ in range(2))

    @torch.no_grad()
    def theirs() -> torch.Tensor:
        decays = torch.exp(dt[..., None] * rates)
        states = pscan(decays, (dt * u)[..., None] * keys[:, :, None])
        return (states @ queries[..., None]).squeeze(3)

    def ours() -> torch.Tensor:
        answer = selective_scan(
            *(x.transpose(1, 2) for x in (u, dt)),
            rates,
            *(x.transpose(1, 2) for x in (keys, queries)),
        )
        assert isinstance(answer, torch.Tensor)
        return answer.transpose(1, 2)

    torch.testing.assert_close(theirs(), ours(), rtol=1e-4, atol=1e-4)
    found = best({"theirs": theirs, "ours": ours}, 3)
    yield Row("others", "mambapy's scan / memaudit's", found["theirs"] / found["ours"])


def weight_watcher(*, full: bool) -> Iterator[Row]:
    """Its analysis of every matrix against our spectra of the recurrences, of one small Mamba.

    They answer other questions: it fits the singular values of layers, and skips recurrences.
    """
    import weightwatcher

    layers = 8 if full else 2
    config = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": layers}
    model = transformer("Mamba", **config)

    def theirs() -> None:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weightwatcher.WeightWatcher(model=model).analyze()

    def ours() -> None:
        memaudit.scan(model, queries=[], probes=["spectrum"])

    found = best({"theirs": theirs, "ours": ours}, 2)
    value = found["theirs"] / found["ours"]
    yield Row("others", "WeightWatcher's matrices / memaudit's spectra", value)
