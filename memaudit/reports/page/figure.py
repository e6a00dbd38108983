"""A figure of the page: its pictures as plain data, its legend, and the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memaudit.errors import clean
from memaudit.reports.page.markup import Markup, data_script, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit.reports.page.table import Table

#: From so many entries on a legend can be switched as a whole.
MANY = 8
#: A name in a plot is cut here: it must fit a phone.
LONGEST_NAME = 48


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: the series of that name, its colour, and how it is drawn."""

    name: str
    colour: str
    sign: str = "line"


@dataclass(frozen=True, slots=True)
class View:
    """One picture: options for ECharts as plain data, and the legend that switches its series.

    `tip` names the numbers of a point. `lag` says that the axis below may be straight or
    logarithmic, `grid` that lines are drawn both ways. Colours are names of the style sheet, `$c1`.
    `drawn` is how many points are drawn, and of how many.
    """

    name: str
    option: dict[str, Any]
    keys: tuple[Key, ...]
    tip: tuple[str, ...] = ("x", "y")
    lag: bool = False
    grid: bool = False
    drawn: tuple[int, int] = (0, 0)
    noun: str = "points"

    def data(self) -> dict[str, Any]:
        """What the script of the page reads; names are shown only, s0, s1 … stand for them.

        ECharts keeps what is switched on under the names of series, in an object that has things
        called `constructor` and `toString` of its own.
        """
        keys = self.series_keys()
        series = [{**one, "name": keys[one["name"]]} for one in self.option["series"]]
        made = {"option": {**self.option, "series": series}, "names": list(keys)}
        return {**made, "tip": self.tip, "lag": self.lag, "grid": self.grid}

    def series_keys(self) -> dict[str, str]:
        """The key of every series by its name; series of one name are switched together."""
        names = dict.fromkeys(one["name"] for one in self.option["series"])
        return {name: f"s{place}" for place, name in enumerate(names)}

    def legend(self, *, hidden: bool) -> Markup:
        """A button per curve, and how many points of them are drawn where it is a part."""
        keys = self.series_keys()
        buttons = [_button(key, keys.get(key.name, "")) for key in self.keys]
        if len(self.keys) >= MANY:
            buttons += [
                tag("button", word, type="button", data_all=on, class_="whole")
                for word, on in (("all", "on"), ("none", "off"))
            ]
        shown, count = self.drawn
        part = f"{shown:,} of {count:,} {self.noun} drawn" if shown < count else ""
        told = tag("span", part, class_="part") if part else None
        said = "Curves; press to hide or show"
        return tag(
            "div", buttons, told, class_="keys", role="group", aria_label=said, hidden=hidden
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """Pictures of which one is seen, a sentence on how to read them, and their tables.

    `label` says the same as the picture, for those who cannot see it; `hint` what a hand can do
    with it, which paper does not show. Without views nothing is drawn: the sentence says why.
    """

    title: str
    told: str
    label: str
    views: tuple[View, ...]
    tables: tuple[Table, ...]
    choice: str = ""
    shape: str = ""
    logarithmic: bool = False
    hint: str = ""

    def markup(self) -> Markup:
        """The figure; every part works by keyboard, and the tables without a script."""
        return tag(
            "figure",
            tag("figcaption", tag("h3", self.title), self._read()),
            self._drawn() if self.views else None,
            _behind(self.tables),
            data_chart=bool(self.views),
            class_=f"figure {self.shape if self.views else ''}".strip(),
            data_scale="log" if self.logarithmic else None,
        )

    def _drawn(self) -> list[Markup | None]:
        several = len(self.views) > 1
        return [
            _reset(),
            tag("div", self._choice(), class_="controls") if several else None,
            *(view.legend(hidden=k > 0) for k, view in enumerate(self.views)),
            tag("div", role="img", aria_label=self.label, tabindex="0", class_="plot"),
            *(data_script(view.data(), class_="view") for view in self.views),
        ]

    def _read(self) -> Markup | None:
        hint = tag("span", self.hint, class_="hint") if self.hint else None
        space = " " if self.told and hint else None
        return tag("p", self.told, space, hint) if self.told or hint else None

    def _choice(self) -> Markup:
        options = [tag("option", view.name) for view in self.views]
        # A page that is loaded again must not show one view and name another.
        return tag("label", f"{self.choice} ", tag("select", options, autocomplete="off"))


def unique(names: Iterable[str]) -> list[str]:
    """Names as a plot shows them, each once: a series is switched by its name."""
    found: dict[str, None] = {}
    for name in names:
        short = told = clean(name, limit=LONGEST_NAME) or "(no name)"
        number = 1
        while told in found:  # a name may look like another one with its number
            number += 1
            told = f"{short} ({number})"
        found[told] = None
    return list(found)


def _button(key: Key, series: str) -> Markup:
    sign = tag("i", class_=f"{key.sign} {key.colour.strip('$')}")
    return tag("button", sign, key.name, type="button", data_name=series, aria_pressed="true")


def _reset() -> Markup:
    return tag("button", "Reset zoom", type="button", class_="reset", hidden=True)


def _behind(tables: Sequence[Table]) -> Markup:
    summary = tag("summary", "Data table" if len(tables) == 1 else "Data tables")
    return tag("details", summary, [table.markup() for table in tables], class_="data")
