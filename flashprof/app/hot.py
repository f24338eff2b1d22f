"""
A hot comparison: one launch whose toggles are switched at step boundaries, window by window, block by block.

    warm up each arm → for each block: switch, drop the settle steps, window; … → the block's difference → go on?

All is told by events: a switch's acknowledgement carries how its window is cut, so that `hot_results` finds the same
blocks again in the events of a launch that was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flashprof.app.measure import Schedule
from flashprof.app.session import Session
from flashprof.app.switching import IN_FORCE_STEPS, Switching, after_changes, check_cut, warm_stretches
from flashprof.contracts.comparison import Arm, ArmWindow, Block
from flashprof.contracts.events import EventLog
from flashprof.contracts.toggles import ToggleValues
from flashprof.decide.orders import ARM_OF
from flashprof.stats.composition import adjusted_log_rates, fit_step_cost, log_excess
from flashprof.stats.settle import find_settle_steps
from flashprof.windows.switches import (
    WARMUP_BLOCK,
    HotWindow,
    Judge,
    Switch,
    arm_window,
    blocks_of,
    cut_window,
    cut_windows,
    find_switch,
    steps_under,
    undisturbed,
)

MODEL_WINDOWS = 256
"""
What batches cost is fitted on so many latest windows: 1,024 steps give the cost of a token to 0.5 %, in 4 ms a block
however long it goes on.
"""


@dataclass(frozen=True, kw_only=True)
class HotPlan:
    """How a launch is cut into hot blocks."""

    window_tokens: int | None = None
    """Tokens of all ranks in a window; None for as many as `window_steps` steps hold."""
    window_steps: int = 4
    min_settle_steps: int = 1
    """
    Dropped after each change of arm whatever the steps say. Toggles that act in front of the queue need as many as the
    subject holds queued: old work that differs by less than the noise is not seen, and would give the other arm's speed
    to a window.
    """
    max_settle_steps: int = 12
    """Dropped after a switch to the other arm until it is known how many are needed, and the most that ever are."""
    num_pilot_blocks: int = 3
    """Blocks that are measured before it is asked how many are needed; they count like the others, and have 7 changes
    of arm on average."""
    window_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        """Check ranges."""
        check_cut(
            min_settle_steps=self.min_settle_steps,
            max_settle_steps=self.max_settle_steps,
            window_steps=self.window_steps,
            window_tokens=self.window_tokens,
        )


def hot_blocks(
    plan: HotPlan,
    arms: Mapping[Arm, ToggleValues],
    orders: Callable[[int], str],
    *,
    first_block: int,
    on_block: Callable[[Block], bool],
    site: str = "",
    judge: Judge = undisturbed,
) -> Schedule:
    """
    A schedule that measures blocks until it is told to stop.

    Args:
        plan: How they are cut.
        arms: What is set for each arm: hot toggles only, those that differ.
        orders: Block number → `ABBA`, `BAAB`, …; A is the base.
        first_block: Number of the first block; a resumed study goes on counting.
        on_block: Takes each block when it is complete; returns whether to go on.
        site: Host and GPU set, for the block.
        judge: Names what disturbed the machine between two moments.

    Returns:
        The schedule. It raises a `UsageError` where the subject refuses a toggle, and a `SubjectError` where it does
        not take part.
    """

    def run(session: Session) -> None:
        launch = _HotLaunch(session, plan, arms)
        launch.warm_up()
        number = first_block
        while on_block(launch.measure_block(number, orders(number), site, judge)):
            if number == first_block + plan.num_pilot_blocks - 1:
                launch.settle_from_now_on()
            number += 1

    return run


def hot_results(
    logs: Sequence[EventLog], *, launch: str, site: str = "", judge: Judge = undisturbed
) -> tuple[tuple[ArmWindow, ...], tuple[Block, ...]]:
    """
    Complete windows and blocks of a launch from its events, however it ended.

    Each block's windows are adjusted by what was known when it ended, so that the same blocks come out as live. The
    windows of a block that was cut off are there too.
    """
    cut, warm = cut_windows(logs), warm_stretches(logs)
    numbers = sorted({window.switch.block for window in cut})
    windows: list[ArmWindow] = []
    for number in numbers:
        windows += _windows_of_last_block(_until_block(cut, number), warm, launch=launch, judge=judge)
    return tuple(windows), blocks_of(windows, [window.switch for window in cut], site=site)


class _HotLaunch:
    """One launch under alternation: what is in force, and what was measured so far."""

    def __init__(self, session: Session, plan: HotPlan, arms: Mapping[Arm, ToggleValues]) -> None:
        self._switching = Switching(session=session, window_timeout_s=plan.window_timeout_s, remedy="--method cold")
        self._session = session
        self._plan = plan
        self._arms = arms
        self._settle_steps = plan.max_settle_steps
        self._in_force: Arm | None = None
        self._window_tokens = plan.window_tokens or 0
        self._cut: list[HotWindow] = []
        self._warm: list[HotWindow] = []

    def warm_up(self) -> None:
        """Visit each arm until it is steady: what it does the first time only, compiling above all, is not measured."""
        for position, arm in enumerate(Arm):
            self._session.progress.stage(f"warming up the {arm}", total_s=self._session.plan.steady_timeout_s)
            switch = self._switch(arm, WARMUP_BLOCK, position, "AB", f"warm-up {arm}")
            self._switching.warm_up(switch, f"the {arm}")
            if not self._plan.window_tokens:
                steps = steps_under(self._session.watch.logs, switch)
                mean_tokens = sum(step.num_tokens for step in steps) / max(1, len(steps))
                # Of both arms, since a toggle may change what a step holds.
                self._window_tokens = max(self._window_tokens, round(self._plan.window_steps * mean_tokens))
        self._session.progress.stage("alternating base and candidate")

    def measure_block(self, number: int, order: str, site: str, judge: Judge) -> Block:
        """All windows of one block; no pause between them."""
        switches: list[Switch] = []
        for position, letter in enumerate(order):
            arm = ARM_OF[letter]
            switches.append(self._switch(arm, number, position, order, f"{number}.{position + 1} {arm}"))
            self._cut.append(self._switching.wait_for_window(switches[-1]))
        self._cut[-len(order) :] = self._cut_whole(switches)
        self._warm = self._warm or warm_stretches(self._session.watch.logs)
        # A window can be judged once a reading follows its end.
        self._session.watch.read_machine()
        windows = _windows_of_last_block(self._cut, self._warm, launch=self._session.run_id, judge=judge)
        (block,) = blocks_of(windows, [window.switch for window in self._cut], site=site)
        return block

    def settle_from_now_on(self) -> None:
        """Find how many steps to drop after a switch; later switches carry the number."""
        cost = fit_step_cost([*self._cut, *self._warm])
        changes = [after for _, after in after_changes(self._session.watch.logs, self._cut)]
        profiles = {arm: [log_excess(after, cost) for after in changes if after.switch.cell == arm] for arm in Arm}
        most = self._plan.max_settle_steps - 1
        # The step after a switch is dropped anyway: its profile begins with the second.
        found = max(1 + find_settle_steps(profiles[arm], most) for arm in Arm)
        self._settle_steps = max(self._plan.min_settle_steps, found)
        self._session.note(
            f"{self._settle_steps} steps are dropped after each change of arm, {self._plan.max_settle_steps} in the "
            f"first {self._plan.num_pilot_blocks} blocks (found from {sum(map(len, profiles.values()))} changes)"
        )

    def _cut_whole(self, switches: Sequence[Switch]) -> list[HotWindow]:
        """The windows of a complete block, each until the next switch, as `cut_windows` cuts them from the events."""
        logs = self._session.watch.logs
        known = [find_switch(logs, switch.command_id) or switch for switch in switches]
        ends_ns = [*(switch.at_ns for switch in known[1:]), None]
        found = (cut_window(logs, switch, until_ns=end_ns) for switch, end_ns in zip(known, ends_ns, strict=True))
        return [window for window in found if window is not None]

    def _switch(self, arm: Arm, block: int, position: int, order: str, label: str) -> Switch:
        planned = Switch(
            command_id=0,
            at_ns=0,
            cell=arm,
            block=block,
            position=position,
            order=order,
            label=label,
            settle_steps=IN_FORCE_STEPS if arm is self._in_force else self._settle_steps,
            window_tokens=self._window_tokens,
            runs_on=position < len(order) - 1,
        )
        switch = self._switching.switch(planned, self._arms[arm])
        self._in_force = arm
        return switch


def _until_block(cut: Sequence[HotWindow], number: int) -> list[HotWindow]:
    return [window for window in cut if window.switch.block <= number]


def _windows_of_last_block(
    cut: Sequence[HotWindow], warm: Sequence[HotWindow], *, launch: str, judge: Judge
) -> list[ArmWindow]:
    """The last block's windows, adjusted by a model of the steps before its end."""
    latest = cut[-MODEL_WINDOWS:]
    return [
        arm_window(window, launch=launch, judge=judge, log_tok_per_s=rate)
        for window, rate in zip(latest, adjusted_log_rates(latest, warm), strict=True)
        if window.switch.block == cut[-1].switch.block
    ]
