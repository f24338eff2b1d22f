"""The scaling model: bounds, limits, and a queue that is simulated beside it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling_model import Stages, predict, queued_rate, slowest_factor, splits

rates = st.floats(1e2, 1e7)
cvs = st.floats(0.0, 1.5)
counts = st.integers(1, 8)
CALM = Stages(target_tok_per_s=30e3, drafter_tok_per_s=20e3, batch_tokens=6144)
STAGES = st.builds(
    Stages,
    target_tok_per_s=rates,
    drafter_tok_per_s=rates,
    batch_tokens=st.floats(1e2, 1e5),
    target_cv=cvs,
    drafter_cv=cvs,
    link_tok_per_s=st.one_of(st.just(math.inf), rates),
    dispatcher_tok_per_s=st.one_of(st.just(math.inf), rates),
    gradient_bytes=st.floats(0, 1e10),
    bus_bytes_per_s=st.one_of(st.just(math.inf), st.floats(1e8, 1e12)),
    step_overhead_s=st.floats(0, 0.1),
)


@given(stages=STAGES, targets=counts, drafters=counts, depth=st.integers(1, 64), devices=st.none() | counts)
def test_no_topology_is_above_its_lowest_bound(
    stages: Stages, targets: int, drafters: int, depth: int, devices: int | None
) -> None:
    found = predict(stages, num_targets=targets, num_drafters=drafters, depth=depth, num_devices=devices)

    assert 0 < found.tok_per_s <= min(found.bounds.values()) * (1 + 1e-9)
    assert found.bounds[found.limit] == min(found.bounds.values())


@given(stages=STAGES, targets=counts, drafters=counts, depth=st.integers(1, 64), factor=st.floats(1.0, 10.0))
def test_a_faster_stage_or_a_deeper_queue_never_costs(
    stages: Stages, targets: int, drafters: int, depth: int, factor: float
) -> None:
    def rate(of: Stages, depth: int = depth) -> float:
        return predict(of, num_targets=targets, num_drafters=drafters, depth=depth).tok_per_s

    least = rate(stages) * (1 - 1e-9)

    assert least <= rate(replace(stages, target_tok_per_s=factor * stages.target_tok_per_s))
    assert least <= rate(replace(stages, drafter_tok_per_s=factor * stages.drafter_tok_per_s))
    assert least <= rate(stages, depth + 8)


@given(targets=counts, drafters=counts, depth=st.integers(1, 64))
def test_without_variance_the_slower_side_is_reached(targets: int, drafters: int, depth: int) -> None:
    found = predict(CALM, num_targets=targets, num_drafters=drafters, depth=depth)

    assert pytest.approx(min(30e3 * targets, 20e3 * drafters)) == found.tok_per_s


def test_with_variance_a_deep_queue_reaches_the_slower_side() -> None:
    varied = replace(CALM, target_cv=0.5, drafter_cv=0.5)
    found = [predict(varied, num_targets=1, num_drafters=1, depth=depth).tok_per_s for depth in (1, 8, 10_000)]

    assert sorted(found) == found
    assert pytest.approx(20e3) == found[-1]
    assert 19.9e3 > found[0]


@pytest.mark.parametrize(("supply", "demand"), [(1.0, 1.0), (1.3, 1.0), (0.8, 1.0)])
@pytest.mark.parametrize("depth", [1, 4])
def test_the_queue_is_that_of_two_exponential_stages(supply: float, demand: float, depth: int) -> None:
    rng = np.random.default_rng(depth)
    simulated = simulate(rng.exponential(1 / supply, 40_000), rng.exponential(1 / demand, 40_000), depth)

    assert pytest.approx(simulated, rel=0.03) == queued_rate(supply, demand, depth + 2)


def test_the_queue_of_stages_that_vary_less_is_near_what_is_simulated() -> None:
    rng = np.random.default_rng(3)
    cv, depth = 0.6, 1
    shape = 1 / cv**2
    produced, used = (rng.gamma(shape, 1 / shape, 40_000) for _ in range(2))
    stages = Stages(target_tok_per_s=1, drafter_tok_per_s=1, batch_tokens=1, target_cv=cv, drafter_cv=cv)
    found = predict(stages, num_targets=1, num_drafters=1, depth=depth).tok_per_s

    assert pytest.approx(simulate(produced, used, depth), rel=0.05) == found


def simulate(produce_s: np.ndarray, use_s: np.ndarray, depth: int) -> float:
    """Batches a second of one producer that holds a finished batch until one of *depth* places is free."""
    ready, left, begun = 0.0, [], []
    for number, (make_s, train_s) in enumerate(zip(produce_s.tolist(), use_s.tolist(), strict=True)):
        ready += make_s
        # As `HiddenStateQueue`: step n may enter once step n − depth has been taken.
        if number >= depth:
            ready = max(ready, begun[number - depth])
        begun.append(max(ready, left[-1] if left else 0.0))
        left.append(begun[-1] + train_s)
    return len(left) / left[-1]


def test_drafters_wait_for_the_slowest_and_for_their_gradients() -> None:
    stages = replace(CALM, target_tok_per_s=1e9, drafter_cv=0.2, gradient_bytes=4e9, bus_bytes_per_s=3.2e11)
    alone, three = (predict(stages, num_targets=1, num_drafters=n).bounds["drafters"] for n in (1, 3))
    step_s = 6144 / 20e3 * slowest_factor(3, 0.2) + 4 / 3 * 4e9 / 3.2e11

    assert 20e3 == alone
    assert pytest.approx(3 * 6144 / step_s) == three
    # The expected largest of three standard normal numbers is 0.846.
    assert pytest.approx(1 + 0.2 * 0.846, abs=0.01) == slowest_factor(3, 0.2)


def test_one_device_for_both_costs_the_sum_of_both() -> None:
    found = predict(CALM, num_targets=1, num_drafters=1, num_devices=1)

    assert pytest.approx(1 / (1 / 30e3 + 1 / 20e3)) == found.tok_per_s
    assert "devices" == found.limit


def test_two_cores_for_eight_workers_are_the_bound() -> None:
    found = predict(CALM, num_targets=5, num_drafters=3, num_devices=2)

    assert pytest.approx(2 / (1 / 30e3 + 1 / 20e3)) == found.tok_per_s


def test_the_best_split_gives_the_slower_stage_more_devices() -> None:
    found = splits(CALM, 8)

    assert "3+5" == found[0].topology
    assert 7 == len(found)
    assert sorted((one.tok_per_s for one in found), reverse=True) == [one.tok_per_s for one in found]
