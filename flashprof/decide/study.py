"""
The course of one comparison, as a pure state machine: `(state, observation) → state`, `next_action(state)`.

    screen, hot blocks until clear ─→ verdict to be confirmed? ─→ cold pairs until clear ─→ finish
       └ hot launches fail ─────────────────────────────────────────↑

The journal of observations is the state: replayed, under whatever rule and budget, it gives the same next action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flashprof.contracts.comparison import Arm, Block, Comparison, DecisionRule, Method, Standing, Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.decide.actions import Action, Finish, LaunchCold, MeasureHot
from flashprof.decide.observations import CallBegan, ColdFailed, ColdLaunch, HotBlock, HotEnded, Observation
from flashprof.decide.orders import ARM_OF, block_order
from flashprof.decide.outcomes import HANDLING, MAX_SKIPS_IN_A_ROW, Step, failure_sentence, next_step
from flashprof.decide.plan import StudyPlan

Judge = Callable[[Sequence[Block], DecisionRule, float], Comparison]
"""(blocks of one method, rule, seconds spent on them) → what they say: `stats.compare.compare_blocks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A launch that is no measurement."""

    arm: Arm | None
    """None for a hot launch, which holds both."""
    block: int
    outcome: Outcome
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyState:
    """All that is known. Made by `observe` alone."""

    plan: StudyPlan
    hot_blocks: tuple[Block, ...] = ()
    hot_s: Mapping[str, float] = field(default_factory=dict)
    """Life of each hot launch so far, in seconds, by run id."""
    cold_launches: tuple[ColdLaunch, ...] = ()
    failed_s: float = 0.0
    """Life of the cold launches that failed."""
    failures: tuple[Failure, ...] = ()
    ended: frozenset[str] = frozenset()
    """Run ids whose end was seen; each ends once."""
    num_earlier_failures: int = 0
    """Those of earlier calls: they do not count as tries."""
    num_reused: int = 0
    num_barren: int = 0
    """Hot launches since the last block, or since this call began, that gave none."""
    skipped: frozenset[int] = frozenset()
    """Cold blocks."""
    skips_in_a_row: Mapping[Arm, int] = field(default_factory=dict)
    given_up: frozenset[Arm] = frozenset()
    is_hot_over: bool = False
    """Launches that hold both arms fail."""
    is_wrong: bool = False
    """A launch gave wrong numbers: the cell is wrong, and stays so."""
    is_stopped: bool = False

    @property
    def cold_blocks(self) -> tuple[Block, ...]:
        """Complete pairs, by number."""
        pairs = ((number, self.pair(number)) for number in sorted({launch.block for launch in self.cold_launches}))
        return tuple(_cold_block(self.plan, number, pair) for number, pair in pairs if len(pair) == len(Arm))

    @property
    def cold_s(self) -> float:
        """Seconds spent on launches of one arm, failed ones too."""
        return sum(launch.length_s for launch in self.cold_launches) + self.failed_s

    @property
    def spent_s(self) -> float:
        """Seconds spent on measuring by all calls."""
        return sum(self.hot_s.values()) + self.cold_s

    def pair(self, number: int) -> dict[Arm, ColdLaunch]:
        """The measurements of one cold block, none if it is skipped; the first of each arm counts."""
        found = (launch for launch in reversed(self.cold_launches) if launch.block == number)
        return {} if number in self.skipped else {launch.arm: launch for launch in found}

    def blocks(self, method: Method) -> tuple[Block, ...]:
        """Complete blocks of one method."""
        return self.hot_blocks if method is Method.HOT else self.cold_blocks


def replay(plan: StudyPlan, observations: Iterable[Observation]) -> StudyState:
    """The state after *observations*, under *plan*."""
    state = StudyState(plan=plan)
    for observation in observations:
        state = observe(state, observation)
    return state


def observe(state: StudyState, observation: Observation) -> StudyState:
    """Learn one fact. What was seen before changes nothing: blocks and launches count once."""
    match observation:
        case CallBegan():
            return _begin_call(state)
        case HotBlock():
            return _add_hot_block(state, observation)
        case HotEnded() | ColdLaunch() | ColdFailed() if observation.run_id in state.ended:
            return state
        case HotEnded():
            return _end_hot(_with_end(state, observation.run_id), observation)
        case ColdLaunch():
            skips = {arm: num for arm, num in state.skips_in_a_row.items() if arm is not observation.arm}
            launches = (*state.cold_launches, observation)
            return replace(_with_end(state, observation.run_id), cold_launches=launches, skips_in_a_row=skips)
        case ColdFailed():
            return _end_cold(_with_end(state, observation.run_id), observation)


def next_action(state: StudyState, judge: Judge) -> Action:
    """
    What to do now.

    Args:
        state: What is known.
        judge: Called with at least one block, of one method.
    """
    if state.is_wrong:
        return _finish(state, {})
    plan = state.plan
    made = {method: _judged(state, method, judge) for method in (Method.HOT, Method.COLD) if state.blocks(method)}
    screened, confirmed = made.get(Method.HOT), made.get(Method.COLD)
    if _is_clear(confirmed):
        return _finish(state, made)
    if Method.HOT in plan.methods and not _is_clear(screened) and not state.is_hot_over:
        return _next_hot(state) or _finish(state, made)
    if Method.COLD in plan.methods and _wants_cold(state, screened):
        return _next_cold(state) or _finish(state, made)
    return _finish(state, made)


def _begin_call(state: StudyState) -> StudyState:
    return replace(
        state,
        num_earlier_failures=len(state.failures),
        num_reused=len(state.hot_blocks) + len(state.cold_blocks),
        num_barren=0,
        skips_in_a_row={},
        given_up=frozenset(),
        is_hot_over=False,
        is_stopped=False,
    )


def _add_hot_block(state: StudyState, observation: HotBlock) -> StudyState:
    block = observation.block
    if any(known.number == block.number for known in state.hot_blocks):
        return state
    run_id = block.launches[0]
    life_s = max(observation.launch_s, state.hot_s.get(run_id, 0.0) + block.length_s)
    hot_s = {**state.hot_s, run_id: life_s}
    return replace(state, hot_blocks=(*state.hot_blocks, block), hot_s=hot_s, num_barren=0)


def _with_end(state: StudyState, run_id: str) -> StudyState:
    return replace(state, ended=state.ended | {run_id})


def _end_hot(state: StudyState, end: HotEnded) -> StudyState:
    life_s = max(end.length_s, state.hot_s.get(end.run_id, 0.0))
    state = replace(state, hot_s={**state.hot_s, end.run_id: life_s})
    is_fruitful = any(end.run_id in block.launches for block in state.hot_blocks)
    if end.outcome.is_measurement and is_fruitful:
        return state
    # A launch that stops cleanly without a block would do so for ever.
    outcome = Outcome.ENDED_EARLY if end.outcome.is_measurement else end.outcome
    num_barren = state.num_barren + (not is_fruitful)
    # A launch with blocks is a failure like any other where it stops the study.
    step = next_step(outcome, max(1, num_barren), max_retries=state.plan.max_retries)
    is_wrong = outcome is Outcome.WRONG_NUMBERS
    if is_fruitful and step is not Step.STOP_STUDY and not is_wrong:
        # Each launch gets on by a block at least, whatever ends it.
        step = Step.KEEP_BLOCKS
    sentence = failure_sentence(end.run_id, outcome, end.reason, step)
    return replace(
        state,
        failures=(*state.failures, Failure(arm=None, block=0, outcome=outcome, sentence=sentence)),
        num_barren=num_barren,
        is_hot_over=state.is_hot_over or step in (Step.SKIP_BLOCK, Step.GIVE_UP_ARM),
        is_wrong=state.is_wrong or is_wrong,
        is_stopped=state.is_stopped or step is Step.STOP_STUDY,
    )


def _end_cold(state: StudyState, end: ColdFailed) -> StudyState:
    recent = state.failures[state.num_earlier_failures :]
    num_failures = 1 + sum((end.arm, end.block) == (failure.arm, failure.block) for failure in recent)
    step = next_step(end.outcome, num_failures, max_retries=state.plan.max_retries)
    skips = dict(state.skips_in_a_row)
    if step is Step.SKIP_BLOCK:
        skips[end.arm] = skips.get(end.arm, 0) + 1
    is_given_up = step is Step.GIVE_UP_ARM or skips.get(end.arm, 0) >= MAX_SKIPS_IN_A_ROW
    done = Step.GIVE_UP_ARM if is_given_up else step
    sentence = failure_sentence(end.run_id, end.outcome, end.reason, done)
    failure = Failure(arm=end.arm, block=end.block, outcome=end.outcome, sentence=sentence)
    return replace(
        state,
        failures=(*state.failures, failure),
        failed_s=state.failed_s + end.length_s,
        skipped=state.skipped | {end.block} if step is Step.SKIP_BLOCK else state.skipped,
        skips_in_a_row=skips,
        given_up=state.given_up | {end.arm} if is_given_up else state.given_up,
        is_wrong=state.is_wrong or end.outcome is Outcome.WRONG_NUMBERS,
        is_stopped=state.is_stopped or step is Step.STOP_STUDY,
    )


def _cold_block(plan: StudyPlan, number: int, pair: Mapping[Arm, ColdLaunch]) -> Block:
    base, candidate = pair[Arm.BASE], pair[Arm.CANDIDATE]
    order = block_order(plan.seed, number, 2)
    disturbances = dict.fromkeys((*base.disturbances, *candidate.disturbances))
    if base.site != candidate.site:
        disturbances[f"its launches ran on {base.site} and on {candidate.site}"] = None
    return Block(
        number=number,
        method=Method.COLD,
        order=order,
        launches=tuple(pair[ARM_OF[letter]].run_id for letter in order),
        site=base.site,
        difference=candidate.log_tok_per_s - base.log_tok_per_s,
        base_log_tok_per_s=base.log_tok_per_s,
        num_windows=base.num_windows + candidate.num_windows,
        length_s=base.length_s + candidate.length_s,
        disturbances=tuple(disturbances),
    )


def _judged(state: StudyState, method: Method, judge: Judge) -> Comparison:
    spent_s = sum(state.hot_s.values()) if method is Method.HOT else state.cold_s
    return judge(state.blocks(method), state.plan.rule, spent_s)


def _is_clear(comparison: Comparison | None) -> bool:
    return comparison is not None and comparison.verdict is not Verdict.INCONCLUSIVE


def _wants_cold(state: StudyState, screened: Comparison | None) -> bool:
    """Where nothing is screened, where screening failed, and where its verdict is one to confirm."""
    if Method.HOT not in state.plan.methods or screened is None or not _is_clear(screened):
        return True
    return screened.verdict in state.plan.confirmed


def _may_go_on(state: StudyState) -> bool:
    return not state.is_stopped and not state.given_up


def _next_hot(state: StudyState) -> MeasureHot | None:
    if not _may_go_on(state) or state.spent_s >= state.plan.rule.budget_s:
        return None
    # A launch that still runs has blocks but no end yet: it goes on under its own number.
    launch = 1 + sum(run_id.startswith("hot-") for run_id in state.ended)
    first_block = 1 + max((block.number for block in state.hot_blocks), default=0)
    return MeasureHot(launch=launch, first_block=first_block, site=state.plan.site(launch))


def _next_cold(state: StudyState) -> LaunchCold | None:
    seen = {launch.block for launch in state.cold_launches}
    seen |= {failure.block for failure in state.failures if failure.arm is not None}
    is_open = (number for number in sorted(seen - state.skipped) if len(state.pair(number)) < len(Arm))
    number = next(is_open, 1 + max(seen, default=0))
    pair = state.pair(number)
    arm = next(ARM_OF[letter] for letter in block_order(state.plan.seed, number, 2) if ARM_OF[letter] not in pair)
    num_failures = sum((arm, number) == (failure.arm, failure.block) for failure in state.failures)
    # The other launch of a pair is tried once beyond the budget: without it the first was for nothing.
    is_over = state.spent_s >= state.plan.rule.budget_s and (not pair or num_failures > 0)
    if is_over or not _may_go_on(state):
        return None
    site = next((launch.site for launch in pair.values()), state.plan.site(number))
    return LaunchCold(arm=arm, block=number, attempt=1 + num_failures, site=site)


def _finish(state: StudyState, made: Mapping[Method, Comparison]) -> Finish:
    screened, confirmed = made.get(Method.HOT), made.get(Method.COLD)
    clear = [comparison for comparison in (confirmed, screened) if comparison and _is_clear(comparison)]
    by_cold = bool(clear) and clear[0] is confirmed
    return Finish(
        verdict=clear[0].verdict if clear else Verdict.INCONCLUSIVE,
        standing=Standing.CONFIRMED if by_cold else Standing.SCREENED,
        comparisons=tuple(made.values()),
        spent_s=state.spent_s,
        num_reused=state.num_reused,
        failures=_sentences(state),
        notes=_notes(state, screened, confirmed),
    )


def _sentences(state: StudyState) -> tuple[str, ...]:
    """Failures; an interruption of an earlier call is none any more, since this call went on."""
    return tuple(
        failure.sentence
        for place, failure in enumerate(state.failures)
        if place >= state.num_earlier_failures or HANDLING[failure.outcome].then is not Step.STOP_STUDY
    )


def _notes(state: StudyState, screened: Comparison | None, confirmed: Comparison | None) -> tuple[str, ...]:
    notes = []
    if state.is_wrong:
        notes.append("a launch gave wrong numbers: nothing is compared, and --fresh starts over once that is repaired")
    if state.is_hot_over and not state.is_wrong:
        notes.append("launches that hold both arms failed, so nothing more was screened in one")
    if screened and confirmed and _is_clear(screened) and screened.verdict is not confirmed.verdict:
        said = f"hot blocks said {screened.verdict}"
        if _is_clear(confirmed):
            notes.append(f"{said}, cold launches say {confirmed.verdict}: the cold ones stand")
        else:
            notes.append(f"{said}, cold launches have not confirmed it yet")
    return tuple(notes)
