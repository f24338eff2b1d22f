"""`flashprof bisect`: a search, and the group of the commands that deal with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flashprof.cli.bisect_engine import declared_title, engine_of, exit_status, ports_for, show
from flashprof.cli.bisect_here import here
from flashprof.cli.bisect_options import TOGGLE_SEARCH, BisectOptions
from flashprof.cli.bisect_request import read_request, resumed_request
from flashprof.cli.bisect_steps import find_search, log, skip, status, undo
from flashprof.cli.decision_options import (
    allow_option,
    answer_options,
    dry_run_option,
    fresh_option,
    gpus_option,
    rule_options,
)
from flashprof.cli.option_types import NamedPath, duration_s, share_between
from flashprof.cli.subjects import split_command, subject_option, workload_options
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.search import SearchResult
from flashprof.contracts.search_request import BisectRequest, request_from_json
from flashprof.contracts.toggles import EXAMPLE

COMMAND = "flashprof.bisect.command"
"""Key in `Context.meta` of what stands behind `--`."""
USAGE = "[COMMAND] [-- CMD ...]"
EPILOG = """
\b
Examples
  flashprof bisect --good all --bad none        which toggles cause the drop?
  flashprof bisect --good reports/monday --bad reports/tuesday
  flashprof bisect --commits v1.2..HEAD         which commit, for our pipeline
  flashprof bisect --commits v1.2..HEAD --setup 'uv sync --frozen' -- python train.py
  flashprof bisect --good all --bad none --dry-run     the plan and what it costs; starts nothing
  flashprof bisect --resume --budget 60m        go on with the latest search
  git bisect run flashprof bisect here --good reports/monday --bad reports/tuesday
\b
All that is measured is kept: after Ctrl-C or a crash, --resume goes on. A folder that holds a run is taken for a run.
\b
Exit status: 0 good and bad are alike, 1 a regression is found and proved, 2 wrong input, 3 inconclusive
(see --inconclusive), 4 the subject or FlashProf failed, 130 interrupted.
"""


class BisectGroup(click.Group):
    """A group whose own options make a search, and whose `--` is followed by a command that is no subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind the first `--` from being parsed."""
        own, ctx.meta[COMMAND] = split_command(args, usual="flashprof bisect --commits GOOD..BAD -- CMD")
        return super().parse_args(ctx, own)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Ends of a search are no commands, though `compare` takes them so."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise UnknownNameError("command of bisect", args[0], self.commands, next_command=TOGGLE_SEARCH)
        return super().resolve_command(ctx, args)


@click.group(
    "bisect",
    cls=BisectGroup,
    commands=[status, log, undo, skip, here],
    invoke_without_command=True,
    subcommand_metavar=USAGE,
    epilog=EPILOG,
)
@click.option("--good", default="", metavar="CELL", help=f"The fast end: {EXAMPLE}, or a run.")
@click.option("--bad", default="", metavar="CELL", help="The slow end.")
@click.option("--commits", default="", metavar="GOOD..BAD", help="Search the commits between the two instead.")
@click.option("--repo", default=".", type=NamedPath(path_type=Path), help="Of the commits.  [default: here]")
@click.option("--setup", default="", metavar="SHELL", help="Makes a commit's environment: 'uv sync --frozen'.")
@click.option("--toggles", "expression", default="none", show_default=True, help="With --commits: of every commit.")
@click.option(
    "--tok-per-s", "pattern", default="", metavar="REGEX", help="With --commits: where a foreign trainer prints tok/s."
)
@workload_options
@subject_option
@click.option(
    "--certainty",
    default="95%",
    callback=share_between(0.5, 0.9999, example="95%"),
    show_default=True,
    metavar="SHARE",
    help="Probability at which a hypothesis goes to the proof.",
)
@rule_options("Share of searches without a cause that may prove one.")
@click.option(
    "--budget",
    "budget_s",
    default="30m",
    show_default=True,
    metavar="TIME",
    callback=duration_s,
    help="Most that may be spent on measuring: 90s, 30m, 1.5h.",
)
@click.option("--no-confirm", is_flag=True, help="Prove within launches only, without confirming by others.")
@click.option("--no-explain", is_flag=True, help="Without the two launches with samplers that name frames.")
@allow_option
@gpus_option
@click.option("--resume", is_flag=True, help="Go on with the latest search; needs no other option.")
@click.option("--search", default="", metavar="NAME", help="With --resume: another search than the latest.")
@fresh_option
@dry_run_option
@answer_options
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int | None:
    """
    Find what made training slower: which toggles, or which commit, with the proof.

    Between a fast and a slow cell it measures those that tell most, until one explanation is likely; then it shows
    that each culprit alone slows the good cell, and that the bad cell is fast without it. Behind -- stands the command
    that is started in each commit's worktree; without one it is what flashprof.toml declares here, else our pipeline.
    """
    given = [name for name in params if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    words = ctx.meta.get(COMMAND, ())
    if ctx.invoked_subcommand is not None:
        _refuse_before_subcommand(ctx, given, words)
        return None
    options = BisectOptions(**params, command=words, given=given)
    request = _resumed(options) if options.resume else read_request(options)
    if options.dry_run:
        _print_plan(ctx, request, as_json=options.as_json)
        return 0
    result = _measure(ctx, request)
    show(result, as_json=options.as_json)
    return exit_status(result, options.inconclusive)


def _refuse_before_subcommand(ctx: click.Context, given: list[str], words: tuple[str, ...]) -> None:
    if given or words:
        name = ctx.invoked_subcommand
        raise UsageError(
            f"{name} takes its options behind its name, and no others",
            offered=f"{', '.join(given)} in front of {name}" if given else f"-- {' '.join(words)}",
            next_command=f"flashprof bisect {name} --help",
        )


def _resumed(options: BisectOptions) -> BisectRequest:
    from flashprof.store.search_folder import read_search

    path = find_search(options.reports, options.search)
    stored = request_from_json(read_search(path).request)
    # A search that is named with its folder lies there.
    return resumed_request(options, stored, reports=path.parent)


def _print_plan(ctx: click.Context, request: BisectRequest, *, as_json: bool) -> None:
    ports = ports_for(request.subject, request.windows, request.subject_file)
    title = declared_title(ports)
    lines = [*([f"subject   {title}"] if title else []), *engine_of(ctx).plan(request, ports)]
    if as_json:
        import json

        click.echo(json.dumps({"plan": lines}, indent=2, ensure_ascii=False))
        return
    click.echo("\n".join(lines))


def _measure(ctx: click.Context, request: BisectRequest) -> SearchResult:
    from flashprof.cli.bisect_progress import search_progress_on_stderr

    with search_progress_on_stderr() as progress:
        try:
            ports = ports_for(request.subject, request.windows, request.subject_file)
            if title := declared_title(ports):
                progress.note(f"subject: {title}")
            return engine_of(ctx).bisect(request, ports, progress)
        except KeyboardInterrupt:
            progress.note("what was measured is kept: flashprof bisect --resume goes on from here")
            raise
