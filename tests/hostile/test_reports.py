"""Hostile names in tensors, metadata, configs, file names: nothing raw gets out.

Every name is written in all formats at once, and every format is read back by its own parser.
"""

from __future__ import annotations

import csv
import json
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import yaml
from markdown_it import MarkdownIt
from rich.cells import cell_len
from safetensors.torch import save_file

from tests.hostile.rows import QUICK, Arrange, Outcome, Row, Scene, installed, parametrized, run
from tests.hostile.small_models import weights, write

THIRD_PARTY = Path(__file__).resolve().parents[1] / "third_party" / "src"
NAMES = {
    "a tag": "<img src=x onerror=alert(1)>\"'><script>alert(1)</script>]]><!--<![CDATA[ &lt; &x;",
    "escape codes": "\x1b[31mred\x1b]8;;https://example.org\x07link\x1b[2J\x9b1m",
    "line breaks": "one\ntwo\rthree\x85four\u2028five\x0bsix\tseven\nmemaudit: error[E_FORGED] x",
    "reversed text": "abc\u202egpj.exe\u2066\u200b\ufeff",
    "markup": "[red]x[/red] [x](javascript:alert(1)) ![y](https://example.org/z.png) a|b `c` [/]",
    "a formula": "=cmd|' /C calc'!A0",
    "a command": "x%0A::error::forged\n::set-output name=a::b ##[group]",
    "a pile of marks": "a" + "\u0301" * 2000 + "\0",
    "half a letter": "a\ud800b\udcffc",
    "a path": "../../../../etc/passwd",
}
FILES = {
    "page.html": ["--html", "page.html"],
    "section.md": ["--markdown", "section.md"],
    "annotations": ["--report", "github=annotations"],
    "junit.xml": ["--report", "junit=junit.xml"],
    "results.json": ["-o", "results.json"],
    "table.csv": ["--report", "csv=table.csv"],
}


def no_raw(text: str) -> None:
    raw = {c for c in text if unicodedata.category(c).startswith("C")} - {"\n"}
    raw |= {c for c in text if c in "\u2028\u2029"}
    assert not raw, f"raw characters {sorted(map(ascii, raw))}"


def clean_streams(outcome: Outcome) -> None:
    """No raw character on either stream, no line that is too wide, no error that is forged."""
    no_raw(outcome.stdout)
    no_raw(outcome.stderr)
    assert not any(line.startswith("memaudit: error[E_F") for line in outcome.stderr.splitlines())
    assert max(map(cell_len, outcome.stdout.splitlines()), default=0) <= 80
    assert len(outcome.stderr) < 4000


def clean_report(outcome: Outcome) -> None:
    clean_streams(outcome)
    data = (outcome.scene.output / "report.json").read_bytes()
    assert all(byte == 0x0A or 0x20 <= byte < 0x7F for byte in data), "raw bytes in the JSON"
    assert outcome.report()["complete"]


def clean_markdown(text: str) -> None:
    parser = MarkdownIt("commonmark").enable("table")
    tokens = [t for token in parser.parse(text) for t in (token, *(token.children or ()))]
    kinds = {token.type for token in tokens}
    assert not kinds & {"link_open", "image", "html_inline", "code_inline", "fence", "code_block"}
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert all(block.startswith(("<pre>", "<!-- memaudit")) for block in blocks), blocks


class Elements(HTMLParser):
    """The elements of a page with their attributes, and what its scripts say."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.attributes: set[str] = set()
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        self.inside = tag == "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts.append(data)
        self.inside = False


def clean_everywhere(outcome: Outcome) -> None:
    clean_report(outcome)
    texts = {name: (outcome.scene.output / name).read_text("utf-8") for name in FILES}
    for text in texts.values():
        no_raw(text)
    page = Elements(texts["page.html"])
    assert "onerror" not in page.attributes
    assert page.scripts
    assert not any(script.startswith("alert") for script in page.scripts)
    clean_markdown(texts["section.md"])
    lines = texts["annotations"].splitlines()
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines), lines
    assert all(line.count("::") == 2 for line in lines), lines
    known = {"testsuites", "testsuite", "properties", "property", "testcase"}
    known |= {"failure", "skipped", "error", "system-out"}
    assert {element.tag for element in ElementTree.fromstring(texts["junit.xml"]).iter()} <= known
    assert texts["results.json"].isascii()
    assert "memaudit" in json.loads(texts["results.json"])["results"]
    cells = list(csv.reader(texts["table.csv"].splitlines(keepends=True)))
    assert {len(row) for row in cells} == {len(cells[0])}
    assert not any(cell[:1] in tuple("=+-@\t\r") for row in cells[1:] for cell in row[:3])


def layers(name: str) -> dict[str, torch.Tensor]:
    """Two recurrent layers and a stray tensor, all of that name."""
    prefix = "rnn" if "\n" in name else name  # no adapter takes those for a layer
    found = weights(prefix=f"{prefix}a.") | weights(prefix=f"{prefix}b.")
    return {**found, f"{name}.stray": torch.ones(3, 3)}


def in_tensors(name: str, *options: str) -> Arrange:
    """Names of tensors and of metadata; what has no UTF-8 stands in a torch file."""

    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.safetensors"
        if name.isprintable() or name.encode("utf-8", "ignore").decode() == name:
            save_file(layers(name), path, metadata={name: name})
        else:
            path = write(scene.inputs / "model.pt", layers(name))
        return ["scan", str(path), *QUICK, *options]

    return arrange


def with_csv(scene: Scene) -> None:
    installed("reports", "csv = memaudit_acme.csv_table:CsvTable")(scene)
    sys.path.insert(0, str(THIRD_PARTY))


def in_config(name: str) -> Arrange:
    def arrange(scene: Scene) -> list[str]:
        write(scene.inputs / "model.safetensors")
        config = {name: name, "model_type": name, "nonlinearity": name, "architectures": [name]}
        (scene.inputs / "config.json").write_text(json.dumps(config))
        return ["scan", str(scene.inputs), *QUICK]

    return arrange


def in_file_name(name: str) -> Arrange:
    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / f"{name}.safetensors".replace("/", "")
        return ["scan", str(write(scene.inputs / "m.safetensors").rename(path)), *QUICK]

    return arrange


def in_error(name: str) -> Arrange:
    """A name that stands in an error, as no layer is found."""

    def arrange(scene: Scene) -> list[str]:
        tensors = {"x": torch.ones(2, 2), name: torch.ones(2, 2)}
        return ["scan", str(write(scene.inputs / "model.safetensors", tensors))]

    return arrange


def in_card(name: str) -> Arrange:
    def arrange(scene: Scene) -> list[str]:
        write(scene.output / "model" / "model.safetensors", layers(name))
        (scene.output / "model" / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
        return ["card", "model", "--quick", "--horizon", "64"]

    return arrange


def clean_card(outcome: Outcome) -> None:
    no_raw(outcome.stderr)
    text = (outcome.scene.output / "model" / "README.md").read_text("utf-8")
    assert text.startswith("---\nlicense: mit\n---\n# Mine\n")
    no_raw(text)
    clean_markdown(text.partition("# Mine\n")[2])
    numbers = (outcome.scene.output / "model" / ".eval_results" / "memaudit.yaml").read_text()
    assert numbers.isascii()
    assert all(isinstance(entry["value"], int | float) for entry in yaml.safe_load(numbers))


def linked_card(scene: Scene) -> list[str]:
    """A folder with a link in the place of what a card writes."""
    folder = write(scene.inputs / "model" / "model.safetensors").parent
    (scene.inputs / "secret").touch()
    (folder / "README.md").symlink_to(scene.inputs / "secret")
    return ["card", str(folder), "--quick", "--horizon", "64"]


FORMATS = [word for option in FILES.values() for word in option]
ROWS = [
    *(
        Row(
            f"{what} in every format",
            in_tensors(name, *FORMATS),
            0,
            check=clean_everywhere,
            first=with_csv,
            writes=tuple(FILES),
            slow=what
            in ("reversed text", "a command", "a pile of marks", "a path", "half a letter"),
        )
        for what, name in NAMES.items()
    ),
    Row("escape codes in a config", in_config(NAMES["escape codes"]), 0, check=clean_report),
    Row("line breaks in a file name", in_file_name(NAMES["line breaks"]), 0, check=clean_report),
    Row(
        "escape codes in an error",
        in_error(NAMES["escape codes"]),
        3,
        "E_UNSUPPORTED",
        check=clean_streams,
    ),
    Row("a megabyte in a name", in_tensors("x" * 1_000_000), 3, "E_LIMIT", check=clean_streams),
    Row("markup in a card", in_card(NAMES["markup"]), 0, check=clean_card, writes=("model",)),
    Row("a link in place of the card", linked_card, 3, "E_PATH"),
]


@parametrized(ROWS)
def test_a_hostile_name_stays_a_name(row: Row, capfd: pytest.CaptureFixture[str]) -> None:
    run(row, __name__, capfd)
