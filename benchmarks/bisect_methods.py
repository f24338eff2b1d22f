"""
Other ways to find a culprit, for `benchmarks.bisect_simulation`, each as it is commonly used.

They are told what a user may know: that the ends differ by 17 % (or what the case says). Where a method needs to call a
window slow, the border is the true middle between the ends, which is more than a user has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import hadamard
from scipy.special import betaln

from benchmarks.bisect_worlds import TOGGLES, Term, World

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Found = frozenset[Term] | None
"""Terms that are named; None where the method has no answer."""
Method = Callable[[World], Found]

NUM_REPEATS = 3
SHARE = 1 / 3
"""A toggle is named where it is worth this share of the whole drop: 6 % of 17, twice what the others can be."""
BAYESECT_CERTAINTY = 0.95
BAYESECT_MAX = 220
PRIOR = 0.5
"""Of both Beta distributions, as `git-bayesect` has it: Jeffreys'."""
PLACKETT_BURMAN = "++-+++---+-"
"""First row of the 12-run design; the next ones are it, turned."""
GENERATORS = ("bcd", "acd", "abc", "abd")
"""2^(8−4): the later four factors as products of the first four; no main effect is mixed up with a pair."""
NUM_MODEL_TERMS = 2


def asv_find(world: World) -> Found:
    """`asv find`: each commit once; on to the side across which the time changed more."""
    cells, known = _line(world), dict[int, float]()

    def at(place: int) -> float:
        if place not in known:
            known[place] = world.measure(cells[place])
        return known[place]

    low, high = 0, len(cells) - 1
    at(low), at(high)
    while high - low > 1:
        middle = (low + high) // 2
        if at(low) - at(middle) > at(middle) - at(high):
            high = middle
        else:
            low = middle
    return frozenset({(cells[high],)})


def git_bisect(world: World, num_windows: int = 1) -> Found:
    """`git bisect run` with a script that calls the median of some windows good or bad."""
    cells, border = _line(world), _border(world)
    low, high = 0, len(cells) - 1
    while high - low > 1:
        middle = (low + high) // 2
        median = np.median([world.measure(cells[middle]) for _ in range(num_windows)])
        low, high = (low, middle) if median < border else (middle, high)
    return frozenset({(cells[high],)})


def git_bisect_5(world: World) -> Found:
    """The median of five windows of a launch."""
    return git_bisect(world, 5)


def git_bayesect(world: World) -> Found:
    """`git-bayesect`: good or bad with unknown probability on either side, and the commit that tells most."""
    cells, border = _line(world), _border(world)
    # Whether bad, and how often looked at; cell 0 is the good end. Hypothesis k: cells from k + 1 on are slow.
    counts = np.zeros((2, len(cells)))
    for _ in range(BAYESECT_MAX):
        posterior, slow_after, slow_before = _bernoulli_posterior(counts)
        if posterior.max() >= BAYESECT_CERTAINTY:
            return frozenset({(cells[int(posterior.argmax()) + 1],)})
        place = _least_entropy(posterior, slow_after, slow_before)
        counts[int(world.measure(cells[place]) < border), place] += 1
    return None


def one_at_a_time(world: World) -> Found:
    """The good cell, and each toggle alone in it."""
    cells = [world.space.good, *TOGGLES]
    means = _means(world, cells)
    return _worth(world, {name: means[0] - mean for name, mean in zip(TOGGLES, means[1:], strict=True)})


def leave_one_out(world: World) -> Found:
    """The bad cell, and each toggle switched back in it."""
    cells = [world.space.bad, *(_cell(world, set(TOGGLES) - {name}) for name in TOGGLES)]
    means = _means(world, cells)
    return _worth(world, {name: mean - means[0] for name, mean in zip(TOGGLES, means[1:], strict=True)})


def ddmin(world: World) -> Found:
    """Zeller's minimising: the smallest set of toggles that is still slow, a set being slow by the mean of three."""
    good, bad = _means(world, [world.space.good, world.space.bad])
    border, known = (good + bad) / 2, dict[frozenset[str], bool]()

    def is_slow(names: frozenset[str]) -> bool:
        if names not in known:
            known[names] = bool(_means(world, [_cell(world, names)])[0] < border)
        return known[names]

    names, num_parts = list(TOGGLES), 2
    while len(names) > 1:
        parts = [frozenset(part.tolist()) for part in np.array_split(np.array(names), num_parts)]
        rests = [frozenset(names) - part for part in parts] if num_parts > 2 else []
        slow = next((part for part in (*parts, *rests) if is_slow(part)), None)
        if slow is not None:
            num_parts = 2 if slow in parts else max(num_parts - 1, 2)
            names = [name for name in names if name in slow]
        elif num_parts < len(names):
            num_parts = min(2 * num_parts, len(names))
        else:
            break
    return frozenset((name,) for name in names)


def plackett_burman(world: World) -> Found:
    """12 runs once, then the model of up to two terms that explains them best."""
    row = np.array([sign == "+" for sign in PLACKETT_BURMAN])
    design = np.array([*(np.roll(row, turn) for turn in range(len(row))), np.zeros_like(row)])
    return _screened(world, design[:, : len(TOGGLES)])


def fractional_factorial(world: World) -> Found:
    """The 16 runs of 2^(8−4), resolution IV, twice."""
    full = hadamard(16)[:, [1, 2, 4, 8]]
    columns = dict(zip("abcd", full.T, strict=True))
    products = [np.prod([columns[letter] for letter in letters], axis=0) for letters in GENERATORS]
    return _screened(world, np.tile(np.column_stack([full, *products]) > 0, (2, 1)))


COMMIT_METHODS: dict[str, Method] = {
    "asv_find": asv_find,
    "git_bisect": git_bisect,
    "git_bisect_median_5": git_bisect_5,
    "git_bayesect": git_bayesect,
}
TOGGLE_METHODS: dict[str, Method] = {
    "one_at_a_time": one_at_a_time,
    "leave_one_out": leave_one_out,
    "ddmin": ddmin,
    "plackett_burman": plackett_burman,
    "fractional_factorial": fractional_factorial,
}


@dataclass(frozen=True, kw_only=True)
class Model:
    """One that may explain the runs of a design."""

    terms: tuple[int, ...]
    """Toggles first, then pairs."""
    columns: Floats
    """(num_runs, 1 + num_terms), the level first."""
    inverse: Floats
    """(1 + num_terms, num_runs)."""

    def score(self, values: Floats, large: float) -> float:
        """The extended BIC (Chen and Chen 2008); infinite where a term is worth less than *large*."""
        fitted = self.inverse @ values
        if (np.abs(fitted[1:]) < large).any():
            return math.inf
        num, left = len(values), float(((values - self.columns @ fitted) ** 2).sum())
        penalty = math.log(num) + 2 * math.log(len(_term_names()))
        return num * math.log(max(left, 1e-12) / num) + len(self.terms) * penalty


def _line(world: World) -> list[str]:
    """All commits, the good one first."""
    return list(world.space.candidates(()))


def _border(world: World) -> float:
    return (world.level(world.space.good) + world.level(world.space.bad)) / 2


def _cell(world: World, names: set[str] | frozenset[str]) -> str:
    return world.space.cell(names)


def _means(world: World, cells: Sequence[str]) -> Floats:
    """Each cell `NUM_REPEATS` times, in a random order, so that drift is no toggle's fault."""
    order = world.rng.permutation(np.repeat(np.arange(len(cells)), NUM_REPEATS))
    sums = np.zeros(len(cells))
    for place in order:
        sums[place] += world.measure(cells[place])
    return sums / NUM_REPEATS


def _worth(world: World, costs: dict[str, float]) -> Found:
    drop = world.level(world.space.good) - world.level(world.space.bad)
    return frozenset((name,) for name, cost in costs.items() if cost > SHARE * drop)


def _bernoulli_posterior(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Of each culprit: its probability, and how often a cell is then called slow from it on, and before it."""
    good, bad = counts.cumsum(axis=1)
    good_before, bad_before = good[:-1], bad[:-1]
    good_after, bad_after = good[-1] - good_before, bad[-1] - bad_before
    # The prior's own constant is the same for all.
    score = betaln(PRIOR + bad_after, PRIOR + good_after) + betaln(PRIOR + bad_before, PRIOR + good_before)
    weights = np.exp(score - score.max())
    slow_after = (PRIOR + bad_after) / (2 * PRIOR + bad_after + good_after)
    slow_before = (PRIOR + bad_before) / (2 * PRIOR + bad_before + good_before)
    return weights / weights.sum(), slow_after, slow_before


def _least_entropy(posterior: Floats, slow_after: Floats, slow_before: Floats) -> int:
    """The cell after whose next window the entropy is expected to be least; of equals, the one in the middle."""
    num = len(posterior)
    # (cell, culprit): cell j is slow under culprit k where j > k.
    is_after = np.arange(num + 1)[:, None] > np.arange(num)[None, :]
    slow = np.where(is_after, slow_after, slow_before) * posterior
    expected = _spread(slow) + _spread(posterior - slow)
    equal = np.flatnonzero(expected <= expected.min() + 1e-12)
    return int(equal[np.argmin(np.abs(equal - num // 2))])


def _spread(weights: Floats) -> Floats:
    """Entropy of each row once it is normalised, times its sum."""
    total = weights.sum(axis=1)
    terms = np.where(weights > 0, weights * np.log(np.maximum(weights, np.finfo(float).tiny)), 0.0)
    spread: Floats = total * np.log(np.maximum(total, np.finfo(float).tiny)) - terms.sum(axis=1)
    return spread


def _screened(world: World, design: Floats) -> Found:
    """Measure the runs in a random order, and name the terms of the model that explains them best."""
    order = world.rng.permutation(len(design))
    values = np.zeros(len(design))
    for run in order:
        values[run] = world.measure(_cell(world, {name for name, bad in zip(TOGGLES, design[run], strict=True) if bad}))
    large = SHARE * (world.level(world.space.good) - world.level(world.space.bad))
    best = min(_models(design.tobytes(), len(design)), key=lambda model: model.score(values, large))
    return frozenset(_term_names()[term] for term in best.terms)


@cache
def _term_names() -> tuple[Term, ...]:
    return (*((name,) for name in TOGGLES), *combinations(TOGGLES, 2))


@cache
def _models(raw: bytes, num_runs: int) -> tuple[Model, ...]:
    """All with up to two terms."""
    mains = np.frombuffer(raw, dtype=bool).reshape(num_runs, -1).astype(float)
    place = {name: index for index, name in enumerate(TOGGLES)}
    pool = np.column_stack([mains[:, [place[name] for name in term]].prod(axis=1) for term in _term_names()])
    chosen = [terms for size in range(NUM_MODEL_TERMS + 1) for terms in combinations(range(pool.shape[1]), size)]
    designs = [np.column_stack([np.ones(num_runs), pool[:, list(terms)]]) for terms in chosen]
    # Two terms that are one in this design share what they are worth.
    return tuple(
        Model(terms=terms, columns=columns, inverse=np.linalg.pinv(columns))
        for terms, columns in zip(chosen, designs, strict=True)
    )
