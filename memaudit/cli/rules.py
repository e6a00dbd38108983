"""Finding a rule by its code or by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.errors import ArgumentError, MachineError, clean, nearest

if TYPE_CHECKING:
    from memaudit.contracts import AbstractRule


def rules() -> dict[str, type[AbstractRule]]:
    """Every rule that can be imported, by code and by name."""
    found: dict[str, type[AbstractRule]] = {}
    for code in registry.available("findings"):
        try:
            rule = registry.load(registry.find("findings", code))
        except MachineError:  # broken or twice there: `memaudit list` says so
            continue
        found[code] = found[rule.name] = rule
    return found


def rule_named(word: str) -> type[AbstractRule]:
    """The rule with that code or name, in any case of letters."""
    known = rules()
    match = {name.lower(): rule for name, rule in known.items()}.get(word.lower())
    if match is None:
        codes = [name for name in known if name == name.upper()]
        names = codes if word.upper().startswith("MA") else list(known)
        raise ArgumentError(f"unknown finding {clean(word)!r}", hint=nearest(word.upper(), names))
    return match
