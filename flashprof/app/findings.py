"""What the launches of a study say besides its blocks: which phases changed, and what the machine did meanwhile."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from flashprof.app.hot import hot_results
from flashprof.app.judging import MachineJudge, measured_windows
from flashprof.contracts.comparison import Arm, ArmWindow, Block, Comparison, Method, PhaseChange
from flashprof.contracts.events import EventLog
from flashprof.contracts.machine import MachineUse
from flashprof.contracts.results import Window
from flashprof.decide.orders import ARM_OF
from flashprof.stats.disturbance import DisturbanceLimits, arm_note, level_note, standing_load
from flashprof.stats.multiplicity import PhaseKey, phase_changes
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.tail import read_event_logs
from flashprof.windows.costs import PhaseCosts
from flashprof.windows.table import build_windows

Costs = Mapping[PhaseKey, float]
"""ns a token of each phase."""


@dataclass(frozen=True, kw_only=True)
class MeasuredLaunch:
    """What the folder of a launch holds that gave blocks, of one arm or of both."""

    method: Method
    windows: Sequence[ArmWindow]
    """By time; disturbed ones too."""
    uses: Sequence[MachineUse]
    """What the machine did in each window, and before the first."""
    costs: PhaseCosts


def read_launches(blocks: Sequence[Block], launches: Path) -> list[MeasuredLaunch]:
    """
    Read what *blocks* were measured in.

    Args:
        blocks: Of a study.
        launches: Where its run folders are; one that is gone is missing here too.
    """
    found: dict[str, MeasuredLaunch] = {}
    for block in blocks:
        for place, run_id in enumerate(block.launches):
            folder = None if run_id in found else _folder(launches, run_id)
            if folder is not None:
                found[run_id] = _read(folder, block, place)
    return list(found.values())


def machine_notes(launches: Sequence[MeasuredLaunch]) -> tuple[str, ...]:
    """What the machine did all the time, whether disturbances follow an arm, and which launches lost windows to it."""
    windows = [window for launch in launches for window in launch.windows]
    reasons = {arm: [window.disturbances for window in windows if window.arm is arm] for arm in Arm}
    notes = (
        level_note([window.disturbances for window in windows]),
        arm_note(reasons[Arm.BASE], reasons[Arm.CANDIDATE]),
        *(_left_out_note(launch) for launch in launches if launch.method is Method.COLD),
    )
    standing = standing_load([use for launch in launches for use in launch.uses], DisturbanceLimits())
    return (*standing, *(note for note in notes if note))


def add_phases(
    comparisons: Sequence[Comparison], blocks: Sequence[Block], launches: Sequence[MeasuredLaunch]
) -> tuple[Comparison, ...]:
    """
    Put into each comparison what its phases say.

    Args:
        comparisons: Of a study.
        blocks: All of the study; those that are left out are left out here too.
        launches: From `read_launches`; one that is missing takes its blocks' phases with it.
    """
    return tuple(replace(item, phases=_changes(_pairs(item.method, blocks, launches))) for item in comparisons)


def _read(folder: Path, block: Block, place: int) -> MeasuredLaunch:
    logs = read_event_logs(folder / "events")
    judge = MachineJudge(folder / COUNTERS_FILE)
    run_id = block.launches[place]
    if block.method is Method.HOT:
        windows, _ = hot_results(logs, launch=run_id, judge=judge)
    else:
        windows = _cold_windows(logs, block, place, judge)
    return MeasuredLaunch(method=block.method, windows=windows, uses=judge.uses, costs=PhaseCosts(logs))


def _cold_windows(logs: Sequence[EventLog], block: Block, place: int, judge: MachineJudge) -> tuple[ArmWindow, ...]:
    measured: Sequence[Window] = measured_windows(build_windows(logs, steady_ns=None))
    return tuple(
        ArmWindow(
            arm=ARM_OF[block.order[place]],
            launch=block.launches[place],
            block=block.number,
            position=position,
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            num_steps=window.num_steps,
            num_tokens=window.num_tokens,
            log_tok_per_s=math.log(window.tok_per_s),
            disturbances=judge(window.start_ns, window.end_ns),
        )
        for position, window in enumerate(measured)
    )


def _left_out_note(launch: MeasuredLaunch) -> str | None:
    disturbed = [window for window in launch.windows if window.disturbances]
    if not disturbed:
        return None
    reasons = "; ".join(dict.fromkeys(reason for window in disturbed for reason in window.disturbances))
    return f"{disturbed[0].launch}: {len(disturbed)} of {len(launch.windows)} windows were disturbed: {reasons}"


def _pairs(method: Method, blocks: Sequence[Block], launches: Sequence[MeasuredLaunch]) -> list[tuple[Costs, Costs]]:
    """What each block that counts costs a token, base and candidate."""
    counted = {block.number: block for block in blocks if block.method is method and not block.disturbances}
    if len({block.order for block in counted.values()}) < 2:
        # Drift would look like a change of every phase until a block is turned round.
        return []
    held: defaultdict[tuple[int, Arm], list[Costs]] = defaultdict(list)
    for launch in launches:
        for window in launch.windows:
            block = counted.get(window.block) if launch.method is method else None
            # A block that was cut off is measured again under its number: its first windows are another launch's.
            if block and window.launch in block.launches and not window.disturbances:
                costs = launch.costs.between(window.start_ns, window.end_ns, window.num_tokens)
                held[window.block, window.arm].append(costs)
    pairs = [(_mean(held[number, Arm.BASE]), _mean(held[number, Arm.CANDIDATE])) for number in counted]
    return [(base, new) for base, new in pairs if base and new]


def _changes(pairs: Sequence[tuple[Costs, Costs]]) -> tuple[PhaseChange, ...]:
    """A phase that ran in one arm only costs nothing in the other."""
    if not pairs:
        return ()
    keys = list(dict.fromkeys(key for pair in pairs for costs in pair for key in costs))
    differences = {key: [new.get(key, 0.0) - base.get(key, 0.0) for base, new in pairs] for key in keys}
    return phase_changes(differences, {key: fmean(base.get(key, 0.0) for base, _ in pairs) for key in keys})


def _mean(found: Sequence[Costs]) -> Costs:
    keys = dict.fromkeys(key for item in found for key in item)
    return {key: fmean(item.get(key, 0.0) for item in found) for key in keys}


def _folder(launches: Path, run_id: str) -> Path | None:
    """A launch's folder; that of one which was cut off has another name."""
    return next((path for path in (launches / run_id, launches / f".{run_id}.part") if path.is_dir()), None)
