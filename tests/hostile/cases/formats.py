"""Hostile names in every written format, and in the card of a folder that a stranger made."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import yaml
from markdown_it import MarkdownIt
from safetensors.torch import save_file

from tests.hostile.case import Case, Outcome, Scene
from tests.hostile.cases.numbers import layer, refuse
from tests.hostile.cases.reports import HALF, NAMES, WORST, clean_report, in_safetensors, in_torch

MARKUP = {
    "a link": "[x](javascript:alert(1)) ![y](https://example.org/z.png) <https://example.org>",
    "a table": "a|b||c\\|d `e` ``f`` # g * h _ i",
    "a command": "x%0A::error::forged\n::set-output name=a::b",
    "tags": "\"'><script>alert(1)</script>]]><!--<![CDATA[ &lt; &#60; &x;",
}
FILES = {
    "page.html": ["--html", "page.html"],
    "section.md": ["--markdown", "section.md"],
    "annotations": ["--report", "github=annotations"],
    "junit.xml": ["--report", "junit=junit.xml"],
    "results.json": ["-o", "results.json"],
}
OPTIONS = [word for words in FILES.values() for word in words]


def in_every_format(arrange: Callable[[Scene], list[str]]) -> Callable[[Scene], list[str]]:
    def everywhere(scene: Scene) -> list[str]:
        return [*arrange(scene), *OPTIONS, "--fail-on", "error"]

    return everywhere


def no_raw(text: str) -> None:
    raw = {c for c in text if unicodedata.category(c).startswith("C")} - {"\n"}
    raw |= {c for c in text if c in "\u2028\u2029"}
    assert not raw, f"raw characters {sorted(map(ascii, raw))}"


def clean_markdown(text: str) -> None:
    no_raw(text)
    parser = MarkdownIt("commonmark").enable("table")
    tokens = [t for token in parser.parse(text) for t in (token, *(token.children or ()))]
    kinds = {token.type for token in tokens}
    assert not kinds & {"link_open", "image", "html_inline", "code_inline", "fence", "code_block"}
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert all(block.startswith(("<pre>", "<!-- memaudit")) for block in blocks), blocks


def clean_formats(outcome: Outcome) -> None:
    clean_report(outcome)
    texts = {name: (outcome.scene.output / name).read_text("utf-8") for name in FILES}
    for text in texts.values():
        no_raw(text)
    clean_markdown(texts["section.md"])
    lines = texts["annotations"].splitlines()
    levels = ("::error title=", "::warning title=", "::notice title=")
    assert all(line.startswith(levels) for line in lines), lines
    assert all(line.split("::", 2)[1].count(",") == 0 for line in lines), lines
    root = ElementTree.fromstring(texts["junit.xml"])
    assert {element.tag for element in root.iter()} <= {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "skipped"),
        *("error", "system-out"),
    }
    assert texts["results.json"].isascii()
    results = json.loads(texts["results.json"], parse_constant=refuse)
    assert "memaudit" in results["results"]


def carded(name: str) -> Callable[[Scene], list[str]]:
    """A scan is put into the card of a folder in the working directory."""

    def arrange(scene: Scene) -> list[str]:
        arguments = in_torch(name)(scene)
        folder = scene.output / "model"
        folder.mkdir()
        shutil.copy(arguments[1], folder / "model.pt")
        (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
        return ["card", "model", "--quick", "--horizon", "64"]

    return arrange


def clean_card(outcome: Outcome) -> None:
    no_raw(outcome.stderr)
    folder = outcome.scene.output / "model"
    text = (folder / "README.md").read_text("utf-8")
    assert text.startswith("---\nlicense: mit\n---\n# Mine\n\n<!-- memaudit begin")
    clean_markdown(text.partition("# Mine\n")[2])
    numbers = (folder / ".eval_results" / "memaudit.yaml").read_text("utf-8")
    assert numbers.isascii()
    assert all(isinstance(entry["value"], int | float) for entry in yaml.safe_load(numbers))


def planted(name: str) -> Callable[[Scene], list[str]]:
    """A stranger's folder with a link in the place of what a card writes."""

    def arrange(scene: Scene) -> list[str]:
        secret = scene.inputs / "secret"
        folder = scene.inputs / "model"
        folder.mkdir()
        if name == "README.md":
            secret.write_text("export PATH\n")
        else:
            secret.mkdir()
        (folder / name).symlink_to(secret)
        save_file(layer(), folder / "model.safetensors")
        return ["card", str(folder), "--quick", "--horizon", "64"]

    return arrange


def untouched(outcome: Outcome) -> None:
    secret: Path = outcome.scene.inputs / "secret"
    assert not secret.is_file() or secret.read_text() == "export PATH\n"
    assert not secret.is_dir() or not list(secret.iterdir())


CASES = [
    *(
        Case(
            "formats",
            f"{what} in every format",
            in_every_format(in_safetensors(name)),
            exit=0,
            check=clean_formats,
            writes=tuple(FILES),
        )
        for what, name in {**NAMES, **MARKUP}.items()
    ),
    Case(
        "formats",
        "half a letter in every format",
        in_every_format(in_torch(HALF)),
        exit=0,
        check=clean_formats,
        writes=tuple(FILES),
    ),
    *(
        Case(
            "formats",
            f"{what} in a card",
            carded(name),
            exit=0,
            check=clean_card,
            writes=("model",),
        )
        for what, name in {**WORST, **MARKUP}.items()
    ),
    *(
        Case(
            "formats",
            f"a link in the place of {name}",
            planted(name),
            exit=3,
            code="E_PATH",
            check=untouched,
        )
        for name in ("README.md", ".eval_results")
    ),
]
