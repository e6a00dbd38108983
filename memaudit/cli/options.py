"""The options of the commands, each with its environment variable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memaudit.catalog import BUILT_IN, DEFAULT_PROBES
from memaudit.settings import LONGEST, SHORTEST

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
    typer.Option(
        min=SHORTEST,
        max=LONGEST,
        metavar="N",
        envvar="MEMAUDIT_HORIZON",
        show_envvar=False,
        help="Lags to measure.",
    ),
]
Queries = Annotated[
    list[str] | None,
    typer.Option(
        "--query",
        metavar="NAME",
        envvar="MEMAUDIT_QUERY",
        show_envvar=False,
        help="A memory function to measure; may be repeated (default: heaviside, impulse and "
        "reversed; repeat and context feed tokens).",
    ),
]
Probes = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        metavar="NAME",
        envvar="MEMAUDIT_PROBE",
        show_envvar=False,
        help="A measurement, instead of the default ones; may be repeated (default: "
        f"{', '.join(DEFAULT_PROBES)}; on request: {', '.join(ON_REQUEST)}).",
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar="MEMAUDIT_ADAPTER",
        show_envvar=False,
        help="The adapter to open the source with.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        envvar="MEMAUDIT_DEVICE", show_envvar=False, help="auto, cpu, cuda, cuda:1, mps, xpu."
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        envvar="MEMAUDIT_DTYPE",
        show_envvar=False,
        help="auto, float64, float32, bfloat16, float16.",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        envvar="MEMAUDIT_REVISION",
        show_envvar=False,
        help="Branch, tag or commit of a hub repository.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        envvar="MEMAUDIT_SET",
        show_envvar=False,
        help="An option of the adapter (memaudit list adapters) or of the audit: epsilon, "
        "amplitudes, normalization, baseline, words, max_bytes, max_tensors, max_header, or of a "
        "probe, as in stability.ball=max-abs (memaudit list probes); may be repeated.",
    ),
]
Text = Annotated[
    Path | None,
    typer.Option(
        "--text",
        metavar="FILE",
        envvar="MEMAUDIT_TEXT",
        show_envvar=False,
        help="A text for the queries that feed tokens, and for the spectrum over data (default: "
        "a small one in the package).",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        envvar="MEMAUDIT_SEED",
        show_envvar=False,
        help="Seed of the random probes.",
    ),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        metavar="",
        envvar="MEMAUDIT_OFFLINE",
        show_envvar=False,
        help="Use no network.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="S",
        envvar="MEMAUDIT_TIMEOUT",
        show_envvar=False,
        help="Seconds that the hub may be silent, or one call of a plugin may take (default: 60; "
        "a plugin's probe an hour, its loading without limit).",
    ),
]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        metavar="",
        envvar="MEMAUDIT_ALLOW_PICKLE",
        show_envvar=False,
        help="Open files that pickle more than tensors; their objects become inert, none is run.",
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        metavar="",
        envvar="MEMAUDIT_TRUST_REMOTE_CODE",
        show_envvar=False,
        help="Let an adapter run Python code that comes with the model.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        metavar="",
        envvar="MEMAUDIT_QUICK",
        show_envvar=False,
        help="Fewer probes, sooner done.",
    ),
]
Thorough = Annotated[
    bool,
    typer.Option(
        "--thorough",
        metavar="",
        envvar="MEMAUDIT_THOROUGH",
        show_envvar=False,
        help="More probes, tighter bounds.",
    ),
]
JsonFile = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        envvar="MEMAUDIT_JSON",
        show_envvar=False,
        help="Write the JSON report; - is stdout, which then holds nothing else.",
    ),
]
HtmlFile = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        envvar="MEMAUDIT_HTML",
        show_envvar=False,
        help="Write the report as one page for a browser, which needs no network.",
    ),
]
MarkdownFile = Annotated[
    str | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        envvar="MEMAUDIT_MARKDOWN",
        show_envvar=False,
        help="Write a section for a model card; - is stdout.",
    ),
]
OutputPath = Annotated[
    str | None,
    typer.Option(
        "--output-path",
        "-o",
        metavar="FILE",
        envvar="MEMAUDIT_OUTPUT_PATH",
        show_envvar=False,
        help="Write the numbers to exactly this file, in the layout of lm-evaluation-harness.",
    ),
]
Reports = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="NAME=FILE",
        envvar="MEMAUDIT_REPORT",
        show_envvar=False,
        help="Write a report in a format of `memaudit list reports`; may be repeated.",
    ),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="LEVEL|CODE|NAME<N",
        envvar="MEMAUDIT_FAIL_ON",
        show_envvar=False,
        help="Exit with 1 at a finding of that level (note, warning, error) or above, or of that "
        'code, or at a number: "horizon<100", "impulse.half_life <= 10", "margin<1e-4", with < <= '
        "> >= == != and any name of report.metrics(). What could not be measured hits the gate; a "
        "horizon beyond the window counts as infinite. May be repeated.",
    ),
]
ChangedFailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="NAME<N%|new-LEVEL|…",
        envvar="MEMAUDIT_FAIL_ON",
        show_envvar=False,
        help='Exit with 1 at a change: "horizon<-20%" when the horizon shrank by more than 20 %, '
        '"rate>+10%", "margin != 0%"; at a finding that is new: new-warning, new-MA201; or at '
        "whatever scan --fail-on takes, of AFTER. What only one report has hits the gate. May be "
        "repeated.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar="",
        envvar="MEMAUDIT_QUIET",
        show_envvar=False,
        help="Print one line, the verdict, and show no progress.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        metavar="",
        envvar="MEMAUDIT_VERBOSE",
        show_envvar=False,
        help="Print the whole report instead of a summary that fits one screen.",
    ),
]
NoProgress = Annotated[
    bool,
    typer.Option(
        "--no-progress",
        metavar="",
        envvar="MEMAUDIT_NO_PROGRESS",
        show_envvar=False,
        help="Show no progress: no bar on a terminal, no lines in a log.",
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        metavar="",
        envvar="MEMAUDIT_DEBUG",
        show_envvar=False,
        help="Show tracebacks and warnings.",
    ),
]
