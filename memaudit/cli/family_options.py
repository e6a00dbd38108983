"""The options that only `memaudit family` has, each with its environment variable."""

from __future__ import annotations

from typing import Annotated

import typer

from memaudit.cli.parameters import option
from memaudit.options import LONGEST, SHORTEST

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
    option(
        "--target",
        metavar="NAME|FILE",
        help="The functional that they approximate: exp:0.9, poly:1.1 or another of `memaudit list "
        "targets`, or a file with a kernel (default: the largest member).",
    ),
]
Ball = Annotated[
    str,
    option(
        "--ball",
        metavar="NAME",
        help="How the size of a move is measured: spectral, frobenius, max-abs.",
    ),
]
Norm = Annotated[
    str,
    option(
        "--norm",
        metavar="NAME",
        help="How the size of an error is measured: sobolev, sup, l1, mse.",
    ),
]
WeightGroup = Annotated[
    str,
    option(
        "--group",
        metavar="NAME",
        help="The weights that move: recurrent, input, readout, all.",
    ),
]
Draws = Annotated[
    int,
    option(
        "--draws",
        min=1,
        metavar="N",
        help="Random moves of every size.",
    ),
]
Ascent = Annotated[
    int,
    option(
        "--ascent",
        min=0,
        metavar="N",
        help="Steps of gradient ascent after them; 0 for none.",
    ),
]
Steps = Annotated[
    int,
    option(
        "--steps",
        min=SHORTEST,
        max=LONGEST,
        metavar="N",
        help="Steps of the inputs.",
    ),
]
Betas = Annotated[
    list[float] | None,
    option(
        "--beta",
        metavar="X",
        help="A size of the moves; may be repeated (default: 21 from 0.001 to 1).",
    ),
]
