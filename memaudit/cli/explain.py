"""`memaudit explain`: what a finding means and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

from memaudit.cli.options import Debug
from memaudit.cli.output import to_stdout


def explain(
    code: Annotated[str, typer.Argument(help="A code such as MA102, or a name: growing-memory.")],
    *,
    debug: Debug = False,
) -> None:
    """Explain a finding: what was seen, why it matters, what to do."""
    import textwrap

    from memaudit.cli.rules import rule_named
    from memaudit.errors import clean

    del debug
    rule = rule_named(code)
    title = f"{clean(rule.code)} {clean(rule.name)} ({clean(rule.severities())})"
    body = textwrap.fill(clean(rule.explanation, limit=5000), width=80)
    to_stdout(f"{title}\n\n{body}\n")
