"""Fills a module with weights, and proves that nothing is missing, left over or not finite."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

# -- The fingerprint of weights in memory.


def digest_tensors(tensors: Mapping[str, object]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor):
            continue
        head = f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|"
        total.update(head.encode("utf-8", "surrogatepass"))
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        total.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


# -- Weights that are not numbers are named, never audited.

_SHOWN = 5


def require_finite(tensors: Mapping[str, torch.Tensor], *, source: object) -> None:
    """Raise E_NONFINITE with counts per tensor unless every number is finite."""
    bad = {
        name: counts for name, tensor in tensors.items() if any(counts := _count_nonfinite(tensor))
    }
    if not bad:
        return
    nans, infinite = (sum(counts) for counts in zip(*bad.values(), strict=True))
    subject = "1 tensor holds" if len(bad) == 1 else f"{len(bad)} tensors hold"
    some = list(bad.items())[:_SHOWN]
    shown = [f"{clean(name, limit=120)} ({_phrase(*counts)})" for name, counts in some]
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    noun = "number" if infinite == 1 else "numbers"
    raise SourceError(
        "E_NONFINITE",
        f"{subject} {_phrase(nans, infinite, noun=noun)}: {', '.join(shown)}{more}",
        hint="the training diverged or the file is damaged; audit an earlier checkpoint",
        source=source,
        stage="open",
    )


def _count_nonfinite(tensor: torch.Tensor) -> tuple[int, int]:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0, 0
    wide = _wide(tensor)
    if bool(torch.isfinite(wide).all()):
        return 0, 0
    nan = torch.isnan(wide)
    return int(nan.sum()), int((torch.isinf(wide) & ~nan).sum())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The 8-bit floats have no comparison of their own; float32 holds them exactly."""
    small = tensor.is_floating_point() and tensor.element_size() == 1
    return tensor.float() if small else tensor


def _phrase(nans: int, infinite: int, *, noun: str = "") -> str:
    parts = [f"{nans} NaN"] if nans else []
    if infinite:
        parts.append(f"{infinite} infinite {noun}".rstrip())
    return (" and " if noun else ", ").join(parts)


_HINT = "the weights and the model do not belong together; look at the config beside the weights"


def fill(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    names: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
    source: object = "",
    device: torch.device | str = "cpu",
) -> None:
    """Copy the tensors of a file into a module of the same names and shapes, or raise E_WEIGHTS.

    Everything is compared first, so a module on the meta device costs nothing until its shapes are
    known to be right; its tensors come to be on `device`. Others keep their device and dtype.
    `names` maps names in the file to names in the module. `optional` ones may be missing in the
    file, or in the module. A tensor that shares its memory with a filled one needs no own entry.
    """
    given = _renamed(tensors, names or {}, source)
    _require_alike(_tensors(module), given, optional, source)
    with torch.no_grad():
        _copy(module, given, torch.device(device))
    _require_numbers(module, source)
    _require_values(_tensors(module), given, source)
    _keep_keys(module, given)


def require_same(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    names: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
    source: object = "",
) -> None:
    """Raise E_WEIGHTS unless a module that a library has loaded holds the tensors of the file.

    `names` and `optional` are those of `fill`. Values are compared in the module's dtype.
    """
    given = _renamed(tensors, names or {}, source)
    _require_alike(_tensors(module), given, optional, source)
    _require_numbers(module, source)
    _require_values(_tensors(module), given, source)
    _keep_keys(module, given)


#: The attribute of a tensor of a file that holds its name there, and that of a module which holds
#: these names for its own weights.
KEY, KEYS = "checkpoint_key", "_checkpoint_keys"


def checkpoint_key(owner: nn.Module, name: str) -> str | None:
    """The name in the checkpoint of a weight of a module; None for one that is not as stored."""
    return owner.__dict__.get(KEYS, {}).get(name)


def _keep_keys(module: nn.Module, given: Mapping[str, Tensor]) -> None:
    """Remember where weights came from; what an adapter computed from a tensor has no key."""
    known = _tensors(module)
    for name, tensor in given.items():
        key = getattr(tensor, KEY, None)
        if key is not None and name in known:
            path, _, own = name.rpartition(".")
            module.get_submodule(path).__dict__.setdefault(KEYS, {})[own] = key


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and saved buffers themselves, tied ones under each of their names."""
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def _renamed(
    tensors: Mapping[str, Tensor], names: Mapping[str, str], source: object
) -> dict[str, Tensor]:
    given: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        inside = names.get(name, name)
        if inside in given:
            raise _refusal(f"two tensors of the file are {_quoted(inside)} of the model", source)
        given[inside] = tensor
    return given


def _require_alike(
    wanted: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    optional: Collection[str],
    source: object,
) -> None:
    """Names and shapes first: every disagreement in one error."""
    filled = {_place(wanted[name]) for name in given if name in wanted}
    supplied, known = {*given, *optional}, {*wanted, *optional}
    missing = [n for n, t in wanted.items() if n not in supplied and _place(t) not in filled]
    extra = [name for name in given if name not in known]
    unlike = [
        f"{_quoted(name)} {_form(tensor)} instead of {_form(wanted[name])}"
        for name, tensor in given.items()
        if name in wanted and not _fits(tensor, wanted[name])
    ]
    facts = (
        _listed("missing", map(_quoted, missing), len(missing)),
        _listed("not known to the model", map(_quoted, extra), len(extra)),
        _listed("of another form", unlike, len(unlike)),
    )
    if any(facts):
        raise _refusal("; ".join(fact for fact in facts if fact), source)


def _place(tensor: Tensor) -> Hashable:
    """What two tensors share exactly when they are one; without memory only identity tells."""
    if tensor.is_meta or tensor.numel() == 0:
        return id(tensor)
    return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()


def _fits(tensor: Tensor, target: Tensor) -> bool:
    """Whether the shapes agree, and both hold the same kind of numbers.

    Whole numbers in the place of real ones are quantized weights; of a complex number a cast
    would keep the real part, and true is no number at all.
    """
    truth = tensor.dtype == torch.bool and target.dtype != torch.bool
    return tensor.shape == target.shape and _kind(tensor) == _kind(target) and not truth


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    return tensor.is_complex(), tensor.is_floating_point()


def _copy(module: nn.Module, given: Mapping[str, Tensor], device: torch.device) -> None:
    born: dict[Hashable, Tensor] = {}
    for name, target in _tensors(module).items():
        tensor = given.get(name)
        if not target.is_meta and tensor is not None:
            target.copy_(tensor)
        elif target.is_meta and tensor is not None and _place(target) not in born:
            value = tensor.to(device, target.dtype, copy=True)
            is_parameter = isinstance(target, nn.Parameter)
            grown = nn.Parameter(value, target.requires_grad) if is_parameter else value
            born[_place(target)] = grown
    for name, target in _tensors(module).items():
        if target.is_meta and _place(target) in born:
            owner, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(owner), leaf, born[_place(target)])


def _require_numbers(module: nn.Module, source: object) -> None:
    """Refuse tensors without memory, unsaved buffers among them."""
    every = [*module.named_parameters(), *module.named_buffers()]
    empty = [name for name, tensor in every if tensor.is_meta]
    if empty:
        raise _refusal(_listed("left without numbers", map(_quoted, empty), len(empty)), source)


def _require_values(
    found: Mapping[str, Tensor], given: Mapping[str, Tensor], source: object
) -> None:
    other = [n for n, t in given.items() if n in found and not _equal(found[n].detach(), t)]
    if other:
        raise _refusal(_listed("unlike the file's", map(_quoted, other), len(other)), source)
    lost = [n for n, t in given.items() if n in found and _overflown(found[n].detach(), t)]
    if lost:
        dtype = str(found[lost[0]].dtype).removeprefix("torch.")
        raise SourceError(
            "E_NONFINITE",
            _listed(f"too large for {dtype}", map(_quoted, lost), len(lost)),
            hint="choose a wider one with --dtype",
            source=source,
            stage="weights",
        )


def _equal(loaded: Tensor, stored: Tensor) -> bool:
    """Bit for bit, after the cast: a NaN is equal to itself and 0 is not -0."""
    wanted = stored.to(loaded.device, loaded.dtype)
    return loaded.shape == wanted.shape and torch.equal(_bits(loaded), _bits(wanted))


def _overflown(loaded: Tensor, stored: Tensor) -> bool:
    """Whether a number became infinite by the cast."""
    finite = [bool(torch.isfinite(_wide(tensor)).all()) for tensor in (loaded, stored)]
    return finite == [False, True]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _quoted(name: Any) -> str:
    return clean(name, limit=80)


def _listed(what: str, names: Iterable[str], count: int) -> str:
    """`2 tensors are missing: a, b`; nothing when there are none."""
    if not count:
        return ""
    first = [name for name, _ in zip(names, range(_SHOWN), strict=False)]
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    subject = "1 tensor is" if count == 1 else f"{count} tensors are"
    return f"{subject} {what}: {', '.join(first)}{more}"


def _refusal(fact: str, source: object) -> SourceError:
    return SourceError("E_WEIGHTS", fact, hint=_HINT, source=source, stage="weights")
