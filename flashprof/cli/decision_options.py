"""What commands share that measure, and that end in a verdict: their options, and the status that says it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from flashprof.cli.option_types import NamedPath, share_between
from flashprof.contracts.comparison import Verdict

STATUS = MappingProxyType({Verdict.NO_REGRESSION: 0, Verdict.REGRESSION: 1, Verdict.INCONCLUSIVE: 3})
FAILED = 4
INTERRUPTED = 130
"""128 + SIGINT, as shells expect."""
Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def rule_options(alpha_help: str) -> Decorator:
    """
    Decorate a command with what is clear enough.

    Args:
        alpha_help: Of what it is a share.
    """
    return combined(
        click.option(
            "--alpha",
            default="1%",
            callback=share_between(1e-6, 0.05, example="1%"),
            show_default=True,
            metavar="SHARE",
            help=alpha_help,
        ),
        click.option(
            "--tolerance",
            default="1%",
            callback=share_between(0.0, 0.5, example="1%"),
            show_default=True,
            metavar="SHARE",
            help="Smaller slow-downs are none.",
        ),
    )


def allow_option(command: Command) -> Command:
    """Decorate a command with what may differ between cells though nobody asks about it."""
    return click.option(
        "--allow", multiple=True, metavar="NAME", help="A fact of the cells that may differ, or a section."
    )(command)


def gpus_option(command: Command) -> Command:
    """Decorate a command with the GPUs of its launches."""
    return click.option(
        "--gpus", "gpu_texts", multiple=True, metavar="0,1;2,3", help="GPUs of a launch; several sets are used in turn."
    )(command)


def fresh_option(command: Command) -> Command:
    """Decorate a command that goes on where an earlier call stopped, if it is not told otherwise."""
    return click.option("--fresh", is_flag=True, help="Put aside what an earlier call has measured.")(command)


def dry_run_option(command: Command) -> Command:
    """Decorate a command that can say its plan."""
    return click.option("--dry-run", is_flag=True, help="Print the plan and its cost, start nothing.")(command)


def reports_option(command: Command) -> Command:
    """Decorate a command with the folder of all runs, studies and searches."""
    return click.option("--reports", default="reports", show_default=True, type=NamedPath(path_type=Path))(command)


def json_option(text: str) -> Decorator:
    """
    Decorate a command that can answer in JSON.

    Args:
        text: Its help.
    """
    return click.option("--json", "as_json", is_flag=True, help=text)


def answer_options(command: Command) -> Command:
    """Decorate a command with how its answer is given."""
    return combined(
        click.option("--inconclusive", type=click.Choice(["pass", "fail"]), help="Exit 0 or 1 instead of 3."),
        reports_option,
        json_option("Print the result for programs."),
    )(command)


def verdict_status(verdict: Verdict, inconclusive: str | None, *, has_failures: bool) -> int:
    """
    A verdict as a status.

    Args:
        verdict: Of a comparison or search that was neither interrupted nor failed as a whole.
        inconclusive: `pass` or `fail`, in place of 3.
        has_failures: Whether a launch failed on the way: then it never passes.
    """
    if verdict is not Verdict.INCONCLUSIVE or inconclusive is None:
        return STATUS[verdict]
    if inconclusive == "fail":
        return STATUS[Verdict.REGRESSION]
    return STATUS[Verdict.INCONCLUSIVE] if has_failures else STATUS[Verdict.NO_REGRESSION]


def combined(*options: Decorator) -> Decorator:
    """
    Decorate a command with several options.

    Args:
        options: In the order in which the help shows them.
    """

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
