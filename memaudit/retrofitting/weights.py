"""A stored weight behind a form: the raw weights that make it, and its plain state dict."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from memaudit.errors import SourceError
from memaudit.interfaces import DiagonalDecay
from memaudit.numerics.reparameterization import raw_domain

if TYPE_CHECKING:
    from memaudit.interfaces import AbstractReparam, DenseDecay


class RetrofittedWeight(nn.Module, ABC):
    """A parametrization in torch's sense: from raw weights to the stored one.

    As long as no raw weight has moved, the stored weight is given back bit by bit; where some
    have, it is what the form makes of them. `form_name` names the form with its constants.
    """

    anchor: Tensor

    def __init__(self, form: AbstractReparam, stored: Tensor) -> None:
        super().__init__()
        self.form = form
        self.register_buffer("anchor", stored.detach().clone())

    @property
    def form_name(self) -> str:
        """The form with its constants, such as `best (a=0.125, b=0.0625)`."""
        constants = ", ".join(f"{name}={value:.6g}" for name, value in self.constants().items())
        return f"{self.inner.name} ({constants})" if constants else self.inner.name

    @property
    def inner(self) -> AbstractReparam:
        """The form itself, also where it is seen once per step."""
        return getattr(self.form, "inner", None) or self.form

    def constants(self) -> dict[str, float]:
        """The constants of the form by name."""
        named = ((f.name, getattr(self.inner, f.name)) for f in fields(self.inner))
        return {name: value for name, value in named if isinstance(value, float)}

    @abstractmethod
    def made(self, *raw: Tensor) -> Tensor:
        """The stored weight of the form alone, whatever it began with."""

    @abstractmethod
    def forward(self, *raw: Tensor) -> Tensor:
        """The stored weight."""

    @abstractmethod
    def reaches(self, stored: Tensor) -> bool:
        """Whether the form holds all modes of a stored weight, and holds them inside."""

    @abstractmethod
    def raw_of(self, stored: Tensor) -> tuple[Tensor, ...]:
        """The raw weights that make a stored weight, with the limits that hold them inside."""

    def right_inverse(self, stored: Tensor) -> tuple[Tensor, ...]:
        """The raw weights of a stored weight, which is what it begins with from then on."""
        raw = self.raw_of(stored)
        self.anchor = stored.detach().to(self.anchor.dtype).clone()
        self.count = len(raw)
        for k, value in enumerate(raw):
            self.register_buffer(f"start{k}", value.detach().clone())
        return raw

    def dtype_of(self, raw: Tensor) -> torch.dtype:
        """The stored weight's own, unless raw weights are put in that are wider than they were."""
        wider = raw.dtype != self.starts()[0].dtype
        return raw.dtype if wider else self.anchor.dtype

    def starts(self) -> tuple[Tensor, ...]:
        """The raw weights that it began with."""
        return tuple(getattr(self, f"start{k}") for k in range(self.count))


def reached(form: AbstractReparam, lam: Tensor) -> Tensor:
    """Which modes the form holds; a stable one only those that are stable."""
    inside = lam < 0.0 if form.time == "continuous" else lam.abs() < 1.0
    return form.contains(lam) & (inside if form.stable else torch.ones_like(inside))


def either(kept: Tensor, anchor: Tensor, made: Tensor) -> Tensor:
    """The anchor where `kept`, to the last bit, and with the gradient that `made` has."""
    if not torch.is_grad_enabled():  # a sum would lose the sign of zero
        return torch.where(kept, anchor, made)
    return torch.where(kept, anchor + (made - made.detach()), made)


def held(raw: Tensor, limits: tuple[float, float]) -> Tensor:
    """The raw numbers inside of the limits; those outside keep a gradient that leads them back."""
    inside, still = raw.clamp(*limits).detach(), torch.zeros_like(raw)
    # Far out raw + (inside - raw) has lost all digits of the limit, and infinity makes it nonsense.
    pull = torch.where(raw.isfinite(), raw - raw.detach(), still)
    return torch.where(raw == inside, raw, inside + pull)


def at_least_single(stored: Tensor) -> torch.dtype:
    """The dtype of raw weights: that of the stored one, or single precision if it has less."""
    small = stored.is_floating_point() and torch.finfo(stored.dtype).bits < 32
    return torch.float32 if small else stored.dtype


BEHIND = "parametrizations"


def weight_of(owner: nn.Module, name: str) -> Any:
    """The retrofitted weight behind a name; None when there is none."""
    behind = owner._modules.get(BEHIND)
    if not isinstance(behind, nn.ModuleDict) or name not in behind:
        return None
    first = next(iter(behind[name].children()), None)
    return first if isinstance(first, RetrofittedWeight) else None


def retrofitted_names(owner: nn.Module) -> tuple[str, ...]:
    """The names of the owner's retrofitted weights."""
    behind = owner._modules.get(BEHIND)
    names = behind.keys() if isinstance(behind, nn.ModuleDict) else ()
    return tuple(name for name in names if weight_of(owner, name) is not None)


def retrofitted_weights(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """The retrofitted weights of a model: plain name in its state dict → owner and own name."""
    return {
        f"{path}.{name}" if path else name: (owner, name)
        for path, owner in model.named_modules()
        for name in retrofitted_names(owner)
    }


class DiagonalWeight(RetrofittedWeight):
    """stored = law⁻¹(form(raw)): the eigenvalues of the form, in the way of the checkpoint.

    Of complex numbers the imaginary part is left as it is. A stable form is held inside of what
    its numbers can tell from the boundary.
    """

    def __init__(self, decay: DiagonalDecay, form: AbstractReparam, stored: Tensor) -> None:
        super().__init__(form, stored)
        self.law = decay.law
        self.part = decay.part
        self.right_inverse(stored)

    def made(self, *raw: Tensor) -> Tensor:
        (given,) = raw
        numbers = held(numbers_of(given, self.part), self.limits)
        return with_numbers(given, self._stored(numbers), self.part).to(self.dtype_of(given))

    def forward(self, *raw: Tensor) -> Tensor:
        return either(raw[0] == self.starts()[0], self.anchor, self.made(*raw))

    def reaches(self, stored: Tensor) -> bool:
        return bool(reached(self.form, self._modes(stored)).all())

    def _stored(self, numbers: Tensor) -> Tensor:
        return self.law.inverse(self.form.forward(numbers))

    def _modes(self, stored: Tensor) -> Tensor:
        return self.law.forward(numbers_of(widened(stored), self.part))

    def raw_of(self, stored: Tensor) -> tuple[Tensor, ...]:
        lam, wide = self._modes(stored), widened(stored)
        self.limits = (-math.inf, math.inf)
        raw = with_numbers(wide, self.form.inverse(lam), self.part).to(at_least_single(stored))
        if self.form.stable:
            numbers = numbers_of(raw, self.part)
            self.limits = raw_domain(
                self.form.forward,
                numbers,
                time=self.form.time,
                stored=self._stored,
                apart=torch.finfo(stored.dtype).eps,
            )
        return (raw,)


def widened(stored: Tensor) -> Tensor:
    """In double precision, without its gradient."""
    return stored.detach().to(torch.complex128 if stored.is_complex() else torch.float64)


def numbers_of(tensor: Tensor, part: str) -> Tensor:
    """The numbers that decay, out of a stored or a raw tensor."""
    if part == "real":
        return tensor.real
    return tensor[..., 0] if part == "pairs" else tensor


def with_numbers(tensor: Tensor, numbers: Tensor, part: str) -> Tensor:
    """The tensor with other numbers in their place."""
    if part == "real":
        return torch.complex(numbers, tensor.imag)
    return torch.stack([numbers, tensor[..., 1]], dim=-1) if part == "pairs" else numbers


#: Eigenvectors that are this nearly parallel lose too many digits.
WORST_CONDITION = 1e6
#: The change of basis I + E has |E| below this, so that three times the first condition is most.
TURN = 0.5
#: The most that is given away of the unit disc so that rounding leads no mode out of it.
MOST_APART = 1e-2


@dataclass(frozen=True, slots=True, eq=False)
class EigenForm:
    """W = V D V⁻¹ in real numbers: real modes first, then pairs, of which one each is listed.

    `sizes` are the |lambda| of all, `signs` those of the real ones, `angles` those of the pairs,
    `basis` is V (n,n) with columns of length one, or real and imaginary part of one.
    """

    sizes: Tensor
    signs: Tensor
    angles: Tensor
    basis: Tensor

    def modes(self, sizes: Tensor) -> Tensor:
        """D with other sizes."""
        return blocks(sizes, self.signs, self.angles)

    @property
    def condition(self) -> float:
        """The condition number of V, infinite where W has too few eigenvectors."""
        return float(torch.linalg.cond(self.basis).nan_to_num(nan=torch.inf))


def eigen_form(matrix: Tensor) -> EigenForm:
    """The form of a real matrix (n,n), in float64."""
    lam, vectors = torch.linalg.eig(matrix.detach().double())
    real = lam.imag == 0.0
    upper = lam.imag > 0.0
    vectors_of_pairs = vectors[:, upper]
    halves = torch.stack([vectors_of_pairs.real, vectors_of_pairs.imag], dim=2).flatten(1)
    return EigenForm(
        sizes=torch.cat([lam[real].abs(), lam[upper].abs()]),
        signs=torch.where(lam[real].real < 0.0, -1.0, 1.0).double(),
        angles=lam[upper].angle(),
        basis=torch.cat([vectors.real[:, real], halves], dim=1),
    )


def blocks(sizes: Tensor, signs: Tensor, angles: Tensor) -> Tensor:
    """D: real modes on the diagonal, pairs as blocks ((a, b), (-b, a))."""
    single, paired = sizes[: len(signs)] * signs, sizes[len(signs) :]
    cosines = (paired * angles.cos()).repeat_interleave(2)
    sines = torch.stack([paired * angles.sin(), torch.zeros_like(paired)], dim=1).flatten()
    beside = torch.cat([torch.zeros_like(single), sines])[: len(single) + len(sines) - 1]
    above = torch.diag(beside, 1)
    return torch.diag(torch.cat([single, cosines])) + above - above.mT


def _length(turn: Tensor) -> Tensor:
    """The Euclidean length; squares of huge numbers must not overflow."""
    scale = turn.detach().abs().amax().clamp(min=1.0)
    return torch.linalg.vector_norm(turn / scale) * scale


def rounding_of_modes(found: EigenForm, dtype: torch.dtype) -> float:
    """How far the eigenvalues of V D V⁻¹ may be from D when it is stored in that dtype.

    By Bauer and Fike: the condition of V times the error of the product, which is that condition
    times the rounding of n terms. A turn makes the condition three times as large at most. More
    than a hundredth is not given away: a worse basis has no strict promise.
    """
    condition = (1.0 + TURN) / (1.0 - TURN) * found.condition
    return min(torch.finfo(dtype).eps * len(found.basis) * condition**2, MOST_APART)


class DenseWeight(RetrofittedWeight):
    """Raw sizes of the modes, angles of the pairs, a change of basis, and what is no matrix.

    The change of basis is bounded, so that no step, however large, makes eigenvectors parallel:
    the modes are always those of the form. It begins with none.
    """

    signs: Tensor
    basis: Tensor
    inverse_basis: Tensor
    witness: Tensor

    def __init__(self, decay: DenseDecay, form: AbstractReparam, stored: Tensor) -> None:
        super().__init__(form, stored)
        # The owner is no part of its parametrization: a tuple is not registered.
        self._owner = (decay.owner,)
        self._ways = (decay.matrix, decay.rest, decay.joined)
        self.right_inverse(stored)

    def made(self, *raw: Tensor) -> Tensor:
        # There is no solution of equations in half precision.
        sizes, angles, turn, rest = (one.to(at_least_single(one)) for one in raw)
        # Infinite angles and turns are none: a step may have been that large.
        angles, turn = (torch.where(one.isinf(), 0.0, one) for one in (angles, turn))
        bound = TURN / (TURN + _length(turn))
        change = torch.eye(len(turn), dtype=turn.dtype, device=turn.device) + turn * bound
        inner = torch.linalg.solve(change, change @ self._modes(sizes, angles), left=False)
        matrix = self.basis.to(inner) @ inner @ self.inverse_basis.to(inner)
        return self._ways[2](self._owner[0], matrix, rest).to(self.dtype_of(raw[0]))

    def forward(self, *raw: Tensor) -> Tensor:
        # The products of autocast, in half precision, would lead modes out.
        with torch.autocast(self.anchor.device.type, enabled=False):
            kept = [(one == start).all() for one, start in zip(raw, self.starts(), strict=True)]
            # Of a GRU other weights decide too what the matrix is.
            # It may be in another dtype than the witness was by now.
            off = (self.matrix_of(self.anchor) - self.witness).abs()
            kept.append((off <= self.tolerance * self.witness.abs().amax()).all())
            return either(torch.stack(kept).all(), self.anchor, self.made(*raw))

    def reaches(self, stored: Tensor) -> bool:
        found = eigen_form(self.matrix_of(stored.detach().double()))
        return bool(reached(self.form, found.sizes).all()) and found.condition < WORST_CONDITION

    def matrix_of(self, stored: Tensor) -> Tensor:
        """The matrix of a stored weight, with the other weights that the owner has now."""
        return self._ways[0](self._owner[0], stored)

    def _modes(self, sizes: Tensor, angles: Tensor) -> Tensor:
        return blocks(self.form.forward(held(sizes, self.limits)), self.signs, angles)

    def raw_of(self, stored: Tensor) -> tuple[Tensor, ...]:
        matrix = self.matrix_of(stored.detach().double())
        found, dtype = eigen_form(matrix), at_least_single(stored)
        sizes = self.form.inverse(found.sizes).to(dtype)
        self.limits = (-math.inf, math.inf)
        if self.form.stable:
            apart = rounding_of_modes(found, stored.dtype)
            self.limits = raw_domain(self.form.forward, sizes, time=self.form.time, apart=apart)
        self.register_buffer("signs", found.signs.to(dtype))
        self.register_buffer("basis", found.basis.to(dtype))
        self.register_buffer("inverse_basis", torch.linalg.inv(found.basis).to(dtype).contiguous())
        self.register_buffer("witness", self.matrix_of(stored.detach()))
        self.tolerance = 4.0 * torch.finfo(stored.dtype).eps
        turn = torch.zeros(len(matrix), len(matrix), dtype=dtype, device=stored.device)
        rest = self._ways[1](stored.detach()).to(dtype)
        return sizes, found.angles.to(dtype), turn, rest


#: Where an owner keeps plain weights that are being loaded.
WAITING = "_memaudit_waiting"


def _keep_state_plain(owner: nn.Module) -> None:
    """Make the state dict of an owner that of the original format, in both directions.

    A parametrized module that is saved naively comes back elsewhere with fresh recurrent weights
    and only a warning. So the owner saves the folded weight under its plain name, and loads a
    plain one as well as raw ones.
    """
    if _save_plain not in owner._state_dict_hooks.values():
        owner.register_state_dict_post_hook(_save_plain)
        owner.register_load_state_dict_pre_hook(_hold_plain)
        owner.register_load_state_dict_post_hook(_load_plain)


def _remove_hooks(owner: nn.Module) -> None:
    own = (_save_plain, _hold_plain, _load_plain)
    for hooks in (
        owner._state_dict_hooks,
        owner._load_state_dict_pre_hooks,
        owner._load_state_dict_post_hooks,
    ):
        for key, hook in list(hooks.items()):
            if getattr(hook, "hook", hook) in own:
                del hooks[key]


def _save_plain(owner: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """The plain weight in the place of everything behind it."""
    del metadata
    for name in retrofitted_names(owner):
        behind = f"{prefix}{BEHIND}.{name}."
        keys = [key for key in state if key.startswith(behind)]
        tracked = any(state[key].requires_grad for key in keys)
        for key in keys:
            del state[key]
        with torch.set_grad_enabled(tracked):
            state[f"{prefix}{name}"] = getattr(owner, name)


def _hold_plain(
    owner: nn.Module, state: dict[str, Any], prefix: str, metadata: Any, *rest: Any
) -> None:
    """Keep a plain weight until the others of the owner are there; the raw ones stay for now."""
    del metadata
    errors = rest[-1]
    for name in retrofitted_names(owner):
        plain = state.pop(f"{prefix}{name}", None)
        behind = f"{prefix}{BEHIND}.{name}."
        if plain is None or any(key.startswith(behind) for key in state):
            continue
        shape = tuple(weight_of(owner, name).anchor.shape)
        if tuple(plain.shape) == shape:
            owner.__dict__.setdefault(WAITING, {})[name] = plain
        else:
            errors.append(f"size mismatch for {prefix}{name}: {tuple(plain.shape)}, not {shape}")
        for key, value in owner.get_submodule(f"{BEHIND}.{name}").state_dict().items():
            state[behind + key] = value.clone()


def _load_plain(owner: nn.Module, incompatible: Any) -> None:
    """Raw weights from the plain ones; of a GRU the biases, too, decide what these are."""
    del incompatible
    for name, plain in owner.__dict__.pop(WAITING, {}).items():
        weight, now = weight_of(owner, name), getattr(owner, name).detach()
        given = plain.detach().to(now.device)
        if torch.equal(
            now, given.to(now.dtype)
        ):  # raw weights have digits that the plain one does not have
            continue
        if not weight.reaches(given):
            raise SourceError(
                "E_WEIGHTS",
                f"the loaded weight {name} has modes that {weight.form_name} does not reach",
                hint="memaudit.fold(model) first, load, and retrofit again",
                stage="retrofit",
            )
        behind = owner.get_submodule(f"{BEHIND}.{name}")
        for k, value in enumerate(weight.right_inverse(given.to(weight.anchor.dtype))):
            # Another matrix may have another number of complex pairs.
            behind.get_parameter(f"original{k}").data = value


#: Where an owner keeps the order of its weights while some of them stand behind a form.
ORDER = "_memaudit_order"


def swap(decay: DiagonalDecay | DenseDecay, form: AbstractReparam) -> RetrofittedWeight:
    """Put the weight behind the form."""
    owner, name = decay.owner, decay.name
    stored = owner.get_parameter(name).detach()
    weight: RetrofittedWeight
    if isinstance(decay, DiagonalDecay):
        weight = DiagonalWeight(decay, form, stored)
    else:
        weight = DenseWeight(decay, form, stored)
    if not retrofitted_names(owner):
        owner.__dict__[ORDER] = tuple(owner._parameters)
    parametrize.register_parametrization(owner, name, weight, unsafe=True)
    _keep_state_plain(owner)
    if isinstance(owner, nn.RNNBase):
        # The class was made by torch for this owner alone.
        type(owner).__deepcopy__ = _copied  # type: ignore[attr-defined]
    return weight


def unswap(owner: nn.Module, name: str) -> None:
    """Put the weight back as a plain parameter, in its old place among the others."""
    behind = owner.get_submodule(BEHIND)
    assert isinstance(behind, nn.ModuleDict)
    trained = any(raw.requires_grad for raw in behind[name].parameters())
    with torch.no_grad():
        value = getattr(owner, name).detach().clone()
    # From the owner alone: a copy of it has the same class.
    kind = type(owner)
    del behind[name]
    if len(behind):
        own = {key: value for key, value in vars(kind).items() if key != name}
        owner.__class__ = type(kind.__name__, kind.__bases__, own)  # type: ignore[assignment]
    else:
        delattr(owner, BEHIND)
        owner.__class__ = kind.__bases__[0]
    # By assignment: torch's recurrent layers take note of their weights by it.
    setattr(owner, name, nn.Parameter(value, requires_grad=trained))
    if not retrofitted_names(owner):
        _remove_hooks(owner)
        own, order = owner._parameters, owner.__dict__.pop(ORDER, ())
        for later in [*(n for n in order if n in own), *(n for n in own if n not in order)]:
            own[later] = own.pop(later)


def _copied(owner: nn.RNNBase, memo: dict[int, Any]) -> nn.RNNBase:
    """A copy of a recurrent layer of torch.

    It keeps a list of the weights that it ran with last; those that a form made are no leaves of
    the graph, and refuse to be copied. The copy makes its own.
    """
    memo[id(owner._flat_weights)] = []
    twin = owner.__new__(type(owner))
    memo[id(owner)] = twin
    twin.__dict__ = copy.deepcopy(owner.__dict__, memo)
    with torch.no_grad():
        twin._init_flat_weights()
    return twin
