"""
What a window's batches were made of, taken out of its tok/s. Pure.

Batches differ, and that is most of the noise of a short window: on the tiny preset the log time per token of a step
has a standard deviation of 9.3 %, and 4.7 % once the step's time is regressed on its tokens.

The model is a step's time = fixed + per token × tokens (+ per padding token × padding, where it earns its place).
It is fitted on the steps of all cells with an own fixed part for each, so that a difference between cells does not
pass for one of batches; what is taken out of a window is what its batches alone explain, by one model for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashprof.contracts.events import Step
from flashprof.stats.settle import LOG_STANDSTILL
from flashprof.windows.switches import HotWindow

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

MIN_STEPS = 30
MAX_DEVIATIONS = 4.0
"""Robust standard deviations; steps beyond it fit no better, and a few of them bend the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What a step takes, by what its batch is made of."""

    fixed_s: float
    per_token_s: float
    per_padding_s: float

    def expected_s(self, steps: Sequence[Step]) -> NDArray[float64]:
        """Expected length of each step, in seconds."""
        import numpy as np

        tokens = np.array([step.num_tokens for step in steps], dtype=np.float64)
        padding = np.array([step.num_padding_tokens for step in steps], dtype=np.float64)
        expected: NDArray[float64] = self.fixed_s + self.per_token_s * tokens + self.per_padding_s * padding
        return expected


def adjusted_log_rates(
    windows: Sequence[HotWindow], also: Sequence[HotWindow] = (), *, typical: Sequence[Step] = ()
) -> tuple[float, ...]:
    """
    Log tok/s of each window as if all had been made of the same batches.

    Args:
        windows: Of one launch, all cells.
        also: More steady stretches of that launch, for the fit only.
        typical: Steps whose composition sets the level; none: the windows' own. Rates that are judged as they come
            need one level for all, those of one block none.

    Returns:
        As many; the level is that of the typical composition. As measured where no model can be fitted:
        fewer than 30 steps, batches that are all alike, or a model that makes some window 4 times as dear as another.
    """
    import numpy as np

    measured = tuple(window.log_tok_per_s for window in windows)
    cost = fit_step_cost([*windows, *also])
    if cost is None:
        return measured
    tokens = np.array([window.num_tokens for window in windows], dtype=np.float64)
    expected_s = np.array([cost.expected_s(window.steps).sum() for window in windows])
    if not (expected_s > 0).all():
        return measured
    level = np.log(tokens.sum() / expected_s.sum())
    if typical:
        typical_s = cost.expected_s(typical).sum()
        if not typical_s > 0:
            return measured
        level = np.log(sum(step.num_tokens for step in typical) / typical_s)
    explained = np.log(tokens / expected_s) - level
    if np.abs(explained).max() > LOG_STANDSTILL:
        return measured
    return tuple((np.array(measured) - explained).tolist())


def log_excess(stretch: HotWindow, cost: StepCost | None) -> list[float]:
    """Log of each step's length over what its batch explains, or over its tokens; empty where that is nothing."""
    import numpy as np

    expected = np.array([step.num_tokens for step in stretch.steps], dtype=np.float64)
    if cost is not None and (cost.expected_s(stretch.steps) > 0).all():
        expected = cost.expected_s(stretch.steps)
    lengths_s = np.array(stretch.lengths_ns) / 1e9
    if not ((expected > 0).all() and (lengths_s > 0).all()):
        return []
    excess: list[float] = np.log(lengths_s / expected).tolist()
    return excess


def fit_step_cost(stretches: Sequence[HotWindow]) -> StepCost | None:
    """The model, fitted by least squares without standstills and outliers; None where there is none to be had."""
    import numpy as np

    places = {cell: place for place, cell in enumerate(sorted({stretch.switch.cell for stretch in stretches}))}
    rows = [
        (length_ns / 1e9, step.num_tokens, step.num_padding_tokens, places[stretch.switch.cell])
        for stretch in stretches
        for length_ns, step in zip(stretch.lengths_ns, stretch.steps, strict=True)
        if length_ns > 0 and step.num_tokens > 0
    ]
    data = np.array(rows, dtype=np.float64).reshape(-1, 4)
    log_time = np.log(data[:, 0] / data[:, 1])
    data = data[np.abs(log_time - np.median(log_time)) <= LOG_STANDSTILL] if len(data) else data
    for _ in range(2):
        if len(data) < MIN_STEPS or np.ptp(data[:, 1]) == 0:
            return None
        data = data[_is_inlier(data[:, 0] - _design(data) @ _least_squares(data))]
    return None if len(data) < MIN_STEPS else _cost(data)


def _cost(data: NDArray[float64]) -> StepCost:
    plain, padded = _least_squares(data), _least_squares(data, with_padding=True)
    earns = _bic(data, padded, with_padding=True) < _bic(data, plain)
    chosen = padded if earns else plain
    num_cells = len(_cells(data))
    return StepCost(
        fixed_s=float(chosen[:num_cells].mean()),
        per_token_s=float(chosen[num_cells]),
        per_padding_s=float(chosen[num_cells + 1]) if earns else 0.0,
    )


def _cells(data: NDArray[float64]) -> list[float]:
    return sorted(set(data[:, 3].tolist()))


def _design(data: NDArray[float64], *, with_padding: bool = False) -> NDArray[float64]:
    """One column a cell that has steps, then tokens, then padding."""
    import numpy as np

    columns = [*((data[:, 3] == cell).astype(np.float64) for cell in _cells(data)), data[:, 1]]
    return np.column_stack([*columns, data[:, 2]] if with_padding else columns)


def _least_squares(data: NDArray[float64], *, with_padding: bool = False) -> NDArray[float64]:
    import numpy as np

    solution = np.linalg.lstsq(_design(data, with_padding=with_padding), data[:, 0], rcond=None)[0]
    return np.asarray(solution, dtype=np.float64)


def _bic(data: NDArray[float64], solution: NDArray[float64], *, with_padding: bool = False) -> float:
    """Bayesian information criterion; a tiny floor keeps a perfect fit finite."""
    import numpy as np

    rest = data[:, 0] - _design(data, with_padding=with_padding) @ solution
    mean_square = float(np.mean(rest**2)) + (1e-9 * float(np.median(data[:, 0]))) ** 2
    return len(data) * math.log(mean_square) + len(solution) * math.log(len(data))


def _is_inlier(rest: NDArray[float64]) -> NDArray[bool_]:
    import numpy as np

    scale = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    inlier: NDArray[bool_] = np.abs(rest - np.median(rest)) <= MAX_DEVIATIONS * scale
    return inlier
