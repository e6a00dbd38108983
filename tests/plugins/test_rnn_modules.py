"""Modules in memory are audited through copies and never changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from memaudit.errors import ArgumentError, SourceError
from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter
from memaudit_rnn.subject import RnnHost


def opened(
    module: nn.Module, dtype: torch.dtype | None = None, **options: object
) -> AbstractSubject:
    request = Request(torch.device("cpu"), dtype, None, options=options)
    return RnnAdapter().load(parse_source(module), request)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


class Wrapped(nn.Module):
    """Two recurrent layers and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3)
        self.gru = nn.GRU(3, 4)
        self.cell = nn.LSTMCell(4, 5)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "kind", [nn.LSTM, nn.GRU, nn.RNN, lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)]
)
def test_a_bare_layer_answers_batch_first(kind: type[nn.LSTM], batch_first: bool) -> None:
    module = kind(3, 4, 2, bidirectional=True, batch_first=batch_first)
    inputs = noise(2, 6, 3)
    expected = module(inputs if batch_first else inputs.transpose(0, 1))[0].detach()
    answer = opened(module).respond(inputs)
    assert answer.dtype == torch.float32
    torch.testing.assert_close(answer, expected if batch_first else expected.transpose(0, 1))


def test_dropout_is_off_and_the_module_is_left_as_it_was() -> None:
    module = nn.LSTM(3, 4, 2, dropout=0.9).train()
    weight = module.get_parameter("weight_hh_l0")
    weight.grad = torch.ones_like(weight)
    before = copy.deepcopy(module.state_dict())
    subject = opened(module, torch.float64)
    assert torch.equal(subject.respond(noise(2, 6, 3)), subject.respond(noise(2, 6, 3)))
    assert subject.identity.dtype == "float64"
    assert module.training
    assert weight is module.weight_hh_l0
    assert weight.requires_grad
    assert torch.equal(weight.grad, torch.ones_like(weight))
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {value.dtype for value in after.values()} == {torch.float32}


def test_training_on_does_not_move_the_subject() -> None:
    module = nn.GRU(3, 4)
    subject = opened(module)
    before = subject.respond(noise(1, 5, 3))
    with torch.no_grad():
        module.get_parameter("weight_hh_l0").zero_()
    assert torch.equal(subject.respond(noise(1, 5, 3)), before)


def test_a_module_that_contains_layers_is_a_host_of_them() -> None:
    module = Wrapped()
    host = opened(module)
    assert isinstance(host, RnnHost)
    assert {name: part.input_size for name, part in host.parts().items()} == {"gru": 3, "cell": 4}
    share = sum(p.numel() for m in (module.gru, module.cell) for p in m.parameters())
    assert host.identity.coverage == share / sum(p.numel() for p in module.parameters())
    expected = module.gru(noise(2, 5, 3).transpose(0, 1))[0].transpose(0, 1).detach()
    torch.testing.assert_close(host.parts()["gru"].respond(noise(2, 5, 3)), expected)


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_parametrized_layer_is_run_with_its_effective_weight(norm: object) -> None:
    assert callable(norm)
    module = norm(nn.LSTM(3, 4, batch_first=True), "weight_hh_l0")
    assert isinstance(module, nn.LSTM)
    before = copy.deepcopy(module.state_dict())
    answer = opened(module).respond(noise(1, 5, 3))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    torch.testing.assert_close(answer, module.eval()(noise(1, 5, 3))[0].detach())


def test_claims_rest_on_recurrent_layers_alone() -> None:
    adapter = RnnAdapter()
    assert adapter.claim(parse_source(Wrapped())) is not None
    assert adapter.claim(parse_source(nn.RNNCell(2, 2))) is not None
    assert adapter.claim(parse_source(nn.Linear(2, 2))) is None
    assert adapter.claim(parse_source(lambda x: x)) is None


def test_a_module_without_recurrence_is_refused() -> None:
    with pytest.raises(SourceError, match="contains no") as error:
        opened(nn.Linear(2, 2))
    assert error.value.code == "E_UNSUPPORTED"


def test_weights_that_are_not_finite_are_refused() -> None:
    module = nn.LSTM(3, 4)
    with torch.no_grad():
        module.get_parameter("weight_ih_l0")[0, 0] = float("inf")
    with pytest.raises(SourceError, match="weight_ih_l0"):
        opened(module)


def test_options_of_files_are_refused() -> None:
    with pytest.raises(ArgumentError, match="nonlinearity is an option of files"):
        opened(nn.RNN(3, 4), nonlinearity="relu")
    with pytest.raises(ArgumentError, match="head is an option of files"):
        opened(nn.RNN(3, 4), head="fc")


def test_a_layer_may_be_pooled() -> None:
    module = nn.GRU(3, 4, bidirectional=True, batch_first=True)
    answer = opened(module, pool="final").respond(noise(2, 5, 3))
    final = module(noise(2, 5, 3))[1].detach()
    torch.testing.assert_close(answer, torch.cat((final[0], final[1]), dim=1))


def test_a_forward_of_its_own_is_noted() -> None:
    class Doubled(nn.GRU):
        def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002
            return 2 * super().forward(input, hx)[0]

    notes = opened(Doubled(3, 4)).identity.notes
    assert any("forward of its own" in note for note in notes)
