"""Recording → RunSummary, and the files of the run folder that are computed from events and samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashprof.app.launch_windows import launch_windows
from flashprof.app.measure import Recording
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.events import EventLog
from flashprof.contracts.experiment import Experiment, SubjectKind
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.profiles import FrameId, StackView
from flashprof.contracts.results import RunSummary, ThreadRow, Window, WindowKind
from flashprof.report.console import render_summary
from flashprof.report.flame import render_flame_page
from flashprof.report.markdown import render_markdown
from flashprof.sample.folded import Stack, hottest_frames
from flashprof.sample.phase_lines import PhaseLines, keep_phase_lines
from flashprof.sample.profiles import lane_stacks, read_stacks
from flashprof.sample.stack_files import StackFile
from flashprof.sample.threads import FILE_NAME, pool_threads, read_threads
from flashprof.stats.interval import sampling_cost, throughput_interval
from flashprof.stats.sanity import check_numbers, loss_trend
from flashprof.stats.utilisation import rank_uses
from flashprof.store.run_folder import RunFolder
from flashprof.store.summary_file import summary_to_json
from flashprof.store.tables import write_lanes, write_phases, write_windows
from flashprof.store.timeline_file import FILE as TIMELINE_FILE
from flashprof.store.timeline_file import timeline_to_json
from flashprof.windows.phases import lane_rows, phase_rows
from flashprof.windows.slices import LogSlices
from flashprof.windows.switches import find_switches
from flashprof.windows.table import check_tokens
from flashprof.windows.timeline import keep_timeline
from flashprof.windows.warmup import warmup_summary

TOP_FRAMES = 12
PLAIN_WIDTH = 100


def summarise(
    experiment: Experiment,
    folder: RunFolder,
    recording: Recording,
    logs: Sequence[EventLog],
    machine: Mapping[str, Any],
) -> RunSummary:
    """
    Compute all results of a launch and write them into its folder, which is not yet published.

    A full disk is an outcome: the summary is returned all the same.
    """
    first_ns = min((log.steps[0].end_ns for log in logs if log.header.trains and log.steps), default=None)
    windows = launch_windows(logs, recording.observed, recording.readings.readings, steady_ns=recording.steady_ns)
    outcome, reason = _checked(recording, logs, windows)
    phase_lines = _keep_phase_lines(folder.samples, logs)
    stacks = read_stacks(folder.samples)
    measured = [window for window in windows if window.kind is WindowKind.MEASURE and window.num_tokens]
    profiled = [window for window in windows if window.kind is WindowKind.PROFILE and window.num_tokens]
    rates = [window.tok_per_s for window in measured]
    lanes = lane_rows(logs, measured)
    summary = RunSummary(
        run_id=folder.final.name,
        cell=_cell(experiment, logs, machine),
        outcome=outcome,
        reason=reason,
        tok_per_s=None if find_switches(logs) else throughput_interval(rates),
        counted_by="events" if first_ns or experiment.subject.kind is SubjectKind.PIPELINE else "log",
        supervised_tok_per_s=_supervised_tok_per_s(measured),
        padding_share=_padding_share(measured),
        startup_s=(first_ns - recording.launched_ns) / 1e9 if first_ns else None,
        # Cut off before it settled and before a window, its length says nothing.
        warmup=warmup_summary(logs, recording.steady_ns, first_ns)
        if first_ns and (recording.steady_ns or measured)
        else None,
        windows=tuple(windows),
        phases=phase_rows(logs, measured),
        lanes=lanes,
        uses=rank_uses(logs, measured, lanes),
        sampling_cost=sampling_cost(rates, [window.tok_per_s for window in profiled]),
        frames=hottest_frames(_by_role(stacks), top=TOP_FRAMES),
        threads=_threads(folder.samples),
        losses=loss_trend(logs),
        notes=tuple(
            dict.fromkeys((*_refused_toggles(logs), *recording.notes, *_mixed_cells(logs), *_empty_windows(windows)))
        ),
        paths=_paths(folder, has_stacks=bool(stacks)),
    )
    try:
        _write_tables(folder, logs, windows)
        if stacks:
            _write_flamegraph(folder, summary, stacks, phase_lines, rate_hz=experiment.sampling.rate_hz)
        folder.write_text("report.md", render_markdown(summary))
        folder.write_text("report.txt", render_summary(summary, color=False, width=PLAIN_WIDTH))
        folder.write_text("summary.json", summary_to_json(summary))
    except OSError as error:
        reason = f"{error.strerror or error}: {error.filename or folder.part}; df -h {folder.part.parent}"
        return replace(summary, outcome=Outcome.TOOL_FAILED, reason=reason)
    return summary


def _checked(recording: Recording, logs: Sequence[EventLog], windows: Sequence[Window]) -> tuple[Outcome, str]:
    """The outcome after looking at the numbers themselves: fast but wrong is wrong."""
    wrong = check_numbers(logs) or recording.readings.wrong
    if wrong and recording.outcome in (Outcome.COMPLETED, Outcome.ENDED_EARLY, Outcome.CRASHED):
        return Outcome.WRONG_NUMBERS, wrong
    if recording.outcome.is_measurement and any(log.steps for log in logs if log.header.trains):
        try:
            check_tokens(windows, logs)
        except FlashProfError as error:
            return Outcome.TOOL_FAILED, error.what
    return recording.outcome, recording.reason


def _supervised_tok_per_s(windows: Sequence[Window]) -> float:
    length_s = sum(window.length_s for window in windows)
    return sum(window.num_supervised_tokens for window in windows) / length_s if windows else 0.0


def _padding_share(windows: Sequence[Window]) -> float:
    padded = sum(window.num_tokens + window.num_padding_tokens for window in windows)
    return sum(window.num_padding_tokens for window in windows) / padded if padded else 0.0


def _cell(experiment: Experiment, logs: Sequence[EventLog], machine: Mapping[str, Any]) -> dict[str, Any]:
    subject = experiment.subject
    if subject.kind is SubjectKind.FOREIGN:
        declared = {"toggles": subject.toggles} if subject.facts else {}
        return {"command": " ".join(subject.command), **declared, **machine}
    devices = {mark.detail.get("device") for log in logs for mark in log.marks if mark.name == "ready"} - {None}
    return {
        "preset": subject.preset,
        "topology": subject.topology,
        "toggles": _applied(subject.toggles, logs),
        "seed": subject.seed,
        "device": " ".join(sorted(str(device) for device in devices)),
        **machine,
    }


def _refused(logs: Sequence[EventLog]) -> dict[str, str]:
    """Toggles that the subject could not honour, with its reasons."""
    marks = [mark for log in logs for mark in log.marks if mark.name == "toggles"]
    return {name: reason for mark in marks for name, reason in mark.detail.get("refused", {}).items()}


def _applied(expression: str, logs: Sequence[EventLog]) -> str:
    """The toggle expression without what was refused: the cell that was really measured."""
    refused = _refused(logs)
    return ",".join(item for item in expression.split(",") if item.partition("=")[0] not in refused) or "none"


def _refused_toggles(logs: Sequence[EventLog]) -> list[str]:
    return [f"toggle {name} is not applied: {reason}" for name, reason in _refused(logs).items()]


def _mixed_cells(logs: Sequence[EventLog]) -> list[str]:
    mixed = "several cells took turns in this launch: it has no throughput of one cell"
    return [mixed] if find_switches(logs) else []


def _empty_windows(windows: Sequence[Window]) -> list[str]:
    """A window without tokens has no tok/s: the interval is that of the others, and says too much."""
    measure = [window for window in windows if window.kind is WindowKind.MEASURE]
    num_empty = sum(not window.num_tokens for window in measure)
    if not num_empty:
        return []
    longer_s = round(3 * max(window.length_s for window in measure))
    remedy = f"a step or a log line takes longer than a window; --set windows.measure_s={longer_s}"
    return [f"{num_empty} of {len(measure)} measure windows hold no tokens and are left out: {remedy}"]


def _keep_phase_lines(samples: Path, logs: Sequence[EventLog]) -> PhaseLines:
    try:
        return keep_phase_lines(samples, phases={span.phase for log in logs for span in log.spans})
    except OSError:
        # A full disk: the tables, which are written next, say so.
        return PhaseLines()


def _by_role(stacks: Mapping[StackFile, Sequence[Stack]]) -> dict[str, list[Stack]]:
    by_role: dict[str, list[Stack]] = defaultdict(list)
    for file, of_file in stacks.items():
        if file.view is StackView.ALL:
            by_role[file.role] += of_file
    return dict(by_role)


def _threads(samples: Path) -> tuple[ThreadRow, ...]:
    return pool_threads(read_threads(path) for path in sorted(samples.glob(f"*/{FILE_NAME}")))


def _write_flamegraph(
    folder: RunFolder,
    summary: RunSummary,
    stacks: Mapping[StackFile, Sequence[Stack]],
    phase_lines: PhaseLines,
    *,
    rate_hz: int,
) -> None:
    views: dict[str, dict[str, Counter[tuple[str, ...]]]] = {}
    for lane in lane_stacks(stacks, phase_lines):
        counts = views.setdefault(lane.view, {}).setdefault(f"{lane.role} {lane.rank}", Counter())
        above = () if lane.thread == "main" else (f"thread {lane.thread}",)
        for frames, num_samples in lane.stacks.items():
            counts[(*above, *map(_label, frames))] += num_samples
    toggles = summary.cell.get("toggles", summary.cell.get("command", ""))
    page = render_flame_page(
        views,
        title=summary.run_id,
        subtitle=f"{toggles} · py-spy {rate_hz} Hz, waiting threads included, profile windows only",
    )
    folder.flamegraph.write_text(page, encoding="utf-8")


def _label(frame: FrameId) -> str:
    if frame.is_phase:
        return f"▸ {frame.name}"
    return f"{frame.name} ({frame.file})" if frame.file else frame.name


def _write_tables(folder: RunFolder, logs: Sequence[EventLog], windows: Sequence[Window]) -> None:
    write_windows(folder.part / "windows.parquet", windows)
    steady = [window for window in windows if window.kind in (WindowKind.MEASURE, WindowKind.PROFILE)]
    slices = LogSlices(logs)
    # A hot launch has hundreds of windows.
    held = [(window, slices.within(window.start_ns, window.end_ns)) for window in steady]
    write_phases(
        folder.part / "phases.parquet", [(w.label, row) for w, inside in held for row in phase_rows(inside, [w])]
    )
    write_lanes(folder.part / "lanes.parquet", [(w.label, row) for w, inside in held for row in lane_rows(inside, [w])])
    folder.write_text(TIMELINE_FILE, timeline_to_json(keep_timeline(logs, windows)))


def _paths(folder: RunFolder, *, has_stacks: bool) -> dict[str, str]:
    paths = {"run": str(folder.final), "log": str(folder.final / folder.log.name)}
    if has_stacks:
        paths["flamegraph"] = str(folder.final / folder.flamegraph.name)
    return paths
