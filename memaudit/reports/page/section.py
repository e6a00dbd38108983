"""A section of the page: a heading, and what stands below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.reports.page.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page; `scale` gives it a switch between straight and logarithmic lags."""

    ident: str
    title: str
    told: str
    blocks: Sequence[Markup | None]
    scale: bool = False
    logarithmic: bool = False

    def markup(self) -> Markup:
        """The section as a landmark of its own."""
        head = tag("div", tag("h2", self.title, id=f"{self.ident}-title"), self._switch())
        told = tag("p", self.told, class_="lead") if self.told else None
        named = f"{self.ident}-title"
        return tag("section", head, told, self.blocks, id=self.ident, aria_labelledby=named)

    def _switch(self) -> Markup | None:
        if not self.scale:
            return None
        choices = [
            tag("label", _radio(self.ident, value, on=on), f" {word}")
            for value, word, on in (
                ("line", "linear", not self.logarithmic),
                ("log", "logarithmic", self.logarithmic),
            )
        ]
        return tag("fieldset", tag("legend", "Lag axis"), choices, class_="scale")


def grid(*blocks: Markup | None, kind: str = "grid") -> Markup:
    """Blocks side by side where there is room."""
    return tag("div", blocks, class_=kind)


def _radio(group: str, value: str, *, on: bool) -> Markup:
    name = f"{group}-scale"
    made = tag("input", type="radio", name=name, value=value, checked=on, autocomplete="off")
    return Markup(made.removesuffix("</input>"))
