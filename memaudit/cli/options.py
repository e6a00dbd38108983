"""The options of the commands, each with its environment variable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memaudit.catalog import BUILT_IN, DEFAULT_PROBES
from memaudit.cli.parameters import flag, option
from memaudit.options import LONGEST, SHORTEST

ON_REQUEST = [name for name in BUILT_IN["probes"] if name not in DEFAULT_PROBES]

SourceText = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A checkpoint file or folder, a hub id org/name[@revision], timm:NAME, or demo:NAME.",
        show_default=False,
    ),
]
Horizon = Annotated[
    int,
    option(
        "--horizon",
        min=SHORTEST,
        max=LONGEST,
        metavar="N",
        help="Lags to measure.",
    ),
]
Queries = Annotated[
    list[str] | None,
    option(
        "--query",
        metavar="NAME",
        help="A memory function to measure; may be repeated (default: heaviside, impulse and "
        "reversed; repeat and context feed tokens).",
    ),
]
Probes = Annotated[
    list[str] | None,
    option(
        "--probe",
        metavar="NAME",
        help="A measurement, instead of the default ones; may be repeated (default: "
        f"{', '.join(DEFAULT_PROBES)}; on request: {', '.join(ON_REQUEST)}).",
    ),
]
Adapter = Annotated[
    str | None,
    option(
        "--adapter",
        metavar="NAME",
        help="The adapter to open the source with.",
    ),
]
Device = Annotated[
    str,
    option("--device", help="auto, cpu, cuda, cuda:1, mps, xpu."),
]
Dtype = Annotated[
    str,
    option(
        "--dtype",
        help="auto, float64, float32, bfloat16, float16.",
    ),
]
Revision = Annotated[
    str | None,
    option(
        "--revision",
        help="Branch, tag or commit of a hub repository.",
    ),
]
Settings = Annotated[
    list[str] | None,
    option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of the adapter (memaudit list adapters) or of the audit: epsilon, "
        "amplitudes, normalization, baseline, words, max_bytes, max_tensors, max_header, or of a "
        "probe, as in stability.ball=max-abs (memaudit list probes); may be repeated.",
    ),
]
Text = Annotated[
    Path | None,
    option(
        "--text",
        metavar="FILE",
        help="A text for the queries that feed tokens, and for the spectrum over data (default: "
        "a small one in the package).",
    ),
]
Seed = Annotated[
    int,
    option(
        "--seed",
        min=0,
        metavar="N",
        help="Seed of the random probes.",
    ),
]
Offline = Annotated[
    bool,
    flag(
        "--offline",
        help="Use no network.",
    ),
]
Timeout = Annotated[
    float | None,
    option(
        "--timeout",
        metavar="S",
        help="Seconds that the hub may be silent, or one call of a plugin may take (default: 60; "
        "a plugin's probe an hour, its loading without limit).",
    ),
]
AllowPickle = Annotated[
    bool,
    flag(
        "--allow-pickle",
        help="Open files that pickle more than tensors; their objects become inert, none is run.",
    ),
]
TrustRemoteCode = Annotated[
    bool,
    flag(
        "--trust-remote-code",
        help="Let an adapter run Python code that comes with the model.",
    ),
]
Quick = Annotated[
    bool,
    flag(
        "--quick",
        help="Fewer probes, sooner done.",
    ),
]
Thorough = Annotated[
    bool,
    flag(
        "--thorough",
        help="More probes, tighter bounds.",
    ),
]
JsonFile = Annotated[
    str | None,
    option(
        "--json",
        metavar="FILE",
        help="Write the JSON report; - is stdout, which then holds nothing else.",
    ),
]
HtmlFile = Annotated[
    str | None,
    option(
        "--html",
        metavar="FILE",
        help="Write the report as one page for a browser, which needs no network.",
    ),
]
MarkdownFile = Annotated[
    str | None,
    option(
        "--markdown",
        metavar="FILE",
        help="Write a section for a model card; - is stdout.",
    ),
]
OutputPath = Annotated[
    str | None,
    option(
        "--output-path",
        "-o",
        metavar="FILE",
        help="Write the numbers to exactly this file, in the layout of lm-evaluation-harness.",
    ),
]
Reports = Annotated[
    list[str] | None,
    option(
        "--report",
        metavar="NAME=FILE",
        help="Write a report in a format of `memaudit list reports`; may be repeated.",
    ),
]
FailOn = Annotated[
    list[str] | None,
    option(
        "--fail-on",
        metavar="LEVEL|CODE|NAME<N",
        help="Exit with 1 at a finding of that level (note, warning, error) or above, or of that "
        'code, or at a number: "horizon<100", "impulse.half_life <= 10", "margin<1e-4", with < <= '
        "> >= == != and any name of report.metrics(). What could not be measured hits the gate; a "
        "horizon beyond the window counts as infinite. May be repeated.",
    ),
]
ChangedFailOn = Annotated[
    list[str] | None,
    option(
        "--fail-on",
        metavar="NAME<N%|new-LEVEL|…",
        help='Exit with 1 at a change: "horizon<-20%" when the horizon shrank by more than 20 %, '
        '"rate>+10%", "margin != 0%"; at a finding that is new: new-warning, new-MA201; or at '
        "whatever scan --fail-on takes, of AFTER. What only one report has hits the gate. May be "
        "repeated.",
    ),
]
Quiet = Annotated[
    bool,
    flag(
        "--quiet",
        "-q",
        help="Print one line, the verdict, and show no progress.",
    ),
]
Verbose = Annotated[
    bool,
    flag(
        "--verbose",
        "-v",
        help="Print the whole report instead of a summary that fits one screen.",
    ),
]
NoProgress = Annotated[
    bool,
    flag(
        "--no-progress",
        help="Show no progress: no bar on a terminal, no lines in a log.",
    ),
]
Debug = Annotated[
    bool,
    flag(
        "--debug",
        help="Show tracebacks and warnings.",
    ),
]
