"""What a drafter's step needs in floating-point operations, for the gauge `model_tflop`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.model.flop import block_pairs, drafter_flop
from pipeline.model.shape import DrafterShape
from pipeline.presets import SLIDING, DrafterPlan


@dataclass(frozen=True, kw_only=True)
class StepFlop:
    """Counts steps of one drafter."""

    shape: DrafterShape
    vocab_size: int
    plan: DrafterPlan

    def tflop(self, contexts: Sequence[int], num_tokens: int, *, all_slide: bool) -> float:
        """
        Forward and backward, 10^12 operations; 0 for a step that trained no block.

        Args:
            contexts: Tokens of its document before each block that was trained.
            num_tokens: Of context, padding excluded.
            all_slide: Toggle `swa`: no layer sees more than the window.
        """
        if not contexts:
            return 0.0
        plan = self.plan
        kinds = [SLIDING if all_slide else kind for kind in plan.layer_types]
        pairs = {
            kind: block_pairs(contexts, plan.block_size, plan.sliding_window if kind == SLIDING else None)
            for kind in set(kinds)
        }
        flop = drafter_flop(
            self.shape,
            vocab_size=self.vocab_size,
            block_size=plan.block_size,
            num_context=num_tokens,
            num_blocks=len(contexts),
            pairs=[pairs[kind] for kind in kinds],
        )
        return flop / 1e12
