"""A run folder as `flashprof export` reads it, whoever made it: what stands in it, and its stacks by lane."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashprof.app.judging import MachineJudge, measured_windows
from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.machine import MachineReading
from flashprof.contracts.profiles import FrameId, StackView
from flashprof.contracts.results import RunSummary
from flashprof.sample.phase_lines import read_phase_lines
from flashprof.sample.profiles import LaneStacks, lane_stacks, read_stacks
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.counters_file import read_counters
from flashprof.store.export_profile import LaneProfile
from flashprof.store.export_tables import Row
from flashprof.store.from_json import from_json
from flashprof.store.journal import LAUNCHES
from flashprof.store.run_folder import read_manifest
from flashprof.store.safe_read import check_tree, names_in, read_bytes, read_document
from flashprof.store.summary_file import FORMAT as SUMMARY_FORMAT
from flashprof.store.summary_file import VERSION as SUMMARY_VERSION

SAMPLES = "samples"
MAX_SAMPLES_BYTES = 256 * 2**20
"""Stacks of one run; those of the tiny preset take 0.1 MB."""
STRANGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What values that no run has measured do to code that trusts them."""
MEASURE_AGAIN = "measure it again: flashprof run"


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run folder of this version, and what stands in its small files."""

    path: Path
    run_id: str
    manifest: Mapping[str, Any]
    summary: RunSummary | None
    """None where the run was cut off before it was written."""
    readings: Sequence[MachineReading]
    disturbances: Mapping[str, tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


def open_run(path: Path) -> OpenRun:
    """
    Read all of a run folder that does not grow with the run.

    Raises:
        UsageError: It is a comparison or a bisect.
        FormatError: It is no run folder, of another version, or damaged.
    """
    with reading(path):
        try:
            read_document(path, "manifest.json")
        except FileNotFoundError:
            _refuse_study(path)
        manifest = read_manifest(path)
        summary = _summary(path)
        notes = [] if summary else ["it has no summary.json: windows are left out"]
        readings, disturbances = _machine(path, summary)
        return OpenRun(
            path=path,
            run_id=path.resolve().name,
            manifest=manifest,
            summary=summary,
            readings=readings,
            disturbances=disturbances,
            notes=notes,
        )


def _refuse_study(path: Path) -> None:
    try:
        launches = names_in(path, LAUNCHES)
    except (FileNotFoundError, FormatError):
        return
    first = next((name for name in launches if not name.startswith(".")), "LAUNCH")
    raise UsageError(
        f"{path} is no run but a comparison or a bisect",
        where=str(path),
        allowed="a run folder, or one of its launches",
        next_command=f"flashprof export trace {path / LAUNCHES / first}",
    )


def _summary(path: Path) -> RunSummary | None:
    try:
        raw = read_document(path, "summary.json")
    except FileNotFoundError:
        return None
    found = f"{raw.get('format')} version {raw.get('version')}"
    if found != f"{SUMMARY_FORMAT} version {SUMMARY_VERSION}":
        raise FormatError(
            f"summary format {found} is not known",
            where=str(path / "summary.json"),
            allowed=f"{SUMMARY_FORMAT} version {SUMMARY_VERSION}",
            next_command="read it with the FlashProf that wrote it, or measure again",
        )
    return from_json(RunSummary, raw, "summary.json")


def _machine(path: Path, summary: RunSummary | None) -> tuple[Sequence[MachineReading], Mapping[str, tuple[str, ...]]]:
    try:
        # What reads it next follows links and waits for pipes.
        read_bytes(path, COUNTERS_FILE)
        readings = read_counters(path / COUNTERS_FILE)
    except (FormatError, OSError):
        return (), {}
    judge = MachineJudge(path / COUNTERS_FILE)
    judged = ((w.label, judge(w.start_ns, w.end_ns)) for w in measured_windows(summary.windows if summary else ()))
    return readings, {label: reasons for label, reasons in judged if reasons}


def read_lane_stacks(path: Path) -> list[LaneStacks]:
    """
    The stacks of a run, by window and lane; none where it has no samples.

    Raises:
        FormatError: Its samples hold links or pipes, are too large, or are of another version.
    """
    samples = path / SAMPLES
    check_tree(samples, max_bytes=MAX_SAMPLES_BYTES)
    return lane_stacks(read_stacks(samples), read_phase_lines(samples))


def lane_profiles(lanes: Sequence[LaneStacks]) -> list[LaneProfile]:
    """All windows of a lane together."""
    by_lane: dict[tuple[str, int, str, StackView], list[LaneStacks]] = defaultdict(list)
    for lane in lanes:
        by_lane[lane.role, lane.rank, lane.thread, lane.view].append(lane)
    profiles = []
    for (role, rank, thread, view), of_lane in sorted(by_lane.items()):
        stacks: Counter[tuple[FrameId, ...]] = Counter()
        lines: dict[FrameId, Counter[int]] = defaultdict(Counter)
        for lane in of_lane:
            stacks.update(lane.stacks)
            for frame, seen in lane.lines.items():
                lines[frame].update(seen)
        most = {frame: _most_seen(seen) for frame, seen in lines.items()}
        profiles.append(LaneProfile(role=role, rank=rank, thread=thread, view=view, stacks=stacks, lines=most))
    return profiles


def frame_rows(lane: LaneStacks) -> Iterator[Row]:
    """One row a function and phase: recursion counts once a stack."""
    own: Counter[tuple[str, FrameId]] = Counter()
    total: Counter[tuple[str, FrameId]] = Counter()
    for frames, num_samples in lane.stacks.items():
        places = list(_places(frames))
        for place in dict.fromkeys(places):
            total[place] += num_samples
        if places:
            own[places[-1]] += num_samples
    where = {name: str(getattr(lane, name)) for name in ("window", "role", "thread", "view")}
    num_all = sum(lane.stacks.values())
    for (phase, frame), num_samples in total.items():
        yield {
            **where,
            "rank": lane.rank,
            "phase": phase,
            "name": frame.name,
            "file": frame.file,
            "line": _most_seen(lane.lines.get(frame, {})),
            "self_samples": own[phase, frame],
            "total_samples": num_samples,
            "thread_samples": num_all,
        }


def _places(frames: Sequence[FrameId]) -> Iterator[tuple[str, FrameId]]:
    """Each function of a stack with the phase that it stands in."""
    phase = ""
    for frame in frames:
        if frame.is_phase:
            phase = frame.name
        else:
            yield phase, frame


def _most_seen(seen: Mapping[int, int]) -> int:
    return max(seen, key=lambda line: (seen[line], -line), default=0)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Values that no run has measured are a damaged folder, not a traceback."""
    try:
        yield
    except STRANGE as error:
        what = f"the run folder is damaged: {type(error).__name__}: {str(error)[:200]}"
        raise FormatError(what, where=str(path), next_command=MEASURE_AGAIN) from error
