"""Facts of a study, made up: blocks, launches, and a judge that needs no statistics."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from flashprof.contracts.comparison import Arm, Block, Comparison, DecisionRule, Method, Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Interval
from flashprof.decide.observations import ColdFailed, ColdLaunch, HotBlock, HotEnded, cold_run_id, hot_run_id

LEVEL = 8.0
"""Log tok/s of the base."""


def hot_block(number: int, difference: float = -0.2, *, launch: int = 1, length_s: float = 20.0) -> HotBlock:
    """A block of four windows that counts."""
    block = Block(
        number=number,
        method=Method.HOT,
        order="ABBA",
        launches=(hot_run_id(launch),),
        site="here",
        difference=difference,
        base_log_tok_per_s=LEVEL,
        num_windows=4,
        length_s=length_s,
    )
    return HotBlock(block=block)


def hot_ended(launch: int = 1, outcome: Outcome = Outcome.COMPLETED, *, length_s: float = 60.0) -> HotEnded:
    return HotEnded(run_id=hot_run_id(launch), outcome=outcome, reason="So it was.", length_s=length_s)


def cold_launch(
    arm: Arm, block: int, log_tok_per_s: float = LEVEL, *, attempt: int = 1, site: str = "here", length_s: float = 50.0
) -> ColdLaunch:
    return ColdLaunch(
        arm=arm,
        block=block,
        run_id=cold_run_id(block, arm, attempt),
        site=site,
        log_tok_per_s=log_tok_per_s,
        num_windows=5,
        length_s=length_s,
    )


def cold_pair(block: int, difference: float = -0.2, *, site: str = "here") -> list[ColdLaunch]:
    values = {Arm.BASE: LEVEL, Arm.CANDIDATE: LEVEL + difference}
    return [cold_launch(arm, block, value, site=site) for arm, value in values.items()]


def cold_failed(
    arm: Arm, block: int, outcome: Outcome, *, attempt: int = 1, reason: str = "So it was.", length_s: float = 10.0
) -> ColdFailed:
    run_id = cold_run_id(block, arm, attempt)
    return ColdFailed(arm=arm, block=block, run_id=run_id, outcome=outcome, reason=reason, length_s=length_s)


def judge(blocks: Sequence[Block], rule: DecisionRule, spent_s: float) -> Comparison:
    """Three blocks are clear, unless their mean lies between −5 % and minus the tolerance."""
    assert blocks
    assert 1 == len({block.method for block in blocks})
    counted = [block.difference for block in blocks if not block.disturbances]
    mean = fmean(counted) if counted else 0.0
    verdict = Verdict.REGRESSION if mean < -0.05 else Verdict.NO_REGRESSION
    if len(counted) < 3 or -0.05 <= mean <= -rule.tolerance:
        verdict = Verdict.INCONCLUSIVE
    interval = Interval(estimate=mean, low=mean, high=mean, level=0.95, num_samples=len(counted), method="made up")
    return Comparison(
        method=blocks[0].method,
        base_tok_per_s=1000.0,
        effect=interval,
        deciding=interval,
        verdict=verdict,
        reason="made up",
        num_launches=1,
        num_blocks=len(counted),
        num_windows=4 * len(counted),
        num_left_out=len(blocks) - len(counted),
        spent_s=spent_s,
        to_resolve_s=None,
        rule=rule,
    )
