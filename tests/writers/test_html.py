"""The HTML page as text: one file, nothing from elsewhere, every number, never too large."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from memaudit.data import page_file
from memaudit.gradient.result import Gradient
from memaudit.writers.html_page import HtmlPage
from memaudit.writers.page.detail import MOST_BYTES
from memaudit.writers.page.document import THINNED
from memaudit.writers.page.fitting import TOO_LARGE
from memaudit.spectrum.result import spectrum
from tests.handmade import curve, identity, power_law, report
from tests.reports.handmade_page import LAYERS, MESSAGE, everything, modes

#: Apache ECharts 6.1.0, dist/echarts.common.min.js of the npm package, unchanged.
ECHARTS = "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] in self.inside:
            self.inside[self.open[-1]][-1] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return HtmlPage().render(everything())


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_the_plotting_library_is_the_one_that_was_published():
    code = page_file("echarts.common.min.js")
    assert hashlib.sha256(code.encode()).hexdigest() == ECHARTS
    assert 'version:"6.1.0"' in code or '"6.1.0"' in code
    assert "Apache License" in page_file("echarts.LICENSE")
    assert "Apache ECharts" in page_file("echarts.NOTICE")
    assert "Bostock" in page_file("echarts.LICENSE-d3")


def test_the_page_names_nothing_outside_of_itself(page, text):
    for _, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in text
    assert "url(" not in page_file("style.css")


def test_the_policy_lets_in_these_scripts_and_this_style_only(page):
    policy = next(m["content"] for m in page.named("meta") if "http-equiv" in m)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    code = [
        script
        for script, attributes in zip(page.inside["script"], page.named("script"), strict=True)
        if "type" not in attributes
    ]
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
        for part in (*code, *page.inside["style"])
    ]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == hashes[:2]
    assert rules["style-src"].split() == hashes[2:]
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy
    assert not any(name == "style" for _, attributes in page.elements for name in attributes)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_every_plot_has_a_name_and_a_table_with_headers(page, text):
    plots = [a for a in page.named("div") if a.get("class") == "plot"]
    figures = re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL)
    assert len(plots) == len(figures) >= 10
    assert all(plot["aria-label"] and plot["role"] == "img" for plot in plots)
    for drawn in figures:
        assert "<details" in drawn
        assert "<caption>" in drawn
        assert 'scope="col"' in drawn
        assert 'scope="row"' in drawn


def test_headings_and_landmarks_tell_the_structure(page):
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.named("html") == [{"lang": "en"}]
    assert [len(page.named(name)) for name in ("main", "nav", "header", "footer")] == [1, 1, 1, 1]
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"] for a in page.named("a")]
    assert {link[1:] for link in links} <= set(ids)


def test_the_verdict_stands_before_the_plots(text):
    verdict = text.index('id="verdict"')
    assert text.index("<h1>demo:lstm</h1>") < verdict < text.index("<figure")
    assert text.index(MESSAGE) < text.index("<figure"), "the worst finding is told at once"
    assert "an advice" in text


def test_numbers_of_the_report_are_in_the_tables(text):
    made = everything()
    for value in (made.memory["heaviside"].values[41], made.memory["impulse"].median[7]):
        assert f">{value:.6g}<" in text
    assert "memaudit scan demo:lstm --horizon 512 --seed 0" in text


def test_same_report_same_page(text):
    assert HtmlPage().render(everything()) == text
    assert HtmlPage().render(type(everything()).from_dict(everything().to_dict())) == text


def test_a_partial_report_says_so_first():
    error = {"code": "E_MEMORY", "stage": "impulse", "message": "no room", "hint": "--quick"}
    text = HtmlPage().render(report(curve(), complete=False, errors=(error,)))
    assert text.index("PARTIAL REPORT") < text.index("<h1>")
    assert "E_MEMORY (impulse): no room; --quick" in text


def test_a_page_without_curves_is_small_and_has_no_library():
    text = HtmlPage().render(report())
    assert "No curve was measured." in text
    assert len(text) < 60_000


def test_names_cannot_end_the_data_of_a_plot():
    evil = "</script><!--\u2028<script>"
    made = everything(layers={evil: {evil: curve()}, "b": {evil: power_law()}})
    page = Page(HtmlPage().render(made))
    views = [
        json.loads(script)
        for script, attributes in zip(page.inside["script"], page.named("script"), strict=True)
        if attributes.get("class") == "view"
    ]
    assert "</script><!-- <script>" in {name for view in views for name in view["names"]}
    keys = {series["name"] for view in views for series in view["option"]["series"]}
    assert all(re.fullmatch(r"s\d+", key) for key in keys)


@pytest.mark.parametrize(
    ("what", "made"),
    [
        ("lags", lambda: report(_long(200_000))),
        ("layers", lambda: everything(layers={f"l{k}": {"q": _long(4096)} for k in range(400)})),
        ("spectra", lambda: everything(spectrum=tuple(modes(f"l{k}") for k in range(3000)))),
        ("findings", lambda: everything(findings=everything().findings * 20_000)),
        ("queries", lambda: report(*(curve("q" * 300 + str(k)) for k in range(600)))),
        ("notes", lambda: report(curve(), subject=identity(notes=("n" * 900,) * 20_000))),
        ("errors", lambda: report(curve(), errors=({"message": "e" * 900},) * 20_000)),
        ("formats", lambda: everything(precision=_many_formats(20_000))),
    ],
)
def test_a_page_never_has_more_than_five_megabytes(what, made):
    text = HtmlPage().render(made())
    assert len(text.encode()) <= MOST_BYTES
    assert THINNED in text or "JSON report" in text or what == "findings"


def test_a_table_that_shows_a_part_says_so(text):
    shown = re.search(r"by lag; (\d+) of 512 lags, the JSON report has them all", text)
    assert shown is not None
    assert 128 < int(shown[1]) <= 256
    assert THINNED not in text
    assert f"{LAYERS} of" not in text


def test_a_short_curve_is_told_whole():
    short = curve(values=np.exp(-0.05 * np.arange(1, 101)))
    text = HtmlPage().render(report(replace(short, lags=short.lags[:100])))
    assert "the JSON report has them all" not in text


def test_modes_that_no_report_file_holds_are_not_promised():
    rings = 0.9 * np.exp(2j * np.pi * np.arange(768) / 768)
    item = replace(modes("l0"), eigenvalues=rings, count=768)
    made = everything(spectrum=(item,))
    text = HtmlPage().render(made)
    assert "of 768 modes, the JSON report has 512 of them" in text
    again = HtmlPage().render(type(made).from_dict(made.to_dict()))
    assert "512 of 768 modes drawn" in again


def _long(count: int):
    values = np.exp(-0.05 * np.arange(count) / count * 40)
    return curve(values=values, lags=np.arange(count), median=values)


def _many_formats(count: int):
    made = everything().precision
    one = made.roundings[0]
    return replace(made, roundings=tuple(replace(one, format=f"f{k}") for k in range(count)))


def test_what_is_too_large_in_any_detail_is_left_out_and_says_so(monkeypatch):
    whole = len(HtmlPage().render(report(curve())).encode())
    monkeypatch.setattr("memaudit.writers.page.fitting.MOST_BYTES", whole)
    text = HtmlPage().render(everything())
    assert len(text.encode()) <= whole
    assert TOO_LARGE in text
    assert MESSAGE in text, "the verdict stays"


def test_notes_and_errors_that_are_left_out_are_counted():
    who = identity(notes=tuple(f"note {k}" for k in range(203)))
    errors = tuple({"code": "E_X", "message": f"error {k}"} for k in range(201))
    text = HtmlPage().render(report(curve(), subject=who, errors=errors))
    assert re.findall(r">([\d,]+) more in the JSON report<", text) == ["1", "3"]
    assert "note 199<" in text
    assert "note 200<" not in text


@pytest.mark.parametrize("most", [1.7e308, 1e-320])
def test_numbers_at_the_ends_of_what_there_is_can_be_shown(most):
    values = [most, 1j * most, most + 1j * most, 0.5]
    far = spectrum(layer="a", cell="c", parameterization="p", at="rest", eigenvalues=values)
    loud = curve(values=most * np.exp(-0.05 * np.arange(1, 513)))
    text = HtmlPage().render(report(loud, spectrum=(far,)))
    assert ("1 of 4 modes drawn" in text) == (most > 1)


def test_a_layer_that_is_the_whole_part_is_named_once():
    text = HtmlPage().render(report(curve(), spectrum=(replace(modes("cell"), where="cell"),)))
    assert ">cell<" in text
    assert "cell: cell" not in text


def test_a_model_without_recurrent_weights_has_no_empty_table_of_gradients():
    none = Gradient(
        "model", "", "", (), "", None, (), "", "", note="no recurrent weights were found"
    )
    text = HtmlPage().render(report(curve(), gradient=(none,)))
    assert "model: no recurrent weights were found" in text
    assert "Largest ratio of gradient and weight" not in text
