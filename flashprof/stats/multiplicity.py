"""
Many questions of the same blocks: which phases changed. Pure.

Looking at twenty phases at 95 % finds one that changed where none did. Phases of one block are anything but
independent (what one gains another waits for), so the procedure must hold under any dependence: e-BH
(Wang, Ramdas, "False discovery rate control with e-values", JRSS B 2022). The intervals that go with it
are e-BY's (Xu, Wang, Ramdas, "Post-selection inference for e-value based confidence intervals", 2024): with R
of m phases changed, each stands at level 1 − R · 5 % / m, and excludes 0 exactly where the phase is among the R.

Stopping is decided by tok/s, not by a phase, and then an e-value's mean of at most 1 is no theorem. Measured in
the worst case, a phase that is all of the step: 0.97 to 1.06 at the stop, over tolerances of 0.25 to 4 sd.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from flashprof.contracts.comparison import PhaseChange
from flashprof.contracts.results import Interval
from flashprof.stats.sequential import Moments, anytime_half_width, log_e_value, moments

PhaseKey = tuple[str, str, str]
"""Role, phase, kind."""

SHARE_FALSE = 0.05


def e_bh(log_e_values: Sequence[float], level: float) -> tuple[int, ...]:
    """
    Choose the hypotheses to reject, so that at most a share of *level* of them is true in expectation (e-BH).

    Args:
        log_e_values: ln E of each hypothesis; of any dependence.
        level: False discovery rate, 0 to 1.

    Returns:
        Indices, ascending: the R largest, for the largest R with E ≥ m / (level · R) for each of them.
    """
    num = len(log_e_values)
    by_size = sorted(range(num), key=lambda index: -log_e_values[index])
    bounds = [math.log(num / (level * rank)) for rank in range(1, num + 1)]
    passed = [rank for rank, index in enumerate(by_size, 1) if log_e_values[index] >= bounds[rank - 1]]
    return tuple(sorted(by_size[: max(passed, default=0)]))


def phase_changes(
    differences: Mapping[PhaseKey, Sequence[float]], base_ns_per_token: Mapping[PhaseKey, float]
) -> tuple[PhaseChange, ...]:
    """
    Say for each phase what it costs a token more or less in the candidate, and which of them changed.

    Args:
        differences: Candidate − base in ns a token, one value a block that counts; blocks of both orders.
        base_ns_per_token: Mean over the base's windows, for the same phases.

    Returns:
        One for each phase with 2 finite differences or more: changed ones first, then by size. While no phase is
        changed, intervals stand at the level of one of them.

    Calibration: tests/flashprof/stats/test_multiplicity.py.
    """
    finite = {key: values for key, values in differences.items() if all(map(math.isfinite, values))}
    data = {key: moments(values) for key, values in finite.items() if len(values) >= 2}
    rejected = e_bh([log_e_value(item) for item in data.values()], SHARE_FALSE)
    alpha = SHARE_FALSE * max(1, len(rejected)) / max(1, len(data))
    changes = [
        PhaseChange(
            role=key[0],
            phase=key[1],
            kind=key[2],
            base_ns_per_token=base_ns_per_token[key],
            difference=_interval(item, alpha),
            is_changed=index in rejected,
        )
        for index, (key, item) in enumerate(data.items())
    ]
    return tuple(sorted(changes, key=lambda change: (not change.is_changed, -abs(change.difference.estimate))))


def _interval(data: Moments, alpha: float) -> Interval:
    half = anytime_half_width(data, alpha=alpha)
    return Interval(
        estimate=data.mean,
        low=data.mean - half,
        high=data.mean + half,
        level=1 - alpha,
        num_samples=data.num,
        method="e-BY interval of the phases' confidence sequences",
    )
