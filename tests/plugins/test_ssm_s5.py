"""S5: its layer in every form, s5-pytorch's blocks, and the original's classifier."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import memaudit
from memaudit import testing
from memaudit.errors import SourceError
from memaudit_ssm.core import cast
from memaudit_ssm.s5 import S5, AbstractS5, FactorizedS5, FlaxS5, S5Block
from tests.plugins import flax_models as flax

CONFIG = {"mode": "pool", "prenorm": True, "conj_sym": True, "discretization": "zoh"}
CONFIG |= {"batchnorm": False, "clip_eigs": False}
STEPS = 30
#: Sums of a few dozen products in double precision.
CLOSE = {"rtol": 0, "atol": 1e-11}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(width: int) -> torch.Tensor:
    return torch.randn(2, STEPS, width, generator=seeded(3)).double()


@torch.no_grad()
def run(layer: AbstractS5, u: torch.Tensor) -> torch.Tensor:
    return layer.run(u)


def expected(tree: flax.Tree, config, inputs: torch.Tensor) -> torch.Tensor:
    rows = [flax.answer(tree, row.numpy(), config, norm="norm") for row in inputs]
    return torch.from_numpy(np.stack(rows))


def tree_of(*, readout: str = "C", **options) -> flax.Tree:
    rng = np.random.default_rng(0)
    layers = [flax.s5_layer(rng, readout=readout) for _ in range(flax.LAYERS)]
    return flax.classifier(rng, layers, norm="norm", **options)


def in_torch(layer: flax.Tree) -> dict[str, torch.Tensor]:
    """A layer of flax under the names and in the forms of s5-pytorch."""
    given = {name: torch.from_numpy(value) for name, value in layer.items()}
    return {
        "Lambda": torch.complex(given["Lambda_re"], given["Lambda_im"]),
        "B": given["B"],
        "C": torch.view_as_complex(given["C"]),
        "D": given["D"],
        "log_step": given["log_step"][:, 0],
    }


def in_factors(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same layer in factors, one of each pair being the identity."""
    b, c = torch.view_as_complex(tensors["B"]), tensors["C"]
    factors = {"BP": b, "BH": torch.eye(b.shape[1]), "CH": torch.eye(len(c)), "CP": c}
    kept = {name: t for name, t in tensors.items() if name not in ("B", "C")}
    return kept | {name: t.to(torch.complex128) for name, t in factors.items()}


def stored(folder: Path, tensors: dict[str, torch.Tensor], config=None) -> Path:
    torch.save(tensors, folder / "model.pt")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("execution", "disc", "conj_sym", "readout"),
    [
        ("chunks", "zoh", True, "C"),
        ("convolution", "bilinear", False, "C"),
        ("stepping", "zoh", False, "C2P"),
        ("convolution", "zoh", True, "C1C2"),
        ("chunks", "bilinear", True, "C2P"),
    ],
)
def test_the_layer_is_the_recurrence_that_it_states(execution, disc, conj_sym, readout):
    tree = flax.s5_layer(np.random.default_rng(1), readout=readout)
    layer = FlaxS5(
        flax.WIDTH,
        flax.STATES,
        disc=disc,
        conj_sym=conj_sym,
        bidirectional=readout != "C",
        apart=readout == "C1C2",
    ).double()
    layer.load_state_dict({name: torch.from_numpy(value) for name, value in tree.items()})
    layer.execution = execution
    config = {"discretization": disc, "conj_sym": conj_sym}
    u = noise(flax.WIDTH)
    wanted = torch.from_numpy(np.stack([flax.run_s5(tree, row.numpy(), config) for row in u]))
    torch.testing.assert_close(run(layer, u), wanted, **CLOSE)


def test_both_directions_see_the_present_step():
    layer = S5(1, 1, bidirectional=True)
    cast(layer, torch.float64)
    with torch.no_grad():
        layer.Lambda.fill_(-1.0)
        layer.B[..., 0] = 1.0
        layer.C.fill_(1.0)
    u = torch.zeros(1, 5, 1, dtype=torch.float64)
    u[0, 2] = 1.0
    gain = 1 - np.exp(-1)
    wanted = gain * np.exp([-2.0, -1.0, 0.0, -1.0, -2.0]) * [1, 1, 2, 1, 1]
    np.testing.assert_allclose(run(layer, u)[0, :, 0].numpy(), wanted, rtol=0, atol=1e-14)


def test_the_power_of_the_input_matrix_is_taken_in_discrete_time():
    once, cubed = S5(1, 1), S5(1, 1, degree=3)
    for layer in (once, cubed):
        cast(layer, torch.float64)
        with torch.no_grad():
            layer.Lambda.fill_(-1.0)
            layer.B[..., 0] = 1.0
            layer.C.fill_(1.0)
    u = torch.eye(4, dtype=torch.float64)[None, :, :1]
    ratio = run(cubed, u)[0, :, 0] / run(once, u)[0, :, 0]
    torch.testing.assert_close(ratio, torch.full((4,), (1 - np.exp(-1)) ** 2).double())


def test_clipping_pulls_growing_modes_into_the_circle():
    tree = flax.s5_layer(np.random.default_rng(1))
    tree["Lambda_re"][:2] = 0.3, 0.0
    layer = FlaxS5(flax.WIDTH, flax.STATES, clip_eigs=True).double()
    layer.load_state_dict({name: torch.from_numpy(value) for name, value in tree.items()})
    u = noise(flax.WIDTH)
    rows = [flax.run_s5(tree, row.numpy(), {"clip_eigs": True}) for row in u]
    torch.testing.assert_close(run(layer, u), torch.from_numpy(np.stack(rows)), **CLOSE)
    assert layer.modes().abs().max() < 1


@pytest.mark.parametrize("factors", [False, True])
def test_a_layer_of_s5_pytorch_is_run_and_says_what_it_assumes(tmp_path, factors):
    tree = flax.s5_layer(np.random.default_rng(2))
    tensors = in_factors(in_torch(tree)) if factors else in_torch(tree)
    subject = memaudit.load(stored(tmp_path, {f"seq.{k}": t for k, t in tensors.items()}))
    u = noise(flax.WIDTH)
    rows = [flax.run_s5(tree, row.numpy(), {"conj_sym": False}) for row in u]
    torch.testing.assert_close(subject.respond(u), torch.from_numpy(np.stack(rows)), **CLOSE)
    assert set(subject.identity.assumed) == {"liquid", "degree", "disc"}
    for part in subject.linear_parts().values():
        testing.check_linear_part(part)


def test_factors_multiply_without_conjugation():
    layer = FactorizedS5(2, 3, 1)
    with torch.no_grad():
        layer.BP.fill_(1j)
        layer.BH.fill_(1j)
    assert torch.equal(layer.stored()[1], torch.full((3, 2), -1 + 0j))


def test_a_config_of_s5_pytorch_is_used(tmp_path):
    tree = flax.s5_layer(np.random.default_rng(2))
    config = {"discretization": "bilinear", "conj_sym": False}
    said = {"discretization": "bilinear", "liquid": False, "degree": 1}
    subject = memaudit.load(stored(tmp_path, in_torch(tree), said))
    u = noise(flax.WIDTH)
    rows = [flax.run_s5(tree, row.numpy(), config) for row in u]
    torch.testing.assert_close(subject.respond(u), torch.from_numpy(np.stack(rows)), **CLOSE)
    assert not subject.identity.assumed


def test_the_liquid_form_is_refused(tmp_path):
    tensors = in_torch(flax.s5_layer(np.random.default_rng(2)))
    with pytest.raises(SourceError, match=r"E_UNSUPPORTED.*liquid"):
        memaudit.load(stored(tmp_path, tensors, {"liquid": True}))


def test_a_degree_that_is_no_whole_number_is_refused(tmp_path):
    tensors = in_torch(flax.s5_layer(np.random.default_rng(2)))
    with pytest.raises(SourceError, match=r"E_CONFIG.*degree is 1\.5"):
        memaudit.load(stored(tmp_path, tensors, {"degree": 1.5}))


def test_a_readout_of_other_states_is_damage(tmp_path):
    tensors = in_torch(flax.s5_layer(np.random.default_rng(2)))
    tensors["C"] = tensors["C"][:, :-1].contiguous()
    with pytest.raises(SourceError, match=r"E_WEIGHTS.*reads 4 states where it has 5"):
        memaudit.load(stored(tmp_path, tensors))


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("front", ["", "blocks.0."])
def test_blocks_without_encoder_are_run_as_they_are(tmp_path, gated, front):
    block = S5Block(S5(4, 6, generator=seeded()), hidden=5, gated=gated)
    with torch.no_grad():
        for name in ("ff_enc", "ff_dec"):
            block.get_parameter(f"{name}.weight").normal_(generator=seeded(1))
    tensors = {front + name: t.detach() for name, t in block.state_dict().items()}
    subject = memaudit.load(stored(tmp_path, tensors))
    assert subject.identity.whole
    cast(block, torch.float64)
    u = noise(4)
    torch.testing.assert_close(subject.respond(u), block(u), **CLOSE)


@pytest.mark.parametrize(
    ("activation", "outs"),
    [
        ("full_glu", ("out1", "out2")),
        ("half_glu1", ("out2",)),
        ("half_glu2", ("out2",)),
        ("gelu", ()),
    ],
)
def test_the_classifier_answers_as_the_reference(tmp_path, outs, activation):
    tree, config = tree_of(outs=outs), {**CONFIG, "activation": activation}
    subject = memaudit.load(flax.saved(tmp_path, tree, config))
    assert (subject.identity.whole, subject.identity.assumed) == (True, {})
    u = noise(flax.INPUTS)
    torch.testing.assert_close(subject.respond(u), expected(tree, config, u), **CLOSE)


def test_an_activation_that_the_tensors_deny_is_refused(tmp_path):
    tree, config = tree_of(outs=()), {**CONFIG, "activation": "full_glu"}
    with pytest.raises(SourceError, match="full_glu, the tensors are those of gelu"):
        memaudit.load(flax.saved(tmp_path, tree, config))


@pytest.mark.parametrize(
    ("changed", "readout"),
    [
        ({"mode": "last"}, "C"),
        ({"prenorm": False}, "C2P"),
        ({"conj_sym": False}, "C1C2"),
        ({"discretization": "bilinear"}, "C2P"),
        ({"batchnorm": True}, "C1C2"),
    ],
    ids=str,
)
def test_every_setting_of_the_classifier_is_used(tmp_path, changed, readout):
    config = {**CONFIG, **changed, "bidirectional": readout != "C"}
    tree = tree_of(readout=readout, batch=bool(config["batchnorm"]))
    subject = memaudit.load(flax.saved(tmp_path, tree, config))
    u = noise(flax.INPUTS)
    torch.testing.assert_close(subject.respond(u), expected(tree, config, u), **CLOSE)
    assert {r.directions for r in subject.identity.recurrences} == {1 if readout == "C" else 2}


def test_without_a_config_everything_unsaid_is_asked_for_by_name(tmp_path):
    named = "batchnorm, prenorm, activation, disc, conj_sym, pool"
    with pytest.raises(SourceError, match=f"E_CONFIG.*{named}"):
        memaudit.load(flax.saved(tmp_path, tree_of(outs=("out2",))))


def test_clipping_is_asked_about_only_where_it_would_matter(tmp_path):
    tree = tree_of()
    tree["params/encoder/layers_1/seq/Lambda_re"][0] = 0.1
    with pytest.raises(SourceError, match="clip_eigs"):
        memaudit.load(flax.saved(tmp_path, tree))


def test_layers_without_the_classifier_are_run_one_by_one(tmp_path):
    tree = {k: v for k, v in tree_of().items() if "decoder" not in k}
    subject = memaudit.load(flax.saved(tmp_path, tree, CONFIG))
    assert not subject.identity.whole
    assert list(subject.parts()) == ["encoder.layers_0.seq", "encoder.layers_1.seq"]


def test_an_unknown_tensor_inside_a_layer_is_refused(tmp_path):
    tree = tree_of() | {"params/encoder/layers_0/seq/E": np.ones(3)}
    with pytest.raises(SourceError, match=r"E_UNSUPPORTED.*seq/E"):
        memaudit.load(flax.saved(tmp_path, tree, CONFIG))


def test_complex_numbers_in_the_place_of_real_ones_are_damage(tmp_path):
    tree = tree_of()
    name = "params/encoder/layers_0/seq/Lambda_re"
    tree[name] = tree[name] + 1j
    with pytest.raises(SourceError, match=r"E_WEIGHTS.*Lambda_re holds complex numbers"):
        memaudit.load(flax.saved(tmp_path, tree, CONFIG))
