"""`flashprof calibrate`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashprof.cli.decision_options import INTERRUPTED, dry_run_option, fresh_option, json_option, reports_option
from flashprof.cli.option_types import minutes as read_minutes
from flashprof.cli.subjects import read_registry, split_options, workload_options
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, SubjectKind, SubjectSpec, apply_settings
from flashprof.contracts.toggles import EXAMPLE

if TYPE_CHECKING:
    from flashprof.app.calibrate import Calibrated, CalibrateRequest, Runner

EPILOG = """
\b
Examples
  flashprof calibrate                           10 minutes, 6 launches of the tiny preset
  flashprof calibrate --toggles all --minutes 60 --launches 12
  flashprof calibrate --launches 0              make the page again from what was measured
\b
The same command adds launches. Exit status: 0 calibrated, 2 wrong input, 4 the subject or FlashProf failed,
130 interrupted; what was measured is kept, and gives a page from two launches on.
"""
NO_SETTINGS = ("sampling.", "output.", "subject.")
MIN_LAUNCH_MIN = 0.5
"""Start-up and warm-up of the tiny preset take 20 s; a launch of less than half a minute holds next to nothing."""


@click.command("calibrate", epilog=EPILOG)
@click.option("--toggles", "expression", default="compile,swa", show_default=True, help=f"In both arms: {EXAMPLE}")
@workload_options
@click.option("--minutes", default="10", show_default=True, callback=read_minutes, help="For all launches together.")
@click.option("--launches", default=6, show_default=True, type=click.IntRange(0, 1000), help="0: the page only.")
@fresh_option
@dry_run_option
@reports_option
@json_option("Print the calibration for programs.")
@click.pass_context
def command(  # noqa: PLR0913, the signature is the command line
    ctx: click.Context,
    *,
    expression: str,
    preset: str,
    topology: str,
    seed: int,
    train_options: str,
    settings: tuple[str, ...],
    minutes: float,
    launches: int,
    fresh: bool,
    dry_run: bool,
    reports: Path,
    as_json: bool,
) -> int:
    """
    Compare a cell with itself, to learn what this machine can tell apart.

    Writes a page: how often equal cells are called different, whether stated intervals hold the truth, the smallest
    slow-down that is found in so many minutes, where the noise comes from, and settings. compare reads it.
    """
    subject = SubjectSpec(
        preset=preset, topology=topology, toggles=expression, seed=seed, train_options=split_options(train_options)
    )
    _refuse_short(minutes, launches)
    request = _request(subject, settings, minutes=minutes, num_launches=launches, reports=reports, fresh=fresh)
    if dry_run:
        _print_plan(request, as_json=as_json)
        return 0
    done = _calibrate(request, ctx.obj)
    _show(done, as_json=as_json)
    return INTERRUPTED if done.is_interrupted else 0


def _refuse_short(minutes: float, launches: int) -> None:
    if launches and minutes / launches < MIN_LAUNCH_MIN:
        raise UsageError(
            "the launches are too short to hold blocks",
            offered=f"--minutes {minutes:g} --launches {launches}: {60 * minutes / launches:.0f} s a launch",
            allowed=f"{60 * MIN_LAUNCH_MIN:.0f} s a launch or more",
            next_command=f"--minutes {max(1.0, launches * MIN_LAUNCH_MIN):g}, or fewer --launches",
        )


def _request(
    subject: SubjectSpec, settings: tuple[str, ...], *, minutes: float, num_launches: int, reports: Path, fresh: bool
) -> CalibrateRequest:
    from flashprof.app.calibrate import CalibrateRequest
    from flashprof.app.subject import pipeline_command
    from flashprof.contracts.toggles import format_toggles, parse_toggles

    for setting in settings:
        if setting.startswith(NO_SETTINGS):
            raise UsageError(
                f"--set {setting} does nothing in a calibration",
                offered=setting,
                allowed="windows.…",
                next_command="flashprof calibrate --help",
            )
    windows = apply_settings(Experiment(subject=subject), settings).windows
    registry = read_registry()
    subject = replace(subject, toggles=format_toggles(parse_toggles(subject.toggles, registry), registry))
    return CalibrateRequest(
        subject=replace(subject, kind=SubjectKind.PIPELINE, command=pipeline_command(subject)),
        registry=registry,
        windows=windows,
        minutes=minutes,
        num_launches=num_launches,
        reports=reports,
        fresh=fresh,
    )


def _print_plan(request: CalibrateRequest, *, as_json: bool) -> None:
    from flashprof.app.calibrate import plan

    lines = plan(request, os.environ, Path.cwd())
    if as_json:
        import json

        click.echo(json.dumps({"plan": lines}, indent=2))
    else:
        click.echo("\n".join(lines))


def _calibrate(request: CalibrateRequest, runner: Runner | None) -> Calibrated:
    """Measure; tests put another *runner* in `Context.obj`."""
    from flashprof.app.calibrate import calibrate
    from flashprof.app.run import run
    from flashprof.app.wiring import wire
    from flashprof.cli.terminal import progress_on_stderr
    from flashprof.contracts.experiment import Sampling

    quiet = Experiment(subject=request.subject, sampling=Sampling(stacks="off", resources="off"))
    ports = wire(quiet, os.environ, Path.cwd())
    with progress_on_stderr() as progress:
        return calibrate(request, ports, progress, runner=runner or run)


def _show(done: Calibrated, *, as_json: bool) -> None:
    from flashprof.cli.terminal import output_width, wants_color

    if as_json:
        from flashprof.store.calibration_file import calibration_to_json

        click.echo(calibration_to_json(done.calibration), nl=False)
        return
    from flashprof.report.calibration_console import render_calibration

    is_tty = sys.stdout.isatty()
    color = wants_color(os.environ, is_tty=is_tty)
    text = render_calibration(done.calibration, color=color, width=output_width(is_tty=is_tty))
    click.echo(text, nl=False, color=color)
