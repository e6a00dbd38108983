"""The laws of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.audit import scan
from memaudit.contracts import AbstractQuery
from memaudit.numerics.signals import lag_grid
from memaudit.subjects.callables import wrap
from memaudit.testing.law import check_words, draw, must
from memaudit.testing.models import HORIZON, filtered, tanh_recurrence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.memory.result import Curve
    from memaudit.testing.models import Model

#: Curves of linear models meet their formula up to rounding, which is far below this.
CLOSE = 1e-9


def check_query(query: AbstractQuery) -> None:
    """The laws of `AbstractQuery`: shapes, moments, the closed form, the identity, repetition."""
    must(isinstance(query, AbstractQuery), f"{query!r} is no AbstractQuery")
    check_words(query, "name", "summary")
    for horizon in (8, HORIZON):
        for form in _forms(query, horizon):
            _check_form(form, draw(1, 1), horizon)
            _check_form(form, draw(3, 4).float(), horizon)
    _check_closed_form(query)
    for model in (nn.Identity(), torch.tanh):
        curve = _curve(query, model, 2)
        kind = curve.decay.kind
        hint = "where lag 0 reads the present input, set first_lag = 1"
        must(kind == "memoryless", f"a map without memory comes out as {kind}; {hint}")
    first, second = (_curve(query, tanh_recurrence, 2, seed=3) for _ in range(2))
    must(first == second, "the same seed gives other numbers the second time")


def _forms(query: AbstractQuery, horizon: int) -> Iterator[AbstractQuery]:
    """The query, its linear form, and every longer one."""
    yield query
    yield query.on_linear()
    longer = query.lengthened(horizon)
    for _ in range(64):
        if longer is None:
            return
        yield longer
        before, longer = longer.prefix(horizon), longer.lengthened(horizon)
        longer_now = longer is None or longer.prefix(horizon) > before
        must(longer_now, "lengthened gives a query whose prefix is not longer")
    must(False, "lengthened never ends; it must give None at some length")


def _check_form(form: AbstractQuery, x: torch.Tensor, horizon: int) -> None:
    kept, inputs = x.clone(), form.inputs(x, horizon)
    shape = (len(x), inputs.shape[1] if inputs.ndim == 3 else "L", x.shape[1])
    got = f"{tuple(inputs.shape)} of {inputs.dtype} for x {tuple(x.shape)} of {x.dtype}"
    must(tuple(inputs.shape) == shape and inputs.dtype == x.dtype, f"inputs gives {got}")
    must(torch.equal(x, kept), "inputs changes the probe vectors that it was given")
    alone = torch.equal(form.inputs(x[:1], horizon), inputs[:1])
    must(alone, "the sequence of a probe vector depends on its neighbours")
    against = form.reference(x, horizon)
    alike = against is None or (against.shape == inputs.shape and against.dtype == x.dtype)
    must(alike, "reference is not shaped like inputs, or of another dtype")
    length, first = inputs.shape[1], form.prefix(horizon)
    for lags in (torch.arange(horizon), lag_grid(horizon)):
        later, earlier = form.moments(lags, horizon)
        for name, times in (("later", later), ("earlier", earlier)):
            if times is None:
                continue
            one_each = times.shape == lags.shape and not times.is_floating_point()
            must(one_each, f"the {name} moments are not one whole number for every lag")
            inside = int(times.min()) >= 0 and int(times.max()) < length
            must(inside, f"the {name} moments leave the {length} steps of the sequence")
        after = 0 <= first <= int(later.min())
        must(after, f"lag 0 is read before the prefix of {first} steps is over")


def _check_closed_form(query: AbstractQuery) -> None:
    """For a kernel rho the curve is |rho(t + shift)|_1, with one shift for all kernels."""
    t = torch.arange(4 * HORIZON, dtype=torch.float64)
    short = torch.zeros(len(t), 1, dtype=torch.float64)
    short[:8] = draw(8, 1)
    swinging, flat = (0.9**t * torch.cos(t))[:, None], torch.ones(len(t), 1, dtype=torch.float64)
    kernels = [swinging, flat, short, torch.cat([swinging, flat, short], 1)]
    off = {0: 0.0, 1: 0.0}
    for kernel in kernels:
        rho, width = kernel.abs().sum(1).numpy(), kernel.shape[1]
        for pooled in (False, True):
            curve = _curve(query, filtered(kernel, pooled=pooled), width, pooled=pooled)
            must(len(curve.lags) > 0, "a linear model gives no lags")
            for s in off:
                off[s] = max(off[s], float(abs(curve.values - rho[curve.lags + s]).max()))
    seen = " and ".join(f"{error:.2g} from |rho(t + {s})|" for s, error in off.items())
    must(min(off.values()) <= CLOSE, f"on linear models the curve is off by {seen}")
    shift = min(off, key=lambda s: off[s])
    x, expected = draw(3, 1), short[shift : shift + HORIZON]
    readings = _readings(query, filtered(short), x)
    signs = [float((sign * readings - x[:, None] * expected).abs().max()) for sign in (1, -1)]
    fact = f"a single reading is off by {min(signs):.2g} from plus or minus rho(t + {shift})·x"
    must(min(signs) <= CLOSE, f"{fact}, on a linear model that settles within 8 steps")


def _readings(query: AbstractQuery, model: Model, x: torch.Tensor) -> torch.Tensor:
    inputs, against = query.inputs(x, HORIZON), query.reference(x, HORIZON)
    heard = model(inputs) - model(torch.zeros_like(inputs) if against is None else against)
    later, earlier = query.moments(torch.arange(HORIZON), HORIZON)
    return heard[:, later] - (0 if earlier is None else heard[:, earlier])


def _curve(
    query: AbstractQuery, model: Any, width: int, *, pooled: bool = False, seed: int = 0
) -> Curve:
    subject = wrap(model, input_size=width, pooled=pooled)
    report = scan(subject, horizon=HORIZON, queries=[query], probes=[], seed=seed)
    must(query.name in report.memory, f"the report has no curve called {query.name}")
    return report.memory[query.name]
