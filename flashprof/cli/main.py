"""`flashprof`: commands are imported when they are called, so that `--help` takes no longer than it must."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import click

from flashprof import __version__
from flashprof.contracts.failures import failure_of
from flashprof.contracts.streams import make_streams_last

COMMANDS = MappingProxyType(
    {
        "run": ("flashprof.cli.run", "Measure one cell: tok/s, the phase that limits it, a flamegraph."),
        "compare": ("flashprof.cli.compare", "Is a candidate slower? Effect, interval, verdict, cost."),
        "bisect": ("flashprof.cli.bisect", "Which toggles, or which commit, made it slower? With the proof."),
        "gate": ("flashprof.cli.gate", "May a change land? Base and head in turn, for CI."),
        "history": ("flashprof.cli.history", "Tok/s over time: levels, changes, what was lost in small steps."),
        "report": ("flashprof.cli.report", "One page of all runs, comparisons and bisects; needs no network."),
        "export": ("flashprof.cli.export", "Write runs for Perfetto, speedscope, flamegraph.pl, pandas."),
        "calibrate": ("flashprof.cli.calibrate", "What this machine can tell apart, and in how many minutes."),
        "doctor": ("flashprof.cli.doctor", "What this machine can and cannot measure, and how to fix it."),
    }
)
INTERRUPTED = 130
"""128 + SIGINT, as shells expect."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and summaries without importing them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; of these Click would make status 1, which is a regression, and an interruption."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, EOFError) as error:
            raise failure_of(error) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of a first use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Summaries from the table above: click would import every command for them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Offer the nearest name for an unknown command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            nearest = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            ctx.fail(f"No such command {args[0]!r}.{hint} Commands: {', '.join(COMMANDS)}.")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flashprof")
def flashprof() -> None:
    """
    Find out why training got slower: which phase limits, which change did it, and the proof.

    Start with `flashprof run`; ask `flashprof compare none compile` what a change does; see `flashprof doctor` if
    something is odd.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """
    Entry point: every error is rendered here and nowhere else, and none ends with the status of a verdict.

    Args:
        args: The command line without the program's name; None for the process's own.
    """
    make_streams_last()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Under nohup SIGHUP is ignored, and must stay so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        status = flashprof(args=args, prog_name="flashprof", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001, Python's own status for it is that of a regression
        failure = failure_of(error)
        click.echo(str(failure), err=True)
        sys.exit(failure.exit_code)


def _interrupt(number: int, frame: Any) -> None:
    del number, frame
    raise KeyboardInterrupt
