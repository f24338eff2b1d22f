"""What `run` and `compare` share: which subject is meant, the options of our pipeline's cell, and how they are read."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashprof.cli.decision_options import Command, combined
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.toggles import EXAMPLE, Toggle

if TYPE_CHECKING:
    from flashprof.contracts.foreign import ForeignSubject

PIPELINE = "pipeline"
"""What `--subject` calls our own."""
OWN_COMMAND = "--subject pipeline measures our own; a declared command takes its options in flashprof.toml"

WORKLOAD_OPTIONS = (
    click.option("--preset", default="tiny", show_default=True, help="Workload: python -m pipeline presets."),
    click.option("--topology", default="1+1", show_default=True, help="Targets + drafters."),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0)),
    click.option("--train", "train_options", default="", metavar="OPTIONS", help='For the pipeline: "--data FILE …".'),
    click.option("--set", "settings", multiple=True, metavar="SECTION.FIELD=VALUE", help="E.g. windows.measure_s=10."),
)


def workload_options(command: Command) -> Command:
    """Decorate a command with the options of our pipeline's cell, toggles apart."""
    return combined(*WORKLOAD_OPTIONS)(command)


def subject_option(command: Command) -> Command:
    """Decorate a command with the choice between our pipeline and a declared subject."""
    return click.option(
        "--subject",
        "subject_text",
        default="",
        metavar="FILE",
        help="A trainer's declaration (docs/foreign.md), or `pipeline`; default: flashprof.toml here, else pipeline.",
    )(command)


def find_subject(text: str) -> ForeignSubject | None:
    """
    The declared subject that is meant.

    Args:
        text: Of `--subject`; empty for what lies here.

    Returns:
        None where it is our pipeline.

    Raises:
        UsageError: The declaration is missing or wrong.
    """
    from flashprof.store.subject_file import find_subject_file, read_subject

    if text == PIPELINE:
        return None
    path = Path(text) if text else find_subject_file(Path())
    return read_subject(path) if path is not None else None


def refuse_pipeline_options(subject: SubjectSpec, names: Sequence[str], *, next_command: str) -> None:
    """
    Make sure that nothing was asked of our pipeline where another subject is measured.

    Args:
        subject: As the options and settings describe it.
        names: Its fields that mean nothing there.
        next_command: What the user may do instead.

    Raises:
        UsageError: One of them is not at its default.
    """
    default = SubjectSpec()
    for name in names:
        if getattr(subject, name) != getattr(default, name):
            raise UsageError(
                f"--{name.partition('_')[0]} is for our own pipeline; a foreign trainer has its options in its command",
                offered=f"{name}: {getattr(subject, name)}",
                next_command=next_command,
            )


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


def check_pattern(pattern: str) -> None:
    """
    Look at the expression of `--tok-per-s` before anything is started; it may be empty.

    Raises:
        UsageError: It is none.
    """
    from flashprof.app.log_readings import compile_pattern

    if pattern:
        compile_pattern(pattern)


def read_registry(declared: ForeignSubject | None = None) -> tuple[Toggle, ...]:
    """
    The toggles of a declared subject, or of the pipeline that would be started from here.

    Raises:
        ToolError: It cannot be asked.
    """
    if declared is not None:
        return declared.registry()
    from flashprof.app.subject import read_toggles

    return read_toggles(os.environ, Path.cwd())


def print_toggles(registry: Sequence[Toggle], title: str = "", *, as_json: bool = False) -> None:
    """One line a toggle, and what the cell `none` is; or one JSON array."""
    if as_json:
        names = ("name", "hot", "default", "on", "allowed", "help", "needs", "requires")
        rows = [{name: getattr(toggle, name) for name in names} for toggle in registry]
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    if title:
        click.echo(f"Toggles of {title}\n")
    width = max((len(toggle.name) for toggle in registry), default=0)
    for toggle in registry:
        kind = "hot " if toggle.hot else "cold"
        needs = f"; needs {', '.join(toggle.needs)}" if toggle.needs else ""
        needs += f"; requires {', '.join(toggle.requires)}" if toggle.requires else ""
        click.echo(f"{toggle.name:{width}}  {kind}  {toggle.allowed:7}  {toggle.help}{needs}")
    defaults = ", ".join(f"{toggle.name} {toggle.default}" for toggle in registry if toggle.default is not False)
    click.echo(f"\nIn the cell `none` all are off{f', but {defaults}' if defaults else ''}. Expressions: {EXAMPLE}")


def split_command(args: Sequence[str], *, usual: str) -> tuple[list[str], tuple[str, ...]]:
    """
    Part what is the command line's own from the trainer's command behind the first `--`; empty without one.

    Args:
        args: Of the command.
        usual: What to type instead.

    Raises:
        UsageError: Nothing stands behind `--`.
    """
    if "--" not in args:
        return list(args), ()
    place = args.index("--")
    command = tuple(args[place + 1 :])
    if not command:
        raise UsageError("there is no command behind --", allowed="a trainer's command line", next_command=usual)
    return list(args[:place]), command
