"""What a search asks for, done: launches that are visited window by window, and builds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flashprof.app.judging import MachineJudge
from flashprof.app.launches import IN_FLIGHT_STEPS, VISIBLE_GPUS, unhonoured
from flashprof.app.measure import Schedule
from flashprof.app.progress import Progress
from flashprof.app.run import run
from flashprof.app.search_subjects import Start, Subjects
from flashprof.app.session import Ports
from flashprof.app.visits import CellVisit, VisitPlan, VisitReading, serve_visits
from flashprof.app.window_visits import serve_windows
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.events import EventLog
from flashprof.contracts.experiment import Experiment, Output, Sampling
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, Stage
from flashprof.contracts.search_request import BisectRequest
from flashprof.contracts.study import ArmSpec
from flashprof.contracts.toggles import ToggleValues
from flashprof.decide.search_actions import Visit
from flashprof.decide.search_observations import LaunchEnded
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import Judge

REMEDY = "ends that differ in cold toggles only, or flashprof compare --method cold"
OnReading = Callable[[Reading], Visit | None]
"""Takes each reading; returns the next visit of the same launch, or None for its end."""


@dataclass(frozen=True, kw_only=True)
class SearchLaunches:
    """Makes the launches of one search."""

    request: BisectRequest
    subjects: Subjects
    ports: Ports
    progress: Progress
    folder: Path
    """Where their run folders go."""
    wall_s: Callable[[], float] = time.time
    """Seconds since the epoch."""

    def serve(self, first: Visit, on_reading: OnReading) -> LaunchEnded:
        """
        One launch, from its first visit until the search wants something else.

        Args:
            first: What it is started for.
            on_reading: Takes each reading.

        Raises:
            UsageError: The subject refuses a toggle, or does not honour it; nothing of the launch is left.
        """
        start_ns = self.ports.clock.monotonic_ns()
        # Once: a wall clock that is set, or a suspend, of 3 h within the launch would be 3 h of the budget for ever.
        offset_s = self.wall_s() - start_ns / 1e9
        at_cell, is_checked = first.cell, False

        def take(found: VisitReading) -> CellVisit | None:
            nonlocal at_cell, is_checked
            if not is_checked:
                # Before it is written down: the journal would count it for ever.
                self._check_honoured(first)
                is_checked = True
            following = on_reading(reading_of(found, first.run_id, offset_s))
            at_cell = following.cell if following else ""
            return self._cell_visit(following) if following else None

        try:
            start = self.subjects.start(first.cell, self._at_gpus(first))
        except SubjectError as error:
            return self._ended(first, error.outcome, error.what, start_ns, at_cell)
        summary = run(
            self._experiment(start, first.run_id),
            start.ports,
            self.progress,
            schedule=self._schedule(first, take),
        )
        return self._ended(first, summary.outcome, summary.reason, start_ns, at_cell)

    def _schedule(self, first: Visit, take: Callable[[VisitReading], CellVisit | None]) -> Schedule:
        judge: Judge = MachineJudge(self._part(first.run_id) / COUNTERS_FILE)
        visit = self._cell_visit(first)
        if visit.values:
            return serve_visits(self._visit_plan(), visit, on_reading=take, judge=judge)
        return serve_windows(self.request.windows.measure_s, visit, on_reading=take, judge=judge)

    def _visit_plan(self) -> VisitPlan:
        if not self.request.upstream_toggles or self.request.good is None or self.request.bad is None:
            return VisitPlan(remedy=REMEDY)
        # As for a comparison: what is queued at a switch was made under the old setting.
        depths = [int(arm.values.get("queue", 1)) for arm in (self.request.good, self.request.bad)]
        least = max(depths) + IN_FLIGHT_STEPS
        most = max(VisitPlan.max_settle_steps, least)
        return VisitPlan(min_settle_steps=least, max_settle_steps=most, remedy=REMEDY)

    def _cell_visit(self, visit: Visit) -> CellVisit:
        return CellVisit(cell=visit.cell, values=self.subjects.switched(visit.cell), mark=mark_of(visit))

    def _experiment(self, start: Start, run_id: str) -> Experiment:
        return Experiment(
            subject=start.subject,
            windows=replace(self.request.windows, num_profile=0),
            sampling=Sampling(stacks="off", resources="off"),
            output=Output(reports=self.folder, run_id=run_id),
        )

    def _at_gpus(self, visit: Visit) -> Ports:
        """Both sides of a block on the same GPUs; sets are used in turn."""
        sets = self.request.gpu_sets
        if not sets:
            return self.ports
        numbers = sets[visit.block % len(sets)]
        return replace(self.ports, env={**self.ports.env, VISIBLE_GPUS: ",".join(map(str, numbers))})

    def _check_honoured(self, first: Visit) -> None:
        logs = read_event_logs(self._part(first.run_id) / "events")
        refusal = refused_cell(logs, first.cell, self.subjects.values(first.cell))
        if refusal is not None:
            raise refusal

    def _part(self, run_id: str) -> Path:
        """The run folder of a launch that runs."""
        return self.folder / f".{run_id}.part"

    def _ended(self, first: Visit, outcome: Outcome, reason: str, start_ns: int, cell: str) -> LaunchEnded:
        return LaunchEnded(
            run_id=first.run_id,
            group=first.group,
            outcome=outcome,
            reason=reason,
            length_s=(self.ports.clock.monotonic_ns() - start_ns) / 1e9,
            cell="" if outcome.is_measurement else cell,
        )


def refused_cell(logs: Sequence[EventLog], cell: str, values: ToggleValues) -> UsageError | None:
    """
    The error for a launch that was started as *cell* and says that it is another.

    Args:
        logs: Of the launch.
        cell: Its id.
        values: The toggles that it must honour.
    """
    return unhonoured(logs, ArmSpec(expression=cell, values=values), tuple(values))


def mark_of(visit: Visit) -> dict[str, Any]:
    """What a window carries, so that it is found again in the events of a launch that was killed."""
    return {
        "stage": str(visit.stage),
        "proof": visit.proof,
        "block": visit.block,
        "position": visit.position,
    }


def reading_of(found: VisitReading, launch: str, offset_s: float) -> Reading:
    """
    A window as the search counts it.

    Args:
        found: With the mark of its visit.
        launch: Run id.
        offset_s: From the subject's monotonic clock to seconds since the epoch.
    """
    mark: Mapping[str, Any] = found.mark
    return Reading(
        cell=found.cell,
        launch=launch,
        stage=Stage(mark["stage"]),
        proof=int(mark["proof"]),
        block=int(mark["block"]),
        position=int(mark["position"]),
        at_s=(found.start_ns + found.end_ns) / 2e9 + offset_s,
        length_s=(found.end_ns - found.begun_ns) / 1e9,
        log_tok_per_s=found.log_tok_per_s,
        num_tokens=found.num_tokens,
        disturbances=found.disturbances,
        phases=dict(found.phases),
    )
