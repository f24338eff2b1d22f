"""A preset that fits a drafter which somebody has trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashprof.contracts.errors import UsageError
from pipeline.presets import Preset


def warmed(preset: Preset, folder: Path, *, mask_token_id: int | None = None) -> Preset:
    """
    *preset* with the layers, block size, taps and mask token of the drafter in *folder*.

    Args:
        preset: As the options have made it.
        folder: In z-lab's layout.
        mask_token_id: That the user asked for.

    Raises:
        FormatError: No drafter in z-lab's layout.
        UsageError: A drafter of an architecture that this trainer does not have, or of another mask token.
    """
    from pipeline.checkpoint.zlab import read_plan

    plan = read_plan(folder)
    if mask_token_id not in (None, plan.mask_token_id):
        raise UsageError(
            "the drafter of --warm-start was trained with another mask token",
            where=str(folder / "config.json"),
            offered=f"--mask-token-id {mask_token_id}",
            allowed=str(plan.mask_token_id),
            next_command="leave out --mask-token-id",
        )
    drafter = replace(
        preset.drafter,
        layer_types=plan.layer_types,
        sliding_window=plan.sliding_window or preset.drafter.sliding_window,
        block_size=plan.block_size,
        tapped_layers=plan.layer_ids,
    )
    return replace(preset, drafter=drafter, target=replace(preset.target, mask_token_id=plan.mask_token_id))
