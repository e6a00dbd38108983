"""The options that only `memaudit family` has, each with its environment variable."""

from __future__ import annotations

from typing import Annotated

import typer

from memaudit.settings import LONGEST, SHORTEST

Members = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Models of growing size: files, folders, hub ids, timm:NAME or demo:NAME.",
        show_default=False,
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME|FILE",
        envvar="MEMAUDIT_TARGET",
        show_envvar=False,
        help="The functional that they approximate: exp:0.9, poly:1.1 or another of `memaudit list "
        "targets`, or a file with a kernel (default: the largest member).",
    ),
]
Ball = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="MEMAUDIT_BALL",
        show_envvar=False,
        help="How the size of a move is measured: spectral, frobenius, max-abs.",
    ),
]
Norm = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="MEMAUDIT_NORM",
        show_envvar=False,
        help="How the size of an error is measured: sobolev, sup, l1, mse.",
    ),
]
WeightGroup = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="NAME",
        envvar="MEMAUDIT_GROUP",
        show_envvar=False,
        help="The weights that move: recurrent, input, readout, all.",
    ),
]
Draws = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        envvar="MEMAUDIT_DRAWS",
        show_envvar=False,
        help="Random moves of every size.",
    ),
]
Ascent = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        envvar="MEMAUDIT_ASCENT",
        show_envvar=False,
        help="Steps of gradient ascent after them; 0 for none.",
    ),
]
Steps = Annotated[
    int,
    typer.Option(
        min=SHORTEST,
        max=LONGEST,
        metavar="N",
        envvar="MEMAUDIT_STEPS",
        show_envvar=False,
        help="Steps of the inputs.",
    ),
]
Betas = Annotated[
    list[float] | None,
    typer.Option(
        "--beta",
        metavar="X",
        envvar="MEMAUDIT_BETA",
        show_envvar=False,
        help="A size of the moves; may be repeated (default: 21 from 0.001 to 1).",
    ),
]
