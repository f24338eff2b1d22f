"""
Model FLOP utilisation (MFU) of each process. Pure.

PaLM's definition (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): the operations that the model needs over those
that the device could do in the same time, waiting included. A subject tells what a step needs by the gauge
`model_tflop`, since only it knows its model.
"""

from __future__ import annotations

from collections.abc import Sequence

from flashprof.contracts.events import MODEL_TFLOP, EventLog
from flashprof.contracts.results import LaneRow, RankUse, Window
from flashprof.stats.device_peaks import peak_tflop_per_s


def rank_uses(logs: Sequence[EventLog], windows: Sequence[Window], lanes: Sequence[LaneRow]) -> tuple[RankUse, ...]:
    """
    What each process with the gauge did in *windows*, in the order of *lanes*.

    Operations a token, of the steps that ended in the windows and have the gauge, times the lane's tok/s.

    Args:
        logs: Of one launch.
        windows: Whose lanes these are.
        lanes: Main lanes have tokens; others are passed over.
    """
    by_rank = {(log.header.host, log.header.role, log.header.rank): log for log in logs}
    uses = []
    for row in lanes:
        log = by_rank.get((row.lane.host, row.lane.role, row.lane.rank))
        per_token = _tflop_per_token(log, windows) if log and row.num_tokens else None
        if log and per_token is not None:
            name = _device_name(log)
            uses.append(
                RankUse(
                    role=row.lane.role,
                    rank=row.lane.rank,
                    device_name=name,
                    tflop_per_s=per_token * row.tok_per_s,
                    peak_tflop_per_s=peak_tflop_per_s(name),
                )
            )
    return tuple(uses)


def _tflop_per_token(log: EventLog, windows: Sequence[Window]) -> float | None:
    by_step = {gauge.step: gauge.value for gauge in log.gauges if gauge.name == MODEL_TFLOP}
    inside = [
        step
        for step in log.steps
        if step.step in by_step and any(window.start_ns < step.end_ns <= window.end_ns for window in windows)
    ]
    num_tokens = sum(step.num_tokens for step in inside)
    return sum(by_step[step.step] for step in inside) / num_tokens if num_tokens else None


def _device_name(log: EventLog) -> str:
    names = [mark.detail["device_name"] for mark in log.marks if mark.name == "ready" and "device_name" in mark.detail]
    return str(names[-1]) if names else ""
