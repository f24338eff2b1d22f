"""
May the search be trusted, for `benchmarks.bisect_simulation`: what one trial shows of it.

Whether what it states with 95 % is right in 95 of 100 searches whose truth was drawn from its own prior; whether a
search that is killed and resumed ends as it would have; what a proof costs; what hot switching saves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.bisect_flashprof import Answer, Look, flashprof_search, make_plan
from benchmarks.bisect_worlds import START_S, WINDOW_S, World, commit_world, drawn_world, toggle_world
from flashprof.contracts.search import Reading, Stage
from flashprof.decide.proofs import NUM_HOT_WINDOWS
from flashprof.decide.search_actions import Visit
from flashprof.decide.search_observations import (
    Measured,
    SearchObservation,
    search_observation_from_json,
    search_observation_to_json,
)
from flashprof.decide.search_state import SearchPlan
from flashprof.stats.posterior import NoisePrior

MASS = 0.95
NUM_EARLY = 12
"""Windows after which a credible set is drawn too: at the end of a search it mostly holds one hypothesis."""
SWITCH_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Belief:
    """One search whose truth was drawn from the prior."""

    is_certain: bool
    stated: float
    is_right: bool
    """Whether what would be named is all that matters, but for what is no larger than usual."""
    covers: bool
    """Whether the randomised 95 % set of hypotheses holds the truth, at the end."""
    covers_early: bool
    """The same after `NUM_EARLY` windows."""
    num_windows: int


@dataclass(frozen=True, kw_only=True)
class Proved:
    """One search with its proofs, and the same one killed once and resumed."""

    verdict: str
    is_right: bool
    num_search: int
    num_proof: int
    saved: float
    """Wall time of one start per cell over that of this search."""
    is_same: bool
    """Whether the one that was killed came to the same verdict and culprits."""
    num_twice: int
    """Windows that it measured again though they counted already."""
    num_lost: int
    """Windows of a block that the kill cut: its windows must share a launch."""
    killed_at: int


def belief_trial(kind: str, noise: str, seed: int, *, most: int) -> Belief:
    """Search in a world that the prior drew."""
    world = drawn_world(kind, noise, seed)
    plan = make_plan(world, NoisePrior(), seed=seed)
    answer = flashprof_search(world, plan, cap=NUM_EARLY, most=most, trust_nothing=True)
    assert answer.look is not None, "both ends are measured first"
    assert answer.capped is not None, "as long as it takes more than one window"
    rng = np.random.default_rng([seed, 3])
    return Belief(
        is_certain=answer.is_certain,
        stated=answer.look.stated,
        is_right=is_right(plan, world, answer.look),
        covers=is_covered(answer.look, world, rng),
        covers_early=is_covered(answer.capped, world, rng),
        num_windows=answer.num_search,
    )


def is_covered(look: Look, world: World, rng: np.random.Generator) -> bool:
    """Whether the truth is in the smallest set of `MASS`; the last hypothesis counts by the share that it takes."""
    before = 0.0
    for hypothesis, probability in zip(look.hypotheses, look.probabilities, strict=True):
        if before >= MASS:
            return False
        if hypothesis == world.truth:
            return bool(rng.random() < min(1.0, (MASS - before) / probability))
        before += probability
    return False


def is_right(plan: SearchPlan, world: World, look: Look) -> bool:
    """Whether nothing that matters is missing but what is no larger than usual, and nothing is named for nothing."""
    if look.leading is None or not look.leading <= world.truth:
        return False
    usual_sd = dict(zip(world.space.terms.names, world.space.terms.spike_sd.tolist(), strict=True))
    return all(
        abs(world.effects[term]) <= max(plan.rule.tolerance, 2 * usual_sd[term]) for term in world.truth - look.leading
    )


def proof_trial(kind: str, case: str, noise: str, seed: int) -> Proved:
    """A search to its end, and the same one killed at a random observation."""
    whole_world, plan = _world_and_plan(kind, case, noise, seed)
    whole = flashprof_search(whole_world, plan, prove=True, most=100)
    rng = np.random.default_rng([seed, 4])
    at = int(rng.integers(2, max(len(whole.observations), 3)))
    world, plan = _world_and_plan(kind, case, noise, seed)
    killed = flashprof_search(world, plan, prove=True, most=100, kill_at=at)
    journal = through_json(killed.observations)
    resumed = flashprof_search(world, plan, prove=True, most=100, journal=journal)
    return Proved(
        verdict=str(whole.finish.verdict) if whole.finish else "given up",
        is_right=whole.named == whole_world.truth,
        num_search=whole.num_search,
        num_proof=whole.num_proof,
        saved=saved(whole, whole_world),
        is_same=_told(whole) == _told(resumed),
        num_twice=num_twice(journal, resumed.visits, is_hot=plan.is_hot),
        num_lost=num_lost(journal) if plan.is_hot else 0,
        killed_at=at,
    )


def through_json(observations: Sequence[SearchObservation]) -> list[SearchObservation]:
    """As a journal keeps them."""
    lines = [json.dumps(search_observation_to_json(observation)) for observation in observations]
    return [search_observation_from_json(json.loads(line)) for line in lines]


def num_twice(journal: Sequence[SearchObservation], visits: Sequence[Visit], *, is_hot: bool) -> int:
    """Windows that are wanted again though the block that they belong to was complete, or had them in a cold launch."""
    readings = _readings(journal)
    if is_hot:
        done = {block[:2] for block, num in _blocks(readings).items() if num >= NUM_HOT_WINDOWS}
        return sum((visit.proof, visit.block) in done for visit in visits if visit.block)
    taken = {(reading.proof, reading.block, reading.cell) for reading in readings if reading.block}
    return sum((visit.proof, visit.block, visit.cell) in taken for visit in visits if visit.block)


def num_lost(journal: Sequence[SearchObservation]) -> int:
    """Windows of hot blocks that the journal holds a part of only."""
    return sum(num for num in _blocks(_readings(journal)).values() if num < NUM_HOT_WINDOWS)


def saved(answer: Answer, world: World) -> float:
    """How many times longer one start per cell would have taken for the same windows, each start eight minutes."""
    num = answer.num_search + answer.num_proof
    num_cells = len({visit.cell for visit in answer.visits})
    hot_s = world.num_launches * START_S + num * (WINDOW_S + SWITCH_S)
    return (num_cells * START_S + num * WINDOW_S) / hot_s


def _world_and_plan(kind: str, case: str, noise: str, seed: int) -> tuple[World, SearchPlan]:
    world = toggle_world(case, noise, seed) if kind == "toggles" else commit_world(float(case), noise, seed)
    plan = make_plan(world, NoisePrior(), seed=seed)
    return world, plan


def _told(answer: Answer) -> tuple[object, ...]:
    finish = answer.finish
    return (None,) if finish is None else (finish.verdict, finish.culprits, finish.gains)


def _readings(journal: Sequence[SearchObservation]) -> list[Reading]:
    return [item.reading for item in journal if isinstance(item, Measured)]


def _blocks(readings: Sequence[Reading]) -> Counter[tuple[int, int, str]]:
    """Windows of each block by the launch that they lie in."""
    proofs = (reading for reading in readings if reading.stage is not Stage.SEARCH)
    return Counter((reading.proof, reading.block, reading.launch) for reading in proofs)
