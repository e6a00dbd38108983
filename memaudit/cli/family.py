"""`memaudit family`: audit models of growing size together."""

from __future__ import annotations

import typer

from memaudit.cli import family_options, options


def family(
    sources: family_options.Members,
    *,
    target: family_options.TargetName = None,
    ball: family_options.Ball = "spectral",
    norm: family_options.Norm = "sobolev",
    group: family_options.WeightGroup = "all",
    draws: family_options.Draws = 30,
    ascent: family_options.Ascent = 10,
    beta: family_options.Betas = None,
    steps: family_options.Steps = 100,
    adapter: options.Adapter = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    settings: options.Settings = None,
    seed: options.Seed = 0,
    offline: options.Offline = False,
    timeout: options.Timeout = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    json_file: options.JsonFile = None,
    fail_on: options.FailOn = None,
    no_progress: options.NoProgress = False,
    debug: options.Debug = False,
) -> None:
    """Audit models of growing size: do larger ones stand smaller moves of their weights?

    Exits: 0 clean, 1 gate hit, 2 arguments, 3 source, 5 machine, 130 interrupted
    (143 by SIGTERM, 129 by a lost terminal).
    """
    from memaudit.cli.family_order import checked_family, perform_family

    moves = {"target": target, "ball": ball, "norm": norm, "group": group, "draws": draws}
    moves |= {"ascent": ascent, "betas": beta or None, "steps": steps, "seed": seed}
    access = {
        "offline": offline,
        "timeout": timeout,
        "trust_remote_code": trust_remote_code,
        "allow_pickle": allow_pickle,
    }
    order = checked_family(
        sources,
        arguments={**moves, "adapter": adapter, "device": device, "dtype": dtype, **access},
        settings=settings or (),
        json_file=json_file,
        fail_on=fail_on or (),
    )
    raise typer.Exit(perform_family(order, progress=not no_progress, debug=debug))
