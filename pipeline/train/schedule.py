"""The learning rate of a step. A function of the step alone: a resumed run needs no state of it."""

from __future__ import annotations

import math

from flashprof.contracts.errors import UnknownNameError
from pipeline.presets import Recipe

SCHEDULES = ("cosine", "linear", "wsd", "constant")


def learning_rate_share(step: int, *, recipe: Recipe, num_steps: int) -> float:
    """
    The learning rate of *step* over its peak.

    Linear warm-up, then the recipe's schedule, which reaches `min_lr_ratio` at the last step and stays there; only
    `constant` does not fall. Not transformers' schedules: their cosine rises again behind the last step, and their
    warm-up spends the first step at 0.

    Args:
        step: From 0.
        recipe: `schedule`, `min_lr_ratio` and the lengths of warm-up and decay are read.
        num_steps: Of the whole run; 0 for a run without a fixed end, which is constant after its warm-up.

    Returns:
        From 0 to 1, if `min_lr_ratio` is.

    Raises:
        UnknownNameError: There is no such schedule.
    """
    if recipe.schedule not in SCHEDULES:
        raise UnknownNameError("schedule", recipe.schedule, SCHEDULES, next_command="python -m pipeline train --help")
    num_done = step + 1
    num_warmup = _num_warmup_steps(recipe, num_steps)
    # Before the end is looked at: the only step of a run of one must learn something.
    if num_done <= num_warmup:
        return num_done / num_warmup
    if not num_steps:
        return 1.0
    fallen = _fallen_share(num_done - num_warmup, num_steps - num_warmup, recipe=recipe, num_steps=num_steps)
    return (1.0 - fallen) + recipe.min_lr_ratio * fallen


def _num_warmup_steps(recipe: Recipe, num_steps: int) -> int:
    return max(1, round(recipe.warmup_ratio * num_steps) if num_steps else recipe.open_end_warmup_steps)


def _fallen_share(num_done: int, num_left: int, *, recipe: Recipe, num_steps: int) -> float:
    """How much of the way down is behind after *num_done* of the *num_left* steps that follow the warm-up: 0 to 1."""
    progress = _clamped(num_done, num_left)
    match recipe.schedule:
        case "cosine":
            return 0.5 * (1.0 - math.cos(math.pi * progress))
        case "linear":
            return progress
        case "wsd":
            num_decay = max(1, min(num_left, round(recipe.decay_ratio * num_steps)))
            return max(0.0, _clamped(num_done - (num_left - num_decay), num_decay))
    return 0.0


def _clamped(num_done: int, num_steps: int) -> float:
    # A run that is all warm-up has nothing left to fall over.
    return min(1.0, num_done / max(1, num_steps))
