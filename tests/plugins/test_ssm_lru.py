"""The linear recurrent unit: its layer, its names in flax and torch, and its classifier."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import memaudit
from examples.reproduce.vandermonde import condition, vandermonde
from memaudit import testing
from memaudit.errors import SourceError
from memaudit_ssm.core import cast
from memaudit_ssm.lru import FORMS, LRU
from tests.plugins import flax_models as flax

CONFIG = {"pooling": "none", "norm": "layer", "prenorm": True}
STEPS = 30
#: Sums of a few dozen products in double precision.
CLOSE = {"rtol": 0, "atol": 1e-11}


def tree_of(seed: int = 0, **options) -> flax.Tree:
    rng = np.random.default_rng(seed)
    layers = [flax.lru_layer(rng) for _ in range(flax.LAYERS)]
    return flax.classifier(rng, layers, norm="normalization", **options)


def noise(width: int = flax.INPUTS) -> torch.Tensor:
    return torch.randn(2, STEPS, width, generator=torch.Generator().manual_seed(3)).double()


def expected(tree: flax.Tree, config, inputs: torch.Tensor) -> torch.Tensor:
    rows = [flax.answer(tree, row.numpy(), config, norm="normalization") for row in inputs]
    return torch.from_numpy(np.stack(rows))


def ported(form: str = "complex", *, outputs: int = 4) -> dict[str, torch.Tensor]:
    """A layer as a port to torch saves it, with a full D."""
    layer = LRU(4, 6, outputs=outputs, form=form, dense=True, generator=seeded())
    return {name: t.detach().contiguous() for name, t in layer.state_dict().items()}


@torch.no_grad()
def run(layer: LRU, u: torch.Tensor) -> torch.Tensor:
    return layer.run(u)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("execution", ["chunks", "convolution", "stepping"])
def test_the_layer_is_the_recurrence_that_it_states(execution):
    layer = LRU(4, 6, generator=seeded()).double()
    layer.execution = execution
    stored = {name: t.detach().numpy() for name, t in layer.state_dict().items()}
    u = noise(4)
    wanted = torch.from_numpy(np.stack([flax.run_lru(stored, row.numpy()) for row in u]))
    torch.testing.assert_close(run(layer, u), wanted, **CLOSE)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_weights_answers_alike(form):
    plain = LRU(4, 6, generator=seeded()).double()
    other = LRU(4, 6, form=form, generator=seeded())
    cast(other, torch.float64)
    u = noise(4)
    torch.testing.assert_close(run(plain, u), run(other, u), **CLOSE)


def test_a_new_layer_is_uniform_on_its_ring():
    layer = LRU(1, 5000, radii=(0.6, 0.9), generator=seeded())
    modes = layer.modes().detach().to(torch.complex128)
    even = torch.linspace(0, 1, 5000, dtype=torch.float64)
    area = (modes.abs().square() - 0.36) / (0.81 - 0.36)
    turns = (modes.angle() / math.tau) % 1.0
    for values in (area, turns):
        # Kolmogorov: beyond 1.95 / sqrt(n) one uniform sample in a thousand.
        assert float((values.sort().values - even).abs().max()) < 1.95 / math.sqrt(5000)


def test_roots_of_unity_are_perfectly_conditioned():
    layer = LRU(3, 64, roots=True, generator=seeded())
    assert all(bool(p.isfinite().all()) for p in layer.parameters())
    assert condition(vandermonde(layer.modes().detach(), 64)) == pytest.approx(1.0, abs=1e-3)
    assert float(layer.modes().detach().abs().max()) < 1.0
    inner = LRU(3, 64, roots=True, radii=(0.0, 0.5), generator=seeded())
    torch.testing.assert_close(inner.modes().detach().abs(), torch.full((64,), 0.5))


def test_a_doubled_layer_doubles_the_state_and_not_the_direct_path():
    once = LRU(4, 6, generator=seeded()).double()
    twice = LRU(4, 6, doubled=True, generator=seeded()).double()
    u = noise(4)
    direct = once.D.detach() * u
    torch.testing.assert_close(run(twice, u) - direct, 2 * (run(once, u) - direct), **CLOSE)


@pytest.mark.parametrize(
    ("pooling", "prenorm", "batch"),
    [("none", True, False), ("mean", False, False), ("last", True, True), ("mean", False, True)],
)
def test_the_classifier_answers_as_the_reference(tmp_path, pooling, prenorm, batch):
    tree, config = tree_of(batch=batch), {**CONFIG, "pooling": pooling, "prenorm": prenorm}
    config["norm"] = "batch" if batch else "layer"
    subject = memaudit.load(flax.saved(tmp_path, tree, config))
    assert subject.pooled == (pooling != "none")
    assert subject.identity.whole
    u = noise()
    torch.testing.assert_close(subject.respond(u), expected(tree, config, u), **CLOSE)


def test_several_distributions_are_normalised_apart(tmp_path):
    tree, config = tree_of(), {**CONFIG, "multidim": 2}
    subject = memaudit.load(flax.saved(tmp_path, tree, config))
    u = noise()
    found = subject.respond(u)
    torch.testing.assert_close(found, expected(tree, config, u), **CLOSE)
    torch.testing.assert_close(found.exp().sum(-1), torch.full((2, STEPS), 3.0).double())


def test_more_classes_than_outputs_contradict_the_weights(tmp_path):
    with pytest.raises(SourceError, match=r"E_CONFIG.*multidim is 4.*6 outputs"):
        memaudit.load(flax.saved(tmp_path, tree_of(), {**CONFIG, "multidim": 4}))


@pytest.mark.parametrize("joint", ["/", "."])
@pytest.mark.parametrize("front", ["params/", ""])
def test_the_names_of_a_tree_may_be_joined_and_begun_in_other_ways(tmp_path, joint, front):
    tree = tree_of()
    named = {front + k.removeprefix("params/"): v for k, v in tree.items()}
    subject = memaudit.load(
        flax.saved(tmp_path, {k.replace("/", joint): v for k, v in named.items()}, CONFIG)
    )
    u = noise()
    torch.testing.assert_close(subject.respond(u), expected(tree, CONFIG, u), **CLOSE)


def test_every_layer_of_the_classifier_has_its_exact_kernel(tmp_path):
    subject = memaudit.load(flax.saved(tmp_path, tree_of(), CONFIG))
    assert list(subject.linear_parts()) == ["layers_0", "layers_1"]
    for part in subject.linear_parts().values():
        testing.check_linear_part(part)


def test_without_a_config_everything_unsaid_is_asked_for_by_name(tmp_path):
    with pytest.raises(SourceError, match=r"E_CONFIG.*norm, prenorm, pool\b"):
        memaudit.load(flax.saved(tmp_path, tree_of()))


def test_a_config_without_the_norm_leaves_the_reason(tmp_path):
    config = {"pooling": "none", "prenorm": True}
    subject = memaudit.load(flax.saved(tmp_path, tree_of(), config))
    assert subject.identity.assumed == {"norm": "layer (the file has no running statistics)"}


def test_a_batch_norm_without_its_statistics_is_not_made_up(tmp_path):
    subject = memaudit.load(flax.saved(tmp_path, tree_of(), {**CONFIG, "norm": "batch"}))
    assert not subject.identity.whole
    assert any("running statistics" in note for note in subject.identity.notes)
    assert list(subject.parts()) == ["encoder.layers_0.seq", "encoder.layers_1.seq"]


def test_the_copies_of_an_optimizer_are_no_layers(tmp_path):
    tree = tree_of()
    copies = {k.replace("params/", "opt_state/0/mu/"): v for k, v in tree.items()}
    subject = memaudit.load(flax.saved(tmp_path, tree | copies, CONFIG))
    assert len(subject.parts()) == flax.LAYERS
    assert any("optimizer" in note for note in subject.identity.notes)


@pytest.mark.parametrize("form", ["complex", "pairs"])
def test_a_port_to_torch_is_run_and_says_what_it_assumes(tmp_path, form):
    tensors = ported(form, outputs=3)
    torch.save(tensors, tmp_path / "model.pt")
    subject = memaudit.load(tmp_path / "model.pt")
    b, c = (t if t.is_complex() else torch.view_as_complex(t) for t in map(tensors.get, "BC"))
    parts = {"B_re": b.real, "B_im": b.imag, "C_re": c.real, "C_im": c.imag}
    vectors = {name: t for name, t in tensors.items() if name not in ("B", "C")}
    layer = {name: t.double().numpy() for name, t in (vectors | parts).items()}
    u = noise(4)
    wanted = torch.from_numpy(np.stack([flax.run_lru(layer, row.numpy()) for row in u]))
    torch.testing.assert_close(subject.respond(u), wanted, **CLOSE)
    assert "conj_sym" in subject.identity.assumed


def test_ports_may_leave_out_that_it_is_a_logarithm(tmp_path):
    tensors = ported()
    torch.save(tensors, tmp_path / "long.pt")
    torch.save({k.removesuffix("_log"): v for k, v in tensors.items()}, tmp_path / "short.pt")
    u = noise(4)
    long, short = (memaudit.load(tmp_path / f"{n}.pt").respond(u) for n in ("long", "short"))
    torch.testing.assert_close(long, short, **CLOSE)


@pytest.mark.parametrize("name", ["nu", "theta", "gamma"])
def test_what_may_be_a_number_or_its_logarithm_is_refused(tmp_path, name):
    tensors = ported()
    tensors[name] = tensors.pop(f"{name}_log").exp()
    if name == "nu":
        tensors["theta"] = tensors.pop("theta_log")
    torch.save(tensors, tmp_path / "model.pt")
    with pytest.raises(SourceError, match=f"E_UNSUPPORTED.*{name} may hold"):
        memaudit.load(tmp_path / "model.pt")


def test_an_unknown_tensor_inside_a_layer_is_refused(tmp_path):
    save_file({**ported("pairs"), "B_norm": torch.ones(6)}, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match=r"E_UNSUPPORTED.*B_norm"):
        memaudit.load(tmp_path / "model.safetensors")


def test_a_layer_without_gamma_is_reported_as_incomplete(tmp_path):
    tensors = ported("pairs")
    del tensors["gamma_log"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match=r"E_WEIGHTS.*gamma_log"):
        memaudit.load(tmp_path / "model.safetensors")
