"""The group of commands, and how errors reach the user."""

from __future__ import annotations

import sys

import click

from flashprof.contracts.errors import FlashProfError
from pipeline.cli.evaluate import evaluate
from pipeline.cli.export import export
from pipeline.cli.listing import presets, toggles
from pipeline.cli.regenerate import regenerate
from pipeline.cli.train import train

pipeline = click.Group(
    name="pipeline",
    help="The reference DFlash trainer.",
    commands=[train, evaluate, export, regenerate, toggles, presets],
)


def main() -> None:
    """Entry point: errors that a user can meet are printed, not raised."""
    try:
        pipeline(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except FlashProfError as error:
        click.echo("\n".join(error.lines()), err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(130)
