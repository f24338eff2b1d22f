"""What a run says in words: the same sentences for the console and for report.md. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flashprof.contracts.events import SpanKind
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import LaneRow, PhaseRow, RunSummary, ThreadRow, Window, WindowKind
from flashprof.report import figures
from flashprof.report.compare_sentences import level, plural

MAIN_THREAD = "main"
CONTENTION_PCT = 10.0
"""A thread that is runnable but not running this share of the time competes for its core."""
QUIET_PCT = 1.0
DEVICE = ":cuda"
"""In the thread of a lane that is a stream of a GPU: `main:cuda0`."""
BUSY_DEVICE = 0.9
"""A stream that works this share of the time is what its process waits for."""
COMM_LENGTH = 15
"""Linux cuts thread names to this."""
WORTH_SAYING = 0.01
"""Waiting below 1 % of a lane's time is called none."""
EXPECTED_COVERAGE = 0.97
USELESS_WIDTH = 0.2
"""An interval wider than 20 points says nothing about a cost of a few."""
JUST = 1.1
"""A role with less than 10 % more capacity than the limiting one would take over soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBlock:
    """One lane of the phase table: its own row, where there is one, and its phases."""

    name: str
    row: LaneRow | None
    phases: tuple[PhaseRow, ...]


def lane_blocks(summary: RunSummary) -> tuple[LaneBlock, ...]:
    """Lanes with their phases, in the order of the summary."""
    rows = {row.lane: row for row in summary.lanes}
    lanes = dict.fromkeys((*rows, *(phase.lane for phase in summary.phases)))
    return tuple(
        LaneBlock(
            name=str(lane),
            row=rows.get(lane),
            phases=tuple(phase for phase in summary.phases if phase.lane == lane),
        )
        for lane in lanes
    )


def lane_rates(row: LaneRow | None) -> tuple[str, str]:
    """Tok/s and capacity of a lane; dashes for one that handles no tokens."""
    if row is None or not row.num_tokens:
        return figures.DASH, figures.DASH
    return figures.rate(row.tok_per_s), figures.rate(row.capacity_tok_per_s)


def lane_shares(row: LaneRow) -> tuple[float, float, float]:
    """Work, waiting, and what no phase accounts for, of the lane's time; NaN for a lane without any."""
    rest_ns = max(row.wall_ns - row.work_ns - row.wait_ns, 0)
    work, wait, rest = (figures.ratio(ns, row.wall_ns) for ns in (row.work_ns, row.wait_ns, rest_ns))
    return work, wait, rest


def phase_cells(phase: PhaseRow) -> tuple[str, str, str, str]:
    """Calls a step of the lane, ms a step at p50 and at p95, share of the lane; dashes where no step ended."""
    share = figures.percent(phase.share)
    if phase.num_steps <= 0:
        return figures.DASH, figures.DASH, figures.DASH, share
    calls = f"{figures.ratio(phase.num_calls, phase.num_steps):.3g}"
    return calls, figures.milliseconds(phase.step_p50_ns), figures.milliseconds(phase.step_p95_ns), share


def outcome(summary: RunSummary) -> tuple[str, ...]:
    """How the launch failed and what was kept; nothing where it completed."""
    if summary.outcome is Outcome.COMPLETED:
        return ()
    said = f"{summary.outcome}: {summary.reason}" if summary.reason else str(summary.outcome)
    kinds = Counter(window.kind for window in summary.windows)
    kept = [plural(kinds[kind], f"{kind} window") for kind in (WindowKind.MEASURE, WindowKind.PROFILE) if kinds[kind]]
    return said, f"kept: {' and '.join(kept) or 'no window'}; not to be compared with other runs"


def cell(summary: RunSummary) -> str:
    """The cell on one line, values that say nothing left out."""
    return " · ".join(f"{name} {_value(value)}" for name, value in summary.cell.items() if value not in (None, "", ()))


def throughput(summary: RunSummary) -> str:
    """Tok/s with its interval, and whose count it is."""
    if summary.tok_per_s is None:
        return "tok/s unknown: fewer than two measure windows with tokens"
    value = summary.tok_per_s
    return (
        f"{figures.rate(value.estimate)} tok/s  ({level(value)} {figures.rate(value.low)} to "
        f"{figures.rate(value.high)}, {plural(value.num_samples, 'measure window')} of this one launch)"
    )


def token_details(summary: RunSummary) -> str:
    """Whose count, and what the tokens were."""
    whose = "FlashProf's events" if summary.counted_by == "events" else "the subject's own log"
    parts = [f"counted by {whose}"]
    if summary.supervised_tok_per_s:
        parts.append(f"supervised {figures.rate(summary.supervised_tok_per_s)} tok/s")
    if summary.padding_share:
        parts.append(f"padding {figures.percent(summary.padding_share)} on top")
    return ", ".join(parts)


def limiting(summary: RunSummary) -> str:
    """Which lane limits, where its time goes, and who waits; empty where no lane has a capacity."""
    row = next((row for row in summary.lanes if row.is_limiting), None)
    if row is None:
        return ""
    where = _where(summary, row)
    partners = (f"{other.lane} {_waits(other)}{_busy_gpu(summary, other)}" for other in _partners(summary.lanes, row))
    waits = [f"it {_waits(row)}", *partners]
    return f"{row.lane} limits{_margin(summary.lanes, row)}{where}; {', '.join(waits)}"


def _where(summary: RunSummary, row: LaneRow) -> str:
    """
    Where the time of a process goes whose main lane is *row*.

    Of a GPU that is busy nearly all the time, the GPU is told: its host waits for it wherever it happens to ask, and
    the phase that asks is not to blame. A `clip` that reads the gradient norm took 75 % of a host whose GPU was 98 %
    busy, half of it with `backward` (Qwen3-8B's shapes, one H200).
    """
    stream = _busy_stream(summary, row)
    biggest = _biggest_work(summary, stream or row)
    if biggest is None:
        return ""
    share = figures.percent(biggest.share)
    if stream is None:
        return f": {share} of its time is `{biggest.phase}`"
    return f": its GPU is busy {figures.percent(_work_share(stream))} of the time, {share} with `{biggest.phase}`"


def _busy_stream(summary: RunSummary, row: LaneRow) -> LaneRow | None:
    """The busiest stream of the process whose main lane is *row*, if it works nearly all the time."""
    streams = [
        other
        for other in summary.lanes
        if _rank_of(other) == _rank_of(row) and DEVICE in other.lane.thread and _work_share(other) >= BUSY_DEVICE
    ]
    return max(streams, key=_work_share, default=None)


def _busy_gpu(summary: RunSummary, row: LaneRow) -> str:
    """A host that waits while its GPU works could not have gone faster: the wait alone would mislead."""
    stream = _busy_stream(summary, row)
    return f" (its GPU is busy {figures.percent(_work_share(stream))})" if stream else ""


def _biggest_work(summary: RunSummary, row: LaneRow) -> PhaseRow | None:
    work = [phase for phase in summary.phases if phase.lane == row.lane and phase.kind is SpanKind.WORK]
    return max(work, key=lambda phase: phase.share, default=None)


def _rank_of(row: LaneRow) -> tuple[str, str, int]:
    return row.lane.host, row.lane.role, row.lane.rank


def _work_share(row: LaneRow) -> float:
    return figures.ratio(row.work_ns, row.wall_ns) if row.wall_ns else 0.0


def sampling_cost(summary: RunSummary) -> str:
    """What the samplers cost, and whether that can be told from noise; empty where it was not measured."""
    cost = summary.sampling_cost
    if cost is None:
        return ""
    verdict = "within noise" if cost.low <= 0 <= cost.high else "more than noise"
    if cost.high - cost.low > USELESS_WIDTH:
        verdict = "not known, the windows differ too much"
    low, high = figures.percent(cost.low), figures.percent(cost.high)
    return f"sampling cost {figures.percent(cost.estimate)} of tok/s ({level(cost)} {low} to {high}): {verdict}"


def warmup(summary: RunSummary) -> str:
    """Start-up, then length and causes of the warm-up; empty where there was none."""
    if summary.warmup is None:
        return ""
    length, steps = figures.seconds(summary.warmup.length_s), plural(summary.warmup.num_steps, "step")
    causes = f": {', '.join(summary.warmup.causes)}" if summary.warmup.causes else ""
    unsettled = "" if summary.warmup.settled else "; it never settled, measured all the same: read with care"
    startup = "" if summary.startup_s is None else f"start-up {figures.seconds(summary.startup_s)}, then "
    return f"{startup}warm-up {length}, {steps}{causes}{unsettled}"


def utilisation(summary: RunSummary) -> str:
    """
    Model FLOP utilisation of each process; empty where the subject does not tell what its steps need.

    Processes that share a device share its peak: what they use adds up.
    """
    named = [use for use in summary.uses if use.device_name]
    if not named:
        return ""
    known = [use for use in named if use.mfu is not None]
    unknown = [use for use in named if use.mfu is None]
    lines = []
    if known:
        ranks = [f"{use.role} {use.rank} {figures.percent(use.mfu or 0.0)}" for use in known]
        peaks = dict.fromkeys(f"{use.peak_tflop_per_s:g} TFLOP/s, {use.device_name}" for use in known)
        lines.append(f"MFU {', '.join(ranks)} of {'; '.join(peaks)} (dense bfloat16; PaLM, appendix B)")
    if unknown:
        ranks = [f"{use.role} {use.rank} {figures.amount(use.tflop_per_s)}" for use in unknown]
        names = dict.fromkeys(use.device_name for use in unknown)
        lines.append(f"model TFLOP/s {', '.join(ranks)}; no MFU: the peak of {', '.join(names)} is not known")
    return "; ".join(lines)


def run_facts(summary: RunSummary) -> tuple[str, ...]:
    """What is told of a run beside its tables."""
    facts = (warmup(summary), utilisation(summary), sampling_cost(summary), losses(summary))
    return tuple(fact for fact in facts if fact)


def losses(summary: RunSummary) -> str:
    """First and last loss; empty where the subject told none."""
    if summary.losses is None:
        return ""
    first, last = summary.losses
    change = "falls" if last < first else "does not fall"
    return f"loss {figures.loss(first)} → {figures.loss(last)} ({change})"


def window_lines(windows: Sequence[Window]) -> tuple[str, ...]:
    """One line a kind but warm-up: count, seconds together, and tok/s of each measure and profile window."""
    lines = []
    for kind in (WindowKind.MEASURE, WindowKind.PROFILE, WindowKind.BETWEEN):
        chosen = [window for window in windows if window.kind is kind]
        if chosen:
            rates = [figures.rate(window.tok_per_s) for window in chosen]
            shown = "" if kind is WindowKind.BETWEEN else f": {'  '.join(rates)} tok/s"
            length_s = sum(window.length_s for window in chosen)
            lines.append(f"{kind} {len(chosen)}, {figures.seconds(length_s)}{shown}")
    return tuple(lines)


def warnings(summary: RunSummary) -> tuple[str, ...]:
    """What the tables show but a reader may miss: contention, and time that no phase accounts for."""
    contended = [
        f"{thread_name(row)} ({row.wait_pct:.0f} %)" for row in summary.threads if row.wait_pct >= CONTENTION_PCT
    ]
    lines = []
    if contended:
        lines.append(f"contention: {', '.join(contended)} waited for a core {CONTENTION_PCT:.0f} % of the time or more")
    lines += [
        f"phases account for only {figures.percent(row.covered_share)} of {row.lane}'s time"
        for row in summary.lanes
        if row.lane.thread == MAIN_THREAD and row.covered_share < EXPECTED_COVERAGE
    ]
    return tuple(lines)


def _partners(rows: Iterable[LaneRow], limiting_row: LaneRow) -> list[LaneRow]:
    """The most idle main lane of each other role that handles tokens."""
    idlest: dict[str, LaneRow] = {}
    for row in rows:
        if row.lane.role != limiting_row.lane.role and row.lane.thread == MAIN_THREAD and row.num_tokens:
            idlest[row.lane.role] = max(idlest.get(row.lane.role, row), row, key=_wait_share)
    return list(idlest.values())


def _margin(rows: Sequence[LaneRow], limiting_row: LaneRow) -> str:
    """Who would limit next, where that is close; the pipeline is then nearly balanced."""
    capacity: dict[str, float] = {}
    for row in rows:
        if row.lane.thread == MAIN_THREAD and row.capacity_tok_per_s:
            capacity[row.lane.role] = capacity.get(row.lane.role, 0.0) + row.capacity_tok_per_s
    own = capacity.pop(limiting_row.lane.role, 0.0)
    if not capacity or not own:
        return ""
    role = min(capacity, key=lambda name: capacity[name])
    if capacity[role] > JUST * own:
        return ""
    return f", but only just ({role} could do {figures.rate(capacity[role])} tok/s, it {figures.rate(own)})"


def _waits(row: LaneRow) -> str:
    share = _wait_share(row)
    return f"waits {figures.percent(share)}" if share >= WORTH_SAYING else "never waits"


def _wait_share(row: LaneRow) -> float:
    return row.wait_ns / row.wall_ns if row.wall_ns else 0.0


def thread_name(row: ThreadRow) -> str:
    """Role and rank, and the thread where it is not the one that the process itself is named after."""
    is_main = row.thread in (MAIN_THREAD, f"{row.role}-{row.rank}"[:COMM_LENGTH])
    return f"{row.role} {row.rank}" if is_main else f"{row.role} {row.rank}/{row.thread}"


def is_busy(row: ThreadRow) -> bool:
    """Whether the thread used, or wanted, at least 1 % of a core."""
    return row.usr_pct + row.system_pct + row.wait_pct >= QUIET_PCT


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
