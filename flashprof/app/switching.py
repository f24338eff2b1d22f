"""
Switching a running subject from cell to cell: what a hot comparison and a search both need of a launch.

    switch → acknowledged → (first visit: wait until it is warm) → drop the settle steps → window

All is told by events: a switch's acknowledgement carries how its window is cut, and so does what is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flashprof.app.session import Session
from flashprof.contracts.control import CommandName
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.events import Ack, EventLog, Step
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import Value
from flashprof.stats.steady import find_steady
from flashprof.windows.switches import (
    WARMUP_BLOCK,
    HotWindow,
    Switch,
    cut_window,
    find_switch,
    find_switches,
    steps_under,
    switch_detail,
)

IN_FORCE_STEPS = 1
"""
Dropped where the cell was in force already: the step under way at the command. It has settled in its last window, or
while it was warmed up, which both take longer than a queue holds; dropping a queue of 8 again was a third of a reading.
"""
IsWarm = Callable[[Switch, Sequence[Step]], bool]
"""(first switch to a cell, steps since) → whether what it does the first time only is over."""


@dataclass(frozen=True, kw_only=True)
class Switching:
    """Switches the subject of one launch, and waits for what follows."""

    session: Session
    window_timeout_s: float
    remedy: str | None
    """What the user can do where the subject cannot be switched."""

    def __post_init__(self) -> None:
        """Check that there are steps to cut."""
        if not self.session.watch.lead_steps:
            raise SubjectError(
                "switching toggles while it runs needs a subject that reports its steps; this one reports none",
                outcome=Outcome.TOOL_FAILED,
                next_command=self.remedy,
            )

    def switch(self, planned: Switch, values: Mapping[str, Value]) -> Switch:
        """
        Set *values*, and return *planned* as the subject acknowledged it.

        Raises:
            UsageError: The subject refuses a toggle.
            SubjectError: It does not answer, or not in full.
        """
        ack = self.session.command(CommandName.SET_TOGGLES, values=dict(values), **switch_detail(planned))
        return self._checked(ack)

    def warm_up(self, switch: Switch, name: str, is_warm: IsWarm | None = None) -> None:
        """
        Wait after the first switch to a cell until it is steady; one that does not settle is measured all the same.

        Args:
            switch: To the cell.
            name: How messages call it: `the candidate`.
            is_warm: A quicker way to see it; None for steady state alone.

        Raises:
            SubjectError: It trains no step.
        """
        watch, plan = self.session.watch, self.session.plan
        has_begun = watch.wait(
            lambda: bool(steps_under(watch.logs, switch)) or None,
            timeout_s=plan.start_timeout_s,
            progress=self.session.progress,
            # The first use of a cell may compile for minutes.
            may_be_silent=True,
        )
        if has_begun is None:
            raise SubjectError(
                f"no training step within {plan.start_timeout_s:.0f} s of the first switch to {name}",
                outcome=Outcome.TIMED_OUT,
                next_command="--set windows.start_timeout_s=SECONDS waits longer",
            )

        def find() -> bool | None:
            steps = steps_under(watch.logs, switch)
            if is_warm is not None and is_warm(switch, steps):
                return True
            steady = find_steady([step.end_ns for step in steps], [step.num_tokens for step in steps])
            return None if steady is None else True

        if watch.wait(find, timeout_s=plan.steady_timeout_s, progress=self.session.progress) is None:
            self.session.note(
                f"{name} had not settled {plan.steady_timeout_s:.0f} s after the first switch to it; "
                "measured all the same (--set windows.steady_timeout_s=SECONDS waits longer)"
            )

    def wait_for_window(self, switch: Switch) -> HotWindow:
        """
        The window that follows *switch*, once all ranks have trained its tokens.

        Raises:
            SubjectError: They did not in time.
        """
        watch = self.session.watch
        # Asked for again each time: the lead rank's own acknowledgement may come after another's.
        window = watch.wait(
            lambda: cut_window(watch.logs, find_switch(watch.logs, switch.command_id) or switch),
            timeout_s=self.window_timeout_s,
            progress=self.session.progress,
        )
        if window is None:
            raise SubjectError(
                f"window {switch.label} did not get its {switch.window_tokens:,} tokens "
                f"within {self.window_timeout_s:.0f} s",
                outcome=Outcome.TIMED_OUT,
            )
        return window

    def _checked(self, ack: Ack | None) -> Switch:
        if ack is None:
            raise SubjectError(
                "the subject does not answer the command to set toggles",
                outcome=Outcome.TIMED_OUT,
                next_command=self.remedy,
            )
        if ack.detail.get("refused"):
            refused = "; ".join(f"{name}: {why}" for name, why in ack.detail["refused"].items())
            raise UsageError(
                "the subject refuses to switch toggles while it runs",
                offered=refused,
                allowed="hot toggles",
                next_command=self.remedy,
            )
        switch = find_switch(self.session.watch.logs, ack.command_id)
        if switch is None:
            raise SubjectError(
                "the subject acknowledges a switch without repeating the command's detail",
                outcome=Outcome.TOOL_FAILED,
                next_command=self.remedy,
            )
        return switch


def check_cut(
    *, min_settle_steps: int, max_settle_steps: int, window_steps: int, window_tokens: int | None = None
) -> None:
    """
    Check the ranges of a plan that cuts windows behind switches.

    Raises:
        UsageError: Settle steps or a window's size are out of range.
    """
    if not 1 <= min_settle_steps <= max_settle_steps:
        raise UsageError(
            "settle steps are out of range",
            offered=f"{min_settle_steps} to {max_settle_steps}",
            allowed="1 or more, the least not above the most",
        )
    if window_steps < 1 or (window_tokens is not None and window_tokens < 1):
        raise UsageError(
            "a window holds no tokens", offered=f"{window_tokens} tokens, {window_steps} steps", allowed="1 or more"
        )


def warm_stretches(logs: Sequence[EventLog]) -> list[HotWindow]:
    """The later half of each warm-up visit: steps of a cell before it has windows."""
    stretches = []
    for switch, following in pairwise(find_switches(logs)):
        stretch = warm_stretch(logs, switch, following) if switch.block == WARMUP_BLOCK else None
        if stretch is not None:
            stretches.append(stretch)
    return stretches


def warm_stretch(logs: Sequence[EventLog], switch: Switch, following: Switch) -> HotWindow | None:
    """The later half of one warm-up visit; None where it has fewer than two steps."""
    return later_half(steps_under(logs, switch, following.at_ns), switch)


def later_half(steps: Sequence[Step], switch: Switch) -> HotWindow | None:
    """The later half of *steps*, as a stretch of *switch*; None of fewer than two."""
    half = len(steps) // 2
    return HotWindow(switch=switch, start_ns=steps[half - 1].end_ns, steps=tuple(steps[half:])) if half else None


def after_changes(logs: Sequence[EventLog], cut: Sequence[HotWindow]) -> Iterator[tuple[HotWindow, HotWindow]]:
    """Each window before a change of cell, and all steps but the first that followed the change."""
    for before, window in pairwise(cut):
        if before.switch.cell != window.switch.cell:
            first, *steps = steps_under(logs, window.switch, window.end_ns)
            yield before, HotWindow(switch=window.switch, start_ns=first.end_ns, steps=tuple(steps))
