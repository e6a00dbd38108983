"""What the tensors of a family do not say: from options, from the config, or asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit_ssm.asked import ASKED
from memaudit_ssm.interpolations import Section, resolved

#: Where the settings of a layer stand in the configs of the families, innermost first.
_PLACES = (("model", "layer"), ("layer",), ("model", "net"), ("net",), ("model",), ())


class Facts:
    """Settings by name: the user's options first, then the config, then the code's own default.

    A default counts only where a config lies beside the weights and is silent: then the code that
    wrote it took the default too, and `assumed` says so. Without any config the setting is
    missing, and `settle` asks for every missing one by name.
    """

    def __init__(self, options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self._options = options
        self._config = resolved(config)
        self._missing: dict[str, str] = {}
        self._asked: set[str] = set()
        self._overruled: dict[str, str] = {}
        self.assumed: dict[str, str] = {}

    @property
    def stated(self) -> bool:
        """Whether there is a config at all."""
        return bool(self._config)

    def given(self, name: str) -> bool:
        """Whether the user gave it as an option."""
        self._asked.add(name)
        return self._options.get(name) is not None

    def section(self, *path: str) -> Mapping[str, Any]:
        """The part of the config at a path; empty when there is none."""
        here: Any = self._config
        for name in path:
            here = here.get(name) if isinstance(here, Mapping) else None
        return here if isinstance(here, Mapping) else Section()

    def choice(
        self,
        name: str,
        choices: Sequence[str],
        *,
        default: str | None = None,
        also: Sequence[str] = (),
        places: Sequence[tuple[str, ...]] = _PLACES,
    ) -> str:
        """One of the choices; `also` are further names of the setting in configs."""
        value = self._value(name, also, places)
        if value is None:
            return self._default(name, default, choices)
        word = "none" if value is _NULL else str(value).lower()
        if word not in choices:
            raise self._wrong(name, value, f"one of {', '.join(choices)}")
        return word

    def flag(
        self,
        name: str,
        *,
        default: bool | None = None,
        also: Sequence[str] = (),
        places: Sequence[tuple[str, ...]] = _PLACES,
    ) -> bool:
        """True or false."""
        value = self._value(name, also, places)
        if value is None or value is _NULL:
            word = self._default(name, None if default is None else str(default).lower(), _WORDS)
            return word == "true"
        if isinstance(value, bool):
            return value
        if str(value).lower() not in _WORDS:
            raise self._wrong(name, value, "true or false")
        return str(value).lower() == "true"

    def number(
        self,
        name: str,
        *,
        default: float | None = None,
        also: Sequence[str] = (),
        places: Sequence[tuple[str, ...]] = _PLACES,
    ) -> float | None:
        """A number; None when the config says null, or nothing and there is no default."""
        value = self._value(name, also, places)
        if value is None or value is _NULL:
            return default
        if isinstance(value, bool):
            raise self._wrong(name, str(value).lower(), "a number")
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self._wrong(name, value, "a number") from None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user said, and what of the config that overruled."""
        said = [
            f"{name}={clean(self._options[name], limit=40)}"
            + (f" (the config says {self._overruled[name]})" if name in self._overruled else "")
            for name in ASKED
            if self._options.get(name) is not None
        ]
        return (f"said by options: {', '.join(said)}",) if said else ()

    def settle(self, *others: Facts) -> None:
        """Ask for everything that is missing, by name; refuse options that nobody asked about.

        `others` are earlier attempts to build the same model.
        """
        asked = self._asked.union(*(other._asked for other in others))
        given = [name for name in ASKED if self._options.get(name) is not None]
        idle = [name for name in given if name not in asked]
        if idle and not self._missing:
            known = ", ".join(sorted(asked)) or "none"
            raise ArgumentError(
                f"{', '.join(idle)}: this model has no such setting", hint=f"it has: {known}"
            )
        if not self._missing:
            return
        names = ", ".join(self._missing)
        example = " ".join(f"--set {name}={values}" for name, values in self._missing.items())
        why = "the config does not say it" if self.stated else "no config lies beside it"
        raise SourceError(
            "E_CONFIG",
            f"not stored in the file, and {why}: {names}",
            hint=f"put the config beside the weights, or say it: {example}",
            stage="config",
        )

    def _value(
        self, name: str, also: Sequence[str], places: Sequence[tuple[str, ...]]
    ) -> Any | None:
        if name not in ASKED:
            raise KeyError(f"{name} is no option, so nobody could say it")
        self._asked.add(name)
        stated = self._stated(name, also, places)
        if not self.given(name):
            return stated
        if stated is not None and stated is not _NULL:
            self._overruled[name] = clean(stated, limit=40)
        return self._options[name]

    def _stated(
        self, name: str, also: Sequence[str], places: Sequence[tuple[str, ...]]
    ) -> Any | None:
        """What the config says."""
        for path in places:
            section = self.section(*path)
            said = [section[key] for key in (name, *also) if key in section]
            said = [value for value in said if not isinstance(value, Mapping)]
            if said:
                # An old name that speaks beats a new one that is null.
                return next((value for value in said if value is not None), _NULL)
        return None

    def _default(self, name: str, default: str | None, choices: Sequence[str]) -> str:
        if default is None or not self.stated:
            self._missing[name] = "|".join(choices)
            return default or choices[0]
        self.assumed[name] = f"{default} (the config is silent; the code's own default)"
        return default

    def _wrong(self, name: str, value: Any, wanted: str) -> Exception:
        fact = f"{name} is {clean(value)}, not {wanted}"
        if self.given(name):
            return ArgumentError(fact, hint=f"give --set {name}=VALUE")
        return SourceError(
            "E_CONFIG",
            f"the config says that {fact}",
            hint=f"correct it, or give --set {name}=VALUE",
            stage="config",
        )


class _Null:
    """What a config says by null."""

    def __str__(self) -> str:
        return "null"


_NULL = _Null()
_WORDS = ("false", "true")
