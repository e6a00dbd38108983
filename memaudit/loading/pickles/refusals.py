"""Which pickles are refused for what they name, and how that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.formats.magic import CODE_HINT, SAFETENSORS_HINT
from memaudit.loading.pickles.inert import Made, Pairs
from memaudit.loading.pickles.names import is_blocked, is_plain, shown
from memaudit.loading.pickles.settings_objects import SETTINGS, misused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit.loading.pickles.machine import Machine

LONGEST_NAME = 120
#: What a pickled nn.Module keeps its tensors and children in.
_MODULE_KEYS = ("_parameters", "_modules")


def foreign(machine: Machine) -> dict[str, int]:
    """The names that tensors do not need, with the number of calls; 0 is a mere mention."""
    return {name: machine.made[name] for name in machine.named if not is_plain(name)}


def refuse_code(machine: Machine) -> None:
    """Refuse what would run code, whatever the user allows."""
    found = dict.fromkeys([*filter(is_blocked, machine.named), *machine.gadgets])
    if found:
        raise SourceError(
            "E_UNSAFE_FORMAT",
            f"the file would run {listed(map(shown, found), limit=LONGEST_NAME)}: it carries code",
            hint="delete it unless you trust who made it, and ask them for safetensors",
            stage="open",
        )


def refuse_objects(machine: Machine, root: Any, *, inert: bool) -> None:
    """Refuse objects besides tensors and settings unless they may become inert.

    Modules are refused always. Settings are known by their names, and must be nothing but data.
    """
    names = list(foreign(machine))
    if (isinstance(root, Made) and _is_module_state(root.state)) or (
        not inert and _beside_no_state(root)
    ):
        raise _whole_module(names)
    odd = _no_settings(machine)
    if odd and not inert:
        raise SourceError(
            "E_UNSAFE_FORMAT",
            f"the file needs Python objects besides tensors: {listed(odd, limit=LONGEST_NAME)}",
            hint="--allow-pickle (in Python allow_pickle=True) opens it with these objects made "
            f"inert; or {SAFETENSORS_HINT}",
            stage="open",
        )


def _no_settings(machine: Machine) -> list[str]:
    """What neither tensors need nor is a known setting, made as such and never called."""
    names = list(foreign(machine))
    if names and machine.indirect:
        return names
    wrong = set(misused(machine.settings))
    return [name for name in names if name not in SETTINGS or name in wrong]


def refuse_empty(machine: Machine, root: Any) -> None:
    """Say what stands where the weights should be; called when no tensor was found."""
    if _holds_module(root):
        raise _whole_module(list(foreign(machine)))
    if isinstance(root, Made) and root.name and not is_plain(root.name):
        what = clean(root.name, limit=LONGEST_NAME)
        raise SourceError(
            "E_UNSUPPORTED",
            f"the file holds an object of the kind {what}, not a dictionary of named tensors",
            hint=SAFETENSORS_HINT,
            stage="open",
        )


def _whole_module(names: Sequence[str]) -> SourceError:
    told = listed(names, limit=LONGEST_NAME)
    fact = f"the file holds a whole pickled module, not its weights: {told}"
    return SourceError("E_UNSAFE_FORMAT", fact, hint=CODE_HINT, stage="open")


def _beside_no_state(root: Any) -> bool:
    """Whether a dictionary holds a module and no weights beside it."""
    return _holds_module(root) and not any(map(_is_state, _values(root)))


def _holds_module(root: Any) -> bool:
    """Whether a dictionary holds a module; objects may share one state, which is read once."""
    states = [v.state for v in _values(root) if isinstance(v, Made)]
    return any(map(_is_module_state, {id(state): state for state in states}.values()))


def _values(root: Any) -> Iterable[Any]:
    """The values of a dictionary, each of them once."""
    pairs = root.pairs if isinstance(root, Pairs | Made) else None
    return {id(value): value for _, value in pairs or ()}.values()


def _is_module_state(state: Any) -> bool:
    pairs = state.pairs if isinstance(state, Pairs) else ()
    return any(isinstance(key, str) and key in _MODULE_KEYS for key, _ in pairs)


def _is_state(value: Any) -> bool:
    return any(
        isinstance(v, Made) and v.name.startswith("torch._utils._rebuild") for v in _values(value)
    )
