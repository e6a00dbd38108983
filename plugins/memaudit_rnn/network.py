"""The computation that is audited: torch's cells, the stack with what is around it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from memaudit.interfaces import plain_name
from memaudit.loading.filling import fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit_rnn.placement import Layer
    from memaudit_rnn.recognition import Stack


#: What torch calls a cell → what reports call it.
MODES = {"RNN_TANH": "RNN", "RNN_RELU": "RNN", "GRU": "GRU", "LSTM": "LSTM"}


@dataclass(frozen=True, slots=True)
class CellWeights:
    """The weights of one layer in one direction, by torch's names for them."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    weight_hr: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of the parts of a state: what is answered, and the cell state of an LSTM."""
        answered = self.weight_hh.shape[-1]
        if self.weight_hh.shape[-2] == 4 * self.hidden:
            return (answered, self.hidden)
        return (answered,)

    @property
    def hidden(self) -> int:
        """Units of the layer; a projected layer answers fewer."""
        holder = self.weight_hh if self.weight_hr is None else self.weight_hr
        return holder.shape[-1]

    def to(self, dtype: torch.dtype) -> CellWeights:
        """The same weights in another dtype."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return CellWeights(**{name: value.to(dtype) for name, value in given if value is not None})


def cell_weights(named: Mapping[str, Tensor], end: str) -> CellWeights:
    """The weights of one layer and direction, whose names have that end, such as `_l0_reverse`."""
    found = {name.removesuffix(end): value for name, value in named.items() if name.endswith(end)}
    return CellWeights(**found)


def time_directions(stack: nn.RNNBase) -> tuple[tuple[str, str], ...]:
    """The directions of time: what a layer's name and its weights' names end with."""
    return ((".forward", ""), (".backward", "_reverse")) if stack.bidirectional else (("", ""),)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b for rows x (…,B,D), with copies of W and b in front or without."""
    product = x @ weight.mT
    return product if bias is None else product + bias.unsqueeze(-2)


def drive(mode: str, x: Tensor, weights: CellWeights) -> Tensor:
    """What the input gives to the gates: all of it that does not depend on the state.

    A GRU multiplies its recurrent bias by a gate, so that bias waits for the step.
    """
    bias, late = weights.bias_ih, weights.bias_hh
    if mode != "GRU" and bias is not None and late is not None:
        bias = bias + late
    return affine(x, weights.weight_ih, bias)


def advance(
    mode: str, given: Tensor, state: tuple[Tensor, ...], weights: CellWeights
) -> tuple[Tensor, ...]:
    """The state after one step, from what the input gives and the state before."""
    if mode == "LSTM":
        return _lstm(given, state[0], state[1], weights)
    if mode == "GRU":
        return (_gru(given, state[0], weights),)
    gate = given + affine(state[0], weights.weight_hh, None)
    return (gate.relu() if mode == "RNN_RELU" else gate.tanh(),)


def _gru(given: Tensor, h: Tensor, weights: CellWeights) -> Tensor:
    """The order of the gates is r, z, n; z keeps the old state."""
    from_state = affine(h, weights.weight_hh, weights.bias_hh)
    given_r, given_z, given_n = given.chunk(3, dim=-1)
    state_r, state_z, state_n = from_state.chunk(3, dim=-1)
    r = (given_r + state_r).sigmoid()
    z = (given_z + state_z).sigmoid()
    n = (given_n + r * state_n).tanh()
    return n + z * (h - n)


def _lstm(given: Tensor, h: Tensor, c: Tensor, weights: CellWeights) -> tuple[Tensor, Tensor]:
    """The order of the gates is i, f, g, o; a projection shortens h, never c."""
    gates = given + affine(h, weights.weight_hh, None)
    i, f, g, o = gates.chunk(4, dim=-1)
    kept = f.sigmoid() * c + i.sigmoid() * g.tanh()
    shown = o.sigmoid() * kept.tanh()
    if weights.weight_hr is not None:
        shown = affine(shown, weights.weight_hr, None)
    return shown, kept


def _states(mode: str, x: Tensor, named: Mapping[str, Tensor], end: str) -> Tensor:
    """The states (T,B,·) of one layer in one direction of time, the end of its weights' names."""
    weights = cell_weights(named, end)
    # Products of few rows are fastest with the rows of the second factor one behind the other.
    weights = replace(weights, weight_hh=weights.weight_hh.mT.contiguous().mT)
    state = tuple(x.new_zeros(x.shape[1], size) for size in weights.sizes)
    order = -1 if end.endswith("reverse") else 1
    shown: list[Tensor] = []
    for now in drive(mode, x, weights).unbind()[::order]:
        state = advance(mode, now, state, weights)
        shown.append(state[0])
    return torch.stack(shown[::order])


class RecurrentNetwork(nn.Module):
    """[table or encoder] → stack → [pool] → [head], with the weights of the source.

    Floats skip the embedding table: the input space of a token model is its embedding space.
    `layers` is what the source calls the layers of the stack, `forms` are those in which it keeps
    recurrent weights that are plain here.
    """

    def __init__(
        self,
        stack: nn.RNNBase,
        *,
        table: nn.Embedding | None = None,
        encoder: nn.Linear | None = None,
        head: nn.Linear | None = None,
        pool: str = "none",
        layers: tuple[str, ...] = (),
        forms: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.table = table
        self.encoder = encoder
        self.stack = stack
        self.head = head
        self.pool = pool
        self.layers = layers
        self.forms = dict(forms or {})
        self.eval()
        self.requires_grad_(False)

    @property
    def input_size(self) -> int:
        """Width of the float inputs."""
        return self.stack.input_size if self.encoder is None else self.encoder.in_features

    def forward(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats or (B,T) ids by (B,T,M), or by (B,M) when pooled."""
        if self.table is not None and inputs.ndim == 2:
            inputs = self.table(inputs)
        elif self.encoder is not None:
            inputs = self.encoder(inputs)
        answer = self.pooled(self.stack(inputs)[0])
        return answer if self.head is None else self.head(answer)

    def unrolled(self, inputs: Tensor) -> Tensor:
        """The answers to floats step by step, which many copies can take together.

        They differ from those of torch's own kernels by rounding.
        """
        stack = self.stack
        named = {name: getattr(stack, name) for name in stack._flat_weights_names}
        x = inputs.to(named["weight_ih_l0"]).transpose(0, 1)
        x = x if self.encoder is None else self.encoder(x)
        for layer in range(stack.num_layers):
            ends = [end for _, end in time_directions(stack)]
            x = torch.cat([_states(stack.mode, x, named, f"_l{layer}{end}") for end in ends], -1)
        answer = self.pooled(x.transpose(0, 1))
        return answer if self.head is None else self.head(answer)

    def pooled(self, states: Tensor) -> Tensor:
        """The states (·,T,…,M) over time; `final` is the end of either direction."""
        if self.pool == "final" and self.stack.bidirectional:
            forward, backward = states.chunk(2, dim=-1)
            return torch.cat([forward[:, -1], backward[:, 0]], dim=-1)
        if self.pool in ("last", "final"):
            return states[:, -1]
        if self.pool == "mean":
            return states.mean(dim=1)
        return states.amax(dim=1) if self.pool == "max" else states


def build_stack(
    stack: Stack,
    tensors: Mapping[str, Tensor],
    nonlinearity: str,
    device: torch.device,
    dtype: torch.dtype,
) -> nn.RNNBase:
    """Torch's own module with these weights: batch first, eval mode, no gradients.

    It begins without memory: drawing initial weights would move the global random numbers.
    """
    options = {
        "num_layers": stack.layers,
        "bias": stack.bias,
        "batch_first": True,
        "bidirectional": stack.directions == 2,
        "device": "meta",
        "dtype": dtype,
    }
    sizes = (stack.input_size, stack.hidden)
    module: nn.RNNBase
    if stack.cell == "LSTM":
        projection = stack.output if stack.output != stack.hidden else 0
        module = nn.LSTM(*sizes, proj_size=projection, **options)
    elif stack.cell == "GRU":
        module = nn.GRU(*sizes, **options)
    else:
        module = nn.RNN(*sizes, nonlinearity=nonlinearity, **options)
    module.to_empty(device=device)
    fill(module, {str(place): tensors[key] for place, key in stack.keys.keys.items()})
    return module.eval().requires_grad_(False)


def build_table(
    layer: Layer | None, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> nn.Embedding | None:
    """The embedding table of a layer, if there is one."""
    if layer is None:
        return None
    table = nn.Embedding(layer.rows, layer.columns, device="meta", dtype=dtype)
    fill(table, {"weight": tensors[layer.weight]}, device=device)
    return table


def build_linear(
    layer: Layer | None, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> nn.Linear | None:
    """The linear layer of a layer, if there is one."""
    if layer is None:
        return None
    kind = {"bias": layer.bias is not None, "device": "meta", "dtype": dtype}
    linear = nn.Linear(layer.columns, layer.rows, **kind)
    fill(linear, {key: tensors[n] for key, n in layer.parameters().items()}, device=device)
    return linear


def recurrent_layers(module: object) -> dict[str, nn.Module]:
    """The recurrent layers in a module by their path; the module itself has the path ''."""
    if not isinstance(module, nn.Module):
        return {}
    kinds = (nn.RNNBase, nn.RNNCellBase)
    return {name: part for name, part in module.named_modules() if isinstance(part, kinds)}


def retrofitted_forms(layer: nn.Module) -> dict[str, str]:
    """The weights of a layer that a retrofit keeps in another form, and the names of the forms."""
    if not parametrize.is_parametrized(layer):
        return {}
    made: Any = layer.parametrizations
    forms = {name: getattr(made[name][0], "form_name", None) for name in made}
    return {name: str(form) for name, form in forms.items() if form is not None}


def plain_weights(module: nn.Module) -> dict[str, Tensor]:
    """The weights that a module runs with, by their plain names; made ones are made now."""
    names = dict.fromkeys(plain_name(name) for name, _ in module.named_parameters())
    owners = ((name, *name.rpartition(".")[::2]) for name in names)
    return {n: getattr(module.get_submodule(path), own).detach() for n, path, own in owners}


def keeps_raw_weights(layer: nn.RNNBase, dtype: torch.dtype) -> bool:
    """Whether a copy in that dtype can keep raw weights: they have single precision at least."""
    stored = getattr(layer, layer._flat_weights_names[0]).dtype
    return bool(retrofitted_forms(layer)) and (dtype == stored or torch.finfo(dtype).bits >= 32)


def retrofitted_copy(layer: nn.RNNBase, dtype: torch.dtype) -> nn.RNNBase:
    """A copy that keeps the raw weights: batch first, eval mode, no gradients.

    The list of weights for the fused kernels stays behind: what was made from raw weights while
    gradients were kept cannot be copied, and it is made again anyway.
    """
    made = copy.deepcopy(layer, {id(layer._flat_weights): []}).eval().requires_grad_(False)
    made._init_flat_weights()
    made.batch_first = True
    if dtype == getattr(layer, layer._flat_weights_names[0]).dtype:
        return made
    forms: Any = made.parametrizations
    values = {name: getattr(layer, name).detach() for name in forms}
    untrained = {
        name: value
        for name, value in values.items()
        if torch.equal(value, getattr(forms[name][0], "anchor", value.new_empty(0)))
    }
    made.to(dtype)
    for name, stored in untrained.items():
        # What was rounded in one dtype is not what the other would have begun with.
        forms[name].right_inverse(stored.to(dtype))
    return made
