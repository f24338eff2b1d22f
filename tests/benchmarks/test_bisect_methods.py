"""The bisect simulation: every method finds what plain noise cannot hide, and the yardsticks are straight."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import bisect_worlds
from benchmarks.bisect_flashprof import Look, flashprof_search, make_plan
from benchmarks.bisect_measures import bisect_measures, table_lines
from benchmarks.bisect_methods import COMMIT_METHODS, TOGGLE_METHODS, Method
from benchmarks.bisect_simulation import STUDIES, make_jobs
from benchmarks.bisect_trust import is_covered, num_lost, num_twice, proof_trial, through_json
from benchmarks.bisect_worlds import (
    DROP,
    TOGGLES,
    LaunchOverError,
    World,
    commit_world,
    drawn_world,
    noise_sd,
    toggle_space,
    toggle_world,
    windows_of,
)
from flashprof.contracts.search import Reading, Stage
from flashprof.decide.search_actions import Visit
from flashprof.decide.search_observations import Measured, SearchObservation
from flashprof.stats.posterior import NoisePrior

WINDOWS = {"asv_find": 9, "git_bisect": 7, "git_bisect_median_5": 35}
"""Of the published table, for 128 commits."""
DESIGNS = {"one_at_a_time": 27, "leave_one_out": 27, "plackett_burman": 12, "fractional_factorial": 32}


def quiet(world: World) -> World:
    """The same subject, almost without noise."""
    return replace(world, noise="gauss_0.1")


@pytest.mark.parametrize("name", COMMIT_METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_commit_method_finds_a_commit_that_noise_does_not_hide(name: str, seed: int) -> None:
    world = quiet(commit_world(17.0, "gauss_2", seed))

    found = COMMIT_METHODS[name](world)

    assert world.truth == found
    assert WINDOWS.get(name, world.num_windows) == world.num_windows


@pytest.mark.parametrize(("name", "method"), TOGGLE_METHODS.items())
def test_toggle_method_finds_one_culprit(name: str, method: Method) -> None:
    world = quiet(toggle_world("one", "gauss_2", 3))

    found = method(world)

    assert world.truth == found
    assert DESIGNS.get(name, world.num_windows) == world.num_windows


@pytest.mark.parametrize(
    ("name", "finds_pair"),
    [("one_at_a_time", False), ("leave_one_out", True), ("ddmin", True), ("fractional_factorial", True)],
)
def test_pair_shows_only_where_both_are_bad(name: str, finds_pair: bool) -> None:
    world = quiet(toggle_world("pair", "gauss_2", 5))

    found = TOGGLE_METHODS[name](world)

    named = {member for term in found or () for member in term}
    assert finds_pair == (named == {member for term in world.truth for member in term})


def test_method_may_be_wrong_where_noise_is_as_large_as_the_drop() -> None:
    worlds = [commit_world(5.0, "gauss_5", seed) for seed in range(20)]

    right = [COMMIT_METHODS["git_bisect"](world) == world.truth for world in worlds]

    assert sum(right) < len(right)


@pytest.mark.parametrize(("case", "num"), [("one", 1), ("two", 2), ("unequal", 2), ("pair", 1)])
def test_culprits_cost_the_whole_drop(case: str, num: int) -> None:
    world = toggle_world(case, "gauss_2", 7)

    others = [effect for term, effect in world.effects.items() if term not in world.truth]
    assert num == len(world.truth)
    assert world.level(world.space.bad) == pytest.approx(np.log1p(-DROP) + sum(others))
    assert max(map(abs, others)) <= bisect_worlds.OTHERS


def test_hot_world_starts_once_and_a_cold_one_for_each_cell() -> None:
    hot, cold = toggle_world("one", "gauss_2", 1), commit_world(17.0, "gauss_2", 1)

    for cell in ("good", "bad", "good"):
        hot.measure(cell)
    for cell in ("base", "c127", "c127", "base"):
        cold.measure(cell)

    assert (1, 3) == (hot.num_launches, hot.num_windows)
    assert (3, 4) == (cold.num_launches, cold.num_windows)


@pytest.mark.parametrize("noise", ["vm", "host", "steps_cpu", "steps_h200"])
def test_recorded_launch_gives_its_windows_in_order_and_ends(noise: str) -> None:
    world = toggle_world("one", noise, 2)
    values = list[float]()
    with contextlib.suppress(LaunchOverError):
        values.extend(world.measure("good", "hot-1") for _ in range(1_000))

    recorded = [recording.values for recording in bisect_worlds.recordings(noise)]
    assert 1 == world.num_launches
    assert any(np.allclose(values, series[-len(values) :]) for series in recorded if len(series) >= len(values))
    assert 0.01 < noise_sd(noise) < 0.2


def test_window_of_large_batches_is_not_slow() -> None:
    tokens = np.array([1000.0, 1000.0, 2000.0, 2000.0] * 5)
    steps = np.column_stack([tokens / 1e4 + 0.1, tokens])

    assert windows_of(steps, 2) == pytest.approx(np.zeros(10), abs=1e-9)


def test_search_names_the_culprit_and_counts_its_windows() -> None:
    world = toggle_world("one", "gauss_2", 3)

    answer = flashprof_search(world, make_plan(world, NoisePrior(), seed=3))

    assert world.truth == answer.named
    assert world.num_windows == answer.num_search + answer.num_proof
    assert answer.finish is None


def test_search_that_runs_out_of_windows_names_nothing() -> None:
    world = toggle_world("two", "gauss_5", 3)

    answer = flashprof_search(world, make_plan(world, NoisePrior(), seed=3), cap=5, most=6)

    assert answer.named is None
    assert answer.capped != answer.look


def test_killed_search_ends_as_the_whole_one() -> None:
    proved = proof_trial("toggles", "one", "gauss_2", 4)

    assert ("regression", True, True, 0) == (proved.verdict, proved.is_right, proved.is_same, proved.num_twice)
    assert proved.num_proof > 0


def test_drawn_world_matters_as_often_as_the_prior_says() -> None:
    worlds = [drawn_world("toggles", "gauss_2", seed) for seed in range(300)]
    terms = toggle_space().terms

    num_nothing = sum(not world.truth for world in worlds)
    sizes = [abs(world.effects[term]) for world in worlds for term in world.truth]
    assert num_nothing / 300 == pytest.approx(np.exp(terms.log_nothing[0]), abs=0.1)
    # A slab keeps away from zero, so its effects are larger than its sd says.
    assert terms.slab_sd < np.sqrt(np.mean(np.square(sizes))) < 1.4 * terms.slab_sd
    assert sum(size < terms.small for size in sizes) < 0.15 * len(sizes)


@pytest.mark.parametrize(("truth", "share"), [("t0", 1.0), ("t1", 0.15 / 0.3), ("t2", 0.0), ("t3", 0.0)])
def test_credible_set_holds_exactly_its_mass(truth: str, share: float) -> None:
    look = Look(
        leading=None,
        stated=0.0,
        hypotheses=tuple(frozenset({(name,)}) for name in ("t0", "t1", "t2")),
        probabilities=(0.8, 0.3, 0.1),
    )
    world = replace(toggle_world("one", "gauss_2", 1), truth=frozenset({(truth,)}))
    rng = np.random.default_rng(0)

    covered = [is_covered(look, world, rng) for _ in range(400)]

    assert np.mean(covered) == pytest.approx(share, abs=0.08)


def proof_window(block: int, position: int, launch: str = "hot-1") -> Measured:
    """One window of a block of proof 1."""
    reading = Reading(
        cell="t0",
        launch=launch,
        stage=Stage.PROOF,
        proof=1,
        block=block,
        position=position,
        at_s=10.0 * block + position,
        length_s=3.0,
        log_tok_per_s=9.0,
        num_tokens=1,
    )
    return Measured(reading=reading)


def test_window_of_a_complete_block_is_measured_twice_and_of_a_cut_one_lost() -> None:
    journal: list[SearchObservation] = [proof_window(1, place) for place in range(4)]
    journal += [proof_window(2, place) for place in range(3)]
    visits = [
        Visit(cell="t0", group="", run_id="hot-2", stage=Stage.PROOF, proof=1, block=block, why="") for block in (1, 2)
    ]

    assert journal == through_json(journal)
    assert 1 == num_twice(journal, visits, is_hot=True)
    assert 2 == num_twice(journal, visits, is_hot=False)
    assert 3 == num_lost(journal)


def test_jobs_hold_each_trial_once() -> None:
    jobs = list(make_jobs(25, num_kills=7, most=60, only=("toggles", "proofs"), calibrated=False))

    seeds = [(job.study, job.case, job.noise, seed) for job in jobs for seed in range(job.first, job.first + job.num)]
    assert len(set(seeds)) == len(seeds)
    assert {"toggles", "proofs"} == {job.study for job in jobs} < set(STUDIES)
    assert 7 == sum(job.num for job in jobs if job.study == "proofs")


def row(method: str, **changes: object) -> Mapping[str, object]:
    """One trial of one method."""
    return {"method": method, "is_named": True, "is_right": True, "is_exact": True, "windows": 10, **changes}


def met_of(rows: list[Mapping[str, object]], key: tuple[str, ...], name: str) -> bool | None:
    """Whether the goal of a measure is met."""
    return next(measure.met for measure in bisect_measures({key: rows}) if measure.name == name)


def test_pair_named_as_two_toggles_counts_for_others_only() -> None:
    key = ("toggles", "toggles", "pair", "gauss_2")
    rows = [row(method, is_exact=False) for method in ("leave_one_out", "flashprof", "flashprof_24")]

    values = {measure.name: measure.value for measure in bisect_measures({key: rows})}
    assert 100 == values["toggles_pair_gauss_2_leave_one_out"]
    assert 0 == values["toggles_pair_gauss_2_flashprof"]
    assert met_of(rows, key, "toggles_pair_gauss_2_flashprof_24") is False
    assert any("leave_one_out" in line and "1.00 / 10.0" in line for line in table_lines({key: rows}))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"is_exact": False}, ""),
        ({"is_exact": False}, "_wrong"),
        ({"windows": 13}, "_windows"),
    ],
)
def test_each_goal_of_commits_can_be_missed(change: dict[str, object], name: str) -> None:
    key, place = ("commits", "commits", "17", "gauss_2"), "commits_17_pct_gauss_2_flashprof"

    assert met_of([row("flashprof")], key, place + name) is True
    assert met_of([row("flashprof", **change)], key, place + name) is False


def test_toggle_names_are_in_the_order_of_the_space() -> None:
    assert TOGGLES == toggle_space().names


PROVED = {
    "verdict": "regression",
    "is_right": True,
    "num_search": 12,
    "num_proof": 30,
    "saved": 8.0,
    "is_same": True,
    "num_twice": 0,
    "num_lost": 2,
}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"is_same": False}, "toggles_killed_same_verdict"),
        ({"num_twice": 1}, "toggles_killed_measured_twice"),
        ({"saved": 4.9}, "toggles_hot_saves"),
    ],
)
def test_each_goal_of_proofs_can_be_missed(change: dict[str, object], name: str) -> None:
    key = ("proofs", "toggles", "one", "gauss_2")

    assert met_of([PROVED], key, name) is True
    assert met_of([{**PROVED, **change}], key, name) is False


@pytest.mark.parametrize(("num_right", "met"), [(95, True), (90, False), (100, False)])
def test_belief_must_be_neither_too_sure_nor_too_shy(num_right: int, met: bool) -> None:
    key = ("beliefs", "toggles", "drawn", "believed")
    rows = [
        {"is_certain": True, "stated": 0.95, "is_right": hit, "covers": hit, "covers_early": hit, "num_windows": 9}
        for hit in [True] * num_right + [False] * (100 - num_right)
    ]

    for name in ("credible_set", "credible_set_early", "stated_95_pct"):
        assert met is met_of(rows, key, f"toggles_{name}_believed")
