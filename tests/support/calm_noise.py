"""A/A launches with noise of known components, and a judge that is simple enough to be checked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from flashprof.contracts.comparison import Arm, ArmWindow, Block, Comparison, DecisionRule, Method, Verdict
from flashprof.contracts.results import Interval
from flashprof.stats.noise import MeasuredLaunch

WINDOW_S = 1.0
GAP_S = 0.2
ORDERS = ("ABBA", "BAAB")


def launch(
    rng: np.random.Generator,
    *,
    name: str = "a",
    num_blocks: int = 40,
    level: float = 9.0,
    window_sd: float = 0.01,
    drift_per_min: float = 0.0,
    is_whole: bool = True,
) -> MeasuredLaunch:
    """Windows of 1 s, 0.2 s apart, around a level that drifts."""
    windows = []
    for index in range(4 * num_blocks):
        start_s = index * (WINDOW_S + GAP_S)
        rate = level + drift_per_min * start_s / 60 + rng.normal(0, window_sd)
        order = ORDERS[index // 4 % 2]
        windows.append(
            ArmWindow(
                arm=Arm.BASE if order[index % 4] == "A" else Arm.CANDIDATE,
                launch=name,
                block=index // 4 + 1,
                position=index % 4,
                start_ns=round(start_s * 1e9),
                end_ns=round((start_s + WINDOW_S) * 1e9),
                num_steps=10,
                num_tokens=10_000,
                log_tok_per_s=float(rate),
            )
        )
    return MeasuredLaunch(
        launch=name,
        windows=tuple(windows),
        blocks=blocks_of(windows),
        step_ends_ns=(),
        step_tokens=(),
        begin_ns=round(-20e9),
        length_s=num_blocks * 4 * (WINDOW_S + GAP_S) + 20,
        startup_s=8.0,
        is_whole=is_whole,
    )


def blocks_of(windows: Sequence[ArmWindow]) -> tuple[Block, ...]:
    """Four windows a block, the difference of their arms' means."""
    blocks = []
    for start in range(0, len(windows), 4):
        four = windows[start : start + 4]
        sides = {arm: [w.log_tok_per_s for w in four if w.arm is arm] for arm in Arm}
        blocks.append(
            block(
                float(np.mean(sides[Arm.CANDIDATE]) - np.mean(sides[Arm.BASE])),
                number=four[0].block,
                length_s=4 * (WINDOW_S + GAP_S),
                launch=four[0].launch,
            )
        )
    return tuple(blocks)


def block(
    difference: float,
    *,
    number: int = 1,
    length_s: float = 5.0,
    launch: str = "a",
    disturbances: tuple[str, ...] = (),
) -> Block:
    """A hot block."""
    return Block(
        number=number,
        method=Method.HOT,
        order="ABBA",
        launches=(launch,),
        site="here",
        difference=difference,
        base_log_tok_per_s=9.0,
        num_windows=4,
        length_s=length_s,
        disturbances=disturbances,
    )


def z_judge(blocks: Sequence[Block], rule: DecisionRule, *, spent_s: float) -> Comparison:
    """Known sd of 1 % a block: the mean ± 2 standard errors states, ± 4 decides."""
    mean = fmean(item.difference for item in blocks)
    error = 0.01 / math.sqrt(len(blocks))
    effect, deciding = (
        Interval(
            estimate=math.expm1(mean),
            low=math.expm1(mean - width * error),
            high=math.expm1(mean + width * error),
            level=0.95,
            num_samples=len(blocks),
            method="z",
        )
        for width in (2, 4)
    )
    verdict = Verdict.INCONCLUSIVE
    if deciding.low > -rule.tolerance:
        verdict = Verdict.NO_REGRESSION
    elif deciding.high < 0:
        verdict = Verdict.REGRESSION
    return Comparison(
        method=blocks[0].method,
        base_tok_per_s=8000.0,
        effect=effect,
        deciding=deciding,
        verdict=verdict,
        reason="",
        num_launches=1,
        num_blocks=len(blocks),
        num_windows=4 * len(blocks),
        num_left_out=0,
        spent_s=spent_s,
        to_resolve_s=None,
        rule=rule,
    )
