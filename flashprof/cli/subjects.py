"""What `run` and `compare` share: the options that describe our pipeline's cell, and how they are read."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import EXAMPLE, Toggle

Command = Callable[..., Any]

WORKLOAD_OPTIONS = (
    click.option("--preset", default="tiny", show_default=True, help="Workload: python -m pipeline presets."),
    click.option("--topology", default="1+1", show_default=True, help="Targets + drafters."),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0)),
    click.option("--train", "train_options", default="", metavar="OPTIONS", help='For the pipeline: "--data FILE …".'),
    click.option("--set", "settings", multiple=True, metavar="SECTION.FIELD=VALUE", help="E.g. windows.measure_s=10."),
)


def workload_options(command: Command) -> Command:
    """Decorate a command with the options of our pipeline's cell, toggles apart."""
    for option in reversed(WORKLOAD_OPTIONS):
        command = option(command)
    return command


def split_options(train_options: str) -> tuple[str, ...]:
    """
    The words of `--train`, as a shell would read them.

    Raises:
        UsageError: A quote is left open.
    """
    try:
        return tuple(shlex.split(train_options))
    except ValueError as error:
        raise UsageError(
            f"--train is no command line: {error}",
            offered=train_options,
            allowed="options as a shell would read them",
            next_command="--train '--data FILE --accumulate 2'",
        ) from error


def read_registry() -> tuple[Toggle, ...]:
    """
    The toggles of the pipeline that would be started from here.

    Raises:
        ToolError: It cannot be asked.
    """
    from flashprof.app.subject import read_toggles

    return read_toggles(os.environ, Path.cwd())


def print_toggles(registry: Sequence[Toggle]) -> None:
    """One line a toggle, and what the cell `none` is."""
    width = max((len(toggle.name) for toggle in registry), default=0)
    for toggle in registry:
        kind = "hot " if toggle.hot else "cold"
        needs = f"; needs {', '.join(toggle.needs)}" if toggle.needs else ""
        click.echo(f"{toggle.name:{width}}  {kind}  {toggle.allowed:7}  {toggle.help}{needs}")
    defaults = ", ".join(f"{toggle.name} {toggle.default}" for toggle in registry if toggle.default is not False)
    click.echo(f"\nIn the cell `none` all are off{f', but {defaults}' if defaults else ''}. Expressions: {EXAMPLE}")
