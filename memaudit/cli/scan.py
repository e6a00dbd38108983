"""`memaudit scan`: audit one model."""

from __future__ import annotations

import typer

from memaudit.cli import options


def scan(
    source: options.SourceText,
    *,
    horizon: options.Horizon = 512,
    query: options.Queries = None,
    probe: options.Probes = None,
    adapter: options.Adapter = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    revision: options.Revision = None,
    settings: options.Settings = None,
    text: options.Text = None,
    seed: options.Seed = 0,
    offline: options.Offline = False,
    timeout: options.Timeout = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    quick: options.Quick = False,
    thorough: options.Thorough = False,
    json_file: options.JsonFile = None,
    html: options.HtmlFile = None,
    markdown: options.MarkdownFile = None,
    output_path: options.OutputPath = None,
    report: options.Reports = None,
    fail_on: options.FailOn = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    no_progress: options.NoProgress = False,
    debug: options.Debug = False,
) -> None:
    """Audit a model: how long does it remember, and how does that memory decay?

    Exits: 0 clean, 1 gate hit, 2 arguments, 3 source, 4 incomplete, 5 machine, 130 interrupted
    (143 by SIGTERM, 129 by a lost terminal).
    """
    from memaudit.cli.scanning import checked_order, perform

    choice = {"adapter": adapter, "device": device, "dtype": dtype, "revision": revision}
    access = {
        "offline": offline,
        "timeout": timeout,
        "trust_remote_code": trust_remote_code,
        "allow_pickle": allow_pickle,
    }
    order = checked_order(
        source,
        arguments={"horizon": horizon, "seed": seed, "text": text, **choice, **access},
        queries=query or (),
        probes=probe or (),
        settings=settings or (),
        levels={"quick": quick, "thorough": thorough},
        voices={"quiet": quiet, "verbose": verbose},
        files={"json": json_file, "html": html, "markdown": markdown, "lm-eval": output_path},
        reports=report or (),
        fail_on=fail_on or (),
    )
    raise typer.Exit(perform(order, progress=not (no_progress or quiet), debug=debug))
