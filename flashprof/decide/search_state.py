"""
What a search knows: `(state, observation) → state`, pure. What it makes of it is `decide.search`.

The journal of observations is the state: replayed, under whatever rule and budget, it gives the same next action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, SearchRule
from flashprof.decide.observations import CallBegan
from flashprof.decide.outcomes import HANDLING, Step, next_step
from flashprof.decide.search_observations import Built, LaunchEnded, Measured, SearchObservation, Undone, UserSkipped
from flashprof.decide.spaces import Space

if TYPE_CHECKING:
    from flashprof.stats.posterior import NoisePrior

HOT = "hot-"
COLD = "cold-"
MAX_BARREN = 4
"""Launches of one group in a row without a reading: whatever cell is to blame, the group is not worth more."""
WHOLE_GROUP = frozenset({Outcome.LOAD_FAILED, Outcome.NO_PERMISSION, Outcome.ENDED_EARLY, Outcome.WRONG_NUMBERS})
"""Failures that no single cell of a launch causes, or that cannot be laid at its door."""
MAY_PASS = frozenset({Outcome.KILLED, Outcome.HUNG, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.NO_PERMISSION})
"""What the machine may have done: a new call tries once more what failed by it. A crash is the cell's own."""

_DONE = {
    Step.RETRY: "to be tried again",
    Step.KEEP_BLOCKS: "its windows count",
    Step.SKIP_BLOCK: "left out from now on",
    Step.GIVE_UP_ARM: "left out from now on",
    Step.STOP_STUDY: "the search stops and keeps what it has",
}
_WRONG = "fast but wrong is wrong: none of its readings count"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCosts:
    """What measuring takes, in seconds."""

    window_s: float = 3.0
    switch_s: float = 1.0
    """To another cell within a launch."""
    start_s: float = 45.0
    """A launch, to its first window."""
    build_s: float = 0.0
    """A worktree with its environment; 0 where nothing is built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """What the user asked for."""

    space: Space
    rule: SearchRule = field(default_factory=SearchRule)
    costs: SearchCosts = field(default_factory=SearchCosts)
    noise: NoisePrior
    seed: int = 0
    is_hot: bool
    """Whether a launch can hold more than one cell."""
    confirm: bool = True
    """Whether launches of one cell each confirm what was proved within one."""
    num_windows_cold: int = 5
    """Windows of a launch that holds one cell."""
    built: frozenset[str] = frozenset()
    """Groups that need no build."""
    max_retries: int = 2
    """Never more than this, whatever an outcome's own rule allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFailure:
    """A launch or a build that is no measurement."""

    place: str
    """The cell or the group that is to blame."""
    group: str
    is_barren: bool
    """Whether it gave no reading."""
    outcome: Outcome
    step: Step
    sentence: str


ReadingKey = tuple[str, str, int, int, int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """All that is known. Made by `observe` alone."""

    plan: SearchPlan
    entries: tuple[Reading | UserSkipped, ...] = ()
    """What stands, in the order in which it was learnt; what was undone is gone."""
    seen: frozenset[ReadingKey] = frozenset()
    """Every reading ever, undone ones too: each counts once."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """Run id of each launch, in the order in which they were begun → its group."""
    first_at_s: Mapping[str, float] = field(default_factory=dict)
    """Run id → middle of its first window."""
    windows_s: Mapping[str, float] = field(default_factory=dict)
    """Run id → from the beginning of its first window to the end of its last, with what it took to choose them."""
    ended_s: Mapping[str, float] = field(default_factory=dict)
    """Run id → its whole life; only launches whose end was seen."""
    failures: tuple[SearchFailure, ...] = ()
    num_earlier_failures: int = 0
    """Those of earlier calls: they do not count as tries."""
    num_earlier_launches: int = 0
    """None of them runs any more."""
    built: frozenset[str] = frozenset()
    build_s: float = 0.0
    num_builds: int = 0
    num_reused: int = 0
    skipped: Mapping[str, SearchFailure] = field(default_factory=dict)
    """Groups and cells that are left out, with the failure that did it. Skip is not bad."""
    is_stopped: bool = False

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All that stand, without those of groups that gave wrong numbers."""
        group, wrong = self.plan.space.group, self.wrong
        found = (entry for entry in self.entries if isinstance(entry, Reading))
        return tuple(reading for reading in found if not wrong or group(reading.cell) not in wrong)

    @property
    def wrong(self) -> frozenset[str]:
        """Groups that gave wrong numbers."""
        return frozenset(place for place, failure in self.skipped.items() if failure.outcome is Outcome.WRONG_NUMBERS)

    @property
    def user_skips(self) -> frozenset[str]:
        """Cells that the user wants left out."""
        return frozenset(entry.cell for entry in self.entries if isinstance(entry, UserSkipped))

    @property
    def last_launch(self) -> str | None:
        """Run id of the launch that was begun last."""
        return next(iter([*self.group_of][-1:]), None)

    @property
    def running(self) -> str | None:
        """Run id of the launch that has begun and not ended, as far as readings tell."""
        last = self.last_launch
        is_old = len(self.group_of) <= self.num_earlier_launches
        return None if last is None or is_old or last in self.ended_s else last

    @property
    def spent_s(self) -> float:
        """Seconds spent by all calls; the start of a launch that still runs is taken from the plan."""
        return self.build_s + sum(map(self.life_s, self.group_of))

    def life_s(self, run_id: str) -> float:
        """Seconds that a launch took so far."""
        windows_s = self.windows_s.get(run_id, 0.0)
        if run_id in self.ended_s:
            return max(self.ended_s[run_id], windows_s)
        return windows_s + self.start_s

    @property
    def start_s(self) -> float:
        """What a start takes: the least that one took, or the plan's guess where that is less or none has ended."""
        # A guess that is too high would end a launch at the budget, and start another once its true life is known.
        ended = (
            (life_s, self.windows_s[run_id]) for run_id, life_s in self.ended_s.items() if run_id in self.windows_s
        )
        return min([self.plan.costs.start_s, *(max(0.0, life_s - windows_s) for life_s, windows_s in ended)])

    def why_skipped(self, cell: str) -> str:
        """Why *cell* cannot be measured; empty where it can."""
        if cell in self.user_skips:
            return "skipped by the user"
        failure = self.skipped.get(_cell_key(cell)) or self.skipped.get(self.plan.space.group(cell))
        return str(failure.outcome) if failure else ""

    def next_run_id(self, prefix: str) -> str:
        """Name of a new launch; never used twice in a search."""
        return f"{prefix}{1 + sum(run_id.startswith(prefix) for run_id in self.group_of)}"

    def needs_build(self, cell: str) -> bool:
        """Whether something must be built before *cell* can be launched."""
        group = self.plan.space.group(cell)
        return self.plan.costs.build_s > 0 and group not in self.built and group not in self.plan.built


def replay(plan: SearchPlan, observations: Iterable[SearchObservation]) -> SearchState:
    """The state after *observations*, under *plan*."""
    state = SearchState(plan=plan)
    for observation in observations:
        state = observe(state, observation)
    return state


def observe(state: SearchState, observation: SearchObservation) -> SearchState:
    """Learn one fact. What was seen before changes nothing: readings and launches count once."""
    match observation:
        case CallBegan():
            return _begin_call(state)
        case Measured(reading=reading):
            return state if _key(reading) in state.seen else _add_reading(state, reading)
        case LaunchEnded():
            return state if observation.run_id in state.ended_s else _end_launch(state, observation)
        case Built():
            return _end_build(state, observation)
        case UserSkipped():
            is_known = observation.cell in state.user_skips
            return state if is_known else replace(state, entries=(*state.entries, observation))
        case Undone(num=num):
            return replace(state, entries=state.entries[: max(0, len(state.entries) - num)])


def _begin_call(state: SearchState) -> SearchState:
    space = state.plan.space
    ends = {key for end in (space.good, space.bad) for key in (_cell_key(end), space.group(end))}
    kept = {
        place: failure
        for place, failure in state.skipped.items()
        # A crash is not tried again by each call, but without its ends a search is nothing: somebody repaired them.
        if failure.outcome is Outcome.WRONG_NUMBERS or (failure.outcome not in MAY_PASS and place not in ends)
    }
    return replace(
        state,
        num_earlier_failures=len(state.failures),
        num_earlier_launches=len(state.group_of),
        num_reused=len(state.readings),
        skipped=kept,
        is_stopped=False,
    )


def _key(reading: Reading) -> ReadingKey:
    place = (reading.proof, reading.block, reading.position)
    return (reading.launch, reading.stage.value, *place, reading.at_s)


def _cell_key(cell: str) -> str:
    """Cells and groups may have the same text: that of a commit."""
    return f"cell {cell}"


def _add_reading(state: SearchState, reading: Reading) -> SearchState:
    run_id = reading.launch
    group = state.group_of.get(run_id, state.plan.space.group(reading.cell))
    summed_s = state.windows_s.get(run_id, 0.0) + reading.length_s
    spanned_s = reading.at_s - state.first_at_s.get(run_id, reading.at_s) + reading.length_s
    return replace(
        state,
        entries=(*state.entries, reading),
        seen=state.seen | {_key(reading)},
        group_of={**state.group_of, run_id: group},
        first_at_s={run_id: reading.at_s, **state.first_at_s},
        windows_s={**state.windows_s, run_id: max(summed_s, spanned_s)},
    )


def _end_launch(state: SearchState, end: LaunchEnded) -> SearchState:
    state = replace(
        state,
        group_of={**state.group_of, end.run_id: state.group_of.get(end.run_id, end.group)},
        ended_s={**state.ended_s, end.run_id: end.length_s},
    )
    is_fruitful = end.run_id in state.windows_s
    if end.outcome.is_measurement and is_fruitful:
        return state
    # A launch that stops cleanly without a reading would do so for ever.
    outcome = Outcome.ENDED_EARLY if end.outcome.is_measurement else end.outcome
    is_cell = bool(end.cell) and outcome not in WHOLE_GROUP
    place = _cell_key(end.cell) if is_cell else end.group
    recent = state.failures[state.num_earlier_failures :]
    step = next_step(outcome, 1 + _num_tries(recent, place), max_retries=state.plan.max_retries)
    if is_fruitful and not is_cell and outcome is not Outcome.WRONG_NUMBERS and step is not Step.STOP_STUDY:
        # Each launch gets on by a reading at least, whatever ends it.
        step = Step.KEEP_BLOCKS
    failure = SearchFailure(
        place=place,
        group=end.group,
        is_barren=not is_fruitful,
        outcome=outcome,
        step=step,
        sentence=_sentence(end.run_id, end.cell if is_cell else "", outcome, step, end.reason),
    )
    return _with_failure(state, failure)


def _end_build(state: SearchState, end: Built) -> SearchState:
    state = replace(state, build_s=state.build_s + end.length_s, num_builds=state.num_builds + 1)
    if end.outcome.is_measurement:
        return replace(state, built=state.built | {end.group})
    recent = state.failures[state.num_earlier_failures :]
    # The same commit fails to build the same way, unless it was the machine.
    max_retries = 1 if end.outcome in MAY_PASS else 0
    step = next_step(end.outcome, 1 + _num_tries(recent, end.group), max_retries=max_retries)
    failure = SearchFailure(
        place=end.group,
        group=end.group,
        is_barren=True,
        outcome=end.outcome,
        step=step,
        sentence=_sentence(f"build of {end.group}", "", end.outcome, step, end.reason),
    )
    return _with_failure(state, failure)


def _num_tries(failures: Iterable[SearchFailure], place: str) -> int:
    return sum(failure.place == place and failure.step is not Step.KEEP_BLOCKS for failure in failures)


def _with_failure(state: SearchState, failure: SearchFailure) -> SearchState:
    failures = (*state.failures, failure)
    skipped = dict(state.skipped)
    if failure.step in (Step.SKIP_BLOCK, Step.GIVE_UP_ARM):
        skipped[failure.place] = failure
    barren = Counter(item.group for item in failures[state.num_earlier_failures :] if item.is_barren)
    is_alive = any(group == failure.group and run_id in state.windows_s for run_id, group in state.group_of.items())
    if barren[failure.group] >= MAX_BARREN and not is_alive:
        skipped[failure.group] = failure
    is_stopped = state.is_stopped or failure.step is Step.STOP_STUDY
    return replace(state, failures=failures, skipped=skipped, is_stopped=is_stopped)


def _sentence(what: str, cell: str, outcome: Outcome, step: Step, reason: str) -> str:
    """What failed, what was done about it and why, for the report."""
    where = f" in {cell}" if cell else ""
    why = _WRONG if outcome is Outcome.WRONG_NUMBERS else HANDLING[outcome].why
    because = "" if step in (Step.RETRY, Step.KEEP_BLOCKS) else f", {why}"
    return f"{what}: {outcome}{where}; {_DONE[step]}{because}. {reason[:1].upper()}{reason[1:]}".strip()


def failure_sentences(state: SearchState) -> tuple[str, ...]:
    """Failures; an interruption of an earlier call is none any more, since this call went on."""
    return tuple(
        failure.sentence
        for place, failure in enumerate(state.failures)
        if place >= state.num_earlier_failures or failure.step is not Step.STOP_STUDY
    )
