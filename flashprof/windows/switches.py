"""
Hot windows: one launch cut at its acknowledged switches of toggles, from events alone. Pure.

A switch's acknowledgement says which cell begins (in a comparison: which arm), its place in which block, how many of
the next steps are dropped (`settle_steps`) and how many tokens make a window. The window runs from the end of the last
dropped step until all ranks have trained that many tokens, or on to the next command where the switch says so
(`runs_on`). One that is not complete before the next command, or before the end of the events, does not exist: a launch
that was killed still has its complete ones.

Ranks train in step: a step of the lead rank carries the tokens of the steps of that number of all ranks. Counted by
time, a rank that ends its step 1 ms after the lead would fall into the next window, a quarter of a short one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from flashprof.contracts.comparison import Arm, ArmWindow, Block, Method
from flashprof.contracts.control import CommandName
from flashprof.contracts.events import Ack, EventLog, Step

Judge = Callable[[int, int], tuple[str, ...]]
"""(start_ns, end_ns) → why the machine was not itself then; empty for a window that counts."""
MAX_STEPS_AHEAD = 64
"""
By which a host may be ahead of its device at a switch. Seen: 2 on an H200. Bounded for a trainer that counts its steps
from 0 again: none would ever reach the number of its switch.
"""
WARMUP_BLOCK = 0
"""Number of the visits that only warm a cell up; blocks count from 1."""


def undisturbed(start_ns: int, end_ns: int) -> tuple[str, ...]:  # noqa: ARG001 (a Judge)
    """The judge that leaves nothing out."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One acknowledged change to a cell, as its acknowledgement tells it."""

    command_id: int
    at_ns: int
    step: int = 0
    """The first that is trained under it; 0 before it is acknowledged."""
    cell: str
    """What is in force from then on: an arm's name in a comparison, a cell's id in a search."""
    block: int
    position: int
    order: str
    label: str
    settle_steps: int
    """At least 1: the step that follows a switch is the first whose whole length lies behind it."""
    window_tokens: int
    runs_on: bool = False
    """
    Whether its window goes on until the next command: the steps that pass while FlashProf sees that the tokens are
    reached, and while its command arrives, are measured too. They are half of all on a quick subject.
    """
    mark: Mapping[str, Any] = field(default_factory=dict)
    """What the caller wants to find again beside it: plain JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotWindow:
    """A complete window with its steps."""

    switch: Switch
    start_ns: int
    steps: tuple[Step, ...]
    """The lead rank's, each with the tokens of all ranks; at least one."""

    @property
    def end_ns(self) -> int:
        """End of its last step."""
        return self.steps[-1].end_ns

    @property
    def num_tokens(self) -> int:
        """Of all ranks."""
        return sum(step.num_tokens for step in self.steps)

    @property
    def log_tok_per_s(self) -> float:
        """As measured, whatever its batches were made of."""
        return math.log(self.num_tokens / (self.end_ns - self.start_ns) * 1e9)

    @property
    def lengths_ns(self) -> tuple[int, ...]:
        """From step end to step end."""
        starts_ns = (self.start_ns, *(step.end_ns for step in self.steps))
        return tuple(step.end_ns - start_ns for step, start_ns in zip(self.steps, starts_ns, strict=False))


def hot_windows(logs: Sequence[EventLog], *, launch: str, judge: Judge = undisturbed) -> tuple[ArmWindow, ...]:
    """
    All complete windows of a launch's blocks, by time, with tok/s as measured.

    Args:
        logs: All processes of the launch.
        launch: Its run id.
        judge: Names what disturbed the machine between two moments.
    """
    return tuple(arm_window(window, launch=launch, judge=judge) for window in cut_windows(logs))


def cut_windows(logs: Sequence[EventLog]) -> list[HotWindow]:
    """As `hot_windows`, with their steps."""
    acks = _acks(logs, tuple(CommandName))
    windows = []
    for ack, following in zip_longest(acks, acks[1:]):
        switch = read_switch(ack)
        if switch is not None and switch.block > WARMUP_BLOCK:
            until_ns = following.at_ns if following is not None else None
            windows.append(cut_window(logs, switch, until_ns=until_ns))
    return [window for window in windows if window is not None]


def cut_window(logs: Sequence[EventLog], switch: Switch, *, until_ns: int | None = None) -> HotWindow | None:
    """The window that follows *switch*; None where it is not complete in the events, or not by *until_ns*."""
    steps = steps_under(logs, switch, until_ns)
    num_tokens = 0
    for index in range(switch.settle_steps, len(steps)):
        num_tokens += steps[index].num_tokens
        if num_tokens >= switch.window_tokens:
            start_ns = steps[switch.settle_steps - 1].end_ns
            if steps[index].end_ns <= start_ns:
                return None
            end = len(steps) if switch.runs_on and until_ns is not None else index + 1
            return HotWindow(switch=switch, start_ns=start_ns, steps=tuple(steps[switch.settle_steps : end]))
    return None


def steps_under(logs: Sequence[EventLog], switch: Switch, until_ns: int | None = None) -> list[Step]:
    """
    `joint_steps` that were trained under *switch*, and ended by *until_ns*.

    A step ends when the device has done it, and a host that runs ahead acknowledges a switch while steps of the last
    cell are still to come: with them in a window, 4 steps ahead and a slow-down of 1 % read as half of it.
    """
    steps = joint_steps(logs, switch.at_ns, until_ns)
    first = next((place for place, step in enumerate(steps) if step.step >= switch.step), len(steps))
    return steps[min(first, MAX_STEPS_AHEAD) :]


def joint_steps(logs: Sequence[EventLog], since_ns: int, until_ns: int | None = None) -> list[Step]:
    """
    The lead rank's steps that ended in (since, until], each with the tokens of all ranks.

    It stops where a rank has not finished, or has not yet written: read later, the events give the same steps and
    more.
    """
    trainers = sorted((log for log in logs if log.header.trains and log.steps), key=lambda log: log.header.rank)
    if not trainers:
        return []
    lead, *others = (log.steps for log in trainers)
    first = bisect_right(lead, since_ns, key=_end_ns)
    last = len(lead) if until_ns is None else bisect_right(lead, until_ns, key=_end_ns)
    steps = lead[first:last]
    for other in others:
        steps = _join(steps, other)
    return steps


def find_switches(logs: Sequence[EventLog]) -> list[Switch]:
    """All switches by time, those that only warm an arm up included."""
    acks = _acks(logs, (CommandName.SET_TOGGLES,))
    return [switch for ack in acks if (switch := read_switch(ack)) is not None]


def find_switch(logs: Sequence[EventLog], command_id: int) -> Switch | None:
    """The switch that acknowledges a command; None where there is none yet."""
    # By its number at once: asked ten times a second, reading all switches would grow with the square of the blocks.
    own = (ack for log in _by_lead(logs) for ack in reversed(log.acks) if ack.command_id == command_id)
    return next((switch for ack in own if (switch := read_switch(ack)) is not None), None)


def read_switch(ack: Ack) -> Switch | None:
    """What an acknowledgement says of its switch; None where it is no switch between cells."""
    detail = ack.detail
    if ack.name != CommandName.SET_TOGGLES:
        return None
    try:
        return Switch(
            command_id=ack.command_id,
            at_ns=ack.at_ns,
            step=ack.step,
            cell=str(detail["cell"]),
            block=int(detail["block"]),
            position=int(detail["position"]),
            order=str(detail["order"]),
            label=str(detail["label"]),
            settle_steps=max(1, int(detail["settle_steps"])),
            window_tokens=max(1, int(detail["window_tokens"])),
            runs_on=bool(detail.get("runs_on", False)),
            mark=dict(detail.get("mark", {})),
        )
    except (KeyError, TypeError, ValueError):
        return None


def switch_detail(switch: Switch) -> dict[str, Any]:
    """What a command must carry so that its acknowledgement is read as *switch*; `values` apart."""
    return {
        "cell": switch.cell,
        "block": switch.block,
        "position": switch.position,
        "order": switch.order,
        "label": switch.label,
        "settle_steps": switch.settle_steps,
        "window_tokens": switch.window_tokens,
        "runs_on": switch.runs_on,
        "mark": dict(switch.mark),
    }


def arm_window(
    window: HotWindow, *, launch: str, judge: Judge = undisturbed, log_tok_per_s: float | None = None
) -> ArmWindow:
    """*window* of a comparison for the statistics, with tok/s as measured or as adjusted by the caller."""
    switch = window.switch
    return ArmWindow(
        arm=Arm(switch.cell),
        launch=launch,
        block=switch.block,
        position=switch.position,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        num_steps=len(window.steps),
        num_tokens=window.num_tokens,
        log_tok_per_s=window.log_tok_per_s if log_tok_per_s is None else log_tok_per_s,
        disturbances=judge(window.start_ns, window.end_ns),
    )


def blocks_of(windows: Iterable[ArmWindow], switches: Iterable[Switch], *, site: str = "") -> tuple[Block, ...]:
    """
    The complete blocks of one launch, by number.

    Args:
        windows: Of one launch; their tok/s adjusted or not.
        switches: The same launch's; they say in which order a block was planned and when it began.
        site: Host and GPU set.
    """
    held: dict[int, dict[int, ArmWindow]] = defaultdict(dict)
    begun: dict[int, Switch] = {}
    for window in windows:
        held[window.block][window.position] = window
    for switch in switches:
        begun.setdefault(switch.block, switch)
    blocks = (_block(held[number], begun[number], site) for number in sorted(held) if number in begun)
    return tuple(block for block in blocks if block is not None)


def _block(by_position: dict[int, ArmWindow], first: Switch, site: str) -> Block | None:
    windows = [by_position.get(position) for position in range(len(first.order))]
    arms = ["?" if window is None else "AB"[window.arm is Arm.CANDIDATE] for window in windows]
    complete = [window for window in windows if window is not None]
    if "".join(arms) != first.order or len(set(arms)) != 2:
        return None
    base, candidate = (_mean_log_rate(complete, arm) for arm in (Arm.BASE, Arm.CANDIDATE))
    return Block(
        number=first.block,
        method=Method.HOT,
        order=first.order,
        launches=(complete[0].launch,),
        site=site,
        difference=candidate - base,
        base_log_tok_per_s=base,
        num_windows=len(complete),
        length_s=(complete[-1].end_ns - first.at_ns) / 1e9,
        disturbances=tuple(dict.fromkeys(reason for window in complete for reason in window.disturbances)),
    )


def _mean_log_rate(windows: Sequence[ArmWindow], arm: Arm) -> float:
    values = [window.log_tok_per_s for window in windows if window.arm is arm]
    return sum(values) / len(values)


def _join(steps: Sequence[Step], other: Sequence[Step]) -> list[Step]:
    """*steps* with the other rank's tokens of the same numbers added, as far as it has them."""
    joined = []
    at = bisect_left(other, steps[0].step, key=_number) if steps else 0
    for step in steps:
        while at < len(other) and other[at].step < step.step:
            at += 1
        if at == len(other):
            break
        joined.append(_sum(step, other[at]) if other[at].step == step.step else step)
    return joined


def _sum(step: Step, other: Step) -> Step:
    return replace(
        step,
        num_tokens=step.num_tokens + other.num_tokens,
        num_supervised_tokens=step.num_supervised_tokens + other.num_supervised_tokens,
        num_padding_tokens=step.num_padding_tokens + other.num_padding_tokens,
    )


def _acks(logs: Sequence[EventLog], names: Sequence[str]) -> list[Ack]:
    """By time, each command once: as the lead rank obeyed it, whose clock cuts, or the next rank where it is mute."""
    chosen: dict[int, Ack] = {}
    for log in _by_lead(logs):
        for ack in log.acks:
            if ack.name in names:
                chosen.setdefault(ack.command_id, ack)
    return sorted(chosen.values(), key=lambda ack: (ack.at_ns, ack.command_id))


def _by_lead(logs: Sequence[EventLog]) -> list[EventLog]:
    return sorted(logs, key=lambda log: (not log.header.trains, log.header.rank))


def _end_ns(step: Step) -> int:
    return step.end_ns


def _number(step: Step) -> int:
    return step.step
