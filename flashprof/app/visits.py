"""
Any number of cells in one launch, in an order that is decided reading by reading: a search's hot launch.

    visit: (first time in the launch: switch, until it is warm) → switch → drop the settle steps → window → next visit?

A reading is given to the caller as soon as its window is complete, and the caller says what is visited next. The window
ends with the step that fills it, so that `visit_results` finds the same readings in the events of a launch that was
killed: what passes while the caller thinks is measured for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from flashprof.app.measure import Schedule
from flashprof.app.session import Session
from flashprof.app.switching import IN_FORCE_STEPS, Switching, after_changes, check_cut, later_half, warm_stretch
from flashprof.contracts.events import EventLog, Step
from flashprof.contracts.toggles import ToggleValues
from flashprof.stats.composition import adjusted_log_rates, fit_step_cost, log_excess
from flashprof.stats.settle import has_standstill, is_warm, settle_steps_of_changes
from flashprof.windows.costs import training_phases
from flashprof.windows.switches import (
    WARMUP_BLOCK,
    HotWindow,
    Judge,
    Switch,
    cut_windows,
    find_switch,
    find_switches,
    joint_steps,
    undisturbed,
)

MODEL_WINDOWS = 96
"""What batches cost is fitted on so many latest windows and warm-ups: some 1,000 steps each, as in `app.hot`."""
MIN_WARM_STEPS = 8
"""Level steps that show a cell to be warm, where a window has fewer."""
STANDSTILL = "a step of the cell's first window here took over 4 times as long as the others: compiling, or a pause"


@dataclass(frozen=True, kw_only=True)
class VisitPlan:
    """How a launch is cut into visits."""

    window_steps: int = 12
    """Tokens of a window are those of as many mean steps, counted until the launch's first window."""
    min_settle_steps: int = 1
    """As `HotPlan.min_settle_steps`: toggles in front of the queue need as many as the subject holds queued."""
    max_settle_steps: int = 12
    """Dropped after a change of cell until it is known how many are needed, and the most that ever are."""
    num_pilot_visits: int = 12
    """Changes between warm cells before it is asked how many are needed."""
    window_timeout_s: float = 600.0
    remedy: str | None = None
    """What the user can do where the subject cannot be switched; for the message."""

    def __post_init__(self) -> None:
        """Check ranges."""
        check_cut(
            min_settle_steps=self.min_settle_steps,
            max_settle_steps=self.max_settle_steps,
            window_steps=self.window_steps,
        )


@dataclass(frozen=True, kw_only=True)
class CellVisit:
    """One window of a cell, wanted."""

    cell: str
    """Its id."""
    values: ToggleValues = field(default_factory=dict)
    """What is set for it: hot toggles only."""
    mark: Mapping[str, Any] = field(default_factory=dict)
    """What it is measured for: plain JSON values, which come back with the reading."""


@dataclass(frozen=True, kw_only=True)
class VisitReading:
    """One window of a cell, measured. Times are the subject's monotonic clock."""

    cell: str
    mark: Mapping[str, Any]
    begun_ns: int
    """When the first command of the visit was in force; warm-up and settling lie between it and the window."""
    start_ns: int
    end_ns: int
    num_tokens: int
    num_steps: int
    log_tok_per_s: float
    """Adjusted for what the window's batches were made of, by what was known when it ended."""
    disturbances: tuple[str, ...] = ()
    """Why it is no evidence."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """As `Reading.phases`."""


OnReading = Callable[[VisitReading], CellVisit | None]
"""Takes each reading; returns what is visited next, or None for the end."""


def serve_visits(plan: VisitPlan, first: CellVisit, *, on_reading: OnReading, judge: Judge = undisturbed) -> Schedule:
    """
    A schedule that visits cells until there is no next one.

    Args:
        plan: How they are cut.
        first: Where to begin.
        on_reading: Says what follows.
        judge: Names what disturbed the machine between two moments.

    Returns:
        The schedule. It raises a `UsageError` where the subject refuses a toggle, and a `SubjectError` where it does
        not take part.
    """

    def run(session: Session) -> None:
        launch = _Visits(session, plan, judge)
        visit: CellVisit | None = first
        while visit is not None:
            visit = on_reading(launch.take(visit))

    return run


def visit_results(logs: Sequence[EventLog], *, judge: Judge = undisturbed) -> tuple[VisitReading, ...]:
    """
    The readings of a launch from its events, however it ended: by time, with the values that they had live.

    Args:
        logs: All processes of the launch.
        judge: Names what disturbed the machine between two moments; asked in the order of time.
    """
    cut = {window.switch.command_id: window for window in cut_windows(logs)}
    known = _Known()
    readings = []
    warm_up: Switch | None = None
    for switch in find_switches(logs):
        if switch.block == WARMUP_BLOCK:
            warm_up = switch
        elif switch.command_id in cut:
            readings.append(known.reading(logs, warm_up, cut[switch.command_id], judge))
            warm_up = None
    return tuple(readings)


class _Known:
    """What a launch has shown so far, as a reading's value depends on it."""

    def __init__(self) -> None:
        self.cut: list[HotWindow] = []
        self.warm: list[HotWindow] = []
        self._typical: Sequence[Step] = ()

    def reading(
        self, logs: Sequence[EventLog], warm_up: Switch | None, window: HotWindow, judge: Judge
    ) -> VisitReading:
        """
        The reading of the next window.

        Args:
            logs: All steps until its end, or more.
            warm_up: The visit's first switch, where it has two.
            window: Complete.
            judge: Names what disturbed the machine between two moments.
        """
        self.cut.append(window)
        if not self._typical:
            # The batches before the first window set the level of all, so that no later one moves it.
            self._typical = joint_steps(logs, 0, window.switch.at_ns)
            self._add(
                later_half(joint_steps(logs, 0, (warm_up or window.switch).at_ns), replace(window.switch, cell=""))
            )
        if warm_up:
            self._add(warm_stretch(logs, warm_up, window.switch))
        latest = self.cut[-MODEL_WINDOWS:]
        disturbances = judge(window.start_ns, window.end_ns)
        if warm_up and has_standstill(log_excess(window, None)):
            disturbances = (*disturbances, STANDSTILL)
        return VisitReading(
            cell=window.switch.cell,
            mark=window.switch.mark,
            begun_ns=(warm_up or window.switch).at_ns,
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            num_tokens=window.num_tokens,
            num_steps=len(window.steps),
            log_tok_per_s=adjusted_log_rates(latest, self.warm[-MODEL_WINDOWS:], typical=self._typical)[-1],
            disturbances=disturbances,
            phases=training_phases(logs, window.start_ns, window.end_ns, window.num_tokens),
        )

    def _add(self, stretch: HotWindow | None) -> None:
        self.warm += [stretch] if stretch else []


class _Visits:
    """One launch that goes from cell to cell: what is in force, and what was measured so far."""

    def __init__(self, session: Session, plan: VisitPlan, judge: Judge) -> None:
        self._switching = Switching(session=session, window_timeout_s=plan.window_timeout_s, remedy=plan.remedy)
        self._session = session
        self._plan = plan
        self._judge = judge
        self._known = _Known()
        self._num_visits = 0
        self._num_changes = 0
        self._warmed_up: dict[str, int] = {}
        """Cell → its first visit."""
        self._in_force = ""
        self._window_tokens = 1
        self._settle_steps = plan.max_settle_steps

    def take(self, visit: CellVisit) -> VisitReading:
        """Measure one window of a cell."""
        self._num_visits += 1
        watch = self._session.watch
        is_first = visit.cell not in self._warmed_up
        is_change = not is_first and visit.cell != self._in_force
        warm_up = self._warm_up(visit) if is_first else None
        switch = self._switch(visit, self._num_visits)
        window = self._switching.wait_for_window(switch)
        # A window can be judged once a reading follows its end.
        watch.read_machine()
        # As the lead rank acknowledged it, which another may have done before.
        began = find_switch(watch.logs, warm_up.command_id) if warm_up else None
        reading = self._known.reading(watch.logs, began, window, self._judge)
        self._num_changes += is_change
        if is_change and self._num_changes == self._plan.num_pilot_visits:
            self._settle_from_now_on()
        return reading

    def _warm_up(self, visit: CellVisit) -> Switch:
        progress, plan = self._session.progress, self._plan
        progress.stage(f"warming up {visit.cell}", total_s=self._session.plan.steady_timeout_s)
        switch = self._switch(visit, WARMUP_BLOCK)
        self._warmed_up[visit.cell] = self._num_visits
        num_level = max(plan.window_steps, MIN_WARM_STEPS)

        def is_soon_warm(since: Switch, steps: Sequence[Step]) -> bool:
            seen = steps[: plan.max_settle_steps + num_level]
            if len(seen) < plan.max_settle_steps + num_level:
                return False
            stretch = HotWindow(switch=since, start_ns=since.at_ns, steps=tuple(seen))
            return is_warm(log_excess(stretch, None), plan.max_settle_steps)

        self._switching.warm_up(switch, f"cell {visit.cell}", is_soon_warm)
        progress.stage("measuring, cell by cell")
        if self._num_visits == 1:
            steps = joint_steps(self._session.watch.logs, 0)
            self._window_tokens = max(1, round(plan.window_steps * fmean(step.num_tokens for step in steps)))
        return switch

    def _switch(self, visit: CellVisit, block: int) -> Switch:
        kind = "warm-up" if block == WARMUP_BLOCK else str(block)
        planned = Switch(
            command_id=0,
            at_ns=0,
            cell=visit.cell,
            block=block,
            position=0,
            order="",
            label=f"{kind} {visit.cell}",
            settle_steps=IN_FORCE_STEPS if visit.cell == self._in_force else self._settle_steps,
            window_tokens=self._window_tokens,
            mark=visit.mark,
        )
        switch = self._switching.switch(planned, visit.values)
        self._in_force = visit.cell
        return switch

    def _settle_from_now_on(self) -> None:
        """Find how many steps to drop after a change of cell; later switches carry the number."""
        known, logs = self._known, self._session.watch.logs
        cost = fit_step_cost([*known.cut, *known.warm])
        profiles, rises = [], []
        for before, after in after_changes(logs, known.cut):
            old, new = log_excess(before, cost), log_excess(after, cost)
            # A first visit's window follows its warm-up, not the change.
            if old and new and after.switch.block != self._warmed_up[after.switch.cell]:
                profiles.append(new)
                rises.append(fmean(old) - fmean(new))
        most = self._plan.max_settle_steps - 1
        # The step after a switch is dropped anyway: its profile begins with the second.
        found = 1 + settle_steps_of_changes(profiles, rises, most)
        self._settle_steps = max(self._plan.min_settle_steps, found)
        self._session.note(
            f"{self._settle_steps} steps are dropped after each change of cell, {self._plan.max_settle_steps} in the "
            f"first {self._plan.num_pilot_visits} changes (found from {len(profiles)} changes)"
        )
