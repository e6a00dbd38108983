"""Names as the families know them: what wrappers and trainers put in front is taken away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

#: Segments that wrappers put anywhere into a name.
_SEGMENTS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_forward_module)\.")
#: What trainers put in front of every name of a model.
_FRONTS = ("state_dict.", "ema.", "ema_model.", "model.", "net.")


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Plain name → name in the file; names stay as they are where two would become one."""
    plain = {name: _SEGMENTS.sub("", name) for name in tensors}
    plain = plain if len(set(plain.values())) == len(plain) else {name: name for name in tensors}
    while (front := _common_front(plain.values())) is not None:
        plain = {name: short.removeprefix(front) for name, short in plain.items()}
    return {short: name for name, short in plain.items()}


def _common_front(names: object) -> str | None:
    every = list(names)  # type: ignore[call-overload]
    for front in _FRONTS:
        if every and all(name.startswith(front) and name != front for name in every):
            return front
    return None
