"""`flashprof export` without its command line: a run folder → files that other tools read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from flashprof import __version__
from flashprof.app.export_run import (
    SAMPLES,
    OpenRun,
    frame_rows,
    lane_profiles,
    open_run,
    read_lane_stacks,
    reading,
)
from flashprof.contracts.errors import FormatError, UnknownNameError, UsageError
from flashprof.contracts.profiles import StackView
from flashprof.sample.threads import FILE_NAME as THREADS_FILE
from flashprof.sample.threads import ThreadUse, read_threads
from flashprof.store.export_events import EventFiles, find_event_files, read_gauges
from flashprof.store.export_output import new_files, text_output
from flashprof.store.export_profile import LaneProfile, folded_lines, speedscope_text
from flashprof.store.export_tables import TABLES, Row, TableFormat, TableSink, read_table
from flashprof.store.export_trace import RunFacts, write_trace


class StackFormat(StrEnum):
    """How stacks are written."""

    FOLDED = "folded"
    SPEEDSCOPE = "speedscope"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written."""

    paths: tuple[Path, ...]
    contents: str
    """`9,136 spans, 344 flows`."""
    notes: tuple[str, ...] = ()


def export_trace(path: Path, target: Path, *, force: bool = False) -> Exported:
    """
    Write a run as a Chrome trace.

    Args:
        path: The run folder.
        target: A file, `.gz` for a compressed one; `-` for standard output.
        force: Whether a file of that name may be replaced.

    Raises:
        UsageError: No run folder, one that cannot be read, or *target* cannot be written.
        ToolError: The disk is full.
    """
    run = open_run(path)
    with reading(run.path):
        files = find_event_files(run.path / "events")
    told = {name: run.manifest.get(name) for name in ("cell", "outcome", "reason", "flashprof")}
    facts = RunFacts(
        run_id=run.run_id,
        facts={**told, "cell_facts": run.manifest.get("cell_facts")},
        windows=run.summary.windows if run.summary else (),
        disturbances=run.disturbances,
        readings=run.readings,
    )
    with text_output(target, force=force) as write, reading(run.path):
        stats = write_trace(write, files, facts)
    left_out = [f"{stats.num_left_out:,} lines that hold no sound record are left out"] if stats.num_left_out else []
    return Exported(
        paths=(target,),
        contents=f"{stats.num_spans:,} spans, {stats.num_flows:,} flows",
        notes=(*run.notes, *stats.notes, *left_out),
    )


def export_stacks(
    path: Path,
    target: Path,
    *,
    kind: StackFormat,
    role: str = "",
    view: StackView = StackView.ALL,
    force: bool = False,
) -> Exported:
    """
    Write the stacks of a run's profile windows, by lane.

    Args:
        path: The run folder.
        target: A file, or `-` for standard output.
        kind: Folded stacks, or speedscope's format.
        role: Whose; empty for all.
        view: Which samples.
        force: Whether a file of that name may be replaced.

    Raises:
        UsageError: No run folder, no such stacks in it, or *target* cannot be written.
        ToolError: The disk is full.
    """
    run = open_run(path)
    with reading(run.path):
        lanes = _chosen(lane_profiles(read_lane_stacks(run.path)), run.path, role, view)
    with text_output(target, force=force) as write:
        if kind is StackFormat.FOLDED:
            write("".join(folded_lines(lanes)))
        else:
            write(speedscope_text(lanes, name=run.run_id, version=__version__))
    num_samples = sum(sum(lane.stacks.values()) for lane in lanes)
    return Exported(paths=(target,), contents=f"{num_samples:,} samples of {len(lanes)} lanes", notes=tuple(run.notes))


def export_tables(paths: Sequence[Path], folder: Path, *, kind: TableFormat, force: bool = False) -> Exported:
    """
    Write the tables of some runs, each table with the rows of all of them.

    Args:
        paths: Run folders of different names.
        folder: Where the tables go; made where it is not there.
        kind: CSV or Parquet.
        force: Whether files of these names may be replaced.

    Raises:
        UsageError: A folder is no run, two have one name, or the tables cannot be written.
        ToolError: The disk is full.
    """
    runs = [open_run(path) for path in paths]
    _refuse_twins(runs)
    targets = {table: folder / f"{table}.{kind}" for table in TABLES}
    with (
        new_files(list(targets.values()), force=force) as parts,
        TableSink({table: parts[target] for table, target in targets.items()}, kind) as sink,
    ):
        for run in runs:
            with reading(run.path):
                _add_run(sink, run)
    rows = ", ".join(f"{num_rows:,} {table}" for table, num_rows in sink.num_rows.items())
    notes = [f"{run.run_id}: {note}" for run in runs for note in run.notes]
    return Exported(paths=tuple(targets.values()), contents=rows, notes=tuple(notes))


def _chosen(lanes: Sequence[LaneProfile], path: Path, role: str, view: StackView) -> list[LaneProfile]:
    if not lanes:
        raise UsageError("the run has no stack samples", where=str(path / SAMPLES), next_command="flashprof doctor")
    roles = sorted({lane.role for lane in lanes})
    if role and role not in roles:
        raise UnknownNameError("role", role, roles, next_command="--role with one of them")
    chosen = [lane for lane in lanes if lane.view is view and role in ("", lane.role)]
    if not chosen:
        views = sorted({str(lane.view) for lane in lanes if role in ("", lane.role)})
        raise UsageError(
            f"the run has no samples of view {view}",
            where=str(path / SAMPLES),
            offered=str(view),
            allowed=", ".join(views),
            next_command=f"--view {views[0]}",
        )
    return chosen


def _refuse_twins(runs: Sequence[OpenRun]) -> None:
    by_name: dict[str, list[Path]] = defaultdict(list)
    for run in runs:
        by_name[run.run_id].append(run.path)
    for name, paths in by_name.items():
        if len(paths) > 1:
            raise UsageError(
                f"{len(paths)} runs are called {name}: their rows could not be told apart",
                offered=", ".join(map(str, paths)),
                next_command="give each once, or rename a folder",
            )


def _add_run(sink: TableSink, run: OpenRun) -> None:
    files = _event_files(run)
    zero_ns = files.zero_ns(run.readings) if files else run.readings[0].at_ns if run.readings else 0
    for table in ("phases", "lanes"):
        sink.add(table, run.run_id, read_table(run.path / f"{table}.parquet"))
    sink.add("windows", run.run_id, _window_rows(run, zero_ns))
    # Checks the whole folder, so before anything else of it is read.
    lanes = read_lane_stacks(run.path)
    for lane in lanes:
        sink.add("frames", run.run_id, frame_rows(lane))
    sink.add("threads", run.run_id, _thread_rows(run.path / SAMPLES))
    if files:
        sink.add("gauges", run.run_id, read_gauges(files, run.readings))


def _event_files(run: OpenRun) -> EventFiles | None:
    """None where a subject has no events: a foreign trainer's windows are of what it prints."""
    try:
        files = find_event_files(run.path / "events")
    except FormatError:
        raise
    except UsageError:
        return None
    run.notes.extend(files.refused)
    return files


def _window_rows(run: OpenRun, zero_ns: int) -> Iterator[Row]:
    for row in read_table(run.path / "windows.parquet"):
        reasons = run.disturbances.get(row["label"], ())
        yield {**row, "start_s": (row["start_ns"] - zero_ns) / 1e9, "disturbances": "; ".join(reasons)}


def _thread_rows(samples: Path) -> Iterator[Row]:
    for path in sorted(samples.glob(f"*/{THREADS_FILE}")):
        for use in read_threads(path):
            yield {"window": path.parent.name, **{name: getattr(use, name) for name in ThreadUse.__slots__}}
