"""The course of a search: its journal, the state that the journal gives, and what a killed call left behind."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import replace

from flashprof.app.judging import MachineJudge
from flashprof.app.search_launches import reading_of, refused_cell
from flashprof.app.search_subjects import Subjects
from flashprof.app.visits import VisitReading, visit_results
from flashprof.app.window_visits import window_results
from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import EventLog
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import SearchLook
from flashprof.decide.observations import CallBegan
from flashprof.decide.search import Thought, look, think
from flashprof.decide.search_observations import LaunchEnded, Measured, SearchObservation
from flashprof.decide.search_state import SearchPlan, SearchState, observe, replay
from flashprof.stats.sanity import check_numbers
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.journal import CutOffLaunch
from flashprof.store.run_folder import read_manifest
from flashprof.store.search_folder import SearchFolder
from flashprof.store.tail import read_event_logs


class SearchCourse:
    """Learns facts, each written down before it counts, and says what to do next."""

    def __init__(self, folder: SearchFolder, plan: SearchPlan, subjects: Subjects) -> None:
        self.folder = folder
        self._subjects = subjects
        self.state: SearchState = replay(plan, folder.observations())
        self._thought: Thought | None = None

    def learn(self, observation: SearchObservation) -> None:
        """Write one fact down, then act on it."""
        self.folder.append(observation)
        self.state = observe(self.state, observation)
        self._thought = None

    @property
    def thought(self) -> Thought:
        """What is believed, and what to do now."""
        if self._thought is None:
            self._thought = think(self.state)
        return self._thought

    def look(self) -> SearchLook:
        """What a live view shows."""
        seen = look(self.state, self.thought)
        return replace(seen, next_cell=self._subjects.label(seen.next_cell)) if seen.next_cell else seen

    def begin_call(self) -> None:
        """Take up what earlier calls have left: complete windows of a killed launch count."""
        for launch in self.folder.cut_off_launches():
            self._salvage(launch)
        self.learn(CallBegan())

    def _salvage(self, launch: CutOffLaunch) -> None:
        logs = read_event_logs(launch.path / "events")
        found = _readings(launch, logs)
        if found and refused_cell(logs, found[0].cell, self._subjects.values(found[0].cell)):
            # As where it is seen live: nothing is left behind.
            shutil.rmtree(launch.path, ignore_errors=True)
            return
        # The journal has the first ones, undone or not: each was written down before the next window began.
        known = [
            observation
            for observation in self.folder.observations()
            if isinstance(observation, Measured) and observation.reading.launch == launch.run_id
        ]
        offset_s = _offset_s(logs)
        for reading in found[len(known) :]:
            self.learn(Measured(reading=reading_of(reading, launch.run_id, offset_s)))
        outcome, reason = _how_it_ended(launch, logs)
        cells = [reading.cell for reading in found] or [observation.reading.cell for observation in known]
        group = self.state.plan.space.group(cells[0]) if cells else ""
        self.learn(
            LaunchEnded(run_id=launch.run_id, group=group, outcome=outcome, reason=reason, length_s=_length_s(logs))
        )


def _readings(launch: CutOffLaunch, logs: Sequence[EventLog]) -> tuple[VisitReading, ...]:
    judge = MachineJudge(launch.path / COUNTERS_FILE)
    return visit_results(logs, judge=judge) or window_results(logs, judge=judge)


def _how_it_ended(launch: CutOffLaunch, logs: Sequence[EventLog]) -> tuple[Outcome, str]:
    """What the run folder says, if it got so far; numbers that are wrong are wrong without it, too."""
    if launch.is_published:
        with contextlib.suppress(FormatError):
            manifest = read_manifest(launch.path)
            return Outcome(manifest["outcome"]), manifest["reason"]
    wrong = check_numbers(logs)
    return (Outcome.WRONG_NUMBERS, wrong) if wrong else (Outcome.INTERRUPTED, "FlashProf itself was killed.")


def _length_s(logs: Sequence[EventLog]) -> float:
    """From the launch to the last step of any process."""
    ends_ns = [step.end_ns for log in logs for step in log.steps]
    return (max(ends_ns) - min(log.header.monotonic_ns for log in logs)) / 1e9 if ends_ns else 0.0


def _offset_s(logs: Sequence[EventLog]) -> float:
    """From the subject's monotonic clock to seconds since the epoch."""
    return (logs[0].header.wall_ns - logs[0].header.monotonic_ns) / 1e9 if logs else 0.0
