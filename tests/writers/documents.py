"""A document made by hand, with every kind of element that a writer draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from memaudit.report import Finding, GateResult
from memaudit.sections import (
    Axis,
    Band,
    Beyond,
    Column,
    Document,
    Figure,
    Line,
    Mark,
    Points,
    Section,
    Table,
)

LAGS = np.arange(1, 513)
LAYERS = 24


def curves(*, log: bool = False) -> Figure:
    """Three decays with their horizons, a floor, a window and a band."""
    fast, slow = np.exp(-0.05 * LAGS), np.exp(-0.02 * LAGS)
    return Figure(
        "All queries",
        Axis("lag", log=log),
        Axis("memory", log=True),
        (
            Line("heaviside", LAGS, fast),
            Line("impulse", LAGS, slow),
            Line("reversed", LAGS, 0.5 * fast, dashed=True),
            Band("spread", LAGS, 0.5 * slow, 2.0 * slow, shown=False),
        ),
        (
            Mark("horizon 139", x=139.0, series="heaviside"),
            Mark("horizon 346", x=346.0, series="impulse"),
            Mark("floor", y=1e-9),
            Mark("window", span=(10.0, 200.0)),
        ),
        caption="The largest response over all inputs.",
    )


def plane() -> Figure:
    """Eigenvalues on a spiral, a circle and a second one."""
    turns = np.linspace(0.0, 6.0, 40)
    values = 0.9 * np.exp(-0.1 * turns) * np.exp(1j * turns)
    return Figure(
        "Complex plane",
        Axis("Re"),
        Axis("Im"),
        tuple(
            Points(f"layers.{k}", values.real * 0.99**k, values.imag * 0.99**k)
            for k in range(LAYERS)
        ),
        (Mark("boundary", radius=1.0), Mark("slowest mode", radius=0.9)),
        square=True,
    )


def formats() -> Figure:
    """Errors over the size of a move, with points that have names."""
    betas = np.geomspace(1e-6, 1.0, 25)
    return Figure(
        "E(beta)",
        Axis("beta", log=True),
        Axis("error", log=True),
        (
            Line("recurrent", betas, 3 * betas),
            Points(
                "formats", np.array([1e-4, 2e-3]), np.array([3e-4, 6e-3]), ("float16", "bfloat16")
            ),
        ),
        (Mark("radius", x=0.01, series="recurrent"),),
    )


def table() -> Table:
    """Words, numbers, a number beyond the window, one that was not measured."""
    return Table(
        (
            Column("query", key=True),
            Column("decay"),
            Column("rate", brief=False, help="per step"),
            Column("half-life"),
            Column("horizon", better="more"),
            Column("floor", format=".0e", brief=False),
        ),
        (
            ("heaviside", "exponential", 0.05, 13.86, 139, 1e-15),
            ("impulse", "polynomial", None, 4.0, Beyond(512), 1e-15),
            ("reversed", "growing", -0.01, None, None, 1e-9),
        ),
        notes=("reversed: the state had not settled",),
    )


def document(**changes: Any) -> Document:
    """Every kind of element, findings of every severity, a gate of each sort."""
    made = Document(
        title="demo:lstm",
        facts=(
            ("model", "LSTM, 1 layer of 32"),
            ("parameters", "4,384, 37.0 % of them run"),
            ("run as", "float64 on cpu"),
            ("family", "lstm (adapter rnn)"),
        ),
        sections=(
            Section(
                "Memory",
                line="heaviside exponential, horizon 139",
                headline="Remembers 139 steps (query heaviside, the shortest; under impulse more).",
                text=("How much of an input is still in the answers so many steps later.",),
                tables=(table(),),
                figures=(curves(),),
            ),
            Section("Spectrum", line="margin 1.00e-01 (layers.0)", figures=(plane(),)),
            Section("Stability", line="radius 0.01 until tolerance", figures=(formats(),)),
            Section(
                "Assumptions",
                line="1 holds; fail: linear",
                tables=(
                    Table(
                        (Column("assumption", key=True), Column("verdict"), Column("residual")),
                        (("linear", "fails", 0.5), ("causal", "holds", 0.0)),
                        title="Assumptions of the theory",
                    ),
                ),
            ),
            Section(
                "Settings",
                tables=(Table((Column("name", key=True), Column("value")), (("seed", "0"),)),),
                detail=True,
            ),
        ),
        findings=(
            Finding("MA102", "growing-memory", "error", "the memory grows", "an advice", "l.3"),
            Finding("MA201", "near-boundary", "warning", "near", "another advice"),
            Finding("MA105", "supremum-at-edge", "note", "at the edge", ""),
        ),
        gates=(GateResult("error", True, "MA102"), GateResult("horizon<10", False)),
        footer=("horizon 512", "seed 0", "1.2 s", "torch 2.6"),
        command="memaudit scan demo:lstm --horizon 512",
    )
    return replace(made, **changes)
