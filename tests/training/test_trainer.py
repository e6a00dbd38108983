"""The callback in the Trainer of transformers: it logs, stops, saves and resumes."""

from __future__ import annotations

import warnings

import pytest
import torch

import memaudit
from memaudit.errors import ArgumentError, SourceError
from memaudit.training import MemauditCallback
from tests.training.models import mamba, raws, recurrent, retrofitted, trainer


def run(model, folder, *, callback=None, resume=None, **options):
    """A run with an attached callback."""
    made = trainer(model, folder, **options)
    (callback or MemauditCallback(horizon_every=None)).attach(made)
    made.train(resume_from_checkpoint=resume)
    return made


def column(made, name):
    return [line[name] for line in made.state.log_history if name in line]


def test_numbers_are_logged_beside_the_loss(tmp_path):
    callback = MemauditCallback(horizon_every=4, window=32)
    made = run(retrofitted(mamba()), tmp_path, callback=callback, learning_rate=1e-6)
    assert len(column(made, "loss")) == 4
    assert len(column(made, "memaudit/margin")) == 5  # one before the first step
    assert len(column(made, "memaudit/gradient_over_weight")) == 4
    horizons = column(made, "memaudit/horizon") + column(made, "memaudit/horizon_beyond")
    assert len(horizons) == 2


@pytest.mark.parametrize("form", [None, "best"])
def test_margins_have_the_values_and_the_names_of_the_report(tmp_path, form):
    model = mamba() if form is None else retrofitted(mamba(), form)
    scanned = memaudit.scan(model, horizon=16, queries=["impulse"], probes=["spectrum"])
    told = {f"memaudit/margin/{item.layer}": item.margin for item in scanned.spectrum}
    told["memaudit/margin"] = scanned.metrics()["memaudit/margin"]
    assert len(told) == 3
    logged = run(model, tmp_path, max_steps=1).state.log_history
    first = {k: v for k, v in logged[0].items() if k.startswith("memaudit/margin")}
    assert first == pytest.approx(told, rel=1e-9)
    layers = [k.rpartition("/")[2] for k in logged[1] if "/gradient_over_weight/" in k]
    assert layers == [item.layer for item in scanned.spectrum]


def test_the_margin_of_a_cell_is_that_of_its_jacobian_at_rest():
    from memaudit.retrofitting.monitoring import Margins

    model = recurrent()
    scanned = memaudit.scan(model, horizon=16, queries=["impulse"], probes=["spectrum"])
    assert Margins(model).read() == pytest.approx({"rnn.l0": scanned.spectrum[0].margin}, rel=1e-9)
    radius = torch.linalg.eigvals(model.weight_hh_l0.detach().double()).abs().max()
    assert scanned.spectrum[0].margin != pytest.approx(float(1.0 - radius), rel=1e-6)


def test_the_logged_ratio_is_that_of_the_gradient(tmp_path):
    model = retrofitted(mamba())
    before = raws(model)
    made = run(model, tmp_path, optim="sgd", learning_rate=1e-1, max_steps=1, max_grad_norm=0.0)
    # A step of SGD is the gradient times the learning rate.
    after = raws(model)
    ratios = [((after[n] - w) / 1e-1 / w).abs().max() for n, w in before.items()]
    (told,) = column(made, "memaudit/gradient_over_weight")
    assert told == pytest.approx(float(max(ratios)), rel=0.05)


def test_a_horizon_leaves_no_trace(tmp_path):
    ends = []
    for every in (None, 1):
        model = retrofitted(mamba())
        callback = MemauditCallback(horizon_every=every, window=16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a short run may well drift
            run(model, tmp_path, callback=callback)
        assert model.training
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], value) for name, value in ends[1].items())


def test_weight_decay_spares_the_raw_weights(tmp_path):
    model = retrofitted(mamba())
    made = trainer(model, tmp_path, weight_decay=0.1)
    MemauditCallback().attach(made)
    made.create_optimizer()
    raw = {id(p) for n, p in model.named_parameters() if "parametrizations" in n}
    held = {id(p): g["weight_decay"] for g in made.optimizer.param_groups for p in g["params"]}
    assert {held[key] for key in raw} == {0.0}
    assert 0.1 in held.values()


def test_a_detached_callback_says_so_and_still_keeps_numbers(tmp_path):
    made = trainer(retrofitted(mamba()), tmp_path, callbacks=[MemauditCallback(horizon_every=None)])
    with pytest.warns(UserWarning, match="not attached"):
        made.train()
    assert len(column(made, "memaudit/margin")) == 5


@pytest.mark.filterwarnings("ignore:memaudit. the callback is not attached")
def test_decay_on_raw_weights_is_warned_of(tmp_path):
    callback = MemauditCallback(horizon_every=None)
    made = trainer(retrofitted(mamba()), tmp_path, callbacks=[callback], weight_decay=0.1)
    with pytest.warns(UserWarning, match="decays recurrent weights"):
        made.train()


def test_a_checkpoint_loads_in_plain_transformers(tmp_path):
    from transformers import MambaForCausalLM

    model = retrofitted(mamba())
    run(model, tmp_path, save_strategy="steps", save_steps=4)
    plain, info = MambaForCausalLM.from_pretrained(
        tmp_path / "checkpoint-4", output_loading_info=True
    )
    assert not any(info.values())
    memaudit.fold(model)
    wanted = model.state_dict()
    assert all(torch.equal(wanted[name], value) for name, value in plain.state_dict().items())


def test_a_resumed_run_ends_where_a_straight_one_does(tmp_path):
    straight = retrofitted(mamba())
    one = run(straight, tmp_path / "one", save_strategy="steps", save_steps=2)
    resumed = retrofitted(mamba(seed=9))
    folder = tmp_path / "one" / "checkpoint-2"
    other = run(resumed, tmp_path / "two", resume=str(folder))
    wanted = raws(straight)
    assert wanted
    assert all(torch.equal(wanted[name], value) for name, value in raws(resumed).items())
    assert column(other, "loss") == column(one, "loss")


@pytest.mark.filterwarnings("ignore:memaudit. the callback is not attached")
def test_a_detached_run_resumes_from_its_own_folder(tmp_path):
    def made(folder):
        callback = MemauditCallback(horizon_every=None)
        options = {"save_strategy": "steps", "save_steps": 2}
        model = retrofitted(mamba())
        return model, trainer(model, folder, callbacks=[callback], **options)

    straight, first = made(tmp_path)
    first.train()
    resumed, second = made(tmp_path)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert all(torch.equal(raws(straight)[name], value) for name, value in raws(resumed).items())


@pytest.mark.filterwarnings("ignore:memaudit. the callback is not attached")
def test_raw_weights_of_another_run_are_not_taken(tmp_path):
    run(retrofitted(mamba()), tmp_path / "own", save_strategy="steps", save_steps=2)
    other = trainer(
        retrofitted(mamba()),
        tmp_path / "other",
        callbacks=[MemauditCallback(horizon_every=None)],
        save_strategy="steps",
        save_steps=2,
        learning_rate=2e-2,
    )
    other.train()
    made = trainer(
        retrofitted(mamba()), tmp_path / "own", callbacks=[MemauditCallback(horizon_every=None)]
    )
    with pytest.warns(UserWarning, match="no raw weights"):
        made.train(resume_from_checkpoint=str(tmp_path / "other" / "checkpoint-2"))


def test_a_checkpoint_without_raw_weights_is_resumed_with_a_warning(tmp_path):
    run(retrofitted(mamba()), tmp_path, save_strategy="steps", save_steps=2)
    folder = tmp_path / "checkpoint-2"
    for name in ("retrofit.safetensors", "retrofit_config.json"):
        (folder / name).unlink()
    with pytest.warns(UserWarning, match="no raw weights"):
        run(retrofitted(mamba()), tmp_path, resume=str(folder))


def test_the_best_checkpoint_comes_back_exactly(tmp_path):
    model = retrofitted(mamba())
    options = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # steps that large drift, as they should
        made = run(
            model,
            tmp_path,
            eval_steps=1,
            load_best_model_at_end=True,
            learning_rate=10.0,
            **options,
        )
    best = made.state.best_model_checkpoint
    assert best is not None
    assert not best.endswith("checkpoint-4")
    twin = retrofitted(mamba())
    from memaudit.retrofitting.record import read_raw

    read_raw(twin, tmp_path / best.rpartition("/")[2])
    assert all(torch.equal(raws(twin)[name], value) for name, value in raws(model).items())


def test_a_margin_below_the_limit_stops_the_run(tmp_path):
    callback = MemauditCallback(horizon_every=None, stop_on=("margin<2",))
    with pytest.warns(UserWarning, match="stopped at step 0: margin is 0.3527, below 2"):
        made = run(retrofitted(mamba()), tmp_path, callback=callback)
    assert callback.stopped.startswith("step 0")
    assert made.state.global_step <= 1


@pytest.mark.filterwarnings("ignore:memaudit. step 1. a recurrent weight")
def test_a_weight_that_is_no_number_stops_the_run(tmp_path):
    model = retrofitted(mamba())
    made = trainer(model, tmp_path, max_steps=4)
    callback = MemauditCallback(horizon_every=None).attach(made)
    hook = model.backbone.layers[0].register_full_backward_hook(
        lambda module, given, taken: tuple(g * torch.nan for g in given if g is not None) or None
    )
    with pytest.warns(UserWarning, match="stopped at step 1"):
        made.train()
    hook.remove()
    assert "no number" in callback.stopped
    assert made.state.global_step < 4


@pytest.mark.parametrize("word", ["margin", "margin<", "nonsense<1", "margin<small"])
def test_conditions_that_say_nothing_are_refused(word):
    with pytest.raises(ArgumentError):
        MemauditCallback(stop_on=(word,))


def test_a_model_without_recurrence_is_refused(tmp_path):
    from transformers import BertConfig, BertLMHeadModel

    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=32,
        is_decoder=True,
    )
    made = trainer(BertLMHeadModel(config), tmp_path)
    MemauditCallback().attach(made)
    with pytest.raises(SourceError, match="nothing recurrent"):
        made.train()


def test_a_plain_model_is_watched_too(tmp_path):
    made = run(mamba(), tmp_path, learning_rate=1e-6)
    assert column(made, "memaudit/margin") == pytest.approx([0.352713] * 5, rel=1e-4)
