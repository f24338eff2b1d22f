"""Steady state: error rates of the rule on seeded series, asked as a run asks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from flashprof.stats.steady import find_steady

Levels = NDArray[np.float64]
NUM_SERIES = 200
STEP_S = 0.1
POLL_S = 0.5


def series(levels: Levels, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Ends in ns and tokens of steps whose time is level × (fixed + per token) × noise of CV 8 %."""
    tokens = rng.choice([512, 768, 1024, 1536, 2048], len(levels))
    lengths_s = STEP_S * levels * (0.15 + 0.85 * tokens / 1200) * np.exp(rng.normal(0, 0.08, len(levels)))
    return np.round(np.cumsum(lengths_s) * 1e9).astype(np.int64).tolist(), tokens.tolist()


def ask_while_running(levels: Levels, rng: np.random.Generator) -> tuple[int, int] | None:
    """The first answer and how many steps there were by then."""
    ends_ns, tokens = series(levels, rng)
    for at_ns in range(ends_ns[0], ends_ns[-1], round(POLL_S * 1e9)):
        num_steps = int(np.searchsorted(ends_ns, at_ns, side="right"))
        steady = find_steady(ends_ns[:num_steps], tokens[:num_steps])
        if steady is not None:
            return steady, num_steps
    return None


def flat(num_steps: int = 500) -> Levels:
    return np.ones(num_steps)


def slow_start() -> Levels:
    levels = flat()
    levels[:6] = [80, 5, 2, 2, 2, 2]
    return levels


def falling() -> Levels:
    return 1 + np.exp(-np.arange(500) / 40)


def answers(make: Callable[[], Levels], seed: int) -> list[tuple[int, int] | None]:
    rng = np.random.default_rng(seed)
    return [ask_while_running(make(), rng) for _ in range(NUM_SERIES)]


def test_a_steady_series_settles_within_ten_seconds() -> None:
    settled = [answer for answer in answers(flat, seed=1) if answer is not None and answer[1] * STEP_S <= 10]

    assert len(settled) >= 0.95 * NUM_SERIES


def test_a_slow_compile_at_the_start_is_cut_off() -> None:
    found = answers(slow_start, seed=2)
    right = [answer for answer in found if answer is not None and answer[0] >= 2]

    assert len(right) >= 0.98 * NUM_SERIES


def test_a_slow_fall_is_rarely_called_steady_while_it_is_five_percent_off() -> None:
    levels = falling()
    early = [answer for answer in answers(falling, seed=3) if answer is not None and levels[answer[1]] > 1.05]

    assert len(early) <= 0.12 * NUM_SERIES


def late_compile() -> Levels:
    levels = flat()
    levels[20] = 60
    return levels


def test_a_compile_after_two_good_seconds_is_cut_off() -> None:
    found = answers(late_compile, seed=4)

    assert sum(answer is not None and answer[0] > 20 for answer in found) >= 0.98 * NUM_SERIES


def test_just_after_a_late_compile_it_is_not_settled() -> None:
    rng = np.random.default_rng(5)
    levels = flat(160)
    levels[150] = 60
    found = [find_steady(*series(levels, rng)) for _ in range(NUM_SERIES)]

    assert sum(steady is None for steady in found) >= 0.95 * NUM_SERIES


def test_scattered_hiccups_do_not_keep_it_from_settling() -> None:
    rng = np.random.default_rng(6)
    found = [ask_while_running(np.where(rng.random(500) < 0.02, 3.0, 1.0), rng) for _ in range(NUM_SERIES)]

    assert sum(answer is not None and answer[1] * STEP_S <= 15 for answer in found) >= 0.95 * NUM_SERIES


def test_few_slow_steps_are_enough_where_they_last_ten_seconds() -> None:
    ends_ns = [step * 3_000_000_000 for step in range(9)]

    assert find_steady(ends_ns, [1000] * 9) == 1
    assert find_steady(ends_ns[:8], [1000] * 8) is None


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_hardly_any_steps_are_not_settled(num_steps: int) -> None:
    assert find_steady(list(range(num_steps)), [1] * num_steps) is None


def test_steps_without_tokens_join_the_next_block() -> None:
    ends_ns = [step * 300_000_000 for step in range(60)]

    assert find_steady(ends_ns, [0, 500] * 30) is not None
    assert find_steady(ends_ns, [0] * 60) is None
