"""
Where a series of runs begins another level of tok/s: circular binary segmentation with a permutation test.

Each stretch of the series is asked for the arc that stands out most from the rest of it: a step (an arc that reaches an
end) or a dip (one that does not). How far an arc stands out by chance is learnt from the same points in other orders,
so nothing is assumed of the noise but that the order carries no information. What is found splits the stretch, and
each part is asked again. `ruptures` has no such test: its penalty must be tuned by the noise that we do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Arcs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]

STEP_ALPHA = 0.005
"""Of the permutation test for a step."""
DIP_ALPHA = 0.002
"""Of the one for a dip, which comes second: of flat series, the sum of both gets a change point at most."""
NUM_ORDERS = 999
CHUNK_FLOATS = 2_000_000
"""Orders are tried in chunks of this many arcs, 16 MB."""
MAX_SD = 10.0
"""A run's own noise that is larger says no more."""
MIN_POINTS = 2
"""Of a level: one odd run is no new level."""
MAX_POINTS = 400
"""The newest of a longer series: arcs grow with its square, and 400 points take about a second a change."""


def change_points(log_rates: Sequence[float], sds: Sequence[float], rng: np.random.Generator) -> tuple[int, ...]:
    """
    Indices at which another level begins, in order.

    Args:
        log_rates: Natural log of tok/s, one a run, by time.
        sds: What each run's own interval says of its noise, a share of tok/s; noise between launches comes on top and
            is estimated from the series.
        rng: For the orders that are tried.

    Assumes: runs of one level are exchangeable. A slow drift is found as steps.
    Source: Olshen, Venkatraman, Lucito and Wigler, Biostatistics 5 (2004), 557–572, for arcs and permutations.
    Calibration: tests/flashprof/stats/test_change_points.py.
    """
    skipped = max(0, len(log_rates) - MAX_POINTS)
    values = np.asarray(log_rates[skipped:], dtype=float)
    weights = _weights(values, np.asarray(sds[skipped:], dtype=float))
    stretches, found = [(0, len(values))], set[int]()
    while stretches:
        start, end = stretches.pop()
        ends = _best_arc(values[start:end], weights[start:end], rng)
        inner = {start + end_ for end_ in ends}
        if inner:
            found |= inner
            stretches += list(pairwise(sorted({start, *inner, end})))
    return tuple(skipped + index for index in sorted(found))


def _weights(values: Floats, sds: Floats) -> Floats:
    """Inverse variances up to a factor: each run's own noise, and as much between launches as neighbours differ."""
    if len(values) < 2 * MIN_POINTS:
        return np.ones_like(values)
    # Neighbours differ by noise alone, but for the few at a step; 0.954 = √2 × 0.6745 for the normal distribution.
    noise_sd = float(np.median(np.abs(np.diff(values)))) / 0.954
    own = np.clip(np.where(np.isfinite(sds), sds, 0.0), 0.0, MAX_SD) ** 2
    return 1.0 / (max(noise_sd**2 - float(np.median(own)), noise_sd**2 / 4, 1e-12) + own)


def _best_arc(values: Floats, weights: Floats, rng: np.random.Generator) -> tuple[int, ...]:
    """Inner ends of the arc that stands out most; empty where such arcs are found in shuffled points, too."""
    if len(values) < 2 * MIN_POINTS or np.ptp(values) == 0:
        return ()
    starts, ends = _arcs(len(values))
    is_step = ends == len(values)
    for kept, alpha in ((is_step, STEP_ALPHA), (~is_step, DIP_ALPHA)):
        arcs = (starts[kept], ends[kept])
        best = _outstanding(values, weights, arcs, alpha, rng)
        if best is not None:
            return tuple(int(end[best]) for end in arcs if 0 < end[best] < len(values))
    return ()


def _outstanding(values: Floats, weights: Floats, arcs: Arcs, alpha: float, rng: np.random.Generator) -> int | None:
    """Number of the arc with the best score; None where shuffled points have as good a one too often."""
    if not len(arcs[0]):
        return None
    scores = _scores(values[None], weights[None], arcs)[0]
    best = int(np.argmax(scores))
    allowed = int(alpha * (NUM_ORDERS + 1)) - 1
    num_above = num_tried = 0
    chunk = max(1, min(50, CHUNK_FLOATS // len(arcs[0])))
    while num_tried < NUM_ORDERS:
        orders = rng.permuted(np.tile(np.arange(len(values)), (min(chunk, NUM_ORDERS - num_tried), 1)), axis=1)
        num_tried += len(orders)
        shuffled = _scores(values[orders], weights[orders], arcs).max(axis=1)
        # Rounding: an order that gives the same groups must count as one that is as good.
        num_above += int(np.sum(shuffled >= scores[best] * (1 - 1e-9)))
        if num_above > allowed:
            return None
    return best


def _arcs(num: int) -> Arcs:
    """Starts and ends of all arcs that leave no level of fewer than `MIN_POINTS`; a step once, as the arc behind it."""
    starts, ends = np.triu_indices(num + 1, k=MIN_POINTS)
    kept = (starts >= MIN_POINTS) & ((ends == num) | (ends <= num - MIN_POINTS))
    return starts[kept], ends[kept]


def _scores(values_ON: Floats, weights_ON: Floats, arcs: Arcs) -> Floats:
    """Squares between an arc and the rest, orders × arcs; those within follow, since their sum is the same for all."""
    total_O1 = weights_ON.sum(axis=1, keepdims=True)
    centred_ON = values_ON - (weights_ON * values_ON).sum(axis=1, keepdims=True) / total_O1
    zero_O1 = np.zeros_like(total_O1)
    sums = np.concatenate([zero_O1, np.cumsum(weights_ON * centred_ON, axis=1)], axis=1)
    masses = np.concatenate([zero_O1, np.cumsum(weights_ON, axis=1)], axis=1)
    mass_OA = masses[:, arcs[1]] - masses[:, arcs[0]]
    between: Floats = (sums[:, arcs[1]] - sums[:, arcs[0]]) ** 2 / (mass_OA * (1 - mass_OA / total_O1))
    return between
