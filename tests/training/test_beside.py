"""Retrofitted models beside what else people do to models that they train."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

import memaudit
from memaudit.numerics.signals import seeded
from memaudit.training import RawWeights
from tests.training.models import VOCABULARY, mamba, raws, recurrent, retrofitted

TOKENS = torch.randint(0, VOCABULARY, (2, 6), generator=seeded(0))
SIGNAL = torch.randn(2, 5, 3, generator=seeded(1))


def backward(model):
    out = model(input_ids=TOKENS, labels=TOKENS)
    out.loss.backward()
    return out.logits.detach()


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def close(one, other):
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # what the compiler says of the Mamba of transformers
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_mamba_answers_and_learns_the_same(backend):
    model = retrofitted(mamba())
    logits = backward(model)
    wanted = gradients(model)
    model.zero_grad()
    compiled = torch.compile(model, backend=backend)
    torch.testing.assert_close(backward(compiled), logits, rtol=1e-5, atol=1e-6)
    close(wanted, gradients(model))
    assert not any("parametrizations" in name for name in compiled.state_dict())
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_recurrent_layer_follows_its_steps():
    model = retrofitted(recurrent(), "exp")
    compiled = torch.compile(model, backend="eager")
    compiled(SIGNAL)[0].sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    torch.testing.assert_close(compiled(SIGNAL)[0], model(SIGNAL)[0], rtol=1e-6, atol=1e-7)
    torch.compiler.reset()


def test_autocast_answers_as_without_a_retrofit():
    plain, model = mamba(), retrofitted(mamba())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, found = backward(plain), backward(model)
    assert torch.equal(found, wanted)
    raw = [p for name, p in model.named_parameters() if "parametrizations" in name]
    assert {p.grad.dtype for p in raw if p.grad is not None} == {torch.float32}


def test_autocast_does_not_round_a_matrix_that_is_made():
    model = retrofitted(recurrent(), "exp")
    with torch.no_grad():
        for raw in model.parametrizations.weight_hh_l0.parameters():
            raw.add_(0.1)
    wanted = model.weight_hh_l0.detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model.weight_hh_l0, wanted)
        model(SIGNAL)[0].sum().backward()


def test_gradient_checkpointing_gives_the_same_gradients():
    model = retrofitted(mamba()).train()
    backward(model)
    wanted = gradients(model)
    model.zero_grad()
    model.gradient_checkpointing_enable()
    backward(model)
    close(wanted, gradients(model))


@pytest.mark.parametrize("exact", [True, False])
def test_accelerate_saves_and_loads(tmp_path, exact):
    accelerate = pytest.importorskip("accelerate", reason="needs memaudit[train]")
    from transformers import MambaForCausalLM

    machine = accelerate.Accelerator(cpu=True)
    model = retrofitted(mamba())
    model, optimizer = machine.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    if exact:
        machine.register_for_checkpointing(RawWeights(model))

    def step():
        machine.backward(model(input_ids=TOKENS, labels=TOKENS).loss)
        optimizer.step()
        optimizer.zero_grad()

    step()
    kept, plain = raws(model), model.state_dict()
    machine.save_state(str(tmp_path))
    step()
    machine.load_state(str(tmp_path))
    for name, value in raws(model).items():
        # Plain weights alone give the raw ones back up to rounding.
        torch.testing.assert_close(value, kept[name], rtol=0.0 if exact else 1e-6, atol=0.0)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in plain.items())
    plain_model = MambaForCausalLM(model.config)
    plain_model.load_state_dict(model.state_dict(), strict=True)


def lora():
    peft = pytest.importorskip("peft", reason="needs peft")
    config = peft.LoraConfig(r=2, target_modules=["in_proj", "x_proj"], init_lora_weights=False)
    return peft, config


def test_lora_on_a_retrofitted_model(tmp_path):
    peft, config = lora()
    model = peft.get_peft_model(retrofitted(mamba()), config)
    backward(model)
    assert not any("A_log" in name for name in gradients(model))  # the base is frozen
    model.eval().save_pretrained(str(tmp_path))
    other = peft.PeftModel.from_pretrained(mamba(), str(tmp_path)).eval()
    # Weights, not answers: those of a plain Mamba differ by 9e-7 after peft has loaded it, too.
    wanted = model.state_dict()
    assert set(other.state_dict()) == set(wanted)
    assert all(torch.equal(wanted[name], value) for name, value in other.state_dict().items())
    with torch.no_grad():
        answer = model(input_ids=TOKENS).logits
        assert len(memaudit.fold(model)) == 2
        assert torch.equal(model(input_ids=TOKENS).logits, answer)


def test_a_retrofit_of_a_model_with_lora():
    peft, config = lora()
    model = peft.get_peft_model(mamba(), config)
    answer = model(input_ids=TOKENS).logits.detach()
    memaudit.retrofit(model, "best", radius=False)
    assert torch.equal(model(input_ids=TOKENS).logits, answer)
    for name, weight in model.named_parameters():
        if "parametrizations" in name:
            weight.requires_grad_(True)
    backward(model)
    assert sum("A_log" in name for name in gradients(model)) == 2
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=TOKENS).logits, answer, rtol=1e-4, atol=1e-5)
    memaudit.fold(merged)
    assert list(merged.state_dict()) == list(mamba().state_dict())


@pytest.mark.parametrize("moved", [None, torch.float64, torch.bfloat16])
def test_a_recurrent_layer_is_copied_after_a_backward_pass(moved):
    model = retrofitted(recurrent(), "exp").to(moved or torch.float32)
    x = SIGNAL.to(moved or torch.float32)
    model(x)[0].sum().backward()
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x)[0], model(x)[0])
    with torch.no_grad():
        twin.parametrizations.weight_hh_l0.original0.add_(0.5)
    assert not torch.equal(twin(x)[0], model(x)[0])
    memaudit.fold(twin)
    assert type(twin) is torch.nn.RNN
    copy.deepcopy(twin)


def test_a_moving_average_stays_stable_and_plain():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = retrofitted(recurrent(), "exp")
    model(SIGNAL)[0].sum().backward()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    torch.optim.SGD(model.parameters(), lr=100.0).step()
    average.update_parameters(model)
    average.update_parameters(model)
    matrix = average.module.weight_hh_l0.detach()
    assert float(torch.linalg.eigvals(matrix.double()).abs().max()) < 1.0
    assert "module.weight_hh_l0" in average.state_dict()
    average(SIGNAL)


def test_a_saved_state_dict_is_loaded_by_a_plain_layer(tmp_path):
    model = retrofitted(recurrent(), "exp")
    torch.save(model.state_dict(), tmp_path / "layer.pt")
    plain = recurrent(seed=5)
    plain.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True), strict=True)
    assert torch.equal(plain(SIGNAL)[0], model(SIGNAL)[0])


def test_half_precision_is_that_of_the_plain_model():
    plain, model = mamba().to(torch.bfloat16), retrofitted(mamba()).to(torch.bfloat16)
    assert torch.equal(model(input_ids=TOKENS).logits, plain(input_ids=TOKENS).logits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backward(model)
    torch.optim.SGD(model.parameters(), lr=1e-2).step()
    assert bool(model(input_ids=TOKENS).logits.isfinite().all())
