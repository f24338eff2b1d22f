"""
Readings of a launch that holds one cell: plain measure windows, for a subject without hot toggles, and for commits.

The same interface as `app.visits`, so that a search need not know which kind of launch it reads. Tok/s comes from where
`flashprof run` has it: events, or the subject's own output.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace

from flashprof.app.launch_windows import launch_windows
from flashprof.app.log_readings import Reading
from flashprof.app.measure import Schedule
from flashprof.app.session import Session
from flashprof.app.visits import CellVisit, OnReading, VisitReading
from flashprof.app.watch import SubjectEndedError
from flashprof.contracts.control import CommandName
from flashprof.contracts.errors import SubjectError
from flashprof.contracts.events import Ack, EventLog
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import WindowKind
from flashprof.windows.costs import training_phases
from flashprof.windows.switches import Judge, undisturbed

MAX_EMPTY = 3
"""Windows in a row without a token, after which there is nothing to wait for."""


def serve_windows(seconds: float, first: CellVisit, *, on_reading: OnReading, judge: Judge = undisturbed) -> Schedule:
    """
    A schedule that takes measure windows of the one cell that the launch holds until no more is wanted.

    Args:
        seconds: Length of a window at the pace of the steady state.
        first: What the first is measured for; the values of a visit are not set, as the launch has them.
        on_reading: Says what the next is measured for.
        judge: Names what disturbed the machine between two moments.

    Returns:
        The schedule. It raises a `SubjectError` where windows hold no token.
    """

    def run(session: Session) -> None:
        visit: CellVisit | None = first
        num_windows = 0
        empty_ones = 0
        found: Sequence[VisitReading] = ()
        while visit is not None:
            num_windows += 1
            _take(session, visit, f"measure-{num_windows}", seconds)
            num_before = len(found)
            found = _unjudged(session.watch.logs, session.observed, session.readings.readings)
            if len(found) > num_before:
                empty_ones = 0
                visit = on_reading(_judged(found[-1], judge))
            else:
                empty_ones += 1
                _check_not_mute(empty_ones, seconds)

    return run


def window_results(
    logs: Sequence[EventLog],
    *,
    observed: Sequence[Ack] = (),
    readings: Sequence[Reading] = (),
    judge: Judge = undisturbed,
) -> tuple[VisitReading, ...]:
    """
    The readings of such a launch again, by time; complete windows only.

    Args:
        logs: All processes of the launch.
        observed: Boundaries that FlashProf set by its own clock. They, and *readings*, are nowhere after a kill: then
            only a subject that acknowledges commands has kept its windows.
        readings: What the subject printed of its throughput.
        judge: Names what disturbed the machine between two moments.
    """
    return tuple(_judged(reading, judge) for reading in _unjudged(logs, observed, readings))


def _take(session: Session, visit: CellVisit, label: str, seconds: float) -> None:
    session.take_window(WindowKind.MEASURE, label, seconds, cell=visit.cell, mark=dict(visit.mark))
    watch = session.watch
    end_ns = max(ack.at_ns for ack in _acks(watch.logs, session.observed) if ack.name == CommandName.WINDOW_END)

    def have_all_passed() -> bool | None:
        return all(log.steps[-1].end_ns > end_ns for log in watch.trainers if log.steps) or None

    # Steps are written some at a time: what a rank has done until the end is known when a later step of it is read. A
    # subject that ends now has written all.
    with contextlib.suppress(SubjectEndedError):
        watch.wait(have_all_passed, timeout_s=session.plan.hang_timeout_s)
    watch.read_machine()


def _unjudged(logs: Sequence[EventLog], observed: Sequence[Ack], readings: Sequence[Reading]) -> list[VisitReading]:
    acks = _acks(logs, observed)
    begun = {ack.detail["label"]: ack for ack in acks if ack.name == CommandName.WINDOW_START and "mark" in ack.detail}
    found: list[VisitReading] = []
    for window in launch_windows(logs, observed, readings):
        if window.label in begun and window.kind is WindowKind.MEASURE and window.num_tokens:
            about = begun[window.label].detail
            reading = VisitReading(
                cell=str(about["cell"]),
                mark=about["mark"],
                # What lies between two windows is their cost, too.
                begun_ns=found[-1].end_ns if found else window.start_ns,
                start_ns=window.start_ns,
                end_ns=window.end_ns,
                num_tokens=window.num_tokens,
                num_steps=window.num_steps,
                log_tok_per_s=math.log(window.tok_per_s),
                phases=training_phases(logs, window.start_ns, window.end_ns, window.num_tokens),
            )
            found.append(reading)
    return found


def _judged(reading: VisitReading, judge: Judge) -> VisitReading:
    return replace(reading, disturbances=judge(reading.start_ns, reading.end_ns))


def _acks(logs: Sequence[EventLog], observed: Sequence[Ack]) -> list[Ack]:
    return [*(ack for log in logs for ack in log.acks), *observed]


def _check_not_mute(num_empty: int, seconds: float) -> None:
    if num_empty >= MAX_EMPTY:
        raise SubjectError(
            f"{num_empty} windows of {seconds:.3g} s in a row hold no tokens",
            outcome=Outcome.TOOL_FAILED,
            next_command=f"--set windows.measure_s={max(1, round(3 * seconds))}",
        )
