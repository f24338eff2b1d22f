"""Simulated subjects for searches: they do what a search wants, and tell it what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, Stage
from flashprof.decide.choices import Engine
from flashprof.decide.commit_space import CommitInfo, CommitSpace
from flashprof.decide.observations import CallBegan
from flashprof.decide.search import next_action
from flashprof.decide.search_actions import Build, Finish, SearchAction, Visit
from flashprof.decide.search_observations import Built, LaunchEnded, Measured, SearchObservation
from flashprof.decide.search_state import SearchCosts, SearchPlan, SearchState, observe, replay
from flashprof.decide.spaces import Space
from flashprof.decide.toggle_space import ToggleSpace
from flashprof.stats.posterior import NoisePrior

LEVEL = 9.5
HOT_COSTS = SearchCosts(window_s=3.0, switch_s=1.0, start_s=45.0)
MAX_ACTIONS = 2000


@dataclass(frozen=True, kw_only=True)
class World:
    """A subject whose speed is known, but for its noise."""

    space: Space
    effects: Mapping[tuple[str, ...], float]
    """Members of a term → its effect on log tok/s."""
    window_sd: float = 0.01
    launch_sd: float = 0.0
    broken: frozenset[str] = frozenset()
    """Groups that do not build."""
    crashing: frozenset[str] = frozenset()
    """Cells that crash."""
    seed: int = 0

    def log_tok_per_s(self, cell: str) -> float:
        """Without noise."""
        row = self.space.rows([cell])[0]
        names = [tuple(members) for members in self.space.terms.names]
        return LEVEL + sum(row[names.index(members)] * effect for members, effect in self.effects.items())

    def reading(self, visit: Visit, num: int) -> Reading:
        """The *num*-th window: the same one however often it is asked for."""
        noise = np.random.default_rng([self.seed, num]).normal(0, self.window_sd)
        launch = np.random.default_rng([self.seed, *visit.run_id.encode()]).normal(0, self.launch_sd)
        return reading(visit, num, self.log_tok_per_s(visit.cell) + noise + launch)


@dataclass(kw_only=True)
class Run:
    """One search, from its first call to its answer."""

    state: SearchState
    observations: list[SearchObservation] = field(default_factory=list)
    steps: list[tuple[int, SearchAction]] = field(default_factory=list)
    """How many observations were there, and what was wanted then."""

    @property
    def answer(self) -> Finish:
        """What it ended with."""
        action = self.steps[-1][1]
        assert isinstance(action, Finish), action
        return action

    @property
    def visits(self) -> list[Visit]:
        """Windows wanted, in order."""
        return [action for _, action in self.steps if isinstance(action, Visit)]

    def learn(self, observation: SearchObservation) -> None:
        """One more fact."""
        self.observations.append(observation)
        self.state = observe(self.state, observation)


def reading(visit: Visit, num: int, value: float, **changes: object) -> Reading:
    """The window that *visit* wants, the *num*-th of the search."""
    made = Reading(
        cell=visit.cell,
        launch=visit.run_id,
        stage=visit.stage,
        block=visit.block,
        position=visit.position,
        proof=visit.proof,
        at_s=1.8e9 + 4.0 * num,
        length_s=3.0,
        log_tok_per_s=value,
        num_tokens=10_000,
    )
    return replace(made, **changes)


def search_reading(cell: str, num: int, value: float = LEVEL, launch: str = "hot-1", **changes: object) -> Measured:
    """A window of the search itself."""
    visit = Visit(cell=cell, group="", run_id=launch, stage=Stage.SEARCH, why="")
    return Measured(reading=reading(visit, num, value, **changes))


def drive(
    plan: SearchPlan,
    world: World,
    *,
    engine: Engine | None = None,
    journal: Sequence[SearchObservation] = (),
    max_steps: int = MAX_ACTIONS,
) -> Run:
    """Call FlashProf once, after *journal*, until it has an answer or *max_steps* were taken (then it is killed)."""
    begun = [*journal, CallBegan()]
    run = Run(state=replay(plan, begun), observations=begun)
    running: tuple[str, str] | None = None
    for _ in range(max_steps):
        action = next_action(run.state, engine)
        run.steps.append((len(run.observations), action))
        if isinstance(action, Finish):
            return run
        if isinstance(action, Build):
            is_broken = action.group in world.broken
            outcome = Outcome.CRASHED if is_broken else Outcome.COMPLETED
            run.learn(Built(group=action.group, outcome=outcome, length_s=60.0))
            continue
        if running is not None and running[0] != action.run_id:
            run.learn(LaunchEnded(run_id=running[0], group=running[1], outcome=Outcome.COMPLETED, length_s=60.0))
        running = (action.run_id, action.group)
        if action.cell in world.crashing:
            end = LaunchEnded(
                run_id=action.run_id, group=action.group, outcome=Outcome.CRASHED, length_s=9.0, cell=action.cell
            )
            run.learn(end)
            running = None
            continue
        num = sum(isinstance(observation, Measured) for observation in run.observations)
        run.learn(Measured(reading=world.reading(action, num)))
    assert max_steps < MAX_ACTIONS, "the search never ends"
    return run


def toggle_space(names: Sequence[str], *, cold: Sequence[str] = (), **changes: object) -> ToggleSpace:
    """All good values on, all bad ones off."""
    return ToggleSpace(
        names=tuple(names),
        good_values=dict.fromkeys(names, True),
        bad_values=dict.fromkeys(names, False),
        hot=frozenset(names) - frozenset(cold),
        **changes,
    )


def line_of_commits(num: int, **changes: object) -> CommitSpace:
    """`c0` … one after the other, after the good commit `base`."""
    commits = [CommitInfo(id=f"c{place}", parents=(f"c{place - 1}" if place else "base",)) for place in range(num)]
    return CommitSpace(commits=tuple(commits), good="base", bad=f"c{num - 1}", **changes)


def hot_plan(space: Space, **changes: object) -> SearchPlan:
    """A search within launches that hold all cells."""
    return replace(SearchPlan(space=space, costs=HOT_COSTS, noise=NoisePrior(), is_hot=True), **changes)


def cold_plan(space: Space, **changes: object) -> SearchPlan:
    """A search with a launch for each cell."""
    costs = SearchCosts(window_s=3.0, switch_s=1.0, start_s=20.0, build_s=60.0)
    made = SearchPlan(space=space, costs=costs, noise=NoisePrior(), is_hot=False, num_windows_cold=3)
    return replace(made, **changes)
