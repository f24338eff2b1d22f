"""`flashprof export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashprof.cli.decision_options import Command, combined
from flashprof.cli.option_types import NamedPath

if TYPE_CHECKING:
    from flashprof.app.export import Exported

VIEWS = ("all", "gil", "idle")
STDOUT = "-"
EPILOG = """
\b
Examples
  flashprof export trace reports/RUN                     RUN.trace.json.gz: drop it on https://ui.perfetto.dev
  flashprof export folded reports/RUN -o - | flamegraph.pl > run.svg
  flashprof export speedscope reports/RUN --role drafter
  flashprof export parquet reports/2026* tables/         pandas.read_parquet("tables/phases.parquet")
\b
What the files hold: docs/exporting.md. Exit status: 0 written, 2 wrong input, 4 the disk is full.
"""


@click.group("export", epilog=EPILOG)
def command() -> None:
    """Write a run for other tools: Perfetto, speedscope, flamegraph.pl, pandas, a spreadsheet."""


def _output_options(function: Command) -> Command:
    path = NamedPath(path_type=Path)
    return combined(
        click.argument("run", type=path),
        click.option(
            "-o", "--out", type=path, help="File to write; - for standard output. Default: named like the run."
        ),
        click.option("--force", is_flag=True, help="Replace a file of that name."),
    )(function)


def _stack_options(function: Command) -> Command:
    return combined(
        click.option("--role", default="", help="One role's stacks: target, drafter, …"),
        click.option("--view", default="all", show_default=True, type=click.Choice(VIEWS), help="Which samples."),
    )(function)


def _table_options(function: Command) -> Command:
    return combined(
        click.argument("runs", nargs=-1, required=True, type=NamedPath(path_type=Path), metavar="RUN..."),
        click.argument("folder", type=NamedPath(path_type=Path), metavar="DIR"),
        click.option("--force", is_flag=True, help="Replace tables of these names."),
    )(function)


@command.command("trace")
@_output_options
def trace(*, run: Path, out: Path | None, force: bool) -> int:
    """Lanes, steps, flows, gauges, windows and the machine, for Perfetto. Compressed where FILE ends with .gz."""
    from flashprof.app.export import export_trace

    return _tell(export_trace(run, _target(run, out, "trace.json.gz"), force=force))


@command.command("folded")
@_output_options
@_stack_options
def folded(*, run: Path, out: Path | None, force: bool, role: str, view: str) -> int:
    """Stack samples as folded stacks, for flamegraph.pl and inferno."""
    return _stacks("folded", "folded", run, out, {"force": force, "role": role, "view": view})


@command.command("speedscope")
@_output_options
@_stack_options
def speedscope(*, run: Path, out: Path | None, force: bool, role: str, view: str) -> int:
    """Stack samples for https://www.speedscope.app, one profile a lane."""
    return _stacks("speedscope", "speedscope.json", run, out, {"force": force, "role": role, "view": view})


@command.command("csv")
@_table_options
def csv(*, runs: tuple[Path, ...], folder: Path, force: bool) -> int:
    """Windows, phases, lanes, frames, threads and gauges as CSV files in DIR."""
    return _tables("csv", runs, folder, force=force)


@command.command("parquet")
@_table_options
def parquet(*, runs: tuple[Path, ...], folder: Path, force: bool) -> int:
    """Windows, phases, lanes, frames, threads and gauges as Parquet files in DIR, for pandas."""
    return _tables("parquet", runs, folder, force=force)


def _tables(kind: str, runs: tuple[Path, ...], folder: Path, *, force: bool) -> int:
    from flashprof.app.export import export_tables
    from flashprof.store.export_tables import TableFormat

    return _tell(export_tables(runs, folder, kind=TableFormat(kind), force=force))


def _stacks(kind: str, ending: str, run: Path, out: Path | None, options: dict[str, Any]) -> int:
    from flashprof.app.export import StackFormat, export_stacks
    from flashprof.contracts.profiles import StackView

    options["view"] = StackView(options["view"])
    return _tell(export_stacks(run, _target(run, out, ending), kind=StackFormat(kind), **options))


def _target(run: Path, out: Path | None, ending: str) -> Path:
    return out if out is not None else Path(f"{run.resolve().name}.{ending}")


def _tell(exported: Exported) -> int:
    """What was written, unless standard output is what was written to; notes never are."""
    for note in exported.notes:
        click.echo(f"note   {note}", err=True)
    if str(exported.paths[0]) != STDOUT:
        for path in exported.paths:
            click.echo(f"wrote  {path}  ({_size(path.stat().st_size)})")
        click.echo(f"holds  {exported.contents}")
    return 0


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.1f} KiB"
