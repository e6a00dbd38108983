"""Every reference checkpoint with a recurrence: nothing moves, and everything comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import memaudit
from memaudit.interfaces import AbstractSubject
from memaudit.numerics.signals import seeded
from memaudit.retrofitting.weights import RetrofittedWeight

pytestmark = pytest.mark.shared
#: Checkpoints whose modes are all inside, and forms that reach them.
DIAGONAL = {
    "mamba1_hf/small": ("best", "softplus", "heavytail"),
    "mamba1_original/small": ("best",),
    "mamba2_hf/small": ("best", "softplus"),
    "rwkv_hf/small": ("best", "heavytail"),
    "recurrentgemma_hf/small": ("best", "exp"),
    "s4d_standalone/small": ("best", "softplus", "heavytail"),
    "s4d_standalone/pooled": ("best",),
    "s4_v4_standalone/diag": ("best", "softplus"),
    "s4_v4_standalone/diag_real": ("best",),
    "s4_v4_standalone/dplr": ("best", "softplus"),
    "s4_v4_lightning/s4d_plain": ("best",),
    "s4_v4_lightning/nplr_omegaconf": ("best",),
    "s5_pytorch/small": ("best", "exp", "softplus", "heavytail"),
    "lru_jax/small": ("best", "softplus", "heavytail"),
    "stablessm/direct": ("best", "exp"),
    "stablessm/exp": ("best",),
    "stablessm/softplus": ("best",),
    "stablessm/best": ("exp",),
    "curse_of_memory/softplusrnn": ("exp",),
}
DENSE = {"torch_rnn/gru_uni": ("best", "exp"), "torch_rnn/gru_bi": ("softplus",)}
#: In double precision the first form always runs, the others before a release.
ASKED = [
    pytest.param(
        *(name, form, dtype),
        id=f"{name}-{form}-{dtype}".replace("torch.", ""),
        marks=[] if (form, dtype) == (forms[0], torch.float64) else pytest.mark.slow,
    )
    for name, forms in {**DIAGONAL, **DENSE}.items()
    for form in forms
    for dtype in (torch.float32, torch.float64)
    if dtype == torch.float64 or form == forms[0]
]
#: Relative to the largest answer. Untrained weights are the stored ones, so both are met by zero;
#: what the form alone makes is held to them, too.
CLOSE = {torch.float32: 1e-6, torch.float64: 1e-12}


def answers(subject: AbstractSubject) -> dict[str, torch.Tensor]:
    parts = {"": subject} if subject.input_size is not None else subject.parts()
    found = {}
    for name, part in parts.items():
        drawn = torch.randn(2, 48, part.input_size or 1, generator=seeded(0))
        found[name] = part.respond(drawn.to(part.dtype)).double()
    return found


def apart(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max(float((second[n] - a).abs().max() / a.abs().max()) for n, a in first.items())


@pytest.mark.parametrize(("name", "form", "dtype"), ASKED)
def test_a_checkpoint_answers_the_same_behind_a_form_and_comes_back(shared, name, form, dtype):
    subject = memaudit.load(shared / "fixtures" / name, dtype=dtype)
    before, weights = answers(subject), state(subject)
    done = memaudit.retrofit(subject, form, radius=False)
    assert done.layers
    assert not done.refused
    assert apart(before, answers(subject)) <= CLOSE[dtype]
    if name in DIAGONAL and dtype == torch.float64:
        with the_form_alone(subject):
            assert apart(before, answers(subject)) <= CLOSE[dtype]
    memaudit.fold(subject)
    after = state(subject)
    assert set(after) == set(weights)
    assert all(torch.equal(after[key], value) for key, value in weights.items())


@contextmanager
def the_form_alone(subject: AbstractSubject) -> Iterator[None]:
    """Weights that are what the form makes, without the stored ones as their anchor."""
    modules = [m for module in subject.live_modules().values() for m in module.modules()]
    weights = [m for m in modules if isinstance(m, RetrofittedWeight)]
    anchors = [weight.anchor for weight in weights]
    for weight in weights:
        weight.anchor = weight.made(*weight.starts())
    yield
    for weight, anchor in zip(weights, anchors, strict=True):
        weight.anchor = anchor


def state(subject: AbstractSubject) -> dict[str, torch.Tensor]:
    modules = subject.live_modules().items()
    return {f"{p}/{k}": v.clone() for p, m in modules for k, v in m.state_dict().items()}


@pytest.mark.parametrize("name", ["bert_hf/small", "llama_hf/small"])
def test_attention_has_nothing_recurrent(shared, name):
    with pytest.raises(memaudit.MemauditError, match="nothing recurrent"):
        memaudit.retrofit(memaudit.load(shared / "fixtures" / name))
