"""The HTML page as text: one file, nothing from elsewhere, every number, never too large."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest

from memaudit.report import Finding
from memaudit.sections import Axis, Column, Document, Figure, Line, Mark, Points, Section, Table
from memaudit.writers.html import MOST_BYTES, TOO_LARGE, notebook_html, render_document
from tests.handmade import report
from tests.writers.documents import LAGS, curves, document, plane

#: Apache ECharts 6.1.0, dist/echarts.common.min.js of the npm package, unchanged.
ECHARTS = "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"
COUNT = 65_536
EVIL = "</script><!--\u2028<script>alert(1)</script>\"'>\x1b\u202e"


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

    def views(self) -> list[dict]:
        pairs = zip(self.inside["script"], self.named("script"), strict=True)
        return [json.loads(text) for text, attrs in pairs if attrs.get("class") == "view"]


def page_file(name: str) -> str:
    return files("memaudit.writers").joinpath("page", name).read_text(encoding="utf-8")


def with_figure(*figures: Figure) -> Document:
    return Document("x", sections=(Section("S", figures=figures),))


@pytest.fixture(scope="module")
def text() -> str:
    return render_document(document())


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_the_plotting_library_is_the_one_that_was_published():
    code = page_file("echarts.common.min.js")
    assert hashlib.sha256(code.encode()).hexdigest() == ECHARTS
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
    pairs = zip(page.inside["script"], page.named("script"), strict=True)
    code = [script for script, attributes in pairs if "type" not in attributes]
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
        for part in (*code, *page.inside["style"])
    ]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == hashes[:2]
    assert rules["style-src"].split() == hashes[2:]
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy
    names = [name for _, attributes in page.elements for name in attributes]
    assert not any(name == "style" or name.startswith("on") for name in names)


def test_every_plot_has_a_name_and_a_table_with_headers(page, text):
    plots = [a for a in page.named("div") if a.get("class") == "plot"]
    figures = re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL)
    assert len(plots) == len(figures) == 3
    assert all(plot["aria-label"] and plot["role"] == "img" for plot in plots)
    for drawn in figures:
        for part in ("<details", "<caption>", 'scope="col"', 'scope="row"'):
            assert part in drawn


def test_headings_and_landmarks_give_the_structure(page):
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.named("html") == [{"lang": "en"}]
    assert [len(page.named(name)) for name in ("main", "nav", "header", "footer")] == [1, 1, 1, 1]
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a in page.named("a")} <= set(ids)


def test_sections_of_one_title_have_places_of_their_own():
    twice = Document("x", sections=(Section("Findings"), Section("A b"), Section("A b")))
    ids = [a["id"] for a in Page(render_document(twice)).named("section")]
    assert ids == ["verdict", "findings-2", "a-b", "a-b-2", "findings"]


def test_the_verdict_stands_before_the_plots(text):
    verdict = text.index('id="verdict"')
    assert text.index("<h1>demo:lstm</h1>") < verdict < text.index("<figure")
    assert verdict < text.index("Remembers 139 steps") < text.index("<figure")
    assert text.index("the memory grows") < text.index("<figure"), "the worst finding, too"
    assert "1 gate was hit" in text
    assert "an advice" in text


def test_numbers_are_in_the_tables_behind_the_plots(text):
    for value in (np.exp(-0.05 * 42), 0.9 * 0.99**3):
        assert f">{value:.6g}<" in text
    assert ">10 to 200<" in text, "marks have a table"
    assert "memaudit scan demo:lstm --horizon 512" in text


def test_words_of_a_verdict_are_badges(text):
    assert '<span class="kind warning">fails</span>' in text
    assert '<span class="kind good">holds</span>' in text
    assert '<span class="kind error">hit</span>' in text


def test_same_document_same_page(text):
    assert render_document(document()) == text


def test_warnings_stand_before_the_title():
    text = render_document(replace(document(), warnings=("PARTIAL REPORT", "E_MEMORY: no room")))
    assert text.index("PARTIAL REPORT") < text.index("E_MEMORY: no room") < text.index("<h1>")


def test_a_page_without_figures_is_small_and_has_no_library():
    text = render_document(Document("x"))
    assert len(text) < 60_000
    assert "No findings" in text


def test_a_figure_without_anything_to_draw_says_so():
    zeros = Figure("Zero", Axis("x"), Axis("y", log=True), (Line("a", LAGS, 0.0 * LAGS),))
    text = render_document(with_figure(zeros))
    assert "Not drawn: there is nothing to see." in text
    assert 'class="plot"' not in text


def test_names_are_text_wherever_they_stand():
    series = (
        Line(EVIL, LAGS, np.exp(-0.01 * LAGS)),
        Points(EVIL, LAGS[:2], LAGS[:2], (EVIL, EVIL)),
    )
    figure = Figure(EVIL, Axis(EVIL), Axis(EVIL), series, (Mark(EVIL, x=3.0),), caption=EVIL)
    table = Table((Column(EVIL, help=EVIL),), ((EVIL,),), EVIL, (EVIL,))
    section = Section(EVIL, EVIL, EVIL, (EVIL,), (table,), (figure,))
    finding = Finding(EVIL, EVIL, "note", EVIL, EVIL, EVIL)
    hostile = Document(
        EVIL, ((EVIL, EVIL),) * 2, (EVIL,), (section,), (finding,), (), (EVIL,), EVIL
    )
    text = render_document(hostile)
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    page = Page(text)
    (view,) = page.views()
    assert view["names"][0].startswith("</script><!-- <script>alert(1)")
    assert all(re.fullmatch(r"s\d+", series["name"]) for series in view["option"]["series"])
    assert len(page.named("script")) == 3


def test_a_long_line_keeps_its_peaks_and_says_how_much_is_drawn():
    values = np.full(COUNT, 1e-9)
    values[[0, 40_123]] = 1.0, 0.5
    long = Figure("L", Axis("lag"), Axis("y", log=True), (Line("a", np.arange(COUNT), values),))
    text = render_document(with_figure(long))
    (view,) = Page(text).views()
    data = view["option"]["series"][0]["data"]
    assert [40_123, 0.5] in data
    assert f"{len(data):,} of {COUNT:,} points drawn" in text
    assert re.search(r"L; \d+ of 65536 rows, the JSON report has more", text)


def test_a_curve_goes_through_its_marks_however_long_it_is():
    noise = np.random.default_rng(0).random(COUNT)
    line = Line("a", np.arange(COUNT), noise)
    long = Figure("L", Axis("lag"), Axis("y"), (line,), (Mark("horizon", x=43_211.0, series="a"),))
    (view,) = Page(render_document(with_figure(long))).views()
    assert 43_211 in [point[0] for point in view["option"]["series"][0]["data"]]


def test_marks_are_switched_with_their_series_or_by_themselves():
    (view,) = Page(render_document(with_figure(curves()))).views()
    names = view["names"]
    assert names == ["heaviside", "impulse", "reversed", "spread", "floor", "window"]
    upright = [s for s in view["option"]["series"] if s["data"] and s["data"][0][0] == 139]
    assert [s["name"] for s in upright] == ["s0"]
    assert view["off"] == ["s3"], "what is not shown is off at first"


def test_a_point_alone_is_a_dot_since_no_line_goes_through_it():
    y = np.array([1.0, 0.5, 0.0, 0.5, 0.0])
    alone = Figure("A", Axis("x"), Axis("y", log=True), (Line("a", np.arange(5), y),))
    (view,) = Page(render_document(with_figure(alone))).views()
    line, dots = view["option"]["series"]
    assert line["data"][2:4] == [[2, None], [3, 0.5]]
    assert dots["data"] == [[3, 0.5]]
    assert dots["name"] == line["name"], "they are switched together"


def test_the_axis_below_can_be_switched_where_it_has_decades():
    text = render_document(with_figure(curves()))
    assert 'name="s-scale"' in text
    (view,) = Page(text).views()
    assert view["log"] == [1.0, 512.0]
    assert 'name="s-scale"' not in render_document(with_figure(plane()))


@pytest.mark.parametrize("most", [1.7e308, 1e-320])
def test_numbers_at_the_ends_of_what_there_is_can_be_shown(most):
    line = Line("a", LAGS, most * np.exp(-0.05 * LAGS))
    points = Points("b", np.array([most, 0.5]), np.array([most, 0.5]))
    both = (
        Figure("A", Axis("x"), Axis("y", log=True), (line,)),
        Figure("B", Axis("x"), Axis("y"), (points,), square=True),
    )
    assert len(Page(render_document(with_figure(*both))).views()) == 2


def large_figure(lines: int, points: int) -> Figure:
    x = np.arange(points)
    y = np.exp(-x / points)
    series = tuple(Line(f"layer {k}", x, y * (k + 1)) for k in range(lines))
    return Figure("L", Axis("x"), Axis("y", log=True), series)


@pytest.mark.parametrize(
    ("what", "made"),
    [
        ("points", lambda: with_figure(large_figure(3, 200_000))),
        ("series", lambda: with_figure(large_figure(400, 4096))),
        ("figures", lambda: with_figure(*(large_figure(20, 1000) for _ in range(60)))),
        ("findings", lambda: replace(document(), findings=document().findings * 20_000)),
        ("facts", lambda: replace(document(), facts=(("note", "n" * 900),) * 20_000)),
        ("warnings", lambda: replace(document(), warnings=("w" * 900,) * 20_000)),
        (
            "rows",
            lambda: Document(
                "x",
                sections=(Section("S", tables=(Table((Column("a"),), (("x" * 900,),) * 20_000),)),),
            ),
        ),
    ],
)
def test_a_page_never_has_more_than_five_megabytes(what, made):
    text = render_document(made())
    assert len(text.encode()) <= MOST_BYTES
    assert "JSON report" in text or "points drawn" in text or what in ("facts", "warnings")


def test_what_is_too_large_in_any_detail_is_left_out_and_says_so(monkeypatch):
    bare = replace(document(), sections=())
    least = len(render_document(bare).encode()) + 720_000
    monkeypatch.setattr("memaudit.writers.html.MOST_BYTES", least)
    figures = tuple(large_figure(20, 1000) for _ in range(60))
    large = replace(document(), sections=(*document().sections, Section("Big", figures=figures)))
    text = render_document(large)
    assert len(text.encode()) <= least + 40_000
    assert TOO_LARGE in text
    assert "Remembers 139 steps" in text, "the verdict stays"


def test_a_notebook_shows_the_verdict_without_a_script():
    note = Finding("MA105", EVIL, "note", "still rising", "try others")
    made = notebook_html(replace(report(), results={}, complete=False, findings=(note,)))
    assert "<b>demo:lstm</b>" in made
    assert "PARTIAL REPORT" in made
    assert "<script" not in made
    assert "Findings: MA105 &lt;/script&gt;" in made
