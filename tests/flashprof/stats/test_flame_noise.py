"""Boxes of a differential flamegraph: noise stays grey, a real change does not, and intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from flashprof.contracts.profiles import FrameId, ProfiledWindow
from flashprof.stats.flame_tree import FlameLane, flame_tree

NUM_REPEATS = 60
STACKS = [
    tuple(FrameId(f"f{path[:depth]}", "pipeline/a.py") for depth in range(1, 5)) for path in map(str, range(1000, 1030))
]
"""Thirty paths that share their two or three outermost frames."""
SHARES = 0.75 ** np.arange(30.0) / (0.75 ** np.arange(30.0)).sum()


def arm(
    rng: np.random.Generator,
    *,
    num_windows: int,
    num_samples: int,
    spread: float = 0.03,
    burst: float = 0.0,
    planted_ns: float = 0.0,
    num_launches: int = 1,
) -> list[ProfiledWindow]:
    """Windows of 1,000 ns a token; *burst* adds variance to the counts, *planted_ns* time to the third path."""
    windows = []
    for index in range(num_windows):
        shares = rng.dirichlet(SHARES / burst) if burst else SHARES
        times = 1_000 * np.exp(rng.normal(0, spread)) * shares
        times[2] += planted_ns
        counts = rng.multinomial(num_samples, times / times.sum())
        windows.append(
            ProfiledWindow(
                launch=str(index % num_launches),
                label=str(index),
                role="drafter",
                num_ranks=1,
                ns_per_token=float(times.sum()),
                stacks={stack: int(count) for stack, count in zip(STACKS, counts, strict=True) if count},
            )
        )
    return windows


def leaf(lane: FlameLane, stack: tuple[FrameId, ...]) -> int:
    return next(index for index, node in enumerate(lane.nodes) if node.frame == stack[-1])


CONDITIONS = [
    {"num_windows": 2, "num_samples": 75},
    {"num_windows": 2, "num_samples": 900},
    {"num_windows": 4, "num_samples": 75, "burst": 0.02},
    {"num_windows": 2, "num_samples": 900, "burst": 0.004},
    {"num_windows": 6, "num_samples": 75, "num_launches": 3},
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_of_two_equal_arms_next_to_nothing_is_clear_and_intervals_hold_zero(condition: dict[str, float]) -> None:
    rng = np.random.default_rng(1)
    lanes = [flame_tree(arm(rng, **condition), arm(rng, **condition))[0] for _ in range(NUM_REPEATS)]  # type: ignore[arg-type]
    nodes = [node for lane in lanes for node in lane.nodes if max(node.num_samples) >= 5]
    held = np.mean([node.difference.low <= 0 <= node.difference.high for node in nodes if node.difference])

    assert np.mean([any(node.is_clear for node in lane.nodes) for lane in lanes]) <= 0.08
    assert 0.93 <= held <= 0.99


def test_one_window_an_arm_is_judged_by_its_counts_alone() -> None:
    rng = np.random.default_rng(2)
    lanes = [
        flame_tree(arm(rng, num_windows=1, num_samples=75), arm(rng, num_windows=1, num_samples=75))[0]
        for _ in range(NUM_REPEATS)
    ]

    assert not any(node.is_clear for lane in lanes for node in lane.nodes)


@pytest.mark.parametrize(("num_windows", "num_samples"), [(2, 900), (8, 150)])
def test_a_planted_frame_is_clear_and_its_neighbours_are_not(num_windows: int, num_samples: int) -> None:
    rng = np.random.default_rng(3)
    num_found = num_clear = num_beside = 0
    for _ in range(NUM_REPEATS):
        base = arm(rng, num_windows=num_windows, num_samples=num_samples)
        changed = arm(rng, num_windows=num_windows, num_samples=num_samples, planted_ns=150.0)
        (lane,) = flame_tree(base, changed)
        clear = [node.frame for node in lane.nodes if node.is_clear]
        num_found += lane.nodes[leaf(lane, STACKS[2])].is_clear
        num_clear += len(clear)
        num_beside += sum(frame not in (*STACKS[2], lane.nodes[0].frame) for frame in clear)

    assert num_found >= 0.95 * NUM_REPEATS
    assert num_beside <= 0.03 * num_clear


def test_the_root_has_the_t_interval_of_the_windows() -> None:
    stacks = {STACKS[0]: 50, STACKS[1]: 50}
    base, candidate = (
        [
            ProfiledWindow(launch="", label=str(ns), role="drafter", num_ranks=1, ns_per_token=ns, stacks=stacks)
            for ns in times
        ]
        for times in ((100.0, 104.0, 102.0), (120.0, 123.0, 126.0))
    )

    root = flame_tree(base, candidate)[0].nodes[0]

    # Variances 4 and 9, three windows each: t(4) = 2.776 times √(13 / 3).
    assert root.difference is not None
    assert root.difference.estimate == pytest.approx(21.0)
    assert root.difference.high - root.difference.estimate == pytest.approx(2.7764 * (13 / 3) ** 0.5, rel=1e-3)
    assert root.is_clear
