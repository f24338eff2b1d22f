"""`flashprof run`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashprof.cli.decision_options import FAILED, INTERRUPTED, json_option, reports_option
from flashprof.cli.subjects import (
    OWN_COMMAND,
    check_pattern,
    find_subject,
    print_toggles,
    read_registry,
    refuse_pipeline_options,
    split_options,
    subject_option,
    workload_options,
)
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, Output, SubjectKind, SubjectSpec, apply_settings
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary
from flashprof.contracts.toggles import EXAMPLE

if TYPE_CHECKING:
    from flashprof.contracts.foreign import ForeignSubject

OUR_FIELDS = ("preset", "topology", "seed", "train_options")
"""Of a subject, what no foreign trainer has."""
EPILOG = """
\b
Examples
  flashprof run --toggles compile,swa           our pipeline, two optimisations on
  flashprof run --toggles all,-swa --topology 2+1
  flashprof run -- torchrun train.py            any trainer: tok/s from its output, samplers, flamegraph
  flashprof run --toggles flash                 where flashprof.toml declares a trainer: that one (docs/foreign.md)
  flashprof run --tok-per-s 'speed: ([\\d.]+)' -- python train.py
\b
Exit status: 0 measured, 2 wrong input, 4 the subject or FlashProf failed, 130 interrupted.
"""


class RunCommand(click.Command):
    """Refuses `--` with nothing behind it, which Click takes for no `--` at all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A forgotten command must not start our own pipeline instead."""
        if args[-1:] == ["--"]:
            raise UsageError(
                "there is no command behind --", allowed="a trainer's command line", next_command="flashprof run -- CMD"
            )
        return super().parse_args(ctx, args)


@click.command("run", cls=RunCommand, epilog=EPILOG)
@click.option("--toggles", "expression", default="none", show_default=True, help=f"Toggle expression: {EXAMPLE}")
@click.option("--list-toggles", is_flag=True, help="List the toggles and end.")
@workload_options
@subject_option
@click.option("--tok-per-s", "pattern", default="", metavar="REGEX", help="Where a foreign trainer prints tok/s.")
@reports_option
@click.option("--run-id", default="", help="Name of the run folder; default: time and cell.")
@json_option("Print the summary for programs.")
@click.argument("foreign", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD ...]")
def command(  # noqa: PLR0913, the signature is the command line
    *,
    expression: str,
    list_toggles: bool,
    preset: str,
    topology: str,
    seed: int,
    train_options: str,
    settings: tuple[str, ...],
    subject_text: str,
    pattern: str,
    reports: Path,
    run_id: str,
    as_json: bool,
    foreign: tuple[str, ...],
) -> int:
    """Measure one cell: start the trainer, wait for steady state, measure and profile in turn, report."""
    declared = _declared(subject_text, foreign)
    if list_toggles:
        print_toggles(read_registry(declared), declared.title if declared else "", as_json=as_json)
        return 0
    subject = SubjectSpec(
        preset=preset,
        topology=topology,
        toggles=expression,
        seed=seed,
        train_options=split_options(train_options),
        tok_per_s_pattern=pattern,
    )
    experiment = apply_settings(Experiment(subject=subject, output=Output(reports=reports, run_id=run_id)), settings)
    experiment = _complete(experiment, foreign, declared)
    summary = _measure(experiment, declared)
    _show(summary, as_json=as_json)
    return _status(summary.outcome)


def _declared(subject_text: str, foreign: Sequence[str]) -> ForeignSubject | None:
    """The subject that a file declares; a command behind `--` wins over a file that merely lies here."""
    if foreign and subject_text:
        raise UsageError(
            "two subjects: --subject, and a command behind --",
            offered=f"--subject {subject_text} -- {' '.join(foreign)}",
            allowed="one of them",
        )
    return None if foreign else find_subject(subject_text)


def _complete(experiment: Experiment, foreign: Sequence[str], declared: ForeignSubject | None) -> Experiment:
    """Settle what the user left open: the command line, the normalised toggles, the run's name."""
    subject = experiment.subject
    if foreign:
        refuse_pipeline_options(
            subject, ("toggles", *OUR_FIELDS), next_command="flashprof run -- CMD --options-after --"
        )
        check_pattern(subject.tok_per_s_pattern)
        subject = replace(subject, kind=SubjectKind.FOREIGN, command=tuple(foreign))
    elif declared is not None:
        subject = _declared_subject(subject, declared)
    else:
        subject = _pipeline_subject(subject)
    run_id = experiment.output.run_id or _run_id(subject, declared)
    return replace(experiment, subject=subject, output=replace(experiment.output, run_id=run_id))


def _declared_subject(subject: SubjectSpec, declared: ForeignSubject) -> SubjectSpec:
    from flashprof.app.foreign import declared_spec
    from flashprof.app.foreign_needs import refuse_unmet

    refuse_pipeline_options(subject, OUR_FIELDS, next_command=OWN_COMMAND)
    check_pattern(subject.tok_per_s_pattern)
    spec = declared_spec(declared, subject.toggles, pattern=subject.tok_per_s_pattern)
    refuse_unmet(declared, [declared.parse(spec.toggles)], os.environ)
    return spec


def _pipeline_subject(subject: SubjectSpec) -> SubjectSpec:
    from flashprof.app.subject import pipeline_command
    from flashprof.contracts.toggles import format_toggles, parse_toggles

    if subject.tok_per_s_pattern:
        raise UsageError(
            "--tok-per-s is for foreign trainers; the pipeline's tokens are counted from its events",
            next_command="flashprof run --tok-per-s REGEX -- CMD ...",
        )
    if subject.kind is SubjectKind.FOREIGN:
        raise UsageError("there is no command to measure", next_command="flashprof run -- CMD ...")
    registry = read_registry()
    normal = format_toggles(parse_toggles(subject.toggles, registry), registry)
    subject = replace(subject, toggles=normal)
    return replace(subject, command=pipeline_command(subject))


def _run_id(subject: SubjectSpec, declared: ForeignSubject | None) -> str:
    if declared is not None:
        what = f"{declared.cwd.name}-{_toggles_name(subject)}"
    elif subject.kind is SubjectKind.FOREIGN:
        what = subject.command[0].rpartition("/")[2]
    else:
        what = f"{subject.preset}-{subject.topology}-{_toggles_name(subject)}"
    return re.sub(r"[^\w.+=-]", "-", f"{time.strftime('%Y%m%d-%H%M%S')}-{what}", flags=re.ASCII)[:80]


def _toggles_name(subject: SubjectSpec) -> str:
    return subject.toggles.replace(",", "-").replace("=", "")


def _measure(experiment: Experiment, declared: ForeignSubject | None) -> RunSummary:
    from flashprof.app.foreign import declared_ports
    from flashprof.app.history_runs import remember
    from flashprof.app.run import run
    from flashprof.app.wiring import wire
    from flashprof.cli.terminal import progress_on_stderr

    ports = wire(experiment, os.environ, Path.cwd())
    with progress_on_stderr() as progress:
        if declared is not None:
            progress.note(f"subject: {declared.title}, toggles: {experiment.subject.toggles}")
            ports = declared_ports(ports, declared, experiment.subject.toggles)
        summary = run(experiment, ports, progress)
        if note := remember(experiment.output.reports / summary.run_id, os.environ):
            progress.note(note)
        return summary


def _show(summary: RunSummary, *, as_json: bool) -> None:
    from flashprof.cli.terminal import output_width, wants_color

    if as_json:
        from flashprof.store.summary_file import summary_to_json

        click.echo(summary_to_json(summary), nl=False)
        return
    from flashprof.report.console import render_summary

    is_tty = sys.stdout.isatty()
    color = wants_color(os.environ, is_tty=is_tty)
    click.echo(render_summary(summary, color=color, width=output_width(is_tty=is_tty)), nl=False, color=color)


def _status(outcome: Outcome) -> int:
    if outcome is Outcome.INTERRUPTED:
        return INTERRUPTED
    return 0 if outcome is Outcome.COMPLETED else FAILED
