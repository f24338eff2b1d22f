"""What a study asks for, done: a launch that holds both arms, a launch of one arm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from flashprof.app.hot import HotPlan, hot_blocks
from flashprof.app.judging import MachineJudge
from flashprof.app.progress import Progress
from flashprof.app.run import run
from flashprof.app.session import Ports
from flashprof.app.subject import pipeline_command
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, Output, Sampling
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Window, WindowKind
from flashprof.contracts.study import ArmSpec, CompareRequest
from flashprof.decide.actions import LaunchCold, MeasureHot
from flashprof.decide.observations import ColdFailed, ColdLaunch, HotEnded
from flashprof.decide.orders import block_order
from flashprof.store.run_folder import read_manifest
from flashprof.windows.switches import Judge

IN_FLIGHT_STEPS = 2
"""One batch in a target's hands, one in the drafter's."""
GPU_WORD = " GPU "
MIN_WINDOWS = 2
"""A launch of which fewer windows are undisturbed is left out as a whole."""


def sites_of(request: CompareRequest, host: str) -> tuple[str, ...]:
    """The sites of a study: this host, with each GPU set that the user named."""
    sets = (",".join(map(str, numbers)) for numbers in request.gpu_sets)
    return tuple(f"{host}{GPU_WORD}{numbers}" for numbers in sets) or (host,)


@dataclass(frozen=True, kw_only=True)
class StudyLaunches:
    """Makes the launches of one study."""

    request: CompareRequest
    ports: Ports
    progress: Progress
    folder: Path
    """Where their run folders go."""

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
        ports = self._at(action.site)
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
            judge=MachineJudge(self.folder / f".{action.run_id}.part" / "counters.jsonl"),
        )
        summary = run(self._experiment(request.base, action.run_id), ports, self.progress, schedule=schedule)
        length_s = (ports.clock.monotonic_ns() - start_ns) / 1e9
        return HotEnded(run_id=action.run_id, outcome=summary.outcome, reason=summary.reason, length_s=length_s)

    def cold(self, action: LaunchCold) -> ColdLaunch | ColdFailed:
        """
        One launch of one arm.

        Raises:
            UsageError: The subject does not honour a toggle that is under test.
        """
        ports = self._at(action.site)
        start_ns = ports.clock.monotonic_ns()
        spec = dict(self._arms())[action.arm]
        summary = run(self._experiment(spec, action.run_id), ports, self.progress)
        self._check_applied(spec, action.run_id)
        return cold_observation(
            action,
            summary.windows,
            run_id=action.run_id,
            outcome=summary.outcome,
            reason=summary.reason,
            length_s=(ports.clock.monotonic_ns() - start_ns) / 1e9,
            judge=MachineJudge(self.folder / action.run_id / "counters.jsonl"),
        )

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

    def _experiment(self, spec: ArmSpec, run_id: str) -> Experiment:
        subject = replace(self.request.subject, toggles=spec.expression)
        return Experiment(
            subject=replace(subject, command=pipeline_command(subject)),
            windows=replace(self.request.windows, num_profile=0),
            sampling=Sampling(stacks="off", resources="off"),
            output=Output(reports=self.folder, run_id=run_id),
        )

    def _at(self, site: str) -> Ports:
        _, word, numbers = site.partition(GPU_WORD)
        return replace(self.ports, env={**self.ports.env, "CUDA_VISIBLE_DEVICES": numbers}) if word else self.ports

    def _check_applied(self, spec: ArmSpec, run_id: str) -> None:
        """A toggle that this machine cannot honour would make both arms the same cell."""
        facts = read_manifest(self.folder / run_id).get("cell_facts", {})
        words = {True: "on", False: "off"}
        for name in self.request.under_test:
            asked = spec.values[name]
            text = words[asked] if isinstance(asked, bool) else str(asked)
            applied = facts.get(f"toggles.{name}", text)
            if applied != text:
                raise UsageError(
                    f"the subject does not honour toggle {name} here, so the arms would be the same cell",
                    offered=f"{name}={text}",
                    allowed=f"{name}={applied}",
                    next_command="flashprof run --list-toggles says what each toggle needs",
                )


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

    Disturbed windows are left out of its mean; where fewer than two are left, the launch is disturbed as a whole.
    """
    measured = [window for window in windows if window.kind is WindowKind.MEASURE and window.num_tokens]
    if not outcome.is_measurement or not measured:
        failed = Outcome.TOOL_FAILED if outcome.is_measurement else outcome
        return ColdFailed(
            arm=action.arm,
            block=action.block,
            run_id=run_id,
            outcome=failed,
            reason=reason or "no measure window holds a token",
            length_s=length_s,
        )
    judged = [(window, judge(window.start_ns, window.end_ns)) for window in measured]
    calm = [window for window, reasons in judged if not reasons]
    is_calm = len(calm) >= min(MIN_WINDOWS, len(measured))
    kept = calm if is_calm else measured
    return ColdLaunch(
        arm=action.arm,
        block=action.block,
        run_id=run_id,
        site=action.site,
        log_tok_per_s=fmean(math.log(window.tok_per_s) for window in kept),
        num_windows=len(kept),
        length_s=length_s,
        disturbances=() if is_calm else tuple(dict.fromkeys(text for _, reasons in judged for text in reasons)),
    )
