"""`memaudit retrofit` and `memaudit fold`: recurrent weights into another form, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from memaudit import registry
from memaudit.cli.output import (
    check_common,
    imported,
    offline,
    print_document,
    quieted,
    say,
    to_stdout,
    waiting,
)
from memaudit.cli.parameters import COMMANDS, SOURCE, takes
from memaudit.errors import ArgumentError, MemauditError, clean
from memaudit.options import Option, parse_settings

#: What a scan is about, and a retrofit is not.
MEASURED = ("epsilon", "amplitudes", "normalization", "baseline", "words")
OUT = Option(
    "out",
    "command",
    "The folder to write; it must not be there yet, or be empty.",
    kind=Path,
    flag="--out",
    metavar="DIR",
    required=True,
)


@takes(
    Option(
        "reparam",
        "command",
        "The form, one of `memaudit list reparams`.",
        "best",
        flag="--reparam",
        metavar="NAME",
    ),
    OUT,
    Option(
        "project",
        "command",
        "Move modes that the form does not reach inside, say how far: another model.",
        False,
        bool,
        "--project",
    ),
    Option(
        "layers",
        "command",
        "A layer to retrofit, perhaps with wildcards; may be repeated (default: all).",
        flag="--layer",
        metavar="PATTERN",
        repeated=True,
    ),
    Option(
        "radius",
        "command",
        "Measure E(beta) before and after, which takes long.",
        False,
        bool,
        "--radius/--no-radius",
    ),
    *("adapter", "device", "dtype", "revision"),
    replace(
        COMMANDS["settings"],
        help="A constant of the form, such as a=0.5, or an option of the adapter (memaudit list "
        "adapters); may be repeated.",
    ),
    *("offline", "timeout", "trust_remote_code", "allow_pickle", "debug"),
    source=(str, SOURCE),
)
def retrofit(source: str, **given: Any) -> None:
    """Put recurrent weights into a stable form, without changing what the model computes.

    DIR holds the checkpoint as it was and the raw weights beside it; `memaudit fold` turns it back.
    Exits: 0 written, 2 arguments, 3 source or nothing recurrent, 5 machine, 130 interrupted.
    """
    check_common(given)
    reparam, out = given["reparam"], given["out"]
    constants, own = _split(reparam, given["settings"] or ())
    passed = ("project", "radius", "adapter", "device", "dtype", "revision", "offline", "timeout")
    passed += ("trust_remote_code", "allow_pickle")
    if given["offline"]:
        offline()
    try:
        with quieted(debug=given["debug"]), waiting("retrofitting"):
            done = imported("memaudit.retrofitting.folder").retrofit_source(
                source,
                out,
                reparam,
                layers=given["layers"] or None,
                constants=constants,
                **own,
                **{name: given[name] for name in passed},
            )
    except MemauditError as error:
        raise error.at(source) from error
    print_document(done.document(), verbose=True)
    say(f"{clean(out)} was written; memaudit fold {clean(out)} --out DIR turns it back")


def _split(reparam: str, pairs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The constants of the form, and the options of the adapter."""
    kind = registry.load(registry.find("reparams", reparam))
    known = [name for name in getattr(kind, "__dataclass_fields__", {}) if name != "time"]
    found = parse_settings(pairs)
    odd = next((name for name in found if name in MEASURED or "." in name), None)
    if odd is not None:
        raise ArgumentError(
            f"retrofit measures nothing that {odd} could be set for",
            hint="memaudit list adapters and memaudit list reparams show what can be set",
        )
    constants = {n: value for n, value in found.items() if n in known}
    return constants, {n: value for n, value in found.items() if n not in known}


@takes(
    OUT,
    "debug",
    folder=(Path, typer.Argument(metavar="DIR", help="A folder that memaudit retrofit wrote.")),
)
def fold(folder: Path, **given: Any) -> None:
    """Turn a retrofitted checkpoint back into its original format, trained or not.

    Exits: 0 written, 2 arguments, 3 DIR is no retrofit folder or is damaged, 5 machine.
    """
    try:
        with quieted(debug=given["debug"]), waiting("folding"):
            keys = imported("memaudit.retrofitting.folder").fold_folder(folder, given["out"])
    except MemauditError as error:
        raise error.at(folder) from error
    weights = "1 weight was" if len(keys) == 1 else f"{len(keys)} weights were"
    to_stdout(f"{weights} folded; {clean(given['out'])} was written\n")
