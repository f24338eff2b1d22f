"""
Trials cut from what `benchmarks.calibration_lane` recorded, each judged by FlashProf and by two plainer methods. Pure.

A trial is a stretch of blocks as they were measured: one looks after every block and stops when the answer is clear or
the trial's time is up, and the next trial begins where this one ended. A lane's launches follow each other, as in a
study that is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

from flashprof.contracts.comparison import Arm, Block, Comparison, DecisionRule, Method, Verdict
from flashprof.stats.compare import compare_blocks

T_ALPHA = 0.01
"""As strict as FlashProf: what remains is that it looks often, and takes windows for independent."""
MIN_T_WINDOWS = 4


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One block and its windows."""

    block: Block
    base: tuple[float, ...]
    """log tok/s of the base's windows, in the order of time."""
    candidate: tuple[float, ...]
    start_s: float
    """Of its first window."""
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One comparison."""

    comparison: Comparison
    num_blocks: int
    spent_s: float
    t_test: Verdict
    """Welch's t-test on windows, looked at after every block until it was clear, on the same blocks."""
    before_after: Verdict
    """The same windows in the order of time, the planted slow-down in the later half: means compared."""
    before_after_t: Verdict
    """The t-test once, at the end, on those halves."""

    @property
    def is_found(self) -> bool:
        """Whether a regression was called."""
        return self.comparison.verdict is Verdict.REGRESSION

    @property
    def is_alarm(self) -> bool:
        """Whether any difference was called, were there none."""
        return self.is_found or self.comparison.deciding.low > 0

    def covers(self, effect: float) -> bool:
        """Whether the stated interval holds *effect*."""
        return self.comparison.effect.low <= effect <= self.comparison.effect.high


def read_blocks(lane: Mapping[str, Any]) -> list[Recorded]:
    """All blocks of a lane that count, in the order of time, numbered through."""
    found = []
    for launch in lane["launches"]:
        windows: dict[int, list[dict[str, Any]]] = {}
        for window in launch["windows"]:
            windows.setdefault(window["block"], []).append(window)
        for raw in launch["blocks"]:
            own = sorted(windows[raw["number"]], key=lambda window: window["start_ns"])
            block = Block(**{**raw, "method": Method.HOT, "number": len(found) + 1, "launches": tuple(raw["launches"])})
            if block.disturbances:
                continue
            rates = {arm: tuple(w["log_tok_per_s"] for w in own if w["arm"] == arm) for arm in Arm}
            found.append(
                Recorded(
                    block=block,
                    base=rates[Arm.BASE],
                    candidate=rates[Arm.CANDIDATE],
                    start_s=own[0]["start_ns"] / 1e9,
                    end_s=own[-1]["end_ns"] / 1e9,
                )
            )
    return found


def cut_trials(blocks: Sequence[Recorded], rule: DecisionRule, *, planted: float) -> Iterator[Trial]:
    """
    Trials one after the other; the last, which the lane's end cuts off, is left out.

    Args:
        blocks: Of a lane.
        rule: When a trial is clear, and its budget.
        planted: Share of tok/s that the candidate lacks, known: the plainer methods need the base's own windows.
    """
    first = 0
    while first < len(blocks):
        length = _length(blocks[first:], rule)
        if length is None:
            return
        yield _trial(blocks[first : first + length], rule, planted)
        first += length


def simulate(
    draws: Iterable[Sequence[float]], rule: DecisionRule, *, shift: float = 0.0, block_s: float = 4.0
) -> Iterator[Comparison]:
    """Comparisons of drawn block differences, looked at after every one until clear or at their end."""
    for differences in draws:
        blocks: list[Block] = []
        comparison = None
        for number, difference in enumerate(differences, start=1):
            order = "ABBA" if number % 2 else "BAAB"
            blocks.append(_block(number, order, difference + shift, block_s))
            comparison = compare_blocks(blocks, rule, spent_s=number * block_s)
            if comparison.verdict is not Verdict.INCONCLUSIVE:
                break
        assert comparison is not None
        yield comparison


def step_differences(steps: np.ndarray, rng: np.random.Generator, *, num_blocks: int) -> list[float] | None:
    """
    Block differences of an A/A comparison, cut from a recorded series of steps at a random place.

    Args:
        steps: (num_steps, 2): seconds and tokens of each.
        rng: Draws the place and the orders.
        num_blocks: Of the comparison.

    Returns:
        None where the series is too short.
    """
    steps_a_block = 4 * (4 + 1)
    room = len(steps) - num_blocks * steps_a_block
    if room < 0:
        return None
    first = int(rng.integers(room + 1))
    design = np.column_stack([np.ones(len(steps)), steps[:, 1]])
    expected_s = design @ np.linalg.lstsq(design, steps[:, 0], rcond=None)[0]
    differences = []
    for number in range(num_blocks):
        at = first + number * steps_a_block
        rates = []
        for window in range(4):
            inside = slice(at + 5 * window + 1, at + 5 * window + 5)
            rates.append(math.log(expected_s[inside].sum() / steps[inside, 0].sum()))
        differences.append((rates[1] + rates[2] - rates[0] - rates[3]) / 2)
    # One coin for two blocks, the second turned round: `decide.orders`.
    coins = np.repeat(rng.choice([-1.0, 1.0], size=(num_blocks + 1) // 2), 2)[:num_blocks]
    turned = np.where(np.arange(num_blocks) % 2 == 1, -coins, coins)
    return [float(value) for value in turned * np.array(differences)]


def _length(blocks: Sequence[Recorded], rule: DecisionRule) -> int | None:
    for num in range(2, len(blocks) + 1):
        seen = blocks[:num]
        if compare_blocks([item.block for item in seen], rule, spent_s=0.0).verdict is not Verdict.INCONCLUSIVE:
            return num
        if _spent_s(seen) >= rule.budget_s:
            return num
    return None


def _trial(blocks: Sequence[Recorded], rule: DecisionRule, planted: float) -> Trial:
    spent_s = _spent_s(blocks)
    halves = _halves(blocks, math.log1p(-planted))
    return Trial(
        comparison=compare_blocks([item.block for item in blocks], rule, spent_s=spent_s),
        num_blocks=len(blocks),
        spent_s=spent_s,
        t_test=_peeking_t_test(blocks),
        before_after=_by_means(*halves, tolerance=rule.tolerance),
        before_after_t=_welch(*halves),
    )


def _spent_s(blocks: Sequence[Recorded]) -> float:
    """Seconds in blocks, and from one to the next; from launch to launch nothing, since start-up is told apart."""
    spent_s = 0.0
    for before, item in zip([None, *blocks[:-1]], blocks, strict=True):
        is_next = before is not None and before.block.launches == item.block.launches
        spent_s += item.end_s - (before.end_s if is_next and before is not None else item.start_s)
    return spent_s


def _halves(blocks: Sequence[Recorded], shift: float) -> tuple[list[float], list[float]]:
    """All windows as if of the base, the later half as slow as was planted."""
    plain = [rate for item in blocks for rate in _in_time(item, shift)]
    half = len(plain) // 2
    return plain[:half], [rate + shift for rate in plain[half:]]


def _in_time(item: Recorded, shift: float) -> Iterator[float]:
    rates = {"A": iter(item.base), "B": iter([rate - shift for rate in item.candidate])}
    return (next(rates[letter]) for letter in item.block.order)


def _peeking_t_test(blocks: Sequence[Recorded]) -> Verdict:
    base: list[float] = []
    candidate: list[float] = []
    for item in blocks:
        base += item.base
        candidate += item.candidate
        verdict = _welch(base, candidate)
        if verdict is not Verdict.INCONCLUSIVE:
            return verdict
    return Verdict.INCONCLUSIVE


def _welch(base: Sequence[float], candidate: Sequence[float]) -> Verdict:
    """A difference in either direction is a call; NO_REGRESSION stands for a gain."""
    if min(len(base), len(candidate)) < MIN_T_WINDOWS:
        return Verdict.INCONCLUSIVE
    result = stats.ttest_ind(candidate, base, equal_var=False)
    if result.pvalue >= T_ALPHA:
        return Verdict.INCONCLUSIVE
    return Verdict.REGRESSION if result.statistic < 0 else Verdict.NO_REGRESSION


def _by_means(base: Sequence[float], candidate: Sequence[float], *, tolerance: float) -> Verdict:
    """What is done by hand: slower by more than the tolerance is slower."""
    difference = fmean(candidate) - fmean(base)
    if abs(difference) <= -math.log1p(-tolerance):
        return Verdict.INCONCLUSIVE
    return Verdict.REGRESSION if difference < 0 else Verdict.NO_REGRESSION


def _block(number: int, order: str, difference: float, block_s: float) -> Block:
    return Block(
        number=number,
        method=Method.HOT,
        order=order,
        launches=("simulated",),
        site="",
        difference=difference,
        base_log_tok_per_s=0.0,
        num_windows=4,
        length_s=block_s,
    )
