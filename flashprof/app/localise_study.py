"""Where the arms of a study differ: from the blocks that count, and the launches that explain them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashprof.app.explain import Explainer, explain_id
from flashprof.app.hot import hot_results
from flashprof.app.judging import MachineJudge
from flashprof.app.launches import StudyLaunches
from flashprof.app.localise import ArmWindows, Localised, Pick, calm_windows, localise, measure_window
from flashprof.contracts.comparison import Arm, Block, Method
from flashprof.contracts.events import EventLog
from flashprof.decide.orders import ARM_OF
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.journal import EXPLAINED
from flashprof.store.study_folder import StudyFolder


def explain_arms(explainer: Explainer, launches: StudyLaunches, names: tuple[str, str]) -> tuple[str, ...]:
    """Launch both arms with samplers; returns why one could not be, which ends it."""
    for arm, name in zip(Arm, names, strict=True):
        why = explainer.explain(arm, arm, name, lambda arm=arm: launches.start(arm))  # type: ignore[misc]
        if why:
            return (why,)
    return ()


def localise_study(
    folder: StudyFolder, blocks: Sequence[Block], *, names: tuple[str, str], seed: int
) -> Localised | None:
    """
    Take the change from base to candidate apart.

    Args:
        folder: Of the study.
        blocks: All of the study; those that are left out are left out here too.
        names: How base and candidate are called.
        seed: Of the redraws.

    Returns:
        None where an arm has fewer than two windows with events.
    """
    counted = [block for block in blocks if not block.disturbances]
    launches = list(dict.fromkeys(run_id for block in counted for run_id in block.launches))
    explained = [explain_id(arm, arm) for arm in Arm]
    found = [
        *(folder.launches / run_id for run_id in launches),
        *(folder.path / EXPLAINED / name for name in explained),
    ]
    return localise([path for path in found if path.is_dir()], _pick(counted), names=names, seed=seed)


def _pick(counted: Sequence[Block]) -> Pick:
    arms = {run_id: arm for block in counted if block.method is Method.COLD for run_id, arm in _sides(block)}
    arms |= {explain_id(arm, arm): arm for arm in Arm}
    # A block that was cut off is measured again under its number: its first windows are another launch's.
    hot = {(run_id, block.number) for block in counted if block.method is Method.HOT for run_id in block.launches}

    def pick(folder: Path, logs: Sequence[EventLog]) -> ArmWindows:
        if folder.name not in arms:
            return _hot(folder, logs, {number for run_id, number in hot if run_id == folder.name})
        windows = calm_windows(folder, logs)
        return (windows, ()) if arms[folder.name] is Arm.BASE else ((), windows)

    return pick


def _sides(block: Block) -> list[tuple[str, Arm]]:
    return [(run_id, ARM_OF[letter]) for run_id, letter in zip(block.launches, block.order, strict=True)]


def _hot(folder: Path, logs: Sequence[EventLog], numbers: set[int]) -> ArmWindows:
    windows, _ = hot_results(logs, launch=folder.name, judge=MachineJudge(folder / COUNTERS_FILE))
    base, candidate = (
        [
            measure_window(
                start_ns=window.start_ns,
                end_ns=window.end_ns,
                num_steps=window.num_steps,
                num_tokens=window.num_tokens,
            )
            for window in windows
            if window.arm is arm and window.block in numbers and not window.disturbances
        ]
        for arm in Arm
    )
    return base, candidate
