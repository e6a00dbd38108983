"""What the library made of a file, compared with the file: no random model is audited."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from memaudit.errors import SourceError, clean
from memaudit.loading import require_same
from memaudit_transformers.classes import pair_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

#: Parts behind the model proper that a class may do without: a file often has several of them.
_HEADS = re.compile(
    r"pooler|cls|(\w+_)?heads?|(pre_)?classifier|score|qa_outputs|.*predictions?|seq_relationship"
    r"|discriminator_\w+|generator_\w+|vocab_\w+|mtp(_.*)?"
)
#: Where a class lists what it does without, in a file and in itself.
_EXTRA, _MISSING = "_keys_to_ignore_on_load_unexpected", "_keys_to_ignore_on_load_missing"
_SHOWN = 5
_HINT = "the weights and the config do not belong together; look at config.json"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is proved to hold a file's weights, and the tensors that it has no place for."""

    model: Any
    unread: tuple[str, ...]


def prove(model: Any, found: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Loaded:
    """Raise E_WEIGHTS unless the model holds the file's tensors, all of them and no others.

    `found` is the library's own account. Tensors that it only renamed are compared bit by bit;
    of those that it fused or split, the numbers are counted.
    """
    strange = sorted(map(str, found.get("unexpected_keys") or ()))
    heads = {name for name in strange if _is_spare_head(model, name)}
    extra = [name for name in strange if name not in heads]
    missing = sorted(map(str, found.get("missing_keys") or ()))
    mismatched = [_misshaped(entry) for entry in found.get("mismatched_keys") or ()]
    facts = (
        _sentence("missing in the file", missing),
        _sentence("not known to the model", extra),
        _sentence("of another form", mismatched),
        _sentence("not converted", map(str, found.get("error_msgs") or ())),
    )
    if any(facts):
        raise refusal(model, "; ".join(fact for fact in facts if fact))
    own = model.state_dict()
    prefix = str(getattr(model, "base_model_prefix", ""))
    pairs = pair_names(own, tensors, prefix=prefix)
    if not pairs:
        raise refusal(model, "not one tensor of the file has a name that the model knows")
    kept = {name: tensors[name] for name in pairs}
    require_same(model, kept, names=pairs, optional=own)
    unread = tuple(name for name in tensors if _any_form(name, prefix) & heads)
    _require_count(model, own, tensors, pairs, unread)
    return Loaded(model, unread)


def refusal(model: Any, fact: str) -> SourceError:
    """E_WEIGHTS with the class that was tried."""
    return SourceError("E_WEIGHTS", f"{type(model).__name__}: {fact}", hint=_HINT, stage="weights")


def _is_spare_head(model: nn.Module, name: str) -> bool:
    """Whether a tensor belongs to a head that the class does not have.

    The head must be absent as a whole: an unknown tensor of a part that is there, or another layer,
    would mean that the model in the file is a different one.
    """
    place: nn.Module = model
    base = getattr(model, "base_model", model)
    prefix = str(getattr(model, "base_model_prefix", ""))
    parts = (name.removeprefix(f"{prefix}.") if base is model else name).split(".")
    for depth, part in enumerate(parts[:-1]):
        inner = getattr(place, part, None)
        if isinstance(inner, nn.Module):
            outside = inner is base or not _is_inside(inner, base)
            if not outside:
                return False
            place = inner
            continue
        return depth < len(parts) - 1 and bool(_HEADS.fullmatch(part))
    return False


def _is_inside(inner: nn.Module, base: nn.Module) -> bool:
    return any(inner is module for module in base.modules())


def _any_form(name: str, prefix: str) -> set[str]:
    """A name as the library may write it."""
    return {name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")}


def _require_count(
    model: Any,
    own: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    pairs: Mapping[str, str],
    unread: Iterable[str],
) -> None:
    """What the library converted must be as many numbers in the model as in the file."""
    passed = {*pairs, *unread, *(name for name in tensors if _is_ignored(model, name, _EXTRA))}
    given = sum(tensor.numel() for name, tensor in tensors.items() if name not in passed)
    filled = {own[name].data_ptr() for name in pairs.values()}
    inside = set(pairs.values())
    rest = [t for n, t in own.items() if n not in inside and not _is_ignored(model, n, _MISSING)]
    wanted = {t.data_ptr(): t.numel() for t in rest if t.data_ptr() not in filled}
    if given != sum(wanted.values()):
        fact = f"{sum(wanted.values())} numbers were made from {given} of the file"
        raise refusal(model, f"the library's conversion is not understood: {fact}")


def _is_ignored(model: Any, name: str, attribute: str) -> bool:
    """Whether the class itself says that a tensor of this name does not count."""
    patterns = list(getattr(model, attribute, None) or ())
    if attribute == _EXTRA:
        patterns += [r"rotary_emb\.inv_freq", r"(^|\.)position_ids$"]
    return any(re.search(pattern, name) for pattern in patterns)


def _misshaped(entry: Any) -> str:
    """The library tells a name and two shapes."""
    if isinstance(entry, tuple | list) and len(entry) == 3:
        name, stored, wanted = entry
        return f"{name} {tuple(stored)} instead of {tuple(wanted)}"
    return str(entry)


def _sentence(what: str, names: Iterable[str]) -> str:
    """`2 tensors are missing: a, b`; nothing when there are none."""
    every = list(names)
    if not every:
        return ""
    shown = ", ".join(clean(name, limit=120) for name in every[:_SHOWN])
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    subject = "1 tensor is" if len(every) == 1 else f"{len(every)} tensors are"
    return f"{subject} {what}: {shown}{more}"
