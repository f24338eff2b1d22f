"""`flashprof doctor`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from flashprof.cli.decision_options import json_option, reports_option
from flashprof.cli.terminal import wants_color
from flashprof.contracts.errors import UsageError


@click.command("doctor")
@reports_option
@json_option("For programs.")
def command(*, reports: Path, as_json: bool) -> int:
    """
    Say what this machine can and cannot measure, one line each, with the remedy.

    Exit status: 0, 2 for wrong input, or 4 where something is bad enough that a run would fail or mislead.
    """
    from flashprof.app.doctor import Status, examine

    if os.path.lexists(reports) and not reports.is_dir():
        raise UsageError(
            "the reports folder is no folder",
            where="--reports",
            offered=str(reports),
            allowed="a folder, there already or not",
            next_command="--reports DIRECTORY",
        )
    findings = examine(os.environ, reports)
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        colors = {Status.OK: "green", Status.WARN: "yellow", Status.BAD: "red"}
        color = wants_color(os.environ, is_tty=sys.stdout.isatty())
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            status = click.style(f"{finding.status:4}", fg=colors[finding.status])
            click.echo(f"{status}  {finding.subject:{width}}  {finding.text}", color=color)
            if finding.remedy:
                click.echo(f"      {'':{width}}  try: {finding.remedy}", color=color)
    return 4 if any(finding.status is Status.BAD for finding in findings) else 0
