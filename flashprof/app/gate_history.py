"""Keeps a gate in the history: its verdict, and the launches of base and head as points of their cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from flashprof.app.history_runs import read_run
from flashprof.contracts.comparison import Arm
from flashprof.contracts.errors import FlashProfError, FormatError
from flashprof.contracts.gate import GateResult
from flashprof.contracts.history import HistoryLaunch, LaunchKind, history_cell
from flashprof.decide.observations import ColdLaunch
from flashprof.store.history import history_path, record_gate
from flashprof.store.study_folder import StudyFolder

KINDS: Mapping[Arm, LaunchKind] = {Arm.BASE: LaunchKind.GATE_BASE, Arm.CANDIDATE: LaunchKind.GATE_HEAD}
PLACE = "workload.cwd"
"""A worktree's folder is another for each gate; as a fact of the cell it would make a series of each."""


def remember_gate(folder: StudyFolder, result: GateResult, *, env: Mapping[str, str], cwd: Path) -> GateResult:
    """
    Keep a gate that has ended; never fails it.

    Args:
        folder: Of the gate, among the reports.
        result: What it found.
        env: FlashProf's own environment: where the history is, and what CI says of the branch.
        cwd: Where the user is: what base and head have as their folder.

    Returns:
        The result, with a note where it could not be kept.
    """
    path = history_path(folder.path.parent, env)
    if path is None or result.is_interrupted:
        return result
    try:
        said = record_gate(path, result, list(_launches(folder, env, cwd)), at=datetime.now(UTC).isoformat())
    except (FlashProfError, OSError) as error:
        said = f"the gate is not in the history: {error.what if isinstance(error, FlashProfError) else error}"
    return replace(result, notes=(*result.notes, said)) if said else result


def _launches(folder: StudyFolder, env: Mapping[str, str], cwd: Path) -> Iterator[HistoryLaunch]:
    for fact in folder.observations():
        if isinstance(fact, ColdLaunch):
            # One that was cut off has no summary; its pair counts all the same.
            with suppress(FormatError):
                # What CI says of the branch is head's.
                launch = read_run(folder.launches / fact.run_id, env={} if fact.arm is Arm.BASE else env)
                facts = {**launch.facts, PLACE: str(cwd)} if PLACE in launch.facts else launch.facts
                yield replace(
                    launch,
                    kind=KINDS[fact.arm],
                    gate=folder.name,
                    facts=facts,
                    cell=history_cell(facts).hash,
                )
