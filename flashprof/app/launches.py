"""What a study asks for, done: a launch that holds both arms, a launch of one arm."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from flashprof.app.foreign import at_values
from flashprof.app.hot import HotPlan, hot_blocks
from flashprof.app.judging import MachineJudge, launch_rate
from flashprof.app.progress import Progress
from flashprof.app.run import run
from flashprof.app.search_subjects import Start
from flashprof.app.session import NO_THROUGHPUT, Ports
from flashprof.app.subject import launch_command
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import EventLog
from flashprof.contracts.experiment import Experiment, Output, Sampling, SubjectSpec
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Window
from flashprof.contracts.study import ArmSpec, CompareRequest
from flashprof.contracts.toggles import Value, format_value
from flashprof.decide.actions import LaunchCold, MeasureHot
from flashprof.decide.observations import ColdFailed, ColdLaunch, HotEnded
from flashprof.decide.orders import block_order
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import Judge

IN_FLIGHT_STEPS = 2
"""One batch in a target's hands, one in the drafter's."""
GPU_WORD = " GPU "
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def sites_of(request: CompareRequest, host: str) -> tuple[str, ...]:
    """The sites of a study: this host, with each GPU set that the user named."""
    return tuple(f"{host}{GPU_WORD}{_join(numbers)}" for numbers in request.gpu_sets) or (host,)


class ArmStarts(Protocol):
    """What the arms of a study are started as, where they differ in more than toggles."""

    def start(self, arm: Arm) -> Start:
        """
        How to start one arm alone.

        Raises:
            SubjectError: It cannot be made.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class StudyLaunches:
    """Makes the launches of one study."""

    request: CompareRequest
    ports: Ports
    progress: Progress
    folder: Path
    """Where their run folders go."""
    starts: ArmStarts | None = None
    """None: the request's subject, with the toggles of each arm."""

    def hot(self, action: MeasureHot, *, num_windows: int, on_block: Callable[[Block, float], bool]) -> HotEnded:
        """
        One launch of both arms, switched while it runs.

        Args:
            action: What the study wants.
            num_windows: Of a block.
            on_block: Takes each block and the seconds since the launch; returns whether to go on.

        Raises:
            UsageError: The subject refuses a toggle.
        """
        ports = self._at(action.site, self.ports)
        start_ns = ports.clock.monotonic_ns()
        request = self.request
        names = request.under_test
        schedule = hot_blocks(
            self._hot_plan(),
            {arm: {name: spec.values[name] for name in names} for arm, spec in self._arms()},
            lambda number: block_order(request.subject.seed, number, num_windows),
            first_block=action.first_block,
            on_block=lambda block: on_block(block, (ports.clock.monotonic_ns() - start_ns) / 1e9),
            site=action.site,
            judge=MachineJudge(self.folder / f".{action.run_id}.part" / COUNTERS_FILE),
        )
        experiment = self._experiment(self._subject(request.base), action.run_id)
        summary = run(experiment, ports, self.progress, schedule=schedule)
        length_s = (ports.clock.monotonic_ns() - start_ns) / 1e9
        return HotEnded(run_id=action.run_id, outcome=summary.outcome, reason=summary.reason, length_s=length_s)

    def cold(self, action: LaunchCold) -> ColdLaunch | ColdFailed:
        """
        One launch of one arm.

        Raises:
            UsageError: The subject does not honour a toggle that is under test.
        """
        start_ns = self.ports.clock.monotonic_ns()
        spec = dict(self._arms())[action.arm]
        made = self.start(action.arm)
        ports = self._at(action.site, made.ports)
        summary = run(self._experiment(made.subject, action.run_id), ports, self.progress)
        folder = self.folder / action.run_id
        refusal = unhonoured(read_event_logs(folder / "events"), spec, self.request.under_test)
        if refusal is not None:
            # As for a launch that the subject refuses itself: nothing is left behind that a later call might count.
            shutil.rmtree(folder, ignore_errors=True)
            raise refusal
        return cold_observation(
            action,
            summary.windows,
            run_id=action.run_id,
            outcome=summary.outcome,
            reason=summary.reason or (NO_THROUGHPUT if NO_THROUGHPUT in summary.notes else ""),
            length_s=(ports.clock.monotonic_ns() - start_ns) / 1e9,
            judge=MachineJudge(folder / COUNTERS_FILE),
        )

    def start(self, arm: Arm) -> Start:
        """How a launch of one arm alone is started, at the first site."""
        made = self._with_toggles(arm) if self.starts is None else self.starts.start(arm)
        return made._replace(ports=replace(made.ports, env=first_env(self.request, made.ports.env)))

    def _hot_plan(self) -> HotPlan:
        if not self.request.upstream_toggles:
            return HotPlan()
        # A setting in front of the queue shows when what was queued is used up: a small effect would not be seen to
        # come late, and would be counted for the other arm.
        depths = [int(spec.values.get("queue", 1)) for _, spec in self._arms()]
        least = max(HotPlan.min_settle_steps, max(depths) + IN_FLIGHT_STEPS)
        return HotPlan(min_settle_steps=least, max_settle_steps=max(HotPlan.max_settle_steps, least))

    def _arms(self) -> Sequence[tuple[Arm, ArmSpec]]:
        return (Arm.BASE, self.request.base), (Arm.CANDIDATE, self.request.candidate)

    def _with_toggles(self, arm: Arm) -> Start:
        spec = dict(self._arms())[arm]
        return Start(self._subject(spec), at_values(self.ports, spec.values))

    def _subject(self, spec: ArmSpec) -> SubjectSpec:
        subject = replace(self.request.subject, toggles=spec.expression)
        return replace(subject, command=launch_command(subject))

    def _experiment(self, subject: SubjectSpec, run_id: str) -> Experiment:
        return Experiment(
            subject=subject,
            windows=replace(self.request.windows, num_profile=0),
            sampling=Sampling(stacks="off", resources="off"),
            output=Output(reports=self.folder, run_id=run_id),
        )

    def _at(self, site: str, ports: Ports) -> Ports:
        _, word, numbers = site.partition(GPU_WORD)
        return replace(ports, env={**ports.env, VISIBLE_GPUS: numbers}) if word else ports


def first_env(request: CompareRequest, env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment of the first launch: what is known of it beforehand must be asked with its GPUs."""
    return {**env, VISIBLE_GPUS: _join(request.gpu_sets[0])} if request.gpu_sets else env


def unhonoured(logs: Sequence[EventLog], spec: ArmSpec, under_test: Sequence[str]) -> UsageError | None:
    """
    The error for a launch in which a toggle under test was not applied: both arms would be the same cell.

    Args:
        logs: Of the launch.
        spec: Of its arm.
        under_test: Names of toggles.

    Returns:
        None where all are as asked, or where the subject does not say.
    """
    said = [mark.detail.get("values", {}) for log in logs for mark in log.marks if mark.name == "toggles"]
    applied: Mapping[str, Value] = said[0] if said else {}
    for name in under_test:
        asked = spec.values[name]
        if applied.get(name, asked) != asked:
            return UsageError(
                f"the subject does not honour toggle {name} here, so the arms would be the same cell",
                offered=f"{name}={format_value(asked)}",
                allowed=f"{name}={format_value(applied[name])}",
                next_command="flashprof run --list-toggles says what each toggle needs",
            )
    return None


def cold_observation(
    action: LaunchCold,
    windows: Sequence[Window],
    *,
    run_id: str,
    outcome: Outcome,
    reason: str,
    length_s: float,
    judge: Judge,
) -> ColdLaunch | ColdFailed:
    """
    What a study learns of a launch of one arm.

    Args:
        action: What the study wanted.
        windows: Of all kinds.
        run_id: Of the launch.
        outcome: How it ended.
        reason: Why, where it is no measurement.
        length_s: Its whole life, in seconds.
        judge: Names what disturbed the machine between two moments.
    """
    rate = launch_rate(windows, judge)
    if not outcome.is_measurement or not rate.num_windows:
        failed = Outcome.TOOL_FAILED if outcome.is_measurement else outcome
        return ColdFailed(
            arm=action.arm,
            block=action.block,
            run_id=run_id,
            outcome=failed,
            reason=reason or "no measure window holds a token",
            length_s=length_s,
        )
    return ColdLaunch(
        arm=action.arm,
        block=action.block,
        run_id=run_id,
        site=action.site,
        log_tok_per_s=rate.log_tok_per_s,
        num_windows=rate.num_windows,
        length_s=length_s,
        disturbances=() if rate.is_calm else rate.disturbances,
    )


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
