"""What the folders of a study say besides its blocks: which phases changed, and what the machine did meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from flashprof.app.hot import hot_results
from flashprof.app.judging import MachineJudge
from flashprof.contracts.comparison import Arm, ArmWindow, Block, Comparison, Method, PhaseChange
from flashprof.contracts.events import EventLog
from flashprof.contracts.machine import MachineUse
from flashprof.contracts.results import Window, WindowKind
from flashprof.stats.disturbance import DisturbanceLimits, arm_note, level_note, standing_load
from flashprof.stats.multiplicity import PhaseKey, phase_changes
from flashprof.store.tail import read_event_logs
from flashprof.windows.costs import PhaseCosts
from flashprof.windows.table import build_windows

Costs = Mapping[PhaseKey, float]
"""ns a token of each phase."""


@dataclass(frozen=True, kw_only=True)
class HotLaunch:
    """What the folder of a launch of both arms holds."""

    run_id: str
    logs: Sequence[EventLog]
    windows: Sequence[ArmWindow]
    uses: Sequence[MachineUse]
    """What the machine did in each window, and before the first."""


def read_hot_launches(blocks: Sequence[Block], launches: Path) -> list[HotLaunch]:
    """The launches in which the hot ones of *blocks* were measured; one whose folder is gone is missing."""
    found = []
    for run_id in dict.fromkeys(run_id for block in blocks if block.method is Method.HOT for run_id in block.launches):
        folder = _folder(launches, run_id)
        if folder is not None:
            logs = read_event_logs(folder / "events")
            judge = MachineJudge(folder / "counters.jsonl")
            windows = hot_results(logs, launch=run_id, judge=judge)[0]
            found.append(HotLaunch(run_id=run_id, logs=logs, windows=windows, uses=judge.uses))
    return found


def machine_notes(launches: Sequence[HotLaunch]) -> tuple[str, ...]:
    """What the machine did all the time, and whether disturbances follow an arm."""
    windows = [window for launch in launches for window in launch.windows]
    reasons = {arm: [window.disturbances for window in windows if window.arm is arm] for arm in Arm}
    notes = (
        level_note([window.disturbances for window in windows]),
        arm_note(reasons[Arm.BASE], reasons[Arm.CANDIDATE]),
    )
    standing = standing_load([use for launch in launches for use in launch.uses], DisturbanceLimits())
    return (*standing, *(note for note in notes if note))


def add_phases(
    comparisons: Sequence[Comparison], blocks: Sequence[Block], hot: Sequence[HotLaunch], launches: Path
) -> tuple[Comparison, ...]:
    """
    Put into each comparison what its phases say.

    Args:
        comparisons: Of a study.
        blocks: All of the study; those that are left out are left out here too.
        hot: Its launches of both arms.
        launches: Where its run folders are; one that is missing takes its blocks' phases with it.
    """
    return tuple(replace(item, phases=_changes(_pairs(item.method, blocks, hot, launches))) for item in comparisons)


def _pairs(
    method: Method, blocks: Sequence[Block], hot: Sequence[HotLaunch], launches: Path
) -> list[tuple[Costs, Costs]]:
    counted = [block for block in blocks if block.method is method and not block.disturbances]
    if len({block.order for block in counted}) < 2:
        # Drift would look like a change of every phase until a block is turned round.
        return []
    return _hot_pairs(counted, hot) if method is Method.HOT else _cold_pairs(counted, launches)


def _changes(pairs: Sequence[tuple[Costs, Costs]]) -> tuple[PhaseChange, ...]:
    """A phase that ran in one arm only costs nothing in the other."""
    if not pairs:
        return ()
    keys = list(dict.fromkeys(key for pair in pairs for costs in pair for key in costs))
    differences = {key: [new.get(key, 0.0) - base.get(key, 0.0) for base, new in pairs] for key in keys}
    return phase_changes(differences, {key: fmean(base.get(key, 0.0) for base, _ in pairs) for key in keys})


def _hot_pairs(blocks: Sequence[Block], launches: Sequence[HotLaunch]) -> list[tuple[Costs, Costs]]:
    pairs = []
    for launch in launches:
        costs = PhaseCosts(launch.logs)
        held: defaultdict[int, list[ArmWindow]] = defaultdict(list)
        for window in launch.windows:
            held[window.block].append(window)
        pairs += [_pair(costs, held[block.number]) for block in blocks if launch.run_id in block.launches]
    return pairs


def _pair(costs: PhaseCosts, windows: Sequence[ArmWindow]) -> tuple[Costs, Costs]:
    base, new = (_mean(_of(costs, window) for window in windows if window.arm is arm) for arm in Arm)
    return base, new


def _cold_pairs(blocks: Sequence[Block], launches: Path) -> list[tuple[Costs, Costs]]:
    pairs = []
    for block in blocks:
        by_letter = dict(zip(block.order, block.launches, strict=True))
        costs = [_launch_costs(_folder(launches, by_letter[letter])) for letter in "AB"]
        if all(costs):
            pairs.append((costs[0], costs[1]))
    return pairs


def _launch_costs(folder: Path | None) -> Costs:
    if folder is None:
        return {}
    logs = read_event_logs(folder / "events")
    costs = PhaseCosts(logs)
    windows = [window for window in build_windows(logs, steady_ns=None) if window.kind is WindowKind.MEASURE]
    return _mean(_of(costs, window) for window in windows)


def _of(costs: PhaseCosts, window: ArmWindow | Window) -> Costs:
    return costs.between(window.start_ns, window.end_ns, window.num_tokens)


def _mean(costs: Iterable[Costs]) -> Costs:
    found = list(costs)
    keys = dict.fromkeys(key for item in found for key in item)
    return {key: fmean(item.get(key, 0.0) for item in found) for key in keys}


def _folder(launches: Path, run_id: str) -> Path | None:
    """A launch's folder; that of one which was cut off has another name."""
    return next((path for path in (launches / run_id, launches / f".{run_id}.part") if path.is_dir()), None)
