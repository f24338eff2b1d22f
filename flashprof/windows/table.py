"""
The windows table: one launch's time, cut at the acknowledged commands, every trained token in exactly one row.

A row holds the training steps that ended in (start, end]. Rows follow each other without gap or overlap from the
first event to the last training step, or to the last acknowledged window end where that is later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flashprof.contracts.control import CommandName
from flashprof.contracts.errors import ToolError
from flashprof.contracts.events import Ack, EventLog, Step
from flashprof.contracts.results import Window, WindowKind
from flashprof.windows.switches import cut_windows


@dataclass(frozen=True, slots=True)
class _Stretch:
    label: str
    kind: WindowKind
    start_ns: int
    end_ns: int


def build_windows(logs: Sequence[EventLog], *, steady_ns: int | None) -> tuple[Window, ...]:
    """
    Cut a launch into warm-up, measure, profile and in-between rows.

    The windows of a hot comparison are measure rows too, called as their switch was: `3.2 candidate`. A row counts
    tokens by when each rank's step ended; `windows.switches` counts a window's by the lead rank's step numbers.

    A window whose end was never acknowledged, because the run was cut off or the next window began, becomes a
    `between` row labelled `<label> (cut off)`: it is not the stretch that was planned, and the last steps before a
    crash are no measurement of healthy training.

    Args:
        logs: All processes of one host, so that their clocks agree.
        steady_ns: Where steady state begins; None for "at the first window".

    Returns:
        Rows in time order; empty where no training step ended.
    """
    steps = [log.steps for log in logs if log.header.trains]
    if not any(steps):
        return ()
    step_ends_ns = [step.end_ns for rank_steps in steps for step in rank_steps]
    # Rows are half-open, so a step that ends with the very first event needs the row to begin 1 ns before it.
    first_ns = min(*(log.header.monotonic_ns for log in logs), min(step_ends_ns) - 1)
    acked = _acked_stretches(_acks(logs), max(step_ends_ns))
    stretches = _fill(_with_hot(acked, logs), first_ns, max(step_ends_ns), steady_ns)
    return _count(stretches, steps)


def check_tokens(windows: Sequence[Window], logs: Sequence[EventLog]) -> None:
    """
    Check the invariant of the table: what the rows hold is what was trained, by our count and by the subject's.

    The subject's own count comes from its `end` mark, `{"num_tokens", "num_steps"}`, one a training rank; a
    process that crashed has none.

    Raises:
        ToolError: The counts differ; names the rank and both.
    """
    training = [log for log in logs if log.header.trains]
    for log in training:
        _check_end_mark(log)
    in_rows = sum(window.num_tokens for window in windows)
    in_steps = sum(step.num_tokens for log in training for step in log.steps)
    if in_rows != in_steps:
        raise ToolError(
            "the windows table does not hold the tokens that were trained",
            where="windows table",
            offered=f"{in_rows:,} tokens in {len(windows)} rows",
            allowed=f"{in_steps:,} tokens in the training steps",
            next_command="report this with the run folder: it is a fault of FlashProf",
        )


def _check_end_mark(log: EventLog) -> None:
    counted = {"num_tokens": sum(step.num_tokens for step in log.steps), "num_steps": len(log.steps)}
    for mark in log.marks:
        told = {name: mark.detail[name] for name in counted if name in mark.detail}
        if mark.name == "end" and any(counted[name] != told[name] for name in told):
            raise ToolError(
                "the events do not hold what the subject says it trained",
                where=f"{log.header.role} {log.header.rank}",
                offered=f"{counted['num_tokens']:,} tokens in {counted['num_steps']:,} steps",
                allowed=f"{told.get('num_tokens', '?')} tokens in {told.get('num_steps', '?')} steps (its end mark)",
                next_command="look for torn lines in its events file, or for steps without end_step",
            )


def _acks(logs: Iterable[EventLog]) -> list[Ack]:
    """In time order, each command once: the first acknowledgement counts where several ranks give one."""
    first: dict[int, Ack] = {}
    for ack in sorted((ack for log in logs for ack in log.acks), key=lambda ack: ack.at_ns):
        first.setdefault(ack.command_id, ack)
    return list(first.values())


def _acked_stretches(acks: Iterable[Ack], last_ns: int) -> list[_Stretch]:
    stretches: list[_Stretch] = []
    opened: Ack | None = None
    for ack in acks:
        if ack.name == CommandName.WINDOW_START:
            if opened is not None:
                stretches.append(_cut_off(opened, ack.at_ns))
            opened = ack
        elif (
            ack.name == CommandName.WINDOW_END and opened is not None and ack.detail["label"] == opened.detail["label"]
        ):
            kind = WindowKind(opened.detail["kind"])
            stretches.append(_Stretch(opened.detail["label"], kind, opened.at_ns, ack.at_ns))
            opened = None
    if opened is not None:
        stretches.append(_cut_off(opened, last_ns))
    return [stretch for stretch in stretches if stretch.end_ns > stretch.start_ns]


def _cut_off(opened: Ack, end_ns: int) -> _Stretch:
    return _Stretch(f"{opened.detail['label']} (cut off)", WindowKind.BETWEEN, opened.at_ns, end_ns)


def _with_hot(acked: Sequence[_Stretch], logs: Sequence[EventLog]) -> list[_Stretch]:
    """*acked* and the hot windows that lie in none of them, by time."""
    hot = [
        _Stretch(window.switch.label, WindowKind.MEASURE, window.start_ns, window.end_ns)
        for window in cut_windows(logs)
    ]
    apart = [
        stretch
        for stretch in hot
        if not any(other.start_ns < stretch.end_ns and stretch.start_ns < other.end_ns for other in acked)
    ]
    return sorted((*acked, *apart), key=lambda stretch: stretch.start_ns)


def _fill(acked: Sequence[_Stretch], first_ns: int, last_ns: int, steady_ns: int | None) -> list[_Stretch]:
    """*acked* with warm-up and between stretches around them, from *first_ns* on without gap."""
    first_window_ns = acked[0].start_ns if acked else last_ns
    warm_ns = first_window_ns if steady_ns is None else min(max(steady_ns, first_ns), first_window_ns)
    stretches = [_Stretch("warmup", WindowKind.WARMUP, first_ns, warm_ns)]
    num_between = 0
    at_ns = warm_ns
    for stretch in (*acked, None):
        until_ns = max(last_ns, at_ns) if stretch is None else stretch.start_ns
        if until_ns > at_ns:
            num_between += 1
            stretches.append(_Stretch(f"between-{num_between}", WindowKind.BETWEEN, at_ns, until_ns))
        if stretch is not None:
            stretches.append(stretch)
            at_ns = stretch.end_ns
    return [stretch for stretch in stretches if stretch.end_ns > stretch.start_ns]


def _count(stretches: Sequence[_Stretch], steps: Sequence[Sequence[Step]]) -> tuple[Window, ...]:
    """Give each step to the stretch in which it ended."""
    starts_ns = [stretch.start_ns for stretch in stretches]
    held: list[list[Step]] = [[] for _ in stretches]
    most_steps = [0] * len(stretches)
    for rank_steps in steps:
        num_steps = [0] * len(stretches)
        for step in rank_steps:
            # end_ns − 1: a step that ends exactly where a stretch begins belongs to the one before.
            index = bisect_right(starts_ns, step.end_ns - 1) - 1
            held[index].append(step)
            num_steps[index] += 1
        most_steps = [max(pair) for pair in zip(most_steps, num_steps, strict=True)]
    return tuple(
        Window(
            label=stretch.label,
            kind=stretch.kind,
            start_ns=stretch.start_ns,
            end_ns=stretch.end_ns,
            num_steps=num_steps,
            num_tokens=sum(step.num_tokens for step in inside),
            num_supervised_tokens=sum(step.num_supervised_tokens for step in inside),
            num_padding_tokens=sum(step.num_padding_tokens for step in inside),
        )
        for stretch, inside, num_steps in zip(stretches, held, most_steps, strict=True)
    )
