"""The models and the training loop behind the rows of StableSSM on text, recall and images."""

import pytest
import torch

from examples.reproduce.stablessm.hyena import Mixer, Size, TokenModel, fill
from examples.reproduce.stablessm.recall import Recall
from examples.reproduce.stablessm.training import Run, spikes
from memaudit import registry
from memaudit.training import parameter_groups

FORMS = ("direct", "relu", "exp", "softplus", "tanh", "best")
#: Sums of 64 products in single precision, once by FFT.
CLOSE = 1e-4


def mixer(form: str, time: str) -> Mixer:
    made = Mixer(8, form=registry.build("reparams", form, time=time))
    fill(made, torch.Generator().manual_seed(0))
    return made


@pytest.mark.parametrize(
    ("form", "time"),
    [*((f, "discrete") for f in FORMS), ("clip", "continuous"), ("best", "continuous")],
)
def test_a_mixer_is_the_recurrence_that_it_says(form: str, time: str) -> None:
    layer = mixer(form, time)
    u = torch.randn(2, 64, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        state, answers = torch.zeros(2, 8), []
        for now in u.unbind(1):
            state = layer.modes() * state + layer._gain() * (now @ layer.B.T)
            answers.append(state @ layer.C.T + layer.D * now)
        assert torch.allclose(layer(u), torch.stack(answers, 1), atol=CLOSE)


def test_all_forms_start_as_the_same_model() -> None:
    tokens = torch.randint(10, (2, 32), generator=torch.Generator().manual_seed(1))
    scores = []
    for form in FORMS:
        reparam = registry.build("reparams", form, time="discrete")
        draw = torch.Generator().manual_seed(0)
        scores.append(TokenModel(Size(10, 16, 2, 32), form=reparam, generator=draw)(tokens))
    for other in scores[1:]:
        assert torch.allclose(scores[0], other, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_raw_weights_are_a_group_of_their_own(form: str) -> None:
    reparam = registry.build("reparams", form, time="discrete")
    model = TokenModel(Size(10, 8, 2, 16), form=reparam, generator=torch.Generator())
    groups = {g["name"]: g for g in parameter_groups(model, weight_decay=0.25, lr=0.004)}
    assert {id(p) for p in groups["recurrent"]["params"]} == {id(p) for p in model.raws()}
    assert groups["recurrent"]["weight_decay"] == 0.0


def test_a_spike_is_what_the_other_runs_do_not_have() -> None:
    hard = [3.0] * 30 + [9.0] + [3.0] * 9
    own = [3.0] * 35 + [9.0, 8.0] + [3.0] * 3
    calm, shaken = Run(tuple([3.0] * 40), None), Run(tuple(own), None)
    assert spikes(Run(tuple(hard), None), [Run(tuple(hard), None)] * 3) == 0
    assert spikes(shaken, [shaken, calm, calm]) == 1
    assert spikes(Run((3.0, 3.0), 2), [calm]) == 1


def test_the_answer_of_a_recall_stands_in_its_sequence() -> None:
    task = Recall(10, 20)
    for *pairs, sign, asked, answer in task.draw(50, torch.Generator().manual_seed(0)).tolist():
        assert sign == 8
        told = dict(zip(pairs[::2], pairs[1::2], strict=True))
        assert told[asked] == answer
        assert all(told[k] == v for k, v in zip(pairs[::2], pairs[1::2], strict=True))
