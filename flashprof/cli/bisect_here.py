"""`flashprof bisect here`: a script for `git bisect run`, for those who want git to choose the commits."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from flashprof.cli.arms import find_runs, refuse_unfit_runs
from flashprof.cli.bisect_engine import engine_of, ports_for
from flashprof.cli.measured_runs import common_subject, common_toggles, read_run
from flashprof.cli.option_types import duration_s, share_between
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.errors import FlashProfError, SubjectError, ToolError, UsageError
from flashprof.contracts.search_request import HereRequest, HereResult, HereStatus

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
@click.option(
    "--alpha",
    default="1%",
    show_default=True,
    callback=share_between(1e-6, 0.05, example="1%"),
    metavar="SHARE",
    help="Share of commits that may be called wrong.",
)
@click.option(
    "--tolerance",
    default="1%",
    show_default=True,
    callback=share_between(0.0, 0.5, example="1%"),
    metavar="SHARE",
    help="Smaller slow-downs are none.",
)
@click.option(
    "--budget", "budget_s", default="10m", show_default=True, metavar="TIME", callback=duration_s, help="A commit."
)
@click.option("--allow", multiple=True, metavar="NAME", help="A fact of the cells that may differ, or a section.")
@click.option("--reports", default="reports", show_default=True, type=click.Path(path_type=Path))
@click.pass_context
def here(
    ctx: click.Context,
    *,
    good: str,
    bad: str,
    alpha: float,
    tolerance: float,
    budget_s: float,
    allow: tuple[str, ...],
    reports: Path,
) -> int:
    """
    Say for `git bisect run` whether the tree that is checked out is good or bad.

    Measures here what the runs of a good and of a bad commit have measured, and says which it is like.
    """
    from flashprof.cli.bisect_progress import search_progress_on_stderr

    rule = DecisionRule(alpha=alpha, tolerance=tolerance, budget_s=budget_s)
    request = _request(good, bad, rule, allow=allow, reports=reports)
    with search_progress_on_stderr() as progress:
        try:
            ports = ports_for(request.subject, request.windows)
            result = engine_of(ctx).here(request, ports, progress)
        except SubjectError as error:
            result = HereResult(status=HereStatus.SKIP, reason=f"{error.outcome}: {error.what}")
    click.echo(f"{result.status}: {result.reason}")
    return STATUS[result.status]


def _request(good: str, bad: str, rule: DecisionRule, *, allow: tuple[str, ...], reports: Path) -> HereRequest:
    goods, bads = find_runs(good), find_runs(bad)
    if not goods and not bads:
        raise UsageError(
            "neither side is a run",
            offered=f"--good {good} --bad {bad}",
            allowed="run folders, or folders with runs",
            next_command="flashprof run, once at a good commit and once at a bad one",
        )
    refuse_unfit_runs((good, bad), (goods, bads))
    runs = [read_run(path) for path in (*goods, *bads)]
    subject = common_subject(runs)
    if any(run.toggles for run in runs):
        common_toggles("--good and --bad", runs)
    return HereRequest(
        good=goods, bad=bads, subject=subject, windows=runs[0].windows, rule=rule, allow=allow, reports=reports
    )


@contextmanager
def _aborting() -> Iterator[None]:
    try:
        yield
    except FlashProfError as error:
        error.exit_code = ABORT
        raise
    except click.ClickException as error:
        error.show()
        raise click.exceptions.Exit(ABORT) from error
    except OSError as error:
        failure = ToolError(f"{error.strerror or error}", where=str(error.filename or "while measuring"))
        failure.exit_code = ABORT
        raise failure from error
    except (click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        # Python's own status for a bug is 1: git would blame the commit for ours.
        traceback.print_exc()
        raise click.exceptions.Exit(ABORT) from error
