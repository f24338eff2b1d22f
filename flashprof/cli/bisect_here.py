"""`flashprof bisect here`: a script for `git bisect run`, for those who want git to choose the commits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from flashprof.cli.arms import find_runs, refuse_unfit_runs
from flashprof.cli.bisect_engine import engine_of, ports_for
from flashprof.cli.decision_options import allow_option, reports_option, rule_options
from flashprof.cli.measured_runs import MeasuredRun, common_subject, common_toggles, read_run
from flashprof.cli.option_types import duration_s
from flashprof.cli.subjects import PIPELINE, find_subject, subject_option
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.failures import failure_of
from flashprof.contracts.search_request import HereRequest, HereResult, HereStatus

if TYPE_CHECKING:
    from flashprof.contracts.foreign import ForeignSubject

STATUS = MappingProxyType({HereStatus.GOOD: 0, HereStatus.BAD: 1, HereStatus.SKIP: 125})
ABORT = 128
"""`git bisect run` stops at this; every status from 1 to 127 but 125 would blame the commit."""
EPILOG = """
\b
  git bisect start BAD_COMMIT GOOD_COMMIT
  git bisect run flashprof bisect here --good reports/monday --bad reports/tuesday
\b
Exit status: 0 good, 1 bad, 125 skip (the subject failed, or it cannot be told), 128 abort (wrong input, or FlashProf
failed), 130 interrupted.
"""


class HereCommand(click.Command):
    """A command whose every failure of its own ends with a status that stops `git bisect run`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse; wrong options would end with status 2, which git takes for a bad commit."""
        with _aborting():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run."""
        with _aborting():
            return super().invoke(ctx)


@click.command("here", cls=HereCommand, epilog=EPILOG)
@click.option("--good", required=True, metavar="RUN", help="A run of a fast commit, or a folder of such runs.")
@click.option("--bad", required=True, metavar="RUN", help="A run of a slow commit, or a folder of such runs.")
@rule_options("Share of commits that may be called wrong.")
@click.option(
    "--budget", "budget_s", default="10m", show_default=True, metavar="TIME", callback=duration_s, help="A commit."
)
@subject_option
@allow_option
@reports_option
@click.pass_context
def here(  # noqa: PLR0913, the signature is the command line
    ctx: click.Context,
    *,
    good: str,
    bad: str,
    alpha: float,
    tolerance: float,
    budget_s: float,
    subject_text: str,
    allow: tuple[str, ...],
    reports: Path,
) -> int:
    """
    Say for `git bisect run` whether the tree that is checked out is good or bad.

    Measures here what the runs of a good and of a bad commit have measured, and says which it is like.
    """
    from flashprof.cli.bisect_progress import search_progress_on_stderr

    rule = DecisionRule(alpha=alpha, tolerance=tolerance, budget_s=budget_s)
    goods, bads = _find_ends(good, bad)
    runs = [read_run(path) for path in (*goods, *bads)]
    subject, declared = _subject(runs, subject_text)
    request = HereRequest(
        good=goods,
        bad=bads,
        subject=subject,
        subject_file=str(declared.path.resolve()) if declared is not None else "",
        windows=runs[0].windows,
        rule=rule,
        allow=allow,
        reports=reports,
    )
    with search_progress_on_stderr() as progress:
        try:
            ports = ports_for(request.subject, request.windows, request.subject_file)
            result = engine_of(ctx).here(request, ports, progress)
        except SubjectError as error:
            result = HereResult(status=HereStatus.SKIP, reason=f"{error.outcome}: {error.what}")
    click.echo(f"{result.status}: {result.reason}")
    return STATUS[result.status]


def _find_ends(good: str, bad: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    goods, bads = find_runs(good), find_runs(bad)
    if not goods and not bads:
        raise UsageError(
            "neither side is a run",
            offered=f"--good {good} --bad {bad}",
            allowed="run folders, or folders with runs",
            next_command="flashprof run, once at a good commit and once at a bad one",
        )
    refuse_unfit_runs((good, bad), (goods, bads))
    return goods, bads


def _subject(runs: Sequence[MeasuredRun], subject_text: str) -> tuple[SubjectSpec, ForeignSubject | None]:
    """What the runs measured, to be measured here; and its declaration, where it has one."""
    from flashprof.app.declared_commits import DECLARATION

    subject = common_subject(runs)
    toggles = common_toggles("--good and --bad", runs) if any(run.toggles for run in runs) else ""
    fingerprints = {dict(run.subject.facts).get(DECLARATION, "") for run in runs}
    if fingerprints == {""}:
        return _undeclared(subject, subject_text), None
    declared = find_subject(subject_text)
    if declared is None or fingerprints != {declared.fingerprint}:
        raise UsageError(
            "the declaration here is not that of the runs",
            where=str(declared.path) if declared is not None else "no flashprof.toml here",
            offered=declared.fingerprint if declared is not None else None,
            allowed=f"the one with which all runs were measured: {', '.join(sorted(fingerprints))}",
            next_command="--subject FILE, a copy that no checkout changes, with cwd = the full path of this tree",
        )
    return _declared_subject(subject, declared, toggles), declared


def _declared_subject(subject: SubjectSpec, declared: ForeignSubject, toggles: str) -> SubjectSpec:
    from flashprof.app.foreign import declared_spec
    from flashprof.app.foreign_needs import refuse_unmet

    refuse_unmet(declared, [declared.parse(toggles)], os.environ)
    return replace(declared_spec(declared, toggles, pattern=subject.tok_per_s_pattern), seed=subject.seed)


def _undeclared(subject: SubjectSpec, subject_text: str) -> SubjectSpec:
    """Our pipeline, or a command that knows nothing of FlashProf."""
    if subject_text not in ("", PIPELINE):
        raise UsageError(
            "the runs are of no declared trainer",
            offered=f"--subject {subject_text}",
            allowed="runs that were measured with that declaration",
            next_command="the same command without --subject",
        )
    if subject.kind is not SubjectKind.FOREIGN:
        return subject
    from flashprof.app.log_readings import DEFAULT_PATTERN

    # Never empty: the runs had a throughput, so one is waited for.
    return replace(subject, tok_per_s_pattern=subject.tok_per_s_pattern or DEFAULT_PATTERN)


@contextmanager
def _aborting() -> Iterator[None]:
    try:
        yield
    except (click.exceptions.Exit, click.Abort):
        raise
    except click.ClickException as error:
        error.show()
        raise click.exceptions.Exit(ABORT) from error
    except Exception as error:
        # Python's own status for a bug is 1: git would blame the commit for ours.
        failure = failure_of(error)
        failure.exit_code = ABORT
        raise failure from error
