"""The profiler's part of the overhead study: what recording costs the steps, apart from starting and ending it."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.overhead_torch import PROFILERS, STEPS_IN_A_TURN, ProfilerCost, study_profilers


def test_each_profiler_is_compared_with_none_in_every_pair() -> None:
    num_steps = 0

    def run_step() -> float:
        nonlocal num_steps
        num_steps += 1
        torch.ones(2) + 1
        # Autograd's profiler is on while a profiler records.
        return 0.3 if torch.autograd._profiler_enabled() else 0.2

    costs = study_profilers(run_step, num_pairs=2)

    assert list(PROFILERS) == [cost.name for cost in costs]
    assert all(cost.ratios == pytest.approx((1.5, 1.5)) for cost in costs)
    assert STEPS_IN_A_TURN * (1 + 5 * len(PROFILERS)) == num_steps


def test_a_step_that_takes_a_quarter_longer_costs_a_fifth_of_the_throughput() -> None:
    cost = ProfilerCost(name="torch_profiler", ratios=(1.2, 1.25, 1.25**2 / 1.2), outside_s=(0.5, 2.0, 1.0))

    measure = cost.as_measure()

    assert 20 == pytest.approx(measure.value)
    assert "takes 1.00 s more" in measure.note
    assert math.isfinite(measure.value)
