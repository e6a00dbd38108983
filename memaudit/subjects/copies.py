"""A module with its weights as an argument: what each weight does, and copies that differ in some.

`Copies` makes the copies of any module. `roles_of` and `mode_sources` say what its weights do, from
its structure, its names, and what it states itself.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from memaudit.devices import random_state_kept
from memaudit.errors import ArgumentError, SourceError, clean, nearest
from memaudit.interfaces import FORMS, GROUPS, AbstractPerturbable, Role, plain_name

#: How copies are evaluated: all in one batch, or each by itself.
TOGETHER, APART = "vmap", "one after the other"
#: Copies in one batch: beyond it small states leave the cache, and torch splits every operation
#: among threads that wait for each other longer than they work.
_MOST = 128
#: Sums in another order may differ by so many roundings.
_ROUNDINGS = 1e4
#: What a model that cannot be batched raises: writes in place, branches on numbers, or foreign
#: kernels.
_UNBATCHED = (RuntimeError, TypeError, ValueError, AttributeError, IndexError)


@dataclass(frozen=True, slots=True, eq=False)
class ModeSource:
    """A part of a model, and what gives its eigenvalues, in any shape, from its weights alone.

    It is called with weights in double precision: next to the boundary single precision errs.
    `names` are those of the weights that decide, inside the part; None for all of them.
    """

    part: nn.Module
    modes: Callable[[nn.Module], Tensor]
    names: tuple[str, ...] | None = None


class Copies(AbstractPerturbable):
    """Copies of a module; `call` makes the answer of one from the module and its inputs.

    `call` must be pure in the module's parameters, and must not switch gradients off. `roles` names
    the weights that may be moved, each by its first name in the module. `modes` has a source for
    every recurrent layer whose eigenvalues the weights alone decide.

    Laws: `respond` gives for copy k what `call` gives when the module has entry k of the moved
    weights, and gradients flow to them where they ask for some; nothing is written to the module.
    Which way is taken is tried once, on two copies: where both ways differ by more than rounding,
    or batching fails, the copies are run one after the other; without `together` always. `around`
    is opened once for all copies of a run, with gradients off unless they are wanted. `scaled`, if
    there is one, is `respond_scaled` by a shorter way, for two sizes at least.
    """

    def __init__(
        self,
        module: nn.Module,
        roles: Mapping[str, Role] | None = None,
        *,
        call: Callable[[Any, Tensor], Tensor],
        modes: Mapping[str, ModeSource] | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        together: bool = True,
        scaled: Callable[[Tensor, Mapping[str, Tensor], Tensor], Tensor] | None = None,
    ) -> None:
        own = dict(module.named_parameters())
        self.module = module
        self.roles = dict(roles or {})
        self.weights = {name: own[name].detach() for name in self.roles}
        #: TOGETHER or APART; empty before the first run decides.
        self.execution = "" if together else APART
        self._around = around
        self._scaled = scaled
        self._called = _Called(module, call)
        # By identity: a part that stands in the model twice is moved under its first name.
        self._names = {id(weight): name for name, weight in own.items()}
        self._modes = {
            layer: (source, Copies(source.part, call=_eigenvalues(source)))
            for layer, source in (modes or {}).items()
        }

    def respond(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        """The answers of K copies; with nothing moved there is one."""
        count = self._count(moved)
        cast = {name: value.to(self.weights[name].dtype) for name, value in moved.items()}
        return self._run(inputs, cast, count)

    def respond_scaled(
        self, inputs: Tensor, directions: Mapping[str, Tensor], sizes: Tensor
    ) -> Tensor:
        """The answers of K directions at S sizes."""
        self._count(directions)
        if self._scaled is None or not directions or len(sizes) < 2:
            return super().respond_scaled(inputs, directions, sizes)
        return self._scaled(inputs, directions, sizes)

    def modes(self, moved: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Layer → eigenvalues (K,n) of one step, in double precision."""
        count, found = self._count(moved), {}
        for layer, (source, copies) in self._modes.items():
            values = {}
            for name, weight in source.part.named_parameters():
                if source.names is None or name in source.names:
                    own = weight.detach().expand(count, *weight.shape)
                    values[name] = _double(moved.get(self._names[id(weight)], own))
            found[layer] = copies._run(torch.empty(1), values, count)
        return found

    def _count(self, moved: Mapping[str, Tensor]) -> int:
        """How many copies are moved; refuses what is no (K,…) of one of the weights."""
        for name, value in moved.items():
            if name not in self.weights:
                fact = f"there is no weight {clean(name)!r} to move"
                raise ArgumentError(fact, hint=nearest(name, self.weights))
            wanted = self.weights[name].shape
            if value.shape[1:] != wanted:
                shape = ", ".join(map(str, ("K", *wanted)))
                raise ArgumentError(f"{name} must be moved by ({shape}), not {tuple(value.shape)}")
        counts = {len(value) for value in moved.values()} or {1}
        if len(counts) > 1 or 0 in counts:
            raise ArgumentError(f"the weights are moved in {sorted(counts)} copies")
        return counts.pop()

    def _run(self, inputs: Tensor, moved: Mapping[str, Tensor], count: int) -> Tensor:
        """The answers (K,…) of `count` copies, with (K,…) values for some of the weights."""
        with self._settled(moved):
            if not moved:
                answer = self._one(inputs, {})
                return answer.expand(count, *answer.shape)
            if count > 1 and not self.execution:
                self.execution = self._chosen(inputs, moved)
            if count > 1 and self.execution == TOGETHER:
                try:
                    return self._together(inputs, moved)
                except _UNBATCHED:
                    # Another length or other numbers took a way through the model that the trial
                    # did not; an error of the model itself comes again below.
                    self.execution = APART
            return self._apart(inputs, moved, count)

    def _together(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> Tensor:
        def one(values: dict[str, Tensor]) -> Tensor:
            return self._called.answer(inputs, values)

        with unchanged(self.module), warnings.catch_warnings():
            # An operation that torch batches by a loop costs no more than the other way.
            warnings.filterwarnings("ignore", message=".*performance drop.*")
            return torch.func.vmap(one, chunk_size=_MOST)(dict(moved))

    def _apart(self, inputs: Tensor, moved: Mapping[str, Tensor], count: int) -> Tensor:
        rows = ({name: value[k] for name, value in moved.items()} for k in range(count))
        return torch.stack([self._one(inputs, row) for row in rows])

    def _one(self, inputs: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        with unchanged(self.module):
            return self._called.answer(inputs, values)

    def _chosen(self, inputs: Tensor, moved: Mapping[str, Tensor]) -> str:
        """The way on which both agree, tried on the weights as they are and a little larger."""
        own = dict(self.module.named_parameters(remove_duplicate=False))
        base = {name: own[name].detach().to(value.dtype) for name, value in moved.items()}
        pair = {name: torch.stack([t, t * (1 + 2**-6)]) for name, t in base.items()}
        few = inputs[:2]
        with torch.no_grad():
            apart = self._apart(few, pair, 2)
            try:
                together = self._together(few, pair)
            except _UNBATCHED:
                return APART
        return TOGETHER if _agree(together, apart) else APART

    @contextmanager
    def _settled(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        wanted = torch.is_grad_enabled() and any(t.requires_grad for t in values.values())
        quiet = nullcontext() if wanted else torch.no_grad()
        with random_state_kept(self.module.parameters()), quiet, self._around():
            yield


def _eigenvalues(source: ModeSource) -> Callable[[nn.Module, Tensor], Tensor]:
    """The eigenvalues of a part as an answer, to which the inputs do not matter."""
    return lambda part, _: source.modes(part).flatten().to(torch.complex128)


def _double(value: Tensor) -> Tensor:
    """In double precision; whole numbers as they are."""
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


class _Called(nn.Module):
    """A function of a module as the `forward` of another, since weights are swapped around it."""

    def __init__(self, inner: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self._call = call

    def forward(self, inputs: Tensor) -> Tensor:
        for part in self.inner.modules():
            if isinstance(part, nn.RNNBase):
                # The fused kernels take their weights from a list that swapping does not reach.
                part._flat_weights = [getattr(part, n) for n in part._flat_weights_names]
        return self._call(self.inner, inputs)

    def answer(self, inputs: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        """The answer with these weights; of the others no gradients, of buffers a fresh copy."""
        swapped = {f"inner.{name}": value for name, value in values.items()}
        if torch.is_grad_enabled():
            for name, weight in self.named_parameters():
                if name not in swapped and weight.requires_grad:
                    swapped[name] = weight.detach()
        for name, buffer in self.named_buffers():
            swapped[name] = buffer.clone()
        return torch.func.functional_call(self, swapped, (inputs,))


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards every attribute of every part is what it was."""
    before: list[tuple[nn.Module, dict[str, Any]]] = [(m, dict(vars(m))) for m in module.modules()]
    for part, _ in before:
        part.training = False
    try:
        yield
    finally:
        for part, kept in before:
            now = vars(part)
            for name in [name for name in now if name not in kept]:
                del now[name]
            now.update(kept)


def _agree(one: Tensor, other: Tensor) -> bool:
    """Whether two answers are the same to rounding; what is not finite must be so in both."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    finite = other.isfinite()
    if not bool(torch.equal(one.isfinite(), finite)):
        return False
    scale = float(torch.where(finite, other, 0).abs().amax()) if other.numel() else 0.0
    off = torch.where(finite, one - other, 0).abs()
    return not off.numel() or float(off.amax()) <= _ROUNDINGS * torch.finfo(one.dtype).eps * scale


# What the weights of any module do

#: Weights that only recurrent layers have, under the names of the published families.
_DECAYS = re.compile(
    r"(?:^|[._])(?:A|A_logs?|A_real|A_imag|log_A\w*|nu_log|theta_log|Lambda\w*|lam|lambda\w*"
    r"|log_lam\w*|inv_dt|log_dt|log_step|dt_bias|time_decay\w*|recurrent_param|slope_rate)$"
)
#: The method and the attribute by which a module states what no structure shows.
MODES, ROLES = "modes", "memaudit_roles"


def roles_of(module: nn.Module) -> dict[str, Role]:
    """The role of every weight, by its first name; what nothing is known of is "other"."""
    # Raw weights of a retrofit may be empty: there is nothing to move in them.
    numbers = [(n, w) for n, w in module.named_parameters() if _is_number(w) and w.numel()]
    known = {**_last_linear(module), **_by_name(module), **_cells(module), **_stated(module)}
    other = {name: Role("other", "matrix" if w.ndim > 1 else "vector") for name, w in numbers}
    return {name: known.get(id(w), other[name]) for name, w in numbers}


def mode_sources(module: nn.Module) -> dict[str, ModeSource]:
    """The parts that give their eigenvalues, the outermost of them, by the names of the layers."""
    found: dict[str, ModeSource] = {}
    taken: list[str] = []
    for path, part in module.named_modules():
        inside = any(not outer or path.startswith(f"{outer}.") for outer in taken)
        if inside or not _gives_modes(part):
            continue
        taken.append(path)
        modes: Any = part.modes()  # type: ignore[operator]
        if isinstance(modes, Tensor):
            found[layer_name(path, part)] = ModeSource(part, lambda m: m.modes())  # type: ignore
        elif isinstance(modes, Mapping):
            for key in modes:
                found[".".join(filter(None, (path, str(key))))] = ModeSource(
                    part,
                    lambda m, key=key: m.modes()[key],  # type: ignore[operator]
                )
    return found


def layer_name(path: str, part: nn.Module) -> str:
    """What a layer is called: its path in the model, or its class when it is the model."""
    title = type(part).__name__
    return path or (title.removeprefix("Parametrized") if is_parametrized(part) else title)


def _is_number(weight: Tensor) -> bool:
    return weight.is_floating_point() or weight.is_complex()


def _gives_modes(part: nn.Module) -> bool:
    """Whether it has a method `modes` without arguments; other things have that name too."""
    method = getattr(part, MODES, None)
    if isinstance(method, nn.Module) or not inspect.ismethod(method):
        return False
    parameters = inspect.signature(method).parameters.values()
    return all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


def _own_weights(part: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights of a part by their plain names; of a retrofitted one all its raw weights."""
    for name, weight in part.named_parameters():
        yield plain_name(name), weight


def _stated(module: nn.Module) -> dict[int, Role]:
    """What modules say themselves: name → group, or group/form."""
    found = {}
    for path, part in module.named_modules():
        stated = getattr(part, ROLES, None)
        if not isinstance(stated, Mapping):
            continue
        own = list(_own_weights(part))
        for name, words in stated.items():
            group, _, form = str(words).partition("/")
            weights = [weight for plain, weight in own if plain == name]
            if not weights or group not in GROUPS or form not in ("", *FORMS):
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"{ROLES} of {clean(type(part).__name__)} says {clean(words)!r} of "
                    f"{clean(name)}, which is {'no role' if weights else 'no weight'}",
                    hint=f"name its parameters, each one of {', '.join(GROUPS)}; "
                    f"a form after a slash is one of {', '.join(FORMS)}",
                    stage="weights",
                )
            thin = "diagonal" if group == "recurrent" else "vector"
            for weight in weights:
                kept = form if form != "matrix" or weight.ndim > 1 else ""
                kept = kept or ("matrix" if weight.ndim > 1 else thin)
                found[id(weight)] = Role(group, kept, layer_name(path, part))
    return found


def _cells(module: nn.Module) -> dict[int, Role]:
    """The recurrent layers and cells of torch."""
    found = {}
    for path, part in module.named_modules():
        if not isinstance(part, nn.RNNBase | nn.RNNCellBase):
            continue
        layer = layer_name(path, part)
        for name, weight in part.named_parameters():
            # A projected state is part of the recurrence too.
            group = "recurrent" if "weight_hh" in name or "weight_hr" in name else "input"
            form = "matrix" if weight.ndim > 1 else "vector"
            found[id(weight)] = Role(group, form, layer)
    return found


def _by_name(module: nn.Module) -> dict[int, Role]:
    """Weights that have the name of a decay."""
    found = {}
    for path, part in module.named_modules():
        for name, weight in _own_weights(part):
            if "." not in name and _DECAYS.search(name):
                found[id(weight)] = Role("recurrent", "diagonal", layer_name(path, part))
    return found


def _last_linear(module: nn.Module) -> dict[int, Role]:
    """The linear layer that was made last, which is where a model usually ends."""
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    return {
        id(weight): Role("readout", "matrix" if weight.ndim > 1 else "vector")
        for part in linears[-1:]
        for weight in part.parameters()
    }
