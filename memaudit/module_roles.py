"""What the weights of any module do, from its structure, its names, and what it says itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from memaudit.ensemble import ModeSource
from memaudit.errors import SourceError, clean
from memaudit.perturbable import FORMS, GROUPS, Role, plain_name

#: Weights that only recurrent layers have, under the names of the published families.
_DECAYS = re.compile(
    r"(?:^|[._])(?:A|A_logs?|A_real|A_imag|log_A\w*|nu_log|theta_log|Lambda\w*|lam|lambda\w*"
    r"|log_lam\w*|inv_dt|log_dt|log_step|dt_bias|time_decay\w*|recurrent_param|slope_rate)$"
)
#: The method and the attribute by which a module tells what no structure shows.
MODES, ROLES = "modes", "memaudit_roles"


def roles_of(module: nn.Module) -> dict[str, Role]:
    """The role of every weight, by its first name; what nothing is known of is "other"."""
    # Raw weights of a retrofit may be empty: there is nothing to move in them.
    numbers = [(n, w) for n, w in module.named_parameters() if _is_number(w) and w.numel()]
    known = {**_last_linear(module), **_by_name(module), **_cells(module), **_stated(module)}
    other = {name: Role("other", "matrix" if w.ndim > 1 else "vector") for name, w in numbers}
    return {name: known.get(id(w), other[name]) for name, w in numbers}


def mode_sources(module: nn.Module) -> dict[str, ModeSource]:
    """The parts that tell their eigenvalues, the outermost of them, by the names of the layers."""
    found: dict[str, ModeSource] = {}
    taken: list[str] = []
    for path, part in module.named_modules():
        inside = any(not outer or path.startswith(f"{outer}.") for outer in taken)
        if inside or not _tells_modes(part):
            continue
        taken.append(path)
        told: Any = part.modes()  # type: ignore[operator]
        if isinstance(told, Tensor):
            found[layer_name(path, part)] = ModeSource(part, lambda m: m.modes())  # type: ignore
        elif isinstance(told, Mapping):
            for key in told:
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


def _tells_modes(part: nn.Module) -> bool:
    """Whether it has a method `modes` that asks for nothing; other things have that name too."""
    told = getattr(part, MODES, None)
    if isinstance(told, nn.Module) or not inspect.ismethod(told):
        return False
    asked = inspect.signature(told).parameters.values()
    return all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in asked
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
