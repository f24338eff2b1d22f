"""The per-phase and per-lane tables, and which lane limits. Pure; the arithmetic is in `windows.lanes`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from flashprof.contracts.events import EventLog, SpanKind
from flashprof.contracts.results import LaneRow, PhaseRow, Window
from flashprof.windows.costs import is_followed
from flashprof.windows.lanes import MAIN_THREAD, LaneTimes, lane_times

DATA_FLOW = ("dispatcher", "target", "drafter")
"""Roles in the order in which a batch passes them; others follow by name."""


def phase_rows(logs: Sequence[EventLog], windows: Sequence[Window]) -> tuple[PhaseRow, ...]:
    """
    Own time of each phase of each lane, pooled over *windows*.

    Time and share come from all spans, clipped to the windows; calls and the step's percentiles from the complete
    cycles within one window. Where a lane has no complete cycle, `num_steps` is 0 and its percentiles are 0.

    Args:
        logs: All processes of one host.
        windows: Usually all measure windows; must not overlap.

    Returns:
        By role in data-flow order, rank, lane (main first), and first appearance in a cycle.
    """
    return tuple(row for times in _all_lane_times(logs, windows) for row in _phase_rows(times))


def lane_rows(logs: Sequence[EventLog], windows: Sequence[Window]) -> tuple[LaneRow, ...]:
    """
    Work, waiting, tok/s and capacity of each lane, pooled over *windows*, in the order of `phase_rows`.

    Only a process's main lane has tokens. Capacity is tokens over work time, both of the complete cycles; 0 where
    it has no tokens or no work phase. A host that hands its work to a device is no faster than the device: a stream
    that works longer tells. The role whose main lanes have the smallest summed capacity limits, and within it the
    lane with the smallest.
    """
    alone = [_lane_row(times) for times in _all_lane_times(logs, windows)]
    rows = [_held_by_streams(row, alone) for row in alone]
    limiting = _limiting(rows)
    return tuple(replace(row, is_limiting=row is limiting) for row in rows)


def _all_lane_times(logs: Iterable[EventLog], windows: Sequence[Window]) -> list[LaneTimes]:
    if not windows:
        return []
    return [times for log in sorted(logs, key=_data_flow) for times in lane_times(log, windows)]


def _data_flow(log: EventLog) -> tuple[int, str, int, str]:
    role = log.header.role
    place = DATA_FLOW.index(role) if role in DATA_FLOW else len(DATA_FLOW)
    return place, role, log.header.rank, log.header.host


def _phase_rows(times: LaneTimes) -> list[PhaseRow]:
    import numpy as np

    num_steps = len(times.cycles.ends_ns)
    rows = []
    for index, (phase, kind) in enumerate(times.phases):
        own_ns, num_calls = int(times.own_ns[index]), int(times.num_calls[index])
        if not own_ns and not num_calls:
            continue
        p50_ns, p95_ns = np.percentile(times.cycle_own_ns[index], (50, 95)) if num_steps else (0.0, 0.0)
        rows.append(
            PhaseRow(
                lane=times.lane,
                phase=phase,
                kind=kind,
                num_calls=num_calls,
                num_steps=num_steps,
                self_ns=own_ns,
                step_p50_ns=float(p50_ns),
                step_p95_ns=float(p95_ns),
                share=own_ns / times.wall_ns if times.wall_ns else 0.0,
            )
        )
    return rows


def _lane_row(times: LaneTimes) -> LaneRow:
    num_tokens = int(times.cycles.num_tokens.sum()) if times.lane.thread == MAIN_THREAD else 0
    return LaneRow(
        lane=times.lane,
        wall_ns=times.wall_ns,
        work_ns=times.sum_ns(SpanKind.WORK),
        wait_ns=times.sum_ns(SpanKind.WAIT),
        num_steps=len(times.cycles.ends_ns),
        num_tokens=num_tokens,
        tok_per_s=_per_s(num_tokens, times.cycles.total_ns),
        capacity_tok_per_s=_per_s(num_tokens, times.cycle_sum_ns(SpanKind.WORK)),
        is_limiting=False,
    )


def _held_by_streams(row: LaneRow, rows: Sequence[LaneRow]) -> LaneRow:
    """
    A process's main lane, no faster than its busiest stream.

    A drafter's host waited 26 % for hidden states while its GPU was busy 95 % (Qwen3-8B's shapes, two H200s): by the
    host alone it could have done 56K tok/s of which its GPU allows 44K.
    """
    busy = max((other.work_ns / other.wall_ns for other in rows if other.wall_ns and _feeds(row, other)), default=0.0)
    if not busy or not row.capacity_tok_per_s:
        return row
    return replace(row, capacity_tok_per_s=min(row.capacity_tok_per_s, row.tok_per_s / busy))


def _feeds(row: LaneRow, other: LaneRow) -> bool:
    """Whether *other* is a stream of the device to which *row*, a main lane, gives its work."""
    thread = other.lane.thread
    return thread != MAIN_THREAD and is_followed(thread) and replace(other.lane, thread=row.lane.thread) == row.lane


def _per_s(num_tokens: int, length_ns: int) -> float:
    return num_tokens / length_ns * 1e9 if length_ns else 0.0


def _limiting(rows: Iterable[LaneRow]) -> LaneRow | None:
    by_role: defaultdict[str, list[LaneRow]] = defaultdict(list)
    for row in rows:
        if row.capacity_tok_per_s > 0:
            by_role[row.lane.role].append(row)
    if not by_role:
        return None
    slowest = min(by_role.values(), key=lambda lanes: sum(row.capacity_tok_per_s for row in lanes))
    return min(slowest, key=lambda row: row.capacity_tok_per_s)
