"""Steady state: error rates of the rule on seeded series, asked as a run asks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from flashprof.stats.steady import find_steady, judge_steady

Levels = NDArray[np.float64]
NUM_SERIES = 200
STEP_S = 0.1
POLL_S = 0.5
SECOND_NS = 1_000_000_000


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


def ends_of(*stretches: tuple[int, float]) -> list[int]:
    """Ends in ns of steps: a number of them, and the length of each in seconds."""
    return [round(end * SECOND_NS) for end in np.cumsum([length for num, length in stretches for _ in range(num)])]


def pausing(every: int) -> Levels:
    levels = np.ones(600)
    levels[every // 2 :: every] = 18
    return levels


@pytest.mark.parametrize("every", [10, 20])
def test_pauses_that_come_back_for_ever_are_part_of_the_steady_state(every: int) -> None:
    rng = np.random.default_rng(7)
    found = [ask_while_running(pausing(every), rng) for _ in range(NUM_SERIES // 4)]

    assert all(answer is not None for answer in found)


def test_pauses_that_are_part_of_it_are_told() -> None:
    ends_ns = ends_of((1, 9.0), *[(9, 0.3), (1, 1.8)] * 12)

    judged = judge_steady(ends_ns, [1000] * len(ends_ns))

    assert judged.index == 1
    assert judged.reason == "pauses of 1.8 s every 4.5 s are part of it"


def test_pauses_that_have_stopped_are_cut_off() -> None:
    rng = np.random.default_rng(9)
    levels = np.concatenate([pausing(20)[:200], flat(400)])
    found = [find_steady(*series(levels, rng)) for _ in range(NUM_SERIES)]
    settled = [steady for steady in found if steady is not None]

    assert len(settled) >= 0.6 * NUM_SERIES
    assert all(steady > 190 for steady in settled)


def compile_storm(rng: np.random.Generator) -> Levels:
    """Eight shapes, some of them rare, each compiled when it first comes up."""
    shapes = rng.choice(8, 500, p=[0.4, 0.25, 0.15, 0.08, 0.05, 0.03, 0.02, 0.02])
    levels = flat()
    levels[[int(np.flatnonzero(shapes == shape)[0]) for shape in np.unique(shapes)]] = rng.uniform(30, 60)
    return levels


def test_compilations_one_by_one_are_rarely_taken_for_part_of_it() -> None:
    rng = np.random.default_rng(10)
    wrong = 0
    for _ in range(NUM_SERIES // 2):
        levels = compile_storm(rng)
        answer = ask_while_running(levels, rng)
        wrong += answer is not None and bool((levels[answer[0] : answer[1]] > 20).any())

    assert wrong <= 0.03 * NUM_SERIES / 2


def test_few_slow_steps_are_enough_where_they_last_ten_seconds() -> None:
    rng = np.random.default_rng(11)
    ends_ns = [round(end * SECOND_NS) for end in np.cumsum(3 * np.exp(rng.normal(0, 0.08, 40)))]
    first = next(count for count in range(40) if find_steady(ends_ns[:count], [1000] * count) is not None)

    assert 9 <= first <= 14


def test_five_slow_steps_are_enough_where_they_are_regular() -> None:
    ends_ns = [step * 7 * SECOND_NS for step in range(6)]

    assert find_steady(ends_ns, [1000] * 6) == 1
    assert find_steady(ends_ns[:5], [1000] * 5) is None


def test_five_slow_steps_that_still_get_faster_are_not() -> None:
    ends_ns = [round(end) for end in np.cumsum(7 * SECOND_NS * np.array([1, 1.02, 1.01, 1.0, 0.99, 0.98]))]

    assert "tok/s still rises" in judge_steady(ends_ns, [1000] * 6).reason


@pytest.mark.parametrize(
    ("stretches", "reason"),
    [
        ([(3, 0.3)], "1 s of steps are too few to judge"),
        ([(30, 0.3), (1, 9.1), (5, 0.3)], "a pause of 9.1 s ended 1.5 s ago"),
        ([(60, 0.3), (20, 0.4)], "tok/s changed by -25% as late as 8 s ago"),
        ([(1, 0.3), *((1, 0.36 - 0.0004 * at) for at in range(20))], "tok/s still rises: by 1.4% over the last 4 s"),
    ],
)
def test_what_keeps_it_from_settling_is_told(stretches: list[tuple[int, float]], reason: str) -> None:
    ends_ns = ends_of(*stretches)

    judged = judge_steady(ends_ns, [1000] * len(ends_ns))

    assert judged.index is None
    assert reason in judged.reason


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_hardly_any_steps_are_not_settled(num_steps: int) -> None:
    assert find_steady(list(range(num_steps)), [1] * num_steps) is None


def test_steps_without_tokens_join_the_next_block() -> None:
    ends_ns = [step * 300_000_000 for step in range(60)]

    assert find_steady(ends_ns, [0, 500] * 30) is not None
    assert find_steady(ends_ns, [0] * 60) is None
