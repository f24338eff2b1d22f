"""From the folders of launches to a localisation: phases, frames, resources and suspects between two arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashprof.app.judging import MachineJudge, measured_windows
from flashprof.app.launch_windows import launch_windows
from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import EventLog
from flashprof.contracts.localisation import Localisation
from flashprof.contracts.machine import MachineReading
from flashprof.contracts.profiles import ProfiledWindow
from flashprof.contracts.results import Window, WindowKind
from flashprof.sample.profiles import read_profiles
from flashprof.sample.threads import FILE_NAME as THREADS_FILE
from flashprof.sample.threads import pool_threads, read_threads
from flashprof.stats.frames import frame_changes
from flashprof.stats.localise import Charges, charge_phases
from flashprof.stats.resources import resource_changes
from flashprof.stats.suspects import suspects
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.counters_file import read_counters
from flashprof.store.run_folder import read_manifest
from flashprof.store.tail import read_event_logs
from flashprof.windows.costs import LaneCosts, PhaseCosts
from flashprof.windows.evidence import ArmEvidence, gather, pool
from flashprof.windows.lanes import MAIN_THREAD

SAMPLES = "samples"
ONE_LAUNCH = (
    "intervals speak of these launches: what another launch would draw anew is in them from three launches an arm"
)
MIN_WINDOWS = 2
"""Of each arm: fewer have no interval."""
NO_STACKS = "no stacks were sampled in both arms: no frames are named"

ArmWindows = tuple[Sequence[Window], Sequence[Window]]
"""The measure windows of base and candidate within one launch."""
Pick = Callable[[Path, Sequence[EventLog]], ArmWindows]
"""Says which windows of a launch's folder belong to which arm; empty for what does not count."""


@dataclass(frozen=True, kw_only=True)
class Localised:
    """A localisation, and the samples that its flamegraphs are drawn from."""

    localisation: Localisation
    base_profiles: tuple[ProfiledWindow, ...]
    candidate_profiles: tuple[ProfiledWindow, ...]


@dataclass(kw_only=True)
class _Arm:
    costs: list[LaneCosts] = field(default_factory=list)
    evidence: list[ArmEvidence] = field(default_factory=list)
    profiles: list[ProfiledWindow] = field(default_factory=list)


def localise(folders: Sequence[Path], pick: Pick, *, names: tuple[str, str], seed: int = 0) -> Localised | None:
    """
    Say where time went from base to candidate.

    Launches are read one by one: of each only what a window costs is kept.

    Args:
        folders: Of launches; those without events, or that *pick* finds nothing in, say nothing.
        pick: Which windows are whose.
        names: How base and candidate are called.
        seed: Of the redraws.

    Returns:
        None where an arm has fewer than two windows with events of a role that trains.
    """
    import numpy as np

    arms = (_Arm(), _Arm())
    for folder in folders:
        logs = read_event_logs(folder / "events")
        windows = pick(folder, logs)
        # What is not told by window, such as threads and stacks, is an arm's only where the launch holds one arm.
        is_shared = all(windows)
        for arm, of_arm in zip(arms, windows, strict=True):
            if of_arm:
                _add(arm, folder, logs, of_arm, is_shared=is_shared)
    base, candidate = arms
    rng = np.random.default_rng(seed)
    base.costs, candidate.costs = _comparable(base.costs, candidate.costs)
    charges = charge_phases(base.costs, candidate.costs, rng)
    if charges is None:
        return None
    return Localised(
        localisation=_localisation(charges, base, candidate, names),
        base_profiles=tuple(base.profiles),
        candidate_profiles=tuple(candidate.profiles),
    )


def pick_runs(bases: Sequence[Path], candidates: Sequence[Path]) -> Pick:
    """Each folder is one arm's."""

    def pick(folder: Path, logs: Sequence[EventLog]) -> ArmWindows:
        windows = calm_windows(folder, logs)
        return (windows if folder in bases else (), windows if folder in candidates else ())

    return pick


def calm_windows(folder: Path, logs: Sequence[EventLog]) -> list[Window]:
    """The measure windows of a launch of one cell that nothing disturbed."""
    judge = MachineJudge(folder / COUNTERS_FILE)
    return [w for w in measured_windows(launch_windows(logs)) if not judge(w.start_ns, w.end_ns)]


def measure_window(*, start_ns: int, end_ns: int, num_steps: int, num_tokens: int) -> Window:
    """A window that another stretch of a launch is told as."""
    return Window(
        label="",
        kind=WindowKind.MEASURE,
        start_ns=start_ns,
        end_ns=end_ns,
        num_steps=num_steps,
        num_tokens=num_tokens,
        num_supervised_tokens=0,
        num_padding_tokens=0,
    )


def _comparable(base: Sequence[LaneCosts], candidate: Sequence[LaneCosts]) -> tuple[list[LaneCosts], list[LaneCosts]]:
    """Windows of launches that hold both arms, where these are enough: what a launch draws is then the same."""
    shared = {window.launch for window in base} & {window.launch for window in candidate}
    old, new = ([window for window in costs if window.launch in shared] for costs in (base, candidate))
    return (old, new) if min(len(old), len(new)) >= MIN_WINDOWS else (list(base), list(candidate))


def _add(arm: _Arm, folder: Path, logs: Sequence[EventLog], windows: Sequence[Window], *, is_shared: bool) -> None:
    costs = PhaseCosts(logs)
    arm.costs += [costs.lanes_between(w.start_ns, w.end_ns, w.num_tokens, launch=str(folder)) for w in windows]
    profiles = () if is_shared else _profiles(folder, logs)
    arm.profiles += profiles
    arm.evidence.append(
        gather(
            logs,
            windows,
            threads=() if is_shared else _threads(folder),
            machine=_machine(folder),
            facts={} if is_shared else _facts(folder),
            profiles=profiles,
        )
    )


def _localisation(charges: Charges, base: _Arm, candidate: _Arm, names: tuple[str, str]) -> Localisation:
    old, new = pool(base.evidence), pool(candidate.evidence)
    drop_ns = charges.difference.estimate
    first = charges.parts[0] if charges.parts else None
    frames = frame_changes(
        base.profiles,
        candidate.profiles,
        drop_ns_per_token=drop_ns,
        focus=(first.role, first.phase) if first else ("", ""),
    )
    has_stacks = bool(base.profiles) and bool(candidate.profiles)
    return Localisation(
        base=names[0],
        candidate=names[1],
        base_ns_per_token=charges.base_ns_per_token,
        difference=charges.difference,
        limiting=(_limiting(old), _limiting(new)),
        parts=charges.parts,
        explained_share=charges.explained_share,
        frames=frames,
        resources=resource_changes(base.evidence, candidate.evidence),
        # What another thread did is no part of the main thread's time, which charges are made of.
        suspects=suspects(old, new, charges.parts, [f for f in frames if f.thread == MAIN_THREAD], drop_ns),
        num_windows=(len(base.costs), len(candidate.costs)),
        num_launches=(_num_launches(base), _num_launches(candidate)),
        notes=(*(() if charges.is_by_launch else (ONE_LAUNCH,)), *(() if has_stacks else (NO_STACKS,))),
    )


def _num_launches(arm: _Arm) -> int:
    return len({window.launch for window in arm.costs})


def _limiting(evidence: ArmEvidence) -> str:
    return next((row.lane.role for row in evidence.lanes if row.is_limiting), "")


def _profiles(folder: Path, logs: Sequence[EventLog]) -> tuple[ProfiledWindow, ...]:
    windows = {
        window.label: (window.end_ns - window.start_ns, window.num_tokens)
        for window in launch_windows(logs)
        if window.kind is WindowKind.PROFILE and window.num_tokens
    }
    return read_profiles(folder / SAMPLES, launch=str(folder), windows=windows) if windows else ()


def _threads(folder: Path) -> Any:
    return pool_threads(read_threads(path) for path in sorted((folder / SAMPLES).glob(f"*/{THREADS_FILE}")))


def _machine(folder: Path) -> tuple[MachineReading, ...]:
    try:
        return read_counters(folder / COUNTERS_FILE)
    except (FormatError, OSError):
        # A launch without a meter, or on a disk that was full.
        return ()


def _facts(folder: Path) -> dict[str, str]:
    try:
        return dict(read_manifest(folder).get("cell_facts") or {})
    except FormatError:
        return {}
