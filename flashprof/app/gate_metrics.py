"""What the launches of a gate show of each of its metrics: read from their folders, each once."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from flashprof.app.localise import calm_windows
from flashprof.contracts.comparison import Arm, Block, Comparison, DecisionRule, Verdict
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.events import EventLog
from flashprof.contracts.gate import EQUAL_PACE, MEMORY, PHASE, START_UP, TOK_PER_S, MetricVerdict, Threshold
from flashprof.contracts.results import Window
from flashprof.decide.orders import ARM_OF
from flashprof.stats.margin import MarginRule, beside_the_whole, gate_verdict, is_more_worse, judge_metric
from flashprof.stats.pace import MIN_PHASES, pace_change
from flashprof.store.tail import read_event_logs
from flashprof.windows.costs import PhaseCosts, training_work

UNITS = MappingProxyType({TOK_PER_S: "tok/s", EQUAL_PACE: "tok/s", START_UP: "s", MEMORY: "bytes"})
PHASE_UNIT = "ns a token"
MEMORY_GAUGES = ("memory_allocated_gib", "memory_reserved_gib")
"""The first that is recorded counts."""
GIB = 2**30
LEAST_NS = 1.0
"""A token. What a phase that did not run is taken to cost: a ratio needs something, and less than this is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFigures:
    """What one launch shows besides tok/s."""

    startup_s: float = math.nan
    """NaN for what was not recorded, as below."""
    memory_bytes: float = math.nan
    """The peaks of all processes together."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """`drafter mask` → own ns a token, mean over the calm windows."""
    work: Mapping[str, float] = field(default_factory=dict)
    """The same of the phases that work in the lane that trains: what its pace is read from."""

    def value(self, metric: str) -> float:
        """In the metric's unit; NaN for one that was not recorded."""
        if metric == START_UP:
            return self.startup_s
        if metric == MEMORY:
            return self.memory_bytes
        if not self.phases:
            return math.nan
        return max(LEAST_NS, self.phases.get(metric.removeprefix(PHASE), 0.0))


def unit_of(metric: str) -> str:
    """What its levels are written in."""
    return UNITS.get(metric, PHASE_UNIT)


def read_figures(folder: Path, metrics: Sequence[str]) -> LaunchFigures:
    """
    Read one launch.

    Args:
        folder: Of its run.
        metrics: That are wanted: reading phases takes as long as the launch has spans.
    """
    found = LaunchFigures()
    if START_UP in metrics:
        found = replace(found, startup_s=_startup_s(folder))
    has_phases = any(metric.startswith(PHASE) for metric in metrics)
    has_pace = EQUAL_PACE in metrics
    if not (has_phases or has_pace or MEMORY in metrics):
        return found
    logs = read_event_logs(folder / "events")
    windows = calm_windows(folder, logs) if has_phases or has_pace else []
    phases = phase_means(windows, logs) if has_phases else {}
    work = work_means(windows, logs) if has_pace else {}
    return replace(found, memory_bytes=peak_memory_bytes(logs), phases=phases, work=work)


def peak_memory_bytes(logs: Sequence[EventLog]) -> float:
    """The most that each process told of, summed; NaN where none tells."""
    for name in MEMORY_GAUGES:
        told = [[gauge.value for gauge in log.gauges if gauge.name == name] for log in logs]
        peaks = [max(values) for values in told if values]
        if peaks:
            return GIB * sum(peaks)
    return math.nan


def phase_means(windows: Sequence[Window], logs: Sequence[EventLog]) -> dict[str, float]:
    """Own ns a token of each phase, `drafter mask`, mean over *windows*."""
    costs = PhaseCosts(logs)
    found = [costs.between(window.start_ns, window.end_ns, window.num_tokens) for window in windows]
    return _means([(f"{role} {phase}", cost) for of in found for (role, phase, _), cost in of.items()], len(windows))


def work_means(windows: Sequence[Window], logs: Sequence[EventLog]) -> dict[str, float]:
    """Own ns a token of each phase that works in the lane that trains, mean over *windows*."""
    found = [training_work(logs, window.start_ns, window.end_ns, window.num_tokens) for window in windows]
    return _means([item for of in found for item in of.items()], len(windows))


def _means(costs: Iterable[tuple[str, float]], num_windows: int) -> dict[str, float]:
    """What is absent from a window costs nothing there."""
    sums: defaultdict[str, float] = defaultdict(float)
    for name, cost in costs:
        sums[name] += cost / num_windows
    return dict(sums)


class GateJudge:
    """Judges all metrics of a gate by its blocks; a judge of studies: clear once the gate's answer is."""

    def __init__(self, launches: Path, thresholds: Sequence[Threshold], rule: MarginRule) -> None:
        self._launches = launches
        self._thresholds = tuple(thresholds)
        self._rule = rule
        self._figures: dict[str, LaunchFigures] = {}

    def __call__(self, blocks: Sequence[Block], rule: DecisionRule, spent_s: float) -> Comparison:
        """
        That of tok/s, with the verdict of all metrics; one that fails decides, the others need not be waited for.

        Raises:
            UsageError: A metric is not recorded here.
        """
        del rule
        metrics = self.metrics(blocks, spent_s)
        first = metrics[0].comparison
        assert first is not None, "what has blocks has a comparison"
        return replace(first, verdict=gate_verdict(metrics))

    def metrics(self, blocks: Sequence[Block], spent_s: float) -> tuple[MetricVerdict, ...]:
        """
        A verdict for each threshold.

        Alpha is shared among those that are told here: tok/s, at equal pace too, first.

        Args:
            blocks: Cold ones, as the study has them: of tok/s.
            spent_s: Measuring time so far, in seconds.

        Raises:
            UsageError: A metric is not recorded here.
        """
        has_pace = any(item.metric == EQUAL_PACE for item in self._thresholds) and self._has_pace(blocks)
        thresholds = [item for item in self._thresholds if has_pace or item.metric != EQUAL_PACE]
        rule = replace(self._rule, num_metrics=len(thresholds), num_first=1 + has_pace)
        return beside_the_whole(
            [
                judge_metric(
                    self._of_metric(threshold.metric, blocks),
                    threshold,
                    rule,
                    place=place,
                    unit=unit_of(threshold.metric),
                    spent_s=spent_s,
                )
                for place, threshold in enumerate(thresholds)
            ]
        )

    def _has_pace(self, blocks: Sequence[Block]) -> bool:
        """
        Whether launches tell enough phases: a trainer without spans has no pace, and no row for it.

        One that was disturbed throughout tells none, and its pair is left out.
        """
        run_ids = (run_id for block in blocks for run_id in block.launches)
        return any(len(self._read(run_id).work) >= MIN_PHASES for run_id in run_ids)

    def _of_metric(self, metric: str, blocks: Sequence[Block]) -> Sequence[Block]:
        if metric == TOK_PER_S:
            return blocks
        if metric == EQUAL_PACE:
            return [self._paced(block) for block in blocks]
        figures = [self._read(run_id) for block in blocks for run_id in block.launches]
        if figures:
            refuse_unrecorded(metric, figures)
        return [self._turned(metric, block) for block in blocks]

    def _turned(self, metric: str, block: Block) -> Block:
        """The same pair, told by another metric: of what there should be much of."""
        logs = {
            ARM_OF[letter]: log_of_less(self._read(run_id).value(metric))
            for letter, run_id in zip(block.order, block.launches, strict=True)
        }
        base, head = logs[Arm.BASE], logs[Arm.CANDIDATE]
        return replace(block, difference=head - base, base_log_tok_per_s=base)

    def _paced(self, block: Block) -> Block:
        """The same pair as it would be had both launches drawn the same pace."""
        work = {
            ARM_OF[letter]: self._read(run_id).work for letter, run_id in zip(block.order, block.launches, strict=True)
        }
        return replace(block, difference=block.difference + pace_change(work[Arm.BASE], work[Arm.CANDIDATE]))

    def _read(self, run_id: str) -> LaunchFigures:
        if run_id not in self._figures:
            wanted = [threshold.metric for threshold in self._thresholds]
            self._figures[run_id] = read_figures(self._folder(run_id), wanted)
        return self._figures[run_id]

    def _folder(self, run_id: str) -> Path:
        """That of a launch which was cut off has another name."""
        published = self._launches / run_id
        return published if published.is_dir() else self._launches / f".{run_id}.part"


def log_of_less(value: float) -> float:
    """Of what there should be much of where *value* should be small; NaN where it was not recorded."""
    return -math.log(value) if value > 0 else math.nan


def refuse_unrecorded(metric: str, figures: Sequence[LaunchFigures]) -> None:
    """
    Make sure that a threshold is one of something that is measured: what nobody records would never be decided.

    Args:
        metric: Of the threshold.
        figures: Of at least one launch.

    Raises:
        UsageError: No launch recorded it; says what would.
        UnknownNameError: There is no such phase; offers those that there are.
    """
    assert is_more_worse(metric), "tok/s is recorded by every launch that counts"
    phases = sorted({name for item in figures for name in item.phases})
    if metric.startswith(PHASE) and phases:
        if metric.removeprefix(PHASE) not in phases:
            raise UnknownNameError("phase", metric.removeprefix(PHASE), phases, next_command=f"--threshold {PHASE}…")
        return
    if all(math.isnan(item.value(metric)) for item in figures):
        what, needed = _NEEDS.get(metric, _NEEDS[PHASE])
        raise UsageError(
            f"{what} is not recorded here, so that no threshold for it can be decided",
            offered=f"--threshold {metric}",
            allowed=needed,
            next_command="the same command without this threshold; what was measured is kept",
        )


def worst_reason(metrics: Sequence[MetricVerdict]) -> tuple[Verdict, str]:
    """The verdict of all metrics, and the reason of the first that it comes from."""
    verdict = gate_verdict(metrics)
    return verdict, next((metric.reason for metric in metrics if metric.verdict is verdict), "nothing was measured")


_NEEDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        START_UP: (
            "the start-up time",
            "a subject that reports its steps: our pipeline, or a trainer that calls flashprof.emit (docs/foreign.md)",
        ),
        MEMORY: (
            "memory",
            f"our pipeline on CUDA, or a trainer that calls emitter.gauge({MEMORY_GAUGES[0]!r}, step, value)",
        ),
        PHASE: (
            "a phase",
            "a subject that reports its phases: our pipeline, or a trainer with flashprof.emit spans (docs/foreign.md)",
        ),
    }
)


def _startup_s(folder: Path) -> float:
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return float(json.loads((folder / "summary.json").read_text(encoding="utf-8"))["startup_s"])
    return math.nan
