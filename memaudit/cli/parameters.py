"""Parameters of commands, made from the one definition of the options.

A command is a function of keyword arguments; `takes` gives it the signature that typer reads. Every
option can be set by an environment variable: `--fail-on` is MEMAUDIT_FAIL_ON.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from memaudit.options import OPTIONS, Option

#: Options that only commands have.
COMMANDS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            "settings",
            "command",
            "An option of the adapter (memaudit list adapters) or of the audit: epsilon, "
            "amplitudes, normalization, baseline, words, max_bytes, max_tensors, max_header, or of "
            "a probe, as in stability.ball=max-abs (memaudit list probes); may be repeated.",
            flag="--set",
            metavar="KEY=VALUE",
            repeated=True,
        ),
        Option("quick", "command", "Fewer probes, sooner done.", False, bool, "--quick"),
        Option("thorough", "command", "More probes, tighter bounds.", False, bool, "--thorough"),
        Option(
            "json",
            "command",
            "Write the JSON report; - is stdout, which then holds nothing else.",
            flag="--json",
            metavar="FILE",
        ),
        Option(
            "html",
            "command",
            "Write the report as one page for a browser, which needs no network.",
            flag="--html",
            metavar="FILE",
        ),
        Option(
            "markdown",
            "command",
            "Write a section for a model card; - is stdout.",
            flag="--markdown",
            metavar="FILE",
        ),
        Option(
            "output_path",
            "command",
            "Write the numbers to exactly this file, in the layout of lm-evaluation-harness.",
            flag="--output-path/-o",
            metavar="FILE",
        ),
        Option(
            "report",
            "command",
            "Write a report in a format of `memaudit list reports`; may be repeated.",
            flag="--report",
            metavar="NAME=FILE",
            repeated=True,
        ),
        Option(
            "fail_on",
            "command",
            "Exit with 1 at a finding of that level (note, warning, error) or above, or of that "
            'code, or at a number: "horizon<100", "impulse.half_life <= 10", "margin<1e-4", with < '
            "<= > >= == != and any name of report.metrics(). What could not be measured hits the "
            "gate; a horizon beyond the window counts as infinite. May be repeated.",
            flag="--fail-on",
            metavar="LEVEL|CODE|NAME<N",
            repeated=True,
        ),
        Option(
            "quiet",
            "command",
            "Print one line, the verdict, and show no progress.",
            False,
            bool,
            "--quiet/-q",
        ),
        Option(
            "verbose",
            "command",
            "Print the whole report instead of a summary that fits one screen.",
            False,
            bool,
            "--verbose/-v",
        ),
        Option(
            "no_progress",
            "command",
            "Show no progress: no bar on a terminal, no lines in a log.",
            False,
            bool,
            "--no-progress",
        ),
        Option("debug", "command", "Show tracebacks and warnings.", False, bool, "--debug"),
    )
}
SOURCE = typer.Argument(
    metavar="SOURCE",
    help="A checkpoint file or folder, a hub id org/name\\[@revision], timm:NAME, or demo:NAME.",
    show_default=False,
)


def takes(*options: str | Option, **arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Give a function of keyword arguments these parameters.

    `options` are names of the table, or options of the command's own; `arguments` are positional
    ones by name, as (type, typer.Argument) or with a default behind that.
    """
    made = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=Annotated[argument[0], argument[1]],
            default=argument[2] if len(argument) > 2 else inspect.Parameter.empty,
        )
        for name, argument in arguments.items()
    ]
    made += [_parameter(o if isinstance(o, Option) else _known(o)) for o in options]

    def given(function: Any) -> Any:
        function.__signature__ = inspect.Signature(made)
        function.__annotations__ = {p.name: p.annotation for p in made}
        return function

    return given


def _known(name: str) -> Option:
    return COMMANDS[name] if name in COMMANDS else OPTIONS[name]


def _parameter(option: Option) -> inspect.Parameter:
    flags = option.flag.split("/") if "/-" in option.flag and "/--" not in option.flag else None
    kind: Any = list[option.kind] | None if option.repeated else option.kind
    if not option.repeated and option.default is None and not option.required:
        kind = option.kind | None
    limits: Any = {"min": option.low, "max": option.high} if option.kind in (int, float) else {}
    typed = typer.Option(
        *(flags or [option.flag]),
        envvar=option.variable,
        show_envvar=False,
        show_default=option.default not in (None, False) and not option.required,
        metavar="" if option.kind is bool else option.metavar,
        help=option.help,
        **limits,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, typed],
        default=inspect.Parameter.empty if option.required else option.default,
    )
