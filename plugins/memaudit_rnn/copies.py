"""Many copies of a recurrent network, whose weights differ a little, run at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.interfaces import AbstractPerturbable, Role, plain_name
from memaudit.numerics.chunking import chunk_length, shares, side_by_side, spans
from memaudit.subjects.copies import Copies
from memaudit_rnn.network import (
    CellWeights,
    advance,
    affine,
    cell_weights,
    drive,
    plain_weights,
    retrofitted_forms,
    time_directions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor, nn

    from memaudit_rnn.network import RecurrentNetwork


Steps: TypeAlias = "Iterable[tuple[Tensor, Tensor]]"
Item = TypeVar("Item")


def run_tracked(mode: str, x: Tensor, weights: CellWeights, *, reverse: bool) -> Tensor:
    """The answers (K,T,B,·) of a layer to x; gradients flow to the weights."""
    given = _driven(mode, x, weights)
    copies = max(len(given), len(weights.weight_hh))
    state = tuple(given.new_zeros(copies, given.shape[2], size) for size in weights.sizes)
    shown: list[Tensor] = []
    for now in _ordered(given.unbind(1), reverse=reverse):
        state = advance(mode, now, state, weights)
        shown.append(state[0])
    return torch.stack(_ordered(shown, reverse=reverse), dim=1)


def run_quick(mode: str, x: Tensor, weights: CellWeights, *, reverse: bool) -> Tensor:
    """The answers (K,T,B,·) of a layer to x, written in place: no gradients.

    Where the copies share the recurrent weights they are rows of one product, else each of them
    is a product of its own.
    """
    every = (x, weights.weight_ih, weights.bias_ih, weights.bias_hh, *_recurrent(weights))
    copies = max(len(part) for part in every if part is not None)
    shared = all(len(weight) == 1 for weight in _recurrent(weights))
    groups, rows = (1, copies * x.shape[2]) if shared else (copies, x.shape[2])
    runner = _Runner(mode, weights, groups, rows)
    answers = x.new_empty(groups, x.shape[1], rows, weights.sizes[0])
    wide = weights.weight_hh.shape[-2] * groups * rows
    cuts = list(spans(x.shape[1], chunk_length(x.shape[1], wide)))
    for span in _ordered(cuts, reverse=reverse):
        given = _driven(mode, x[:, span], weights).expand(copies, -1, -1, -1)
        if shared:
            given = given.transpose(0, 1).flatten(1, 2).unsqueeze(0)
        pairs = zip(given.unbind(1), answers[:, span].unbind(1), strict=True)
        runner.run(_ordered(list(pairs), reverse=reverse))
    if shared:
        return answers[0].unflatten(1, (copies, -1)).transpose(0, 1)
    return answers


class _Runner:
    """The steps of a layer in place, with its state and working arrays.

    `run` takes what the input gives to each step, and where its answer goes.
    """

    def __init__(self, mode: str, weights: CellWeights, groups: int, rows: int) -> None:
        hh, hr = weights.weight_hh, weights.weight_hr
        self.run = {"LSTM": self._lstm, "GRU": self._gru}.get(mode, self._rnn)
        self._relu = mode == "RNN_RELU"
        # Products of few rows are fastest with the rows of the second factor one behind the other.
        self._hh = hh.mT.contiguous().expand(groups, -1, -1)
        self._hr = None if hr is None else hr.mT.contiguous().expand(groups, -1, -1)
        self._bias = _in_rows(weights, groups, rows)
        self._state = [hh.new_zeros(groups, rows, size) for size in weights.sizes]
        self._gates = hh.new_empty(groups, rows, hh.shape[-2])
        self._room = hh.new_empty(groups, rows, weights.hidden)

    def _rnn(self, steps: Steps) -> None:
        h, hh = self._state[0], self._hh
        for given, out in steps:
            torch.baddbmm(given, h, hh, out=self._gates)
            h = torch.relu_(self._gates) if self._relu else torch.tanh_(self._gates)
            h = out.copy_(h)
        self._state[0] = h

    def _gru(self, steps: Steps) -> None:
        h, hh, gates, n = self._state[0], self._hh, self._gates, self._room
        width = n.shape[-1]
        both, reset, keep = gates[..., : 2 * width], gates[..., :width], gates[..., width:-width]
        inner = gates[..., -width:]
        for given, out in steps:
            torch.baddbmm(self._bias, h, hh, out=gates)
            both.add_(given[..., : 2 * width]).sigmoid_()
            torch.addcmul(given[..., -width:], reset, inner, out=n).tanh_()
            h = torch.lerp(n, h, keep, out=out)
        self._state[0] = h

    def _lstm(self, steps: Steps) -> None:
        (h, c), hh, gates, room = self._state, self._hh, self._gates, self._room
        take, forget, fresh, show = gates.chunk(4, dim=-1)
        both = gates[..., : 2 * room.shape[-1]]
        for given, out in steps:
            torch.baddbmm(given, h, hh, out=gates)
            both.sigmoid_()
            show.sigmoid_()
            c.mul_(forget).addcmul_(take, fresh.tanh_())
            torch.tanh(c, out=room)
            if self._hr is None:
                h = torch.mul(show, room, out=out)
            else:
                h = out.copy_(torch.bmm(room.mul_(show), self._hr))
        self._state[0] = h


def _recurrent(weights: CellWeights) -> list[Tensor]:
    """The weights that multiply the state."""
    both = (weights.weight_hh, weights.weight_hr)
    return [weight for weight in both if weight is not None]


def _in_rows(weights: CellWeights, groups: int, rows: int) -> Tensor:
    """The recurrent bias for every row, where copies may be rows; only a GRU adds it late."""
    bias = weights.bias_hh
    if bias is None:
        return weights.weight_hh.new_zeros(1, 1, 1).expand(groups, rows, -1)
    if groups == 1:
        return bias.repeat_interleave(rows // len(bias), dim=0).unsqueeze(0)
    return bias.unsqueeze(1).expand(groups, rows, -1)


def _driven(mode: str, x: Tensor, weights: CellWeights) -> Tensor:
    """What all steps (K,T,B,·) give to the gates, in one product."""
    return drive(mode, x.flatten(1, 2), weights).unflatten(1, x.shape[1:3])


def _ordered(items: Sequence[Item], *, reverse: bool) -> list[Item]:
    return list(reversed(items)) if reverse else list(items)


#: The gates of an LSTM that are squashed alike stand together here: i, f, o, then g.
TOGETHER = (0, 1, 3, 2)
FRESH = 2


@dataclass(frozen=True, slots=True)
class MovedLinear:
    """W x + b whose weights (M,D) and (M,) move along directions (K,M,D) and (K,M), or stay."""

    weight: Tensor
    bias: Tensor | None = None
    weight_way: Tensor | None = None
    bias_way: Tensor | None = None

    def rest(self, x: Tensor) -> Tensor:
        """What the weights give as they are, to x of any shape (…,D)."""
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def slope(self, x: Tensor) -> Tensor | None:
        """What a move of size one adds, for x (1 or K,…,D); None where nothing moves."""
        if self.weight_way is not None:
            product = x.flatten(1, -2) @ self.weight_way.mT
            if self.bias_way is not None:
                product += self.bias_way.unsqueeze(1)
            return product.unflatten(1, x.shape[1:-1])
        if self.bias_way is None:
            return None
        flat = self.bias_way.reshape(len(self.bias_way), *[1] * (x.ndim - 2), -1)
        return flat.expand(-1, *x.shape[1:-1], -1)

    def spread(self, x: Tensor, sizes: Tensor) -> Tensor:
        """W x + b of every direction at every size (S,1,1)."""
        rest, slope = self.rest(x), self.slope(x)
        return rest if slope is None else torch.addcmul(rest, slope, sizes)


def run_directions(
    mode: str,
    x: Tensor,
    named: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    sizes: Tensor,
    out: Tensor,
    *,
    reverse: bool,
) -> None:
    """Write the answers of a layer to x into `out` (K,T,S,B,h).

    `named` holds the weights of the layer and the directions (K,…) of some, by torch's names.
    """
    weights, ways = ({n: _together(mode, v, n) for n, v in some.items()} for some in named)
    shape = (*out.shape[:1], *out.shape[2:4], len(weights["weight_hh"]))
    biases = [(some.get("bias_ih"), some.get("bias_hh")) for some in (weights, ways)]
    # The recurrent bias of a GRU is multiplied by a gate: it stays with the state.
    early, late = ([_sum(b) for b in biases], [None, None])
    if mode == "GRU":
        early, late = [b[0] for b in biases], [b[1] for b in biases]
    given = MovedLinear(weights["weight_ih"], early[0], ways.get("weight_ih"), early[1])
    drive = _Drive(x, given, sizes, shape)
    own = MovedLinear(weights["weight_hh"], late[0], ways.get("weight_hh"), late[1])
    steps = range(x.shape[1])
    run = {"LSTM": _lstm, "GRU": _gru, "RNN_RELU": _relu}.get(mode, _tanh)
    run(drive, _Product(own, sizes, shape), out, reversed(steps) if reverse else steps)


class _Product:
    """W h + b of the states of one step, with its working array."""

    def __init__(self, own: MovedLinear, sizes: Tensor, shape: tuple[int, ...]) -> None:
        copies, places, rows, _ = shape
        self._sizes, self._way = sizes, None
        self._factor = own.weight.mT.contiguous()
        if own.weight_way is not None:
            self._way = own.weight_way.mT.contiguous()
            self._scaled = sizes.new_empty(copies, places, rows, own.weight.shape[1])
        bias = None if own.bias is None else own.bias.expand(1, 1, 1, -1)
        if bias is not None and own.bias_way is not None:
            bias = torch.addcmul(bias, own.bias_way[:, None, None], sizes)
        self._bias = bias

    def into(self, gates: Tensor, h: Tensor) -> Tensor:
        """The products (K,S,B,·) of h (K,S,B,D), written to `gates`.

        What all directions share is one large product; sizes are put to the states, which are
        fewer numbers than the products.
        """
        torch.mm(h.reshape(-1, h.shape[-1]), self._factor, out=gates.view(-1, gates.shape[-1]))
        if self._way is not None:
            torch.mul(h, self._sizes, out=self._scaled)
            gates.flatten(1, 2).baddbmm_(self._scaled.flatten(1, 2), self._way)
        return gates if self._bias is None else gates.add_(self._bias)


class _Drive:
    """What the input gives to the gates at each step.

    An input that no copy has of its own is multiplied once, for all steps.
    """

    def __init__(self, x: Tensor, own: MovedLinear, sizes: Tensor, shape: tuple[int, ...]) -> None:
        self._x, self._sizes = x, sizes
        alike = x.shape[0] == x.shape[2] == 1
        self._product = None if alike else _Product(own, sizes, shape)
        self._slope = own.slope(x) if alike else None
        self._rest = own.rest(x) if alike else x
        self._room = x.new_empty(shape if self._product or self._slope is not None else 0)

    def at(self, step: int) -> Tensor:
        """It is (K,S,B,·), or (1,1,B,·) where it is the same for all."""
        now = self._rest[:, step]
        if self._product is not None:
            return self._product.into(self._room, now)
        if self._slope is None:
            return now
        return torch.addcmul(now, self._slope[:, step], self._sizes, out=self._room)


def _tanh(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    state, gates = torch.zeros_like(out[:, 0]), _rooms(out, 1)
    for step in steps:
        product.into(gates, state).add_(drive.at(step))
        state = torch.tanh(gates, out=out[:, step])


def _relu(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    state, gates = torch.zeros_like(out[:, 0]), _rooms(out, 1)
    for step in steps:
        product.into(gates, state).add_(drive.at(step))
        state = out[:, step].copy_(gates.relu_())


def _gru(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    state, gates, fresh = torch.zeros_like(out[:, 0]), _rooms(out, 3), _rooms(out, 1)
    width = out.shape[-1]
    both, inner = gates[..., : 2 * width], gates[..., 2 * width :]
    reset, keep = both.chunk(2, dim=-1)
    for step in steps:
        given = drive.at(step)
        product.into(gates, state)
        both.add_(given[..., : 2 * width]).sigmoid_()
        torch.addcmul(given[..., 2 * width :], reset, inner, out=fresh).tanh_()
        state = torch.lerp(fresh, state, keep, out=out[:, step])


def _lstm(drive: _Drive, product: _Product, out: Tensor, steps: Iterable[int]) -> None:
    """tanh(x) is 2 sigmoid(2x) - 1 here, to rounding of one: it takes half of the time.

    The weights of the fresh values are doubled already, so one call squashes all four gates.
    """
    state, gates, room = torch.zeros_like(out[:, 0]), _rooms(out, 4), _rooms(out, 1)
    kept = torch.zeros_like(room)
    take, forget, show, fresh = gates.chunk(4, dim=-1)
    for step in steps:
        product.into(gates, state).add_(drive.at(step)).sigmoid_()
        kept.mul_(forget).addcmul_(take, fresh, value=2.0).sub_(take)
        torch.add(kept, kept, out=room).sigmoid_()
        state = torch.mul(show, room, out=out[:, step]).mul_(2.0).sub_(show)


def _rooms(out: Tensor, blocks: int) -> Tensor:
    """A working array (K,S,B,·) of some blocks of units."""
    copies, _, places, rows, width = out.shape
    return out.new_empty(copies, places, rows, blocks * width)


def _together(mode: str, value: Tensor, name: str) -> Tensor:
    """The gates of an LSTM in another order, the fresh values doubled; other cells as they are."""
    if mode != "LSTM":
        return value
    dim = -2 if name.startswith("weight") else -1
    blocks = value.chunk(4, dim=dim)
    return torch.cat([blocks[k] if k != FRESH else 2.0 * blocks[k] for k in TOGETHER], dim=dim)


def _sum(biases: tuple[Tensor | None, ...]) -> Tensor | None:
    given = [bias for bias in biases if bias is not None]
    return sum(given[1:], given[0]) if given else None


#: Bytes of factors and gates that are worked on at a time: they stay in the last cache.
DIRECTIONS_CACHE = 2**23
#: The most directions at a time on other devices: all that memory is likely to hold.
MOST_DIRECTIONS = 256


@dataclass(frozen=True, slots=True)
class DirectionsRun:
    """A network as it is, and the sizes (S,1,1) of the moves along every direction.

    Sequences are (K,T,S,B,·), of K directions at S sizes; both are 1 where nothing before has
    moved, and what no direction moves is worked out once.
    """

    network: RecurrentNetwork
    weights: Mapping[str, Tensor]
    sizes: Tensor

    def room(self, x: Tensor, count: int) -> Tensor:
        """An array for the answers of `count` directions: (K,T,S,B,M), or (K,S,B,M)."""
        stack, head = self.network.stack, self.network.head
        width = stack.hidden_size * (1 + stack.bidirectional)
        width = width if head is None else head.out_features
        steps = x.shape[1:2] if self.network.pool == "none" else ()
        return x.new_empty(count, *steps, len(self.sizes), x.shape[3], width)

    def block(self, x: Tensor) -> int:
        """How many directions are worked on at a time."""
        if x.device.type != "cpu":
            return MOST_DIRECTIONS
        gates, width = self.weights["stack.weight_hh_l0"].shape
        rows = len(self.sizes) * x.shape[3]
        numbers = 2 * gates * width + rows * (3 * gates + 3 * width)
        return max(1, DIRECTIONS_CACHE // (numbers * x.element_size()))

    def answer(self, x: Tensor, ways: Mapping[str, Tensor], room: Tensor) -> None:
        """Write the answers of some directions (K,…) of some weights to x (1,T,1,B,D)."""
        bare = self.network.head is None and self.network.pool == "none"
        if self.network.encoder is not None:
            x = self._linear_of("encoder", ways).spread(x, self.sizes)
        answer = self.network.pooled(self._stack(x, ways, room if bare else None))
        if self.network.head is not None:
            answer = self._linear_of("head", ways).spread(answer, self.sizes)
        if answer is not room:
            room.copy_(answer)

    def _linear_of(self, owner: str, ways: Mapping[str, Tensor]) -> MovedLinear:
        names = (f"{owner}.weight", f"{owner}.bias")
        own = [self.weights.get(name) for name in names]
        assert own[0] is not None
        return MovedLinear(own[0], own[1], *map(ways.get, names))

    def _stack(self, x: Tensor, ways: Mapping[str, Tensor], room: Tensor | None) -> Tensor:
        last = self.network.stack.num_layers - 1
        for layer in range(last + 1):
            x = self._layer(x, layer, ways, room if layer == last else None)
        return x

    def _layer(
        self, x: Tensor, layer: int, ways: Mapping[str, Tensor], room: Tensor | None
    ) -> Tensor:
        """The answers of both directions of time; those that no copy has of its own only once."""
        stack = self.network.stack
        ends = [f"_l{layer}{end}" for _, end in time_directions(stack)]
        named = [(_ending(self.weights, end), _ending(ways, end)) for end in ends]
        unmoved = {}
        if x.shape[0] == x.shape[2] == 1:
            for k, (weights, own) in enumerate(named):
                if not own:
                    cell = CellWeights(**{name: w[None] for name, w in weights.items()})
                    answers = run_quick(stack.mode, x[:, :, 0], cell, reverse=k == 1)
                    unmoved[k] = answers.unsqueeze(2)
        if len(unmoved) == len(ends):
            return torch.cat([unmoved[k] for k in range(len(ends))], dim=-1)
        if room is None:
            copies = len(next(iter(ways.values())))
            shape = (copies, x.shape[1], len(self.sizes), x.shape[3])
            room = x.new_empty(*shape, stack.hidden_size * len(ends))
        for k, out in enumerate(room.chunk(len(ends), dim=-1)):
            if k in unmoved:
                out.copy_(unmoved[k])
            else:
                run_directions(stack.mode, x, named[k], self.sizes, out, reverse=k == 1)
        return room


def _ending(named: Mapping[str, Tensor], end: str) -> dict[str, Tensor]:
    """The weights of one layer and direction of time, without their ending."""
    return {
        name.removeprefix("stack.").removesuffix(end): value
        for name, value in named.items()
        if name.startswith("stack.") and name.endswith(end)
    }


#: Bytes of recurrent weights that are worked on at a time: they stay in the processor's cache.
CACHE = 2**21
#: The least and the most copies at a time: fewer cost calls into torch, more cost cache.
FEWEST, MOST = 4, 64
GROUPS = {"encoder": "input", "head": "readout"}


class RnnEnsemble(AbstractPerturbable):
    """A network of torch's layers as a function of its weights; the table of tokens is no part."""

    def __init__(self, network: RecurrentNetwork, layers: Sequence[str]) -> None:
        named = plain_weights(network)
        self.weights = {n: value for n, value in named.items() if not n.startswith("table.")}
        self.roles = {name: _role(name, value, layers) for name, value in self.weights.items()}
        self._network = network

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        """The answers (K,B,T,M), or (K,B,M) of a pooled model, of K copies to (B,T,D) floats."""
        copies = checked_copies(self.weights, moved)
        some = next(iter(self.weights.values()))
        x = inputs.to(some.device, some.dtype).transpose(0, 1).unsqueeze(0)
        if torch.is_grad_enabled() and any(value.requires_grad for value in moved.values()):
            return self._answer(x, moved, tracked=True).expand(copies, *[-1] * self._dims)
        blocks: dict[int, Tensor] = {}

        def work(part: slice) -> None:
            for span in spans(part.stop - part.start, self._block(some)):
                start, stop = part.start + span.start, part.start + span.stop
                own = {name: value[start:stop] for name, value in moved.items()}
                answer = self._answer(x, own, tracked=False)
                blocks[start] = answer.expand(stop - start, *[-1] * self._dims)

        with torch.no_grad():
            side_by_side(work, shares(copies, on_processor=some.device.type == "cpu"))
            return torch.cat([blocks[start] for start in sorted(blocks)])

    def respond_scaled(
        self, inputs: Tensor, directions: Mapping[str, Tensor], sizes: Tensor
    ) -> Tensor:
        """The answers (S,K,B,T,M), or (S,K,B,M), of K directions at S sizes; no gradients."""
        count = checked_copies(self.weights, directions)
        some = next(iter(self.weights.values()))
        exact = some.dtype in (torch.float32, torch.float64)
        # One size shares no products, and half precision rounds every moved weight, to be seen.
        if len(sizes) < 2 or not directions or not exact or self._network.stack.proj_size:
            return super().respond_scaled(inputs, directions, sizes)
        x = inputs.to(some.device, some.dtype).transpose(0, 1)[None, :, None]
        runner = DirectionsRun(self._network, self.weights, sizes.to(some).reshape(-1, 1, 1))
        found = runner.room(x, count)

        def work(part: slice) -> None:
            for span in spans(part.stop - part.start, runner.block(x)):
                own = slice(part.start + span.start, part.start + span.stop)
                ways = {name: way[own].to(some) for name, way in directions.items()}
                runner.answer(x, ways, found[own])

        with torch.no_grad():
            side_by_side(work, shares(count, on_processor=some.device.type == "cpu"))
        return found.movedim(1, 3).movedim(1, 0) if found.ndim == 5 else found.transpose(0, 1)

    @property
    def _dims(self) -> int:
        return 3 if self._network.pool == "none" else 2

    def _block(self, some: Tensor) -> int:
        """How many copies are worked on at a time."""
        if some.device.type != "cpu":
            return MOST * MOST
        recurrent = self.weights["stack.weight_hh_l0"]
        room = CACHE // (recurrent.numel() * recurrent.element_size())
        return max(FEWEST, min(MOST, room))

    def _answer(self, x: Tensor, moved: Mapping[str, Tensor], *, tracked: bool) -> Tensor:
        """The answers of some copies; one for all of them where nothing that matters is moved."""
        every = {n: moved.get(n, value.unsqueeze(0)) for n, value in self.weights.items()}
        if "encoder.weight" in every:
            x = _linear(x, every["encoder.weight"], every.get("encoder.bias"))
        answer = self._network.pooled(self._stack(x, every, tracked=tracked))
        if "head.weight" in every:
            answer = _linear(answer, every["head.weight"], every.get("head.bias"))
        return answer.transpose(1, 2) if self._network.pool == "none" else answer

    def _stack(self, x: Tensor, every: Mapping[str, Tensor], *, tracked: bool) -> Tensor:
        stack = self._network.stack
        run = run_tracked if tracked else run_quick
        named = {n.removeprefix("stack."): v for n, v in every.items() if n.startswith("stack.")}
        for layer in range(stack.num_layers):
            ways = [
                run(stack.mode, x, cell_weights(named, f"_l{layer}{end}"), reverse=bool(end))
                for _, end in time_directions(stack)
            ]
            copies = max(map(len, ways))
            x = torch.cat([way.expand(copies, -1, -1, -1) for way in ways], dim=-1)
        return x


def checked_copies(weights: Mapping[str, Tensor], moved: Mapping[str, Tensor]) -> int:
    """How many copies are moved; refuses what is no (K,…) of one of the weights."""
    for name, value in moved.items():
        if name not in weights:
            hint = nearest(name, weights)
            raise ArgumentError(f"there is no weight {clean(name)!r} to move", hint=hint)
        if value.shape[1:] != weights[name].shape:
            wanted = ", ".join(map(str, weights[name].shape))
            raise ArgumentError(f"{name} must be moved by (K, {wanted}), not {tuple(value.shape)}")
    counts = {len(value) for value in moved.values()} or {1}
    if len(counts) > 1:
        raise ArgumentError(f"the moved weights are of {sorted(counts)} copies, not of as many")
    return counts.pop()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer of copies on rows (K,…,D), whatever stands between."""
    rows = affine(x.flatten(1, -2), weight, bias)
    return rows.unflatten(1, x.shape[1:-1])


def _role(name: str, value: Tensor, layers: Sequence[str]) -> Role:
    """What a weight of the network does, by torch's name for it."""
    owner, _, own = name.partition(".")
    form = "matrix" if value.ndim == 2 else "vector"
    if owner in GROUPS:
        return Role(GROUPS[owner], form)
    place = own.removesuffix("_reverse").rpartition("_l")
    group = "recurrent" if place[0] in ("weight_hh", "weight_hr") else "input"
    return Role(group, form, layers[int(place[2])])


#: Sizes and angles of modes stand for one each.
PER_MODE = ("original0", "original1")


class RawEnsemble(AbstractPerturbable):
    """A retrofitted network as a function of its raw weights.

    The recurrent weights of the copies are made first, and then run as those of any other
    network are. The modes of a cell that is not linear are given by no copy, as without retrofit.
    """

    def __init__(self, network: RecurrentNetwork, layers: Sequence[str]) -> None:
        self._plain = RnnEnsemble(network, layers)
        named = network.named_parameters()
        own = {name: value.detach() for name, value in named if not name.startswith("table.")}
        # A matrix without complex modes has no angles: an empty weight cannot be moved.
        own = {name: value for name, value in own.items() if value.numel()}
        self.weights = own
        self.roles = {name: self._role(name, value) for name, value in own.items()}
        made = retrofitted_forms(network.stack)
        self._makers = {name: Copies(network.stack, call=_getter(name)) for name in made}

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        """The answers (K,B,T,M), or (K,B,M) of a pooled model, of K copies to (B,T,D) floats."""
        count = checked_copies(self.weights, moved)
        cast = {name: value.to(self.weights[name].dtype) for name, value in moved.items()}
        plain = {name: value for name, value in cast.items() if name in self._plain.weights}
        stack = {n.removeprefix("stack."): v for n, v in cast.items() if n.startswith("stack.")}
        for name, maker in self._makers.items():
            # Of a GRU the biases, too, decide what the recurrent weight is.
            end = name.removeprefix("weight_hh")
            beside = (name, f"bias_ih{end}", f"bias_hh{end}")
            own = {n: value for n, value in stack.items() if plain_name(n) in beside}
            if own:
                plain[f"stack.{name}"] = maker.run(torch.empty(1), own, count)
        return self._plain.respond(inputs, plain)

    def _role(self, name: str, value: Tensor) -> Role:
        """What it does is what the weight does that is made from it."""
        role = self._plain.roles[plain_name(name)]
        if name in self._plain.roles:
            return role
        thin = "diagonal" if name.rpartition(".")[2] in PER_MODE else "vector"
        return Role(role.group, "matrix" if value.ndim > 1 else thin, role.layer)


def _getter(name: str) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda stack, _: getattr(stack, name)
