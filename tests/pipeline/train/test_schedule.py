"""Learning rates rise, hold and fall where the recipe says so, and depend on the step alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import UnknownNameError
from pipeline.presets import Recipe
from pipeline.train.schedule import SCHEDULES, learning_rate_share

SHARES = st.floats(0, 1)
RECIPES = st.builds(
    Recipe, schedule=st.sampled_from(SCHEDULES), warmup_ratio=SHARES, decay_ratio=SHARES, min_lr_ratio=SHARES
)
STEPS = st.integers(1, 400)


def shares(recipe: Recipe, num_steps: int, num_asked: int = 0) -> list[float]:
    return [learning_rate_share(step, recipe=recipe, num_steps=num_steps) for step in range(num_asked or num_steps)]


def num_rising(recipe: Recipe, num_steps: int) -> int:
    return max(1, round(recipe.warmup_ratio * num_steps))


@given(RECIPES, STEPS)
def test_shares_rise_to_the_peak_and_never_again(recipe: Recipe, num_steps: int) -> None:
    found = shares(recipe, num_steps)
    warmup = num_rising(recipe, num_steps)

    assert all(0 <= share <= 1 for share in found)
    assert [(step + 1) / warmup for step in range(warmup)] == found[:warmup]
    assert all(later <= earlier + 1e-12 for earlier, later in zip(found[warmup:], found[warmup + 1 :], strict=False))
    assert found[warmup - 1] == 1.0


@given(RECIPES, STEPS)
def test_the_last_step_has_the_lowest_rate_and_so_has_all_behind_it(recipe: Recipe, num_steps: int) -> None:
    found = shares(recipe, num_steps, 2 * num_steps + 5)
    lowest = 1.0 if recipe.schedule == "constant" else recipe.min_lr_ratio
    first = max(num_steps - 1, num_rising(recipe, num_steps))

    assert {lowest} == set(found[first:])


@given(RECIPES, st.integers(0, 200), st.integers(1, 100))
def test_without_an_end_the_rate_is_constant_after_the_warm_up(recipe: Recipe, num_warmup: int, step: int) -> None:
    recipe = Recipe(schedule=recipe.schedule, open_end_warmup_steps=num_warmup)
    found = shares(recipe, 0, max(1, num_warmup) + step)

    assert [(at + 1) / max(1, num_warmup) for at in range(num_warmup)] == found[:num_warmup]
    assert {1.0} == set(found[max(1, num_warmup) - 1 :])


def test_the_schedules_have_their_shapes() -> None:
    """Of 100 steps, 10 warm up: halfway down, 45 of the 90 that follow are done."""
    recipes = {name: Recipe(schedule=name, warmup_ratio=0.1, decay_ratio=0.2, min_lr_ratio=0.1) for name in SCHEDULES}
    found = {name: shares(recipe, 100) for name, recipe in recipes.items()}

    assert found["cosine"][54] == pytest.approx(0.55)
    assert found["cosine"][31] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 22 / 90)))
    assert found["linear"][54] == pytest.approx(0.55)
    assert found["linear"][31] == pytest.approx(1 - 0.9 * 22 / 90)
    assert {1.0} == set(found["wsd"][9:80])
    assert found["wsd"][80] == pytest.approx(1 - 0.9 / 20)
    assert found["wsd"][89] == pytest.approx(0.55)
    assert {1.0} == set(found["constant"][9:])


def test_a_decay_that_would_begin_within_the_warm_up_begins_after_it() -> None:
    found = shares(Recipe(schedule="wsd", warmup_ratio=0.5, decay_ratio=0.9), 10)

    assert [0.2, 0.4, 0.6, 0.8, 1.0] == found[:5]
    assert [0.8, 0.6, 0.4, 0.2, 0.0] == pytest.approx(found[5:])


def test_the_only_step_of_a_run_of_one_learns() -> None:
    assert [1.0] == shares(Recipe(), 1)


@pytest.mark.parametrize("num_steps", [0, 10])
def test_an_unknown_schedule_is_refused_at_the_first_step(num_steps: int) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cosine'") as caught:
        learning_rate_share(0, recipe=Recipe(schedule="cosin"), num_steps=num_steps)

    assert caught.value.allowed == "cosine, linear, wsd, constant"
