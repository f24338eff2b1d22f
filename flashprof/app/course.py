"""The course of a study: its journal, the state that the journal gives, and what a killed call left behind."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import replace

from flashprof.app.hot import hot_results
from flashprof.app.judging import MachineJudge, measured_windows
from flashprof.app.launches import cold_observation, unhonoured
from flashprof.contracts.comparison import Arm, Block, Comparison, DecisionRule, Method
from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import EventLog
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import CompareRequest
from flashprof.decide.actions import Action, LaunchCold
from flashprof.decide.observations import CallBegan, ColdFailed, HotBlock, HotEnded, Observation, cut_off
from flashprof.decide.plan import StudyPlan
from flashprof.decide.study import Judge, StudyState, next_action, observe, replay
from flashprof.stats.compare import compare_blocks
from flashprof.stats.sanity import check_numbers
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.run_folder import read_manifest
from flashprof.store.study_folder import CutOffLaunch, StudyFolder
from flashprof.store.tail import read_event_logs
from flashprof.windows.table import build_windows


class Course:
    """Learns facts, each written down before it counts, and says what to do next."""

    def __init__(self, folder: StudyFolder, plan: StudyPlan, judge: Judge | None = None) -> None:
        self.folder = folder
        self._judge = judge or _judge
        self.state: StudyState = replay(plan, folder.observations())

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All complete ones, hot ones first."""
        return (*self.state.hot_blocks, *self.state.cold_blocks)

    def learn(self, observation: Observation) -> None:
        """Write one fact down, then act on it."""
        self.folder.append(observation)
        self.state = observe(self.state, observation)

    def next(self) -> Action:
        """What to do now."""
        return next_action(self.state, self._judge)

    def judged(self, method: Method) -> Comparison:
        """What the blocks of one method say so far."""
        return self._judge(self.state.blocks(method), self.state.plan.rule, self.state.spent_s)

    def begin_call(self, request: CompareRequest) -> None:
        """
        Take up what earlier calls have left: what killed launches had completed counts.

        Args:
            request: A cold launch that has all its measure windows is complete, however it ended.
        """
        for launch in self.folder.cut_off_launches():
            logs = read_event_logs(launch.path / "events")
            try:
                end = cut_off(launch.run_id, length_s=_length_s(logs))
            except FormatError:
                # A folder that is none of ours is left alone.
                continue
            outcome, reason = _how_it_ended(launch, logs, end)
            if isinstance(end, HotEnded):
                self._salvage_hot(launch, replace(end, outcome=outcome, reason=reason), logs)
            else:
                self._salvage_cold(launch, replace(end, reason=reason), outcome, logs, request)
        self.learn(CallBegan())

    def _salvage_hot(self, launch: CutOffLaunch, end: HotEnded, logs: Sequence[EventLog]) -> None:
        judge = MachineJudge(launch.path / COUNTERS_FILE)
        known = {block.number for block in self.state.hot_blocks}
        site = self.state.plan.site(int(end.run_id.rpartition("-")[2]))
        for block in hot_results(logs, launch=end.run_id, site=site, judge=judge)[1]:
            if block.number not in known:
                self.learn(HotBlock(block=block, launch_s=end.length_s))
        self.learn(end)

    def _salvage_cold(
        self, launch: CutOffLaunch, end: ColdFailed, outcome: Outcome, logs: Sequence[EventLog], request: CompareRequest
    ) -> None:
        spec = request.base if end.arm is Arm.BASE else request.candidate
        if unhonoured(logs, spec, request.under_test):
            # It is launched again, and what it needs is said then.
            shutil.rmtree(launch.path, ignore_errors=True)
            return
        windows = build_windows(logs, steady_ns=None)
        if outcome is Outcome.INTERRUPTED and len(measured_windows(windows)) >= request.windows.num_measure:
            outcome = Outcome.COMPLETED
        action = LaunchCold(arm=end.arm, block=end.block, attempt=1, site=self.state.plan.site(end.block))
        self.learn(
            cold_observation(
                action,
                windows,
                run_id=end.run_id,
                outcome=outcome,
                reason=end.reason,
                length_s=end.length_s,
                judge=MachineJudge(launch.path / COUNTERS_FILE),
            )
        )


def _how_it_ended(launch: CutOffLaunch, logs: Sequence[EventLog], end: HotEnded | ColdFailed) -> tuple[Outcome, str]:
    """What the run folder says, if it got so far; numbers that are wrong are wrong without it, too."""
    outcome, reason = end.outcome, end.reason
    if launch.is_published:
        with contextlib.suppress(FormatError):
            manifest = read_manifest(launch.path)
            outcome, reason = Outcome(manifest["outcome"]), manifest["reason"]
    wrong = check_numbers(logs) if outcome is Outcome.INTERRUPTED else None
    return (Outcome.WRONG_NUMBERS, wrong) if wrong else (outcome, reason)


def _judge(blocks: Sequence[Block], rule: DecisionRule, spent_s: float) -> Comparison:
    return compare_blocks(blocks, rule, spent_s=spent_s)


def _length_s(logs: Sequence[EventLog]) -> float:
    """From the launch to the last step of any process."""
    ends_ns = [step.end_ns for log in logs for step in log.steps]
    return (max(ends_ns) - min(log.header.monotonic_ns for log in logs)) / 1e9 if ends_ns else 0.0
