"""`flashprof compare`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import click

from flashprof.app.progress import Progress
from flashprof.cli.arms import check_method, find_runs, read_arms, read_settings, refuse_unfit_runs
from flashprof.cli.decision_options import (
    FAILED,
    INTERRUPTED,
    allow_option,
    answer_options,
    dry_run_option,
    fresh_option,
    gpus_option,
    rule_options,
    verdict_status,
)
from flashprof.cli.option_types import minutes, parse_gpu_sets
from flashprof.cli.subjects import (
    OWN_COMMAND,
    find_subject,
    read_registry,
    refuse_pipeline_options,
    split_options,
    subject_option,
    workload_options,
)
from flashprof.contracts.comparison import DecisionRule, StudyResult
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, Sampling, SubjectSpec
from flashprof.contracts.study import CompareRequest, MethodChoice

if TYPE_CHECKING:
    from flashprof.app.session import Ports
    from flashprof.cli.arms import Arms
    from flashprof.contracts.foreign import ForeignSubject

EPILOG = """
\b
Examples
  flashprof compare none compile,swa            what do the two bring together?
  flashprof compare all all,-swa --screen       a quick look: one launch, switched while it runs
  flashprof compare none expandable --gpus '0,1;2,3' --budget 60
  flashprof compare none compile --dry-run      the plan and what it costs; starts nothing
  flashprof compare reports/monday reports/tuesday --allow machine.host
\b
The same command resumes where it was stopped, and reuses what it has measured.
A folder that holds a run is taken for a run; write a toggle of the same name as swa=on.
\b
Exit status: 0 no regression, 1 regression, 2 wrong input, 3 inconclusive (see --inconclusive),
4 the subject or FlashProf failed, 130 interrupted.
"""
LAUNCH_OPTIONS = (
    *("preset", "topology", "seed", "train_options", "settings", "subject_text", "method", "screen", "no_explain"),
    *("budget_min", "gpu_texts", "dry_run", "fresh"),
)
"""Say how to start what is measured; runs that exist take none of them."""


class Engine(Protocol):
    """What the command line asks of `flashprof.app.compare`; tests put another in `Context.obj`."""

    def plan(self, request: CompareRequest, ports: Ports) -> Sequence[str]:
        """What would be launched, and what it costs, as lines."""
        ...

    def compare(self, request: CompareRequest, ports: Ports, progress: Progress) -> StudyResult:
        """Measure both arms until the answer is clear or the budget spent."""
        ...

    def compare_runs(
        self,
        bases: Sequence[Path],
        candidates: Sequence[Path],
        rule: DecisionRule,
        *,
        allow: Sequence[str],
        reports: Path,
    ) -> StudyResult:
        """Compare runs that were measured earlier."""
        ...


@click.command("compare", epilog=EPILOG)
@click.argument("base")
@click.argument("candidate")
@workload_options
@subject_option
@click.option(
    "--method",
    default="auto",
    show_default=True,
    type=click.Choice([choice.value for choice in MethodChoice]),
    help="hot: switched in one process. cold: launch by launch.",
)
@click.option("--screen", is_flag=True, help="Hot blocks only, without launches that confirm them.")
@click.option("--no-explain", is_flag=True, help="Without the two launches with samplers that name frames.")
@rule_options("Share of false alarms allowed, ever.")
@click.option(
    "--budget",
    "budget_min",
    default="10",
    show_default=True,
    metavar="MINUTES",
    callback=minutes,
    help="Most that may be spent on measuring.",
)
@allow_option
@gpus_option
@dry_run_option
@fresh_option
@answer_options
@click.pass_context
def command(  # noqa: PLR0913, the signature is the command line
    ctx: click.Context,
    *,
    base: str,
    candidate: str,
    preset: str,
    topology: str,
    seed: int,
    train_options: str,
    settings: tuple[str, ...],
    subject_text: str,
    method: str,
    screen: bool,
    no_explain: bool,
    alpha: float,
    tolerance: float,
    budget_min: float,
    allow: tuple[str, ...],
    gpu_texts: tuple[str, ...],
    dry_run: bool,
    fresh: bool,
    inconclusive: str | None,
    reports: Path,
    as_json: bool,
) -> int:
    """
    Say whether CANDIDATE is slower than BASE, by how much, and how sure that is.

    Both are toggle expressions of our pipeline, or of the trainer that flashprof.toml declares, whose launches are
    interleaved; or both are folders with runs that `flashprof run` has measured.
    """
    rule = DecisionRule(alpha=alpha, tolerance=tolerance, budget_s=60 * budget_min)
    runs = (find_runs(base), find_runs(candidate))
    if any(runs):
        return _report(_compare_measured(ctx, runs, rule), as_json=as_json, inconclusive=inconclusive)
    subject = SubjectSpec(preset=preset, topology=topology, seed=seed, train_options=split_options(train_options))
    experiment = read_settings(subject, settings)
    declared = find_subject(subject_text)
    arms = read_arms(base, candidate, read_registry(declared))
    request = CompareRequest(
        base=arms.base,
        candidate=arms.candidate,
        cold_toggles=arms.cold_toggles,
        upstream_toggles=arms.upstream_toggles,
        subject=_subject(experiment.subject, arms, declared),
        windows=experiment.windows,
        rule=rule,
        method=MethodChoice(method),
        confirm=not screen,
        explain=not no_explain,
        allow=allow,
        gpu_sets=parse_gpu_sets(gpu_texts),
        fresh=fresh,
        reports=reports,
    )
    check_method(request)
    if dry_run:
        return _print_plan(_engine(ctx).plan(request, _wire(request, declared)), declared, as_json=as_json)
    return _report(_measure(_engine(ctx), request, declared), as_json=as_json, inconclusive=inconclusive)


def exit_status(result: StudyResult, inconclusive: str | None) -> int:
    """
    The verdict as a status.

    Args:
        result: What was found.
        inconclusive: `pass` or `fail`, in place of 3. A failed launch never passes.
    """
    from flashprof.report.compare_sentences import is_failed

    if result.is_interrupted:
        return INTERRUPTED
    if is_failed(result):
        return FAILED
    return verdict_status(result.verdict, inconclusive, has_failures=bool(result.failures))


def _engine(ctx: click.Context) -> Engine:
    if ctx.obj is not None:
        return cast("Engine", ctx.obj)
    from flashprof.app import compare

    return compare


def _compare_measured(
    ctx: click.Context, runs: tuple[Sequence[Path], Sequence[Path]], rule: DecisionRule
) -> StudyResult:
    names = (ctx.params["base"], ctx.params["candidate"])
    refuse_unfit_runs(names, runs)
    _refuse_launch_options(ctx)
    return _engine(ctx).compare_runs(*runs, rule, allow=ctx.params["allow"], reports=ctx.params["reports"])


def _refuse_launch_options(ctx: click.Context) -> None:
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name in LAUNCH_OPTIONS
        and ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"{given[0]} is for launches; these runs are measured already",
            offered=" ".join(given),
            allowed="--alpha, --tolerance, --allow, --inconclusive, --reports, --json",
            next_command="flashprof compare BASE_TOGGLES CANDIDATE_TOGGLES",
        )


def _subject(subject: SubjectSpec, arms: Arms, declared: ForeignSubject | None) -> SubjectSpec:
    """What both arms share."""
    if declared is None:
        return replace(subject, toggles=arms.base.expression)
    from flashprof.app.foreign import declared_spec
    from flashprof.app.foreign_needs import refuse_unmet

    refuse_pipeline_options(subject, ("preset", "topology", "train_options"), next_command=OWN_COMMAND)
    for arm in (arms.base, arms.candidate):
        declared.settings(arm.values)
    refuse_unmet(declared, [arms.base.values, arms.candidate.values], os.environ)
    # The seed draws the order of launches; the trainer never sees it.
    return replace(declared_spec(declared, arms.base.expression), seed=subject.seed)


def _wire(request: CompareRequest, declared: ForeignSubject | None) -> Ports:
    from flashprof.app.foreign import declared_ports
    from flashprof.app.wiring import wire

    # No samplers: verdicts come from measure windows only (design §4.1).
    sampling = Sampling(stacks="off", resources="off")
    experiment = Experiment(subject=request.subject, windows=request.windows, sampling=sampling)
    ports = wire(experiment, os.environ, Path.cwd())
    return ports if declared is None else declared_ports(ports, declared)


def _measure(engine: Engine, request: CompareRequest, declared: ForeignSubject | None) -> StudyResult:
    from flashprof.cli.terminal import progress_on_stderr

    with progress_on_stderr() as progress:
        if declared is not None:
            progress.note(f"subject: {declared.title}")
        try:
            return engine.compare(request, _wire(request, declared), progress)
        except KeyboardInterrupt:
            progress.note("what was measured is kept: the same command goes on from here")
            raise


def _print_plan(plan: Sequence[str], declared: ForeignSubject | None, *, as_json: bool) -> int:
    lines = [*([] if declared is None else [f"subject   {declared.title}"]), *plan]
    if as_json:
        import json

        click.echo(json.dumps({"plan": lines}, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(lines))
    return 0


def _report(result: StudyResult, *, as_json: bool, inconclusive: str | None) -> int:
    from flashprof.cli.terminal import output_width, wants_color

    if as_json:
        from flashprof.store.study_result import study_to_json

        click.echo(study_to_json(result), nl=False)
    else:
        from flashprof.report.compare_console import render_study

        is_tty = sys.stdout.isatty()
        color = wants_color(os.environ, is_tty=is_tty)
        width = output_width(is_tty=is_tty)
        click.echo(render_study(result, color=color, width=width), nl=False, color=color)
    return exit_status(result, inconclusive)
