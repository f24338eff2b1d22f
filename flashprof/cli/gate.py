"""`flashprof gate`: may a change land? For CI."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import click

from flashprof.cli.decision_options import (
    FAILED,
    INTERRUPTED,
    allow_option,
    answer_options,
    dry_run_option,
    fresh_option,
    gpus_option,
    verdict_status,
)
from flashprof.cli.gate_request import USUAL, GateOptions, read_gate_request
from flashprof.cli.option_types import NamedPath, duration_s, share_between
from flashprof.cli.subjects import split_command, subject_option, workload_options
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.gate import GateRequest, GateResult

if TYPE_CHECKING:
    from flashprof.app.search_progress import SearchProgress
    from flashprof.app.session import Ports
    from flashprof.report.gate_files import Outlets

COMMAND = "flashprof.gate.command"
"""Key in `Context.meta` of what stands behind `--`."""
WRITE_EXAMPLE = "--write junit=junit.xml --write comment=comment.md"
EPILOG = """
\b
Examples
  flashprof gate --base-ref main                       is this tree slower than where it left main?
  flashprof gate --base-ref main --max-regression 2% --threshold start-up=10% --budget 30m
  flashprof gate --base-ref main --bisect              and which commit, if it is
  flashprof gate --base-ref main --setup 'uv sync --frozen' -- .venv/bin/python train.py
  flashprof gate --base-ref main --dry-run             the plan and what it costs; starts nothing
\b
The same command goes on where it was stopped. On GitHub it also writes the step summary, outputs and annotations.
\b
Exit status: 0 may land, 1 regression, 2 wrong input, 3 inconclusive (see --inconclusive),
4 base, head or FlashProf failed, 130 interrupted.
"""


class Engine(Protocol):
    """What the command line asks of `flashprof.app.gate`; tests put another in `Context.obj`."""

    def plan(self, request: GateRequest, ports: Ports) -> Sequence[str]:
        """What would be launched, and what it costs, as lines."""
        ...

    def gate(self, request: GateRequest, ports: Ports, progress: SearchProgress) -> GateResult:
        """Measure base and head until the answer is clear or the budget spent."""
        ...


class GateCommand(click.Command):
    """A command whose `--` is followed by another."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind the first `--` from being parsed."""
        own, ctx.meta[COMMAND] = split_command(args, usual=f"{USUAL} -- CMD")
        return super().parse_args(ctx, own)


def _length_s(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else duration_s(ctx, param, value)


@click.command("gate", cls=GateCommand, epilog=EPILOG, options_metavar="[OPTIONS] [-- CMD ...]")
@click.option("--base-ref", default="", metavar="REVISION", help="What head is compared with: where it left this.")
@click.option("--head-ref", default="", metavar="REVISION", help="Of head.  [default: the tree as it lies here]")
@click.option("--baseline", default="", metavar="NAME", help="In place of --base-ref: launches measured earlier.")
@click.option(
    "--max-regression",
    default="3%",
    callback=share_between(0.001, 0.5, example="3%"),
    show_default=True,
    metavar="SHARE",
    help="Most that tok/s may fall by.",
)
@click.option(
    "--threshold", "thresholds", multiple=True, metavar="METRIC=SHARE", help="Of start-up, memory, 'phase:ROLE NAME'."
)
@click.option("--repo", default=".", type=NamedPath(path_type=Path), help="Of base and head.  [default: here]")
@click.option("--setup", default="", metavar="SHELL", help="Makes a tree's environment: 'uv sync --frozen'.")
@click.option("--toggles", "expression", default="none", show_default=True, help="Of base and head.")
@click.option("--tok-per-s", "pattern", default="", metavar="REGEX", help="Where a foreign trainer prints tok/s.")
@workload_options
@subject_option
@click.option(
    "--alpha",
    default="1%",
    callback=share_between(1e-6, 0.05, example="1%"),
    show_default=True,
    metavar="SHARE",
    help="Of harmless changes that may fail, over all metrics.",
)
@click.option(
    "--budget",
    "budget_s",
    default="20m",
    show_default=True,
    metavar="TIME",
    callback=duration_s,
    help="Most that may be spent on measuring: 90s, 20m, 1.5h.",
)
@click.option("--no-explain", is_flag=True, help="Without the two launches with samplers that name frames.")
@click.option("--bisect", is_flag=True, help="On a regression, name the commit, with the rest of the budget.")
@click.option(
    "--bisect-budget", "bisect_budget_s", metavar="TIME", callback=_length_s, help="The same, with its own budget."
)
@allow_option
@gpus_option
@fresh_option
@dry_run_option
@click.option("--write", "writes", multiple=True, metavar="FORMAT=PATH", help="Also json, junit, comment, …")
@click.option("--comment-key", default="", metavar="TEXT", help="Tells the gates of one pull request apart.")
@answer_options
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """
    Say whether head may land: whether it is slower than base by more than is allowed, and how sure that is.

    Base and head are launched in turn on this machine, in random order, until the answer is clear. A harmless change
    fails in less than one gate of a hundred; what base, head or the machine do wrong is no regression, and has its own
    status.
    """
    answer = {name: params.pop(name) for name in ("dry_run", "writes", "comment_key", "inconclusive", "as_json")}
    copies = _copies(answer["writes"])
    request = read_gate_request(GateOptions(**params, command=ctx.meta.get(COMMAND, ())))
    if answer["dry_run"]:
        _print_plan(_engine(ctx).plan(request, _ports(request)), as_json=answer["as_json"])
        return 0
    result = _measure(_engine(ctx), request)
    outlets = _outlets(request, result, copies, answer)
    _show(result, outlets, as_json=answer["as_json"])
    _write(result, outlets)
    return exit_status(result, answer["inconclusive"])


def exit_status(result: GateResult, inconclusive: str | None) -> int:
    """
    The verdict as a status.

    Args:
        result: What was found.
        inconclusive: `pass` or `fail`, in place of 3. A gate whose launches failed never passes by it.
    """
    if result.is_interrupted:
        return INTERRUPTED
    if result.is_failed:
        return FAILED
    return verdict_status(result.verdict, inconclusive, has_failures=bool(result.failures))


def _engine(ctx: click.Context) -> Engine:
    if ctx.obj is not None:
        return cast("Engine", ctx.obj)
    from flashprof.app import gate

    return gate


def _ports(request: GateRequest) -> Ports:
    from flashprof.app.wiring import wire_quiet

    return wire_quiet(request.subject, request.windows, env=os.environ, cwd=Path.cwd(), declared=request.subject_file)


def _measure(engine: Engine, request: GateRequest) -> GateResult:
    from flashprof.cli.bisect_progress import search_progress_on_stderr

    with search_progress_on_stderr() as progress:
        try:
            return engine.gate(request, _ports(request), progress)
        except KeyboardInterrupt:
            progress.note("what was measured is kept: the same command goes on from here")
            raise


def _copies(texts: Sequence[str]) -> dict[str, Path]:
    """`junit=out.xml`: format → path."""
    from flashprof.app.gate_publish import refuse_unwritable
    from flashprof.report.gate_files import Format

    known = [kind.name.lower().replace("_", "-") for kind in Format]
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (equals and path):
            raise UsageError(
                f"--write does not take {text!r}",
                offered=text,
                allowed=f"FORMAT=PATH, formats {', '.join(known)}",
                next_command=WRITE_EXAMPLE,
            )
        if name not in known:
            raise UnknownNameError("format", name, known, next_command=WRITE_EXAMPLE)
        found[name] = Path(path)
    refuse_unwritable(found.values())
    return found


def _outlets(request: GateRequest, result: GateResult, copies: dict[str, Path], answer: dict[str, Any]) -> Outlets:
    from flashprof.launch.git import find_top
    from flashprof.report.gate_files import Format, Outlets

    top = find_top(request.repo)
    folder = dict(result.paths).get("gate")
    return Outlets(
        environ=os.environ,
        has_file=lambda name: (top / name).is_file(),
        token=secrets.token_hex(16),
        root=str(top.resolve()),
        folder=None if folder is None else Path(folder),
        copies={Format[name.upper().replace("-", "_")]: path for name, path in copies.items()},
        comment_key=answer["comment_key"],
        inconclusive=answer["inconclusive"],
    )


def _write(result: GateResult, outlets: Outlets) -> None:
    from flashprof.app.gate_publish import write_texts
    from flashprof.report.gate_files import gate_files

    for problem in write_texts(gate_files(result, outlets)):
        click.echo(f"note: {problem}", err=True)


def _print_plan(plan: Sequence[str], *, as_json: bool) -> None:
    click.echo(json.dumps({"plan": list(plan)}, indent=2, ensure_ascii=False) if as_json else "\n".join(plan))


def _show(result: GateResult, outlets: Outlets, *, as_json: bool) -> None:
    from flashprof.report.gate_files import gate_json_streams, gate_stdout

    if as_json:
        document, annotations = gate_json_streams(result, outlets)
        click.echo(document, nl=False)
        click.echo(annotations, nl=False, err=True)
        return
    from flashprof.cli.terminal import output_width, wants_color
    from flashprof.report.gate_console import render_gate

    is_tty = sys.stdout.isatty()
    color = wants_color(os.environ, is_tty=is_tty)
    drawn = render_gate(result, color=color, width=output_width(is_tty=is_tty))
    click.echo(gate_stdout(result, drawn, outlets), nl=False, color=color)
