"""What a search will cost, told before it starts. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashprof.decide.search_state import SearchPlan

WINDOWS, PROOF_BLOCKS, PAIRS = 24, 5, 5
"""What one culprit of 17 % takes at a noise of 2 to 5 %: windows of search, blocks of four a switch, pairs of both."""
NUM_PROOFS = 2
"""Of a culprit: alone in the good cell, and switched back in the bad one."""
NOISE_FACTOR = 1.5
"""Cells that a search looks at, over what halving would: simulated, 1.2 at 1 % between launches and 1.8 at 4 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEstimate:
    """Seconds, for one culprit."""

    search_s: float
    proof_s: float
    confirm_s: float


def cell_s(plan: SearchPlan) -> float:
    """One cell with a launch of its own."""
    return plan.costs.start_s + plan.num_windows_cold * plan.costs.window_s + plan.costs.build_s


def estimate(plan: SearchPlan) -> SearchEstimate:
    """About what the search, its proof and its confirmation take."""
    pairs_s = PAIRS * 2 * cell_s(plan)
    if plan.is_hot:
        visit_s = plan.costs.window_s + plan.costs.switch_s
        return SearchEstimate(
            search_s=plan.costs.start_s + WINDOWS * visit_s,
            proof_s=NUM_PROOFS * PROOF_BLOCKS * 4 * visit_s,
            confirm_s=pairs_s if plan.confirm else 0.0,
        )
    num_cells = 2 + math.ceil(NOISE_FACTOR * math.log2(1 + len(plan.space.candidates(()))))
    return SearchEstimate(search_s=num_cells * cell_s(plan), proof_s=pairs_s, confirm_s=0.0)
