"""The group of commands, and how errors reach the user."""

from __future__ import annotations

import sys
from typing import Any

import click

from flashprof.contracts.failures import failure_of
from flashprof.contracts.streams import make_streams_last
from pipeline.cli.evaluate import evaluate
from pipeline.cli.export import export
from pipeline.cli.listing import presets, toggles
from pipeline.cli.regenerate import regenerate
from pipeline.cli.train import train


class Commands(click.Group):
    """A group whose every failure reaches `main`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Click would end with a status of its own where a worker's pipe has broken."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, EOFError) as error:
            raise failure_of(error) from error


pipeline = Commands(
    name="pipeline",
    help="The reference DFlash trainer.",
    commands=[train, evaluate, export, regenerate, toggles, presets],
)


def main() -> None:
    """Entry point: errors are printed, not raised; none ends with 1, which is a regression to FlashProf."""
    make_streams_last()
    try:
        pipeline(standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as error:  # noqa: BLE001, whatever it is
        failure = failure_of(error)
        click.echo(str(failure), err=True)
        sys.exit(failure.exit_code)
