"""Hostile names in files, configs and metadata: nothing raw gets out, whatever shows them."""

from __future__ import annotations

import importlib
import json
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import torch
from rich.cells import cell_len
from safetensors.torch import save_file

from tests.hostile.case import Case, Outcome, Scene
from tests.hostile.cases.numbers import layer, refuse

THIRD_PARTY = Path(__file__).resolve().parents[2] / "third_party" / "src"
QUICK = ["--quick", "--horizon", "64", "--json", "report.json"]
#: Text that is not read on a terminal is as wide as this.
WIDTH = 80
LONGEST_LINE = 4000

NAMES = {
    "a tag": "<img src=x onerror=alert(1)>",
    "escape codes": "\x1b[31mred\x1b]8;;https://example.org\x07link\x1b[2J\x9b1m",
    "line breaks": "one\ntwo\rthree\x85four\u2028five\x0bsix\tseven",
    "a path": "../../../../etc/passwd",
    "reversed text": "abc\u202egpj.exe\u2066\u200b\ufeff",
    "markup": "[red]x[/red] [link=https://example.org]y[/link] [/] [bold",
    "a formula": "=cmd|' /C calc'!A0",
    "a NUL": "a\0b",
    "marks": "a" + "\u0301" * 2000,
    "a forged line": "x\nmemaudit: error[E_FORGED] all is well\nPARTIAL REPORT",
    "500 letters": "x" * 500,
}
MEGABYTE = "x" * 1_000_000
#: What a file system takes as a name.
FILE_NAMES = {
    name: text.replace("/", "")
    for name, text in NAMES.items()
    if "\0" not in text and len(text) < 80
}
HALF = "a\ud800b\udcffc"
#: The worst of them, for every further place.
WORST = {name: NAMES[name] for name in ("escape codes", "reversed text", "marks", "a forged line")}


def clean_output(outcome: Outcome) -> None:
    """No raw character on either stream, no line that is too wide, none that is forged."""
    for text in (outcome.stdout, outcome.stderr):
        raw = {c for c in text if unicodedata.category(c).startswith("C")} - {"\n"}
        raw |= {c for c in text if c in "\u2028\u2029"}
        assert not raw, f"raw characters {sorted(map(ascii, raw))}"
        assert max(map(len, text.splitlines()), default=0) <= LONGEST_LINE
        assert not any(line.startswith("memaudit: error[E_FORGED]") for line in text.splitlines())
    assert max(map(cell_len, outcome.stdout.splitlines()), default=0) <= WIDTH


def clean_report(outcome: Outcome) -> None:
    """The streams are clean; the JSON is ASCII, strict, and has no half letters."""
    clean_output(outcome)
    data = (outcome.scene.output / "report.json").read_bytes()
    assert all(byte == 0x0A or 0x20 <= byte < 0x7F for byte in data), "raw bytes in the JSON"
    report = json.loads(data, parse_constant=refuse)
    json.dumps(report, ensure_ascii=False).encode("utf-8")
    assert report["complete"] is True
    assert len(data) < 4 << 20, f"the JSON has {len(data)} bytes"


def tensors(name: str) -> dict[str, torch.Tensor]:
    """Two recurrent layers and a stray tensor, all of that name."""
    prefix = "rnn" if "\n" in name else name  # no adapter takes those for a layer
    layers = {f"{prefix}{i}.{k.removeprefix('rnn.')}": v for i in "ab" for k, v in layer().items()}
    return {**layers, f"{name}.stray": torch.ones(3, 3)}


def in_safetensors(name: str) -> Callable[[Scene], list[str]]:
    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.safetensors"
        save_file(tensors(name), path, metadata={name: name})
        return ["scan", str(path), *QUICK]

    return arrange


def in_torch(name: str) -> Callable[[Scene], list[str]]:
    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.pt"
        content = {"state_dict": tensors(name), name: torch.ones(2), f"{name}!": {name: name}}
        torch.save(content, path)
        return ["scan", str(path), *QUICK, "--verbose"]

    return arrange


def in_config(name: str) -> Callable[[Scene], list[str]]:
    def arrange(scene: Scene) -> list[str]:
        config = {name: name, "model_type": name, "nonlinearity": name, "architectures": [name]}
        (scene.inputs / "config.json").write_text(json.dumps(config))
        torch.save({"state_dict": layer(), "nonlinearity": name}, scene.inputs / "model.pt")
        return ["scan", str(scene.inputs), *QUICK]

    return arrange


def in_file_name(name: str) -> Callable[[Scene], list[str]]:
    def arrange(scene: Scene) -> list[str]:
        folder = scene.inputs / os.fsencode(name).decode("utf-8", "surrogateescape")
        folder.mkdir()
        path = folder / f"{folder.name}.safetensors"
        save_file(layer(), scene.inputs / "model.safetensors")
        (scene.inputs / "model.safetensors").rename(path)
        return ["scan", str(path), *QUICK]

    return arrange


def refused_name(name: str) -> Callable[[Scene], list[str]]:
    """A file without a recurrent layer: its names stand in the error."""

    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.safetensors"
        save_file({name: torch.ones(2, 2), f"{name}2": torch.full((2, 2), torch.nan)}, path)
        return ["scan", str(path)]

    return arrange


def not_finite(name: str) -> Callable[[Scene], list[str]]:
    """A file with bad numbers: their names stand in the error."""

    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.safetensors"
        bad = {name: tensor * torch.nan for name, tensor in tensors(name).items()}
        save_file(bad, path)
        return ["scan", str(path)]

    return arrange


# --- a stranger's table -------------------------------------------------------------------------


def with_acme(arguments: list[str]) -> int:
    """The command line with the report format of tests/third_party installed."""
    from memaudit import registry
    from memaudit.cli.app import main

    info = Path("memaudit_acme-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: memaudit-acme\nVersion: 1.0\n")
    points = "[memaudit.reports]\ncsv = memaudit_acme.csv_table:CsvTable\n"
    (info / "entry_points.txt").write_text(points)
    sys.path[:0] = [os.getcwd(), str(THIRD_PARTY)]
    importlib.invalidate_caches()
    registry._points.cache_clear()
    return main([*arguments, "--report", "csv=table.csv"])


def clean_table(outcome: Outcome) -> None:
    import csv

    clean_report(outcome)
    text = (outcome.scene.output / "table.csv").read_text()
    raw = {c for c in text if unicodedata.category(c).startswith("C")} - {"\n"}
    assert not raw
    rows = list(csv.reader(text.splitlines(keepends=True)))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert not any(cell[:1] in tuple("=+-@\t\r") for row in rows[1:] for cell in row[:3])


PLACES = {
    "a safetensors file": (in_safetensors, NAMES),
    "a torch file": (in_torch, {**WORST, "half a letter": HALF}),
    "a config": (in_config, WORST),
    "a file name": (in_file_name, {**FILE_NAMES, "broken bytes": "a\udcff\udc80b"}),
}
CASES = [
    *(
        Case("reports", f"{what} in {place}", arrange(name), exit=0, check=clean_report)
        for place, (arrange, names) in PLACES.items()
        for what, name in names.items()
    ),
    *(
        Case("reports", name, arrange, exit=3, code=code, check=clean_output)
        for name, arrange, code in (
            ("a megabyte in a safetensors file", in_safetensors(MEGABYTE), "E_LIMIT"),
            ("a megabyte in an error", refused_name(MEGABYTE), "E_LIMIT"),
            ("a megabyte in a config", in_config(MEGABYTE), "E_LIMIT"),
            ("half a letter in a config", in_config(HALF), "E_CONFIG"),
        )
    ),
    *(
        Case(
            "reports",
            f"{what} in an error",
            refused_name(name),
            exit=3,
            code="E_UNSUPPORTED",
            check=clean_output,
        )
        for what, name in WORST.items()
    ),
    *(
        Case(
            "reports",
            f"{what} among bad numbers",
            not_finite(name),
            exit=3,
            code="E_NONFINITE",
            check=clean_output,
        )
        for what, name in WORST.items()
    ),
    *(
        Case(
            "reports",
            f"{what} in a stranger's table",
            in_safetensors(name),
            exit=0,
            command=with_acme,
            check=clean_table,
            writes=("table.csv", "memaudit_acme-1.0.dist-info"),
        )
        for what, name in {**WORST, "a formula": NAMES["a formula"]}.items()
    ),
]
