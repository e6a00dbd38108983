"""`memaudit retrofit`: put the recurrent weights of a checkpoint into another form."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from memaudit import registry
from memaudit.cli import options
from memaudit.cli.output import console, say, show
from memaudit.cli.parameters import flag, option
from memaudit.cli.starting import calm, check_device, check_dtype, imported
from memaudit.cli.waiting import waiting
from memaudit.errors import ArgumentError, MemauditError, clean
from memaudit.options import parse_settings

#: What a scan is about, and a retrofit is not.
MEASURED = ("epsilon", "amplitudes", "normalization", "baseline", "words")

Reparam = Annotated[
    str,
    option(
        "--reparam",
        metavar="NAME",
        help="The form, one of `memaudit list reparams`.",
    ),
]
Out = Annotated[
    Path,
    option(
        "--out",
        metavar="DIR",
        help="The folder to write; it must not be there yet, or be empty.",
    ),
]
Project = Annotated[
    bool,
    flag(
        "--project",
        help="Move modes that the form does not reach inside, and say how far.",
    ),
]
Layers = Annotated[
    list[str] | None,
    option(
        "--layer",
        metavar="PATTERN",
        help="A layer to retrofit, perhaps with wildcards; may be repeated (default: all).",
    ),
]
Radius = Annotated[
    bool | None,
    option(
        "--radius/--no-radius",
        show_default=False,
        help="Measure E(beta) before and after (default: where it is quick).",
    ),
]
Settings = Annotated[
    list[str] | None,
    option(
        "--set",
        metavar="KEY=VALUE",
        help="A constant of the form, such as a=0.5, or an option of the adapter (memaudit list "
        "adapters); may be repeated.",
    ),
]


def retrofit(
    source: options.SourceText,
    *,
    reparam: Reparam = "best",
    out: Out,
    project: Project = False,
    layer: Layers = None,
    radius: Radius = None,
    adapter: options.Adapter = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    revision: options.Revision = None,
    settings: Settings = None,
    offline: options.Offline = False,
    timeout: options.Timeout = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    debug: options.Debug = False,
) -> None:
    """Put recurrent weights into a stable form, without changing what the model computes.

    DIR holds the checkpoint as it was and the raw weights beside it; `memaudit fold` turns it back.
    Exits: 0 written, 2 arguments, 3 source or nothing recurrent, 5 machine, 130 interrupted.
    """
    check_device(device)
    check_dtype(dtype)
    if adapter is not None:
        registry.find("adapters", adapter)
    constants, own = _split(reparam, settings or ())
    arguments = {"adapter": adapter, "device": device, "dtype": dtype, "revision": revision}
    access = {"offline": offline, "timeout": timeout, "allow_pickle": allow_pickle}
    access["trust_remote_code"] = trust_remote_code
    if offline:  # huggingface_hub reads it when it is imported
        os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    try:
        with calm(debug=debug), waiting("retrofitting"):
            done = imported("memaudit.retrofitting.folder").retrofit_source(
                source,
                out,
                reparam,
                project=project,
                layers=layer or None,
                radius=radius,
                constants=constants,
                **own,
                **arguments,
                **access,
            )
    except MemauditError as error:
        raise error.at(source) from error
    _show(done)
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
    constants: dict[str, Any] = {n: value for n, value in found.items() if n in known}
    return constants, {n: value for n, value in found.items() if n not in known}


def _show(done: Any) -> None:
    from memaudit.reports.retrofit_page import retrofit_page
    from memaudit.reports.terminal import can_show_braille

    sheet = console()
    show(retrofit_page(done, ascii_only=not can_show_braille(sheet)), on=sheet)
