"""FlashProf's search on a simulated subject: `flashprof.decide.search` chooses, `benchmarks.bisect_worlds` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.bisect_worlds import START_S, WINDOW_S, LaunchOverError, Term, World
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, SearchRule, Stage
from flashprof.decide.observations import CallBegan
from flashprof.decide.search import Thought, think
from flashprof.decide.search_actions import Finish, SearchAction, Visit
from flashprof.decide.search_observations import LaunchEnded, Measured, SearchObservation
from flashprof.decide.search_state import SearchCosts, SearchPlan, SearchState, observe, replay
from flashprof.stats.posterior import NoisePrior

EPOCH_S = 1.8e9
LEVEL = 9.5
"""log tok/s of the good cell: 13K."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is believed at one moment."""

    leading: frozenset[Term] | None
    """What would be named."""
    stated: float
    """Its probability, with all hypotheses that say no more."""
    hypotheses: tuple[frozenset[Term], ...]
    """Of the posterior itself, the likeliest first."""
    probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a search ended."""

    look: Look | None
    """What it believed at the end; None where not both ends were measured."""
    capped: Look | None
    """The same after `cap` windows, or at the end where that was sooner."""
    is_certain: bool
    """Whether it was certain enough to go to the proof."""
    num_search: int
    """Windows taken to search."""
    num_proof: int
    """Windows taken to prove."""
    finish: Finish | None
    """The answer with its proofs; None where only the search was wanted, or it gave up."""
    observations: tuple[SearchObservation, ...]
    visits: tuple[Visit, ...]
    """Of this call."""

    @property
    def named(self) -> frozenset[Term] | None:
        """What it says matters; None where it does not commit itself."""
        return self.look.leading if self.look and self.is_certain else None


def make_plan(world: World, noise: NoisePrior, *, seed: int) -> SearchPlan:
    """
    A search that counts windows: a start costs none, so that "most information a second" is "… a window".

    Time has no limit here; how many windows may be taken is the caller's.
    """
    return SearchPlan(
        space=world.space,
        # What is asked here is which set is exactly right; a proof's own windows are counted apart.
        rule=SearchRule(budget_s=1e9, proves_early=False),
        costs=SearchCosts(window_s=WINDOW_S, switch_s=0.0, start_s=START_S if world.is_hot else 0.0),
        noise=noise,
        seed=seed,
        is_hot=world.is_hot,
        confirm=False,
        num_windows_cold=1,
    )


def flashprof_search(
    world: World,
    plan: SearchPlan,
    *,
    cap: int = 24,
    most: int = 60,
    prove: bool = False,
    trust_nothing: bool = False,
    journal: Sequence[SearchObservation] = (),
    kill_at: int | None = None,
) -> Answer:
    """
    Search until the leading hypothesis is certain enough.

    Args:
        world: The subject.
        plan: What is asked.
        cap: Number of windows after which a look is taken.
        most: Windows of the search after which it gives up.
        prove: Whether to go on until the culprit is proved.
        trust_nothing: Whether to stop too where nothing seems to matter. Else good and bad are compared by blocks,
            as FlashProf does it, and where they differ the search goes on.
        journal: Of an earlier call, which was killed.
        kill_at: Stop dead after so many observations in all.
    """
    course = _Course(plan=plan, world=world, observations=[*journal, CallBegan()], call=len(journal))
    capped: Look | None = None
    while True:
        thought = think(course.state)
        action, is_certain = thought.action, not _searches(thought.action)
        num_search = sum(reading.stage is Stage.SEARCH for reading in course.state.readings)
        look = _look(plan, thought)
        is_settled = is_certain and (trust_nothing or (look is not None and bool(look.leading)))
        if capped is None and (num_search >= cap or is_settled):
            capped = look
        is_given_up = num_search >= most and not is_certain
        is_killed = kill_at is not None and len(course.observations) >= kill_at
        if not isinstance(action, Visit) or is_given_up or is_killed or (is_settled and not prove):
            break
        course.measure(action)
    return Answer(
        look=look,
        capped=capped or look,
        is_certain=is_certain,
        num_search=num_search,
        num_proof=len(course.state.readings) - num_search,
        finish=action if isinstance(action, Finish) else None,
        observations=tuple(course.observations),
        visits=tuple(course.visits),
    )


@dataclass(kw_only=True)
class _Course:
    """One call: what was wanted, what came of it."""

    plan: SearchPlan
    world: World
    observations: list[SearchObservation]
    call: int
    """Sets its launches apart from those of earlier calls."""
    visits: list[Visit] = field(default_factory=list)
    state: SearchState = field(init=False)
    running: Visit | None = None

    def __post_init__(self) -> None:
        """What was known before."""
        self.state = replay(self.plan, self.observations)

    def measure(self, visit: Visit) -> None:
        """One window, or the end of a launch that has none left."""
        if self.running is not None and self.running.run_id != visit.run_id:
            self._learn(_end(self.running))
        self.running = visit
        try:
            value = self.world.measure(visit.cell, f"{self.call}/{visit.run_id}")
        except LaunchOverError:
            self._learn(_end(visit))
            self.running = None
            return
        self.visits.append(visit)
        self._learn(Measured(reading=_reading(visit, self.world, value)))

    def _learn(self, observation: SearchObservation) -> None:
        self.observations.append(observation)
        self.state = observe(self.state, observation)


def _searches(action: SearchAction) -> bool:
    return isinstance(action, Visit) and action.stage is Stage.SEARCH


def _look(plan: SearchPlan, thought: Thought) -> Look | None:
    if thought.view is None:
        return None
    view, names = thought.view, plan.space.terms.names
    leading = view.leading
    causes = () if leading is None else (*leading.culprits, *leading.gains)
    return Look(
        leading=None if leading is None else frozenset(cause.members for cause in causes),
        stated=0.0 if leading is None else leading.probability,
        hypotheses=tuple(frozenset(names[term] for term in terms) for terms in view.posterior.hypotheses),
        probabilities=tuple(map(float, view.posterior.probabilities)),
    )


def _end(visit: Visit) -> LaunchEnded:
    return LaunchEnded(run_id=visit.run_id, group=visit.group, outcome=Outcome.COMPLETED, length_s=START_S)


def _reading(visit: Visit, world: World, value: float) -> Reading:
    return Reading(
        cell=visit.cell,
        launch=visit.run_id,
        stage=visit.stage,
        block=visit.block,
        position=visit.position,
        proof=visit.proof,
        at_s=EPOCH_S + world.now_s,
        length_s=WINDOW_S,
        log_tok_per_s=LEVEL + value,
        num_tokens=40_000,
    )
